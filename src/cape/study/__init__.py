"""The study file: analyses, sites, schema and budget, in a form that an ethics board can read; its hash,
its draft, rows for a rehearsal.

Not here: the run of a study (`app`, `coordinator`), and what a site makes of one (`site`).
"""

from cape.study.study import BetterNoise, Entry, Study

__all__ = ["BetterNoise", "Entry", "Study"]
