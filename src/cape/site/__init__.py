"""A site by itself: its folder and keys, a new policy, the persons who decide, the daemon, and its end of
the wire, where bytes come in and go out.

Not here: transport (`flare`), and anything that a coordinator decides (`coordinator`).
"""

from cape.privacy.accounting import Allowance, Basis
from cape.site.decide.codes import Code, Refusal
from cape.site.decide.decide import Decider
from cape.site.decide.grant import Grant, Offer, answer
from cape.site.decide.policy import Policy
from cape.site.decide.request import Request, make_request
from cape.site.endpoint import SiteEndpoint
from cape.site.folder import SiteFolder
from cape.site.ledger.heads import Head
from cape.site.ledger.ledger import Amount, Entry, Ledger, Limit
from cape.study.document import document, read

__all__ = [
    "Allowance",
    "Amount",
    "Basis",
    "Code",
    "Decider",
    "Entry",
    "Grant",
    "Head",
    "Ledger",
    "Limit",
    "Offer",
    "Policy",
    "Refusal",
    "Request",
    "SiteEndpoint",
    "SiteFolder",
    "answer",
    "document",
    "make_request",
    "read",
]
