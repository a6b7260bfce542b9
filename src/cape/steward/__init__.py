"""What a site allows and remembers: its policy, its ledger, and its answer to a request. No transport."""

from cape.privacy.accounting import Allowance, Basis
from cape.steward.codes import Code, Refusal
from cape.steward.decide import Decider
from cape.steward.endpoint import SiteEndpoint
from cape.steward.folder import SiteFolder
from cape.steward.grant import Grant, Offer, answer
from cape.steward.heads import Head
from cape.steward.ledger import Amount, Entry, Ledger, Limit
from cape.steward.policy import Policy
from cape.steward.request import Request, make_request
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
