"""What a site has released and what that cost: signed lines in one chain, their totals, heads and checks;
whether a release still fits the limits of the policy, in all and per year.

Not here: the limits, and what follows from a release that does not fit (`site/decide`).
"""
