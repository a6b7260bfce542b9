"""All errors and warnings of CAPE. Errors form one tree, so `except cape.CapeError` catches them all.

A message says what is wrong, which value, and what would be right. It never contains a cell of a table, a
number of rows or a secret, because an error may reach a coordinator who must not learn them.
"""

from __future__ import annotations

import sys

__all__ = [
    "BadMessage",
    "BudgetExceeded",
    "CapeError",
    "DataError",
    "IgnoredParameterWarning",
    "InvalidInput",
    "LedgerWarning",
    "MissingExtra",
    "OverflowRisk",
    "PrivacyLeakWarning",
    "ProtocolError",
    "Refused",
    "TooFewSites",
    "TooNoisyWarning",
    "outside",
]


class CapeError(Exception):
    """The root of the tree."""


class InvalidInput(CapeError, ValueError):
    """An argument that is invalid whatever the data."""


class DataError(CapeError):
    """A site's table cannot be read, or does not fit the schema.

    The text is for people at the site: it names a column, a row and what was expected, never a cell. Everyone
    else may see only `public`, which omits the row, the path and the names in the table.
    """

    def __init__(self, site: str, problem: str, column: str | None = None) -> None:
        super().__init__(site, problem, column)
        self.site, self.problem, self.column = site, problem, column

    def __str__(self) -> str:
        return f"site {self.site!r}: {self.problem}"

    @property
    def public(self) -> str:
        """The message that may leave the site."""
        why = "its table could not be used"
        if self.column is not None:
            why = f"column {self.column!r} does not match the schema"
        return f"site {self.site!r} could not answer: {why}"


class BudgetExceeded(CapeError):
    """A release would spend more than is left. Nothing was spent."""


class OverflowRisk(CapeError, OverflowError):
    """A sum plus its noise could exceed the range of its integers."""


class MissingExtra(CapeError, ImportError):
    """An optional dependency is needed but not installed."""

    def __init__(self, extra: str, what: str) -> None:
        super().__init__(f"{what} needs an optional dependency: pip install 'cape-dp[{extra}]'")
        self.extra = extra


class ProtocolError(CapeError):
    """A protocol run between sites cannot continue. Nothing was revealed."""


class BadMessage(ProtocolError):
    """A message is malformed, forged, or contradicts an earlier one of its sender."""


class Refused(ProtocolError):
    """A well-formed message is refused, and the refusal remains in force."""


class TooFewSites(ProtocolError):
    """Fewer sites remain than the threshold, so there is no sum.

    `sent` says whether a message that depends on data had already left a site.
    """

    sent: bool = False


class PrivacyLeakWarning(UserWarning):
    """Something outside the guarantee was used, such as a bound computed from the data."""


class TooNoisyWarning(UserWarning):
    """Noise hides the answer: its interval covers every possible value."""


class IgnoredParameterWarning(UserWarning):
    """A parameter was given that has no effect here; the text says what to use instead."""


class LedgerWarning(UserWarning):
    """A site's ledger has changed: lines that the site signed are missing or different."""


def outside() -> int:
    """Return the `stacklevel` at which a warning names the line that called cape, not a line of cape."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "cape":
        frame, level = frame.f_back, level + 1
    return level
