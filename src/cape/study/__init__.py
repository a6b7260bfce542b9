"""The study file: analyses, sites and budget, in a form that an ethics board can read."""

from cape.study.study import BetterNoise, Entry, Study

__all__ = ["BetterNoise", "Entry", "Study"]
