"""Descriptions of a population: counts, means, spreads, histograms, quantiles, Table 1, correlations, PCA.

What compares groups has its family (`compare`).
"""
