"""Statistics of noisy numbers: estimates, intervals, tests, proportions, moments, meta-analysis, mixtures.

Pure functions of numbers and of the noise that is known to be in them: numpy, scipy and `cape.core`. Nothing
here knows of a schema, a query or a site, or of what has a sensitivity.
"""
