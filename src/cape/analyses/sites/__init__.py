"""What differs between sites: heterogeneity, mixed models with effects of sites.

Not here: what a site may be asked (`cape.site`), and the pooling of estimates, which is a pure function
(`stats`).
"""
