"""What a site has released and what that cost: signed lines in one chain, their totals, heads and checks.

Not here: decisions. `site/decide` asks the ledger whether a release still fits.
"""
