"""What differs between sites: heterogeneity, meta-analysis, mixed models with effects of sites.

Nothing here decides what a site may be asked: that is `cape.site`.
"""
