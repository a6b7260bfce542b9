"""Descriptions of a population: counts, means, spreads, histograms, quantiles, Table 1, covariances and
correlations, PCA.

Not here: comparisons of groups (`compare`), and many tables at once (`tables`).
"""
