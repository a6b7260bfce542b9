"""How errors of predictions of a number are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cape.data import Schema
from cape.show import Shown, Table
from cape.show.numbers import counted
from cape.show.plain import plain
from cape.show.tables import listed
from cape.stats.estimates import Estimate

__all__ = ["ErrorModel"]


@dataclass(frozen=True, repr=False)
class ErrorModel(Shown):
    """RMSE and R² of predictions on rows that they were not made from."""

    target: str
    schema: Schema
    rows: float
    estimates: tuple[Estimate, ...]
    rows_noise: float = 0.0

    def tables(self) -> Sequence[Table]:
        return [listed(self.estimates)]

    def notes(self) -> Sequence[str]:
        unit = getattr(self.schema[self.target], "unit", None)
        of = f"{self.schema.label(self.target)} ({unit})" if unit else self.schema.label(self.target)
        return [f"Errors are those of predicted {of}, over {counted(self.rows, self.rows_noise, 'row')}."]

    def to_dict(self) -> dict[str, Any]:
        return plain({"target": self.target, "rows": self.rows})
