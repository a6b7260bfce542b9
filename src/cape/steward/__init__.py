"""What a site allows and remembers: its policy, its ledger, and its answer to a request. No transport."""

from cape.steward.codes import Code, Refusal
from cape.steward.decide import Grant, answer, decide
from cape.steward.folder import SiteFolder
from cape.steward.ledger import Amount, Entry, Ledger, Limit
from cape.steward.policy import Policy
from cape.steward.request import Earlier, Request, Talk, document, make_request, read

__all__ = [
    "Amount",
    "Code",
    "Earlier",
    "Entry",
    "Grant",
    "Ledger",
    "Limit",
    "Policy",
    "Refusal",
    "Request",
    "SiteFolder",
    "Talk",
    "answer",
    "decide",
    "document",
    "make_request",
    "read",
]
