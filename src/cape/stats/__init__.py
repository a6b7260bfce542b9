"""Statistics of noisy numbers, as pure functions: estimates and their intervals, the law of noise, tests,
proportions, moments, trees of counts, meta-analysis, mixtures; where columns are capped and scores clipped,
and the steps of a regression.

Not here: schemas, queries, sites, or anything with a sensitivity. It imports numpy, scipy and `cape.core`;
what only one analysis computes is in its family (`analyses`).
"""
