"""Why a site says no: a code and a sentence of its policy for the coordinator, the full story for its log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cape.errors import CapeError

__all__ = ["Code", "Denied", "Refusal"]


class Code(StrEnum):
    """What a refusal is about. The names stay: coordinators' programs go by them."""

    REQUEST = "request"  # it cannot be read, or contradicts itself
    COORDINATOR = "coordinator"  # not one whom this site trusts
    SIGNATURE = "signature"
    VALIDITY = "validity"  # the request has expired, is not valid yet, or would be for too long
    EXPIRED = "expired"  # the policy is out of date
    ROSTER = "roster"  # this site is not on it, or somebody whom it does not trust is
    HONEST = "honest"  # too few other honest sites, or too few assumed to collude
    THRESHOLD = "threshold"  # an aggregator that lies would not be held off
    SCHEME = "scheme"
    NEIGHBOURS = "neighbours"
    ANALYSIS = "analysis"
    COLUMN = "column"
    SCHEMA = "schema"  # a column's bounds or categories are not those of this site
    NOISE = "noise"  # the noise asked for is not what this site computes
    RELEASE = "release"  # one release would cost more than the policy allows
    BUDGET = "budget"  # a total would be overdrawn
    LEDGER = "ledger"  # it lacks lines that this site signed, or cannot count this adjacency
    RUN = "run"  # its name was used before, or the request was sent before
    HISTORY = "history"  # answers of earlier stages are missing
    APPROVAL = "approval"  # held until the steward approves it
    STEWARD = "steward"  # who has refused this study
    DATA = "data"  # the table cannot be used, or has too few rows: which, only the site's log says
    SITE = "site"  # something else went wrong at the site


@dataclass(frozen=True)
class Refusal:
    """What a coordinator is told: never a value, a number of rows or a stack trace."""

    code: Code
    sentence: str

    def to_dict(self) -> dict[str, str]:
        """Return it as plain data."""
        return {"code": str(self.code), "sentence": self.sentence}

    def __str__(self) -> str:
        return f"{self.code}: {self.sentence}"


class Denied(CapeError):
    """A refusal on its way out, with what only the site's own log may say."""

    def __init__(self, code: Code, sentence: str, detail: str = "") -> None:
        super().__init__(sentence)
        self.code, self.sentence, self.detail = code, sentence, detail

    @property
    def refusal(self) -> Refusal:
        """The part that may leave."""
        return Refusal(self.code, self.sentence)
