"""What a site decides by itself: its policy, requests and their review, approvals, refusals, grants.

Whether a request is answered is decided here, and nowhere else; what was paid is in `cape.site.ledger`.
"""
