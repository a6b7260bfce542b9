"""Whether a site answers or refuses: its policy, requests and their review, approvals by persons, refusals
with their codes, grants.

Not here: what was paid, and whether a release still fits the policy's limits, which the ledger says
(`site/ledger`). Nowhere else than here is it decided whether a request is answered.
"""
