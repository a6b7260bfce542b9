"""Whether a site answers or refuses: its policy, requests and their review, approvals by persons, refusals
with their codes, grants.

Not here: what was paid (`site/ledger`). Nowhere else is it decided whether a request is answered.
"""
