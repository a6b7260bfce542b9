"""Everything that CAPE raises or warns about: one tree, so that one `except cape.CapeError` suffices.

A message names what was wrong, the value, and what would be right. It never holds a cell of a table,
a count of rows or a secret: an error may travel to a coordinator who must not learn them.
"""

from __future__ import annotations

__all__ = [
    "BudgetExceeded",
    "CapeError",
    "InvalidInput",
    "MissingExtra",
    "OverflowRisk",
    "PrivacyLeakWarning",
]


class CapeError(Exception):
    """The root of the tree."""


class InvalidInput(CapeError, ValueError):
    """An argument that cannot be right, whatever the data."""


class BudgetExceeded(CapeError):
    """A release would spend more than is left. Nothing was spent."""


class OverflowRisk(CapeError, OverflowError):
    """A sum plus its noise could leave the range of the integers that carry it."""


class MissingExtra(CapeError, ImportError):
    """An optional dependency is needed and not installed."""

    def __init__(self, extra: str, what: str) -> None:
        super().__init__(f"{what} needs an optional dependency: pip install 'cape-dp[{extra}]'")
        self.extra = extra


class PrivacyLeakWarning(UserWarning):
    """Something outside the guarantee was used, such as a bound computed from the data."""
