"""What a site has released and what that cost: signed lines in one chain, their sums, heads and checks.

Nothing here decides: it is asked by `cape.site.decide` whether a release still fits.
"""
