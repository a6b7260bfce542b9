"""What a site allows and remembers: its policy, its ledger, and its answer to a request. No transport."""

from cape.steward.amount import Allowance, Basis
from cape.steward.codes import Code, Refusal
from cape.steward.decide import Grant, Offer, answer, consider, decide
from cape.steward.folder import SiteFolder
from cape.steward.heads import Head
from cape.steward.ledger import Amount, Entry, Ledger, Limit
from cape.steward.member import Member
from cape.steward.policy import Policy
from cape.steward.request import Earlier, Request, Talk, document, make_request, read

__all__ = [
    "Allowance",
    "Amount",
    "Basis",
    "Code",
    "Earlier",
    "Entry",
    "Grant",
    "Head",
    "Ledger",
    "Limit",
    "Member",
    "Offer",
    "Policy",
    "Refusal",
    "Request",
    "SiteFolder",
    "Talk",
    "answer",
    "consider",
    "decide",
    "document",
    "make_request",
    "read",
]
