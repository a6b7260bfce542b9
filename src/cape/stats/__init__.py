"""Statistics of noisy numbers, as pure functions: estimates and their intervals, the distribution of noise,
tests, proportions, moments, differences between groups, hierarchical counts, meta-analysis, mixtures; the
choice of caps for columns and of bounds for scores; Newton steps of a regression, and where they have no end
(separation).

Not here: schemas, queries, sites, or anything with a sensitivity; what one analysis alone computes from its
answers and nobody would look for by itself, which is in its family (`analyses`); clipping of rows (`blocks`).
It imports numpy, scipy and `cape.core`.
"""
