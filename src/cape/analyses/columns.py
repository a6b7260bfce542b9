"""Analyses whose only argument is a list of columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cape.engine.arguments import joined, names
from cape.engine.query import Analysis

__all__ = ["OfColumns"]


@dataclass(frozen=True, init=False)
class OfColumns(Analysis):
    """An analysis of columns, at least `least` of them."""

    least: ClassVar[int] = 1
    columns: tuple[str, ...]

    def __init__(self, *columns: str) -> None:
        self._set(columns=names(columns, least=self.least))

    def describe(self) -> str:
        return f"{self.kind.replace('-', ' ')} of {joined(self.columns)}"
