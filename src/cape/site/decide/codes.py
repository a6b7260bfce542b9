"""Why a site refuses: a code and a sentence for the coordinator, details for the site's log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cape.core.errors import CapeError

__all__ = ["ASKS", "Code", "Denied", "Refusal"]

ASKS = "this site's steward asks: "
"""How the sentence of a refusal with code `approval` starts, if the steward has a question."""


class Code(StrEnum):
    """The reason of a refusal. The names are stable: coordinators' programs rely on them."""

    REQUEST = "request"  # it cannot be read, or is inconsistent
    COORDINATOR = "coordinator"  # not trusted by this site
    SIGNATURE = "signature"
    VALIDITY = "validity"  # the request has expired, is not valid yet, or is valid for too long
    EXPIRED = "expired"  # the policy has expired
    ROSTER = "roster"  # it lacks this site, or lists an untrusted key
    HONEST = "honest"  # too few other honest sites, or too few assumed to collude
    THRESHOLD = "threshold"  # min_sites too small against a lying aggregator
    SCHEME = "scheme"
    NEIGHBOURS = "neighbours"
    ANALYSIS = "analysis"
    COLUMN = "column"
    TABLES = "tables"  # synthetic data, or tables of more columns than the policy allows
    SCHEMA = "schema"  # a column's bounds or categories differ from this site's
    PERSON = "person"  # the study counts more rows of a person than this site allows, or none as a person's
    NOISE = "noise"  # the noise in the request is not what this site computes
    RELEASE = "release"  # one release would cost more than the policy allows
    BUDGET = "budget"  # a total would be overdrawn
    LEDGER = "ledger"  # it lacks signed lines, or cannot count this adjacency
    RUN = "run"  # the run was used before, or the request was sent before
    HISTORY = "history"  # results of earlier stages are missing
    APPROVAL = "approval"  # held until the steward approves it
    STEWARD = "steward"  # the steward has refused this study
    DATA = "data"  # the table cannot be used, or has too few rows: only the log says which
    SITE = "site"  # another failure at the site


@dataclass(frozen=True)
class Refusal:
    """A refusal as the coordinator sees it: never a value, a number of rows or a stack trace."""

    code: Code
    sentence: str

    def to_dict(self) -> dict[str, str]:
        """Return it as plain data."""
        return {"code": str(self.code), "sentence": self.sentence}

    def __str__(self) -> str:
        return f"{self.code}: {self.sentence}"


class Denied(CapeError):
    """Raised to refuse; `detail` is for the site's own log only."""

    def __init__(self, code: Code, sentence: str, detail: str = "") -> None:
        super().__init__(sentence)
        self.code, self.sentence, self.detail = code, sentence, detail

    @property
    def refusal(self) -> Refusal:
        """The part that may leave."""
        return Refusal(self.code, self.sentence)
