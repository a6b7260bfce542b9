"""Everything that CAPE raises or warns about: one tree, so that one `except cape.CapeError` suffices.

A message names what was wrong, the value, and what would be right. It never holds a cell of a table,
a count of rows or a secret: an error may travel to a coordinator who must not learn them.
"""

from __future__ import annotations

__all__ = [
    "BadMessage",
    "BudgetExceeded",
    "CapeError",
    "DataError",
    "InvalidInput",
    "LedgerWarning",
    "MissingExtra",
    "OverflowRisk",
    "PrivacyLeakWarning",
    "ProtocolError",
    "Refused",
    "TooFewSites",
    "TooNoisyWarning",
]


class CapeError(Exception):
    """The root of the tree."""


class InvalidInput(CapeError, ValueError):
    """An argument that cannot be right, whatever the data."""


class DataError(CapeError):
    """A site's table cannot be read, or does not fit the schema.

    The text is for people at the site: it names a column, a row and what was expected, never a cell.
    Anyone else may see `public` only, which leaves out the row, the path and the names in the table.
    """

    def __init__(self, site: str, problem: str, column: str | None = None) -> None:
        super().__init__(site, problem, column)
        self.site, self.problem, self.column = site, problem, column

    def __str__(self) -> str:
        return f"site {self.site!r}: {self.problem}"

    @property
    def public(self) -> str:
        """What the coordinator may be told."""
        why = "its table could not be used"
        if self.column is not None:
            why = f"column {self.column!r} does not match the schema"
        return f"site {self.site!r} could not answer: {why}"


class BudgetExceeded(CapeError):
    """A release would spend more than is left. Nothing was spent."""


class OverflowRisk(CapeError, OverflowError):
    """A sum plus its noise could leave the range of the integers that carry it."""


class MissingExtra(CapeError, ImportError):
    """An optional dependency is needed and not installed."""

    def __init__(self, extra: str, what: str) -> None:
        super().__init__(f"{what} needs an optional dependency: pip install 'cape-dp[{extra}]'")
        self.extra = extra


class ProtocolError(CapeError):
    """A run of a protocol between sites cannot go on as asked. Nothing was revealed."""


class BadMessage(ProtocolError):
    """A message that is malformed, forged, or does not fit what its sender said before."""


class Refused(ProtocolError):
    """A well-formed message that this party will not answer, now or ever."""


class TooFewSites(ProtocolError):
    """Fewer sites are left than the threshold: there will be no sum.

    `sent` says whether a message that depends on data had left a site by then.
    """

    sent: bool = False


class PrivacyLeakWarning(UserWarning):
    """Something outside the guarantee was used, such as a bound computed from the data."""


class TooNoisyWarning(UserWarning):
    """An answer says next to nothing, because of noise; its interval is all that is possible."""


class LedgerWarning(UserWarning):
    """A site's ledger is not what it was: lines that it has signed are missing or changed."""
