"""The study file: what is asked of whom, at which price, in a form that an ethics board can read."""

from cape.study.study import Entry, Study

__all__ = ["Entry", "Study"]
