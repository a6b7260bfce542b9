"""What a release of tables holds, and all that can be made of it: post-processing, which costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cape.analyses.marginals import Marginal, Measured
from cape.data import Schema
from cape.show import Shown, Table
from cape.show.plain import plain

__all__ = ["TablesModel"]


@dataclass(frozen=True, repr=False)
class TablesModel(Shown):
    """All tables of counts of a release."""

    measured: Measured
    schema: Schema
    named: tuple[tuple[str, ...], ...]

    def table(self, *columns: str, missing: bool = False) -> Marginal:
        """Return the table of these columns."""
        found = self.measured.marginal(columns)
        return found if missing else found.known()

    def tables(self) -> Sequence[Table]:
        return ()

    def to_dict(self) -> dict[str, Any]:
        return plain({})
