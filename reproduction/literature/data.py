"""All rows in one place, as the literature has them: ||x|| <= 1 and |y| <= 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cape.blocks.design import Design
from cape.blocks.steps import ONE
from cape.blocks.table import Table
from cape.core.errors import InvalidInput
from reproduction.literature.curator import Holdings

__all__ = ["Pooled", "Regression", "pool"]

Floats = NDArray[np.float64]


class Regression(Protocol):
    """What a linear and a logistic regression both say of themselves."""

    @property
    def target(self) -> str: ...  # noqa: D102
    @property
    def features(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def intercept(self) -> bool: ...  # noqa: D102
    @property
    def norm(self) -> float | None: ...  # noqa: D102


@dataclass(frozen=True)
class Pooled:
    """The complete rows of all sites; x and y are multiples of 2^-20.

    `rows` counts those that miss a cell too: it is public where rows are replaced, and they add nothing.
    With an intercept x is (1, x) / sqrt(2), which is no longer than 1.
    """

    x: Floats
    y: Floats
    rows: int
    intercept: bool

    @property
    def width(self) -> int:
        """How many weights there are."""
        return int(self.x.shape[1])

    def weights(self, fitted: Floats) -> Floats:
        """Return weights of (1, x) from those of x as it is here."""
        if self.intercept:
            return fitted / math.sqrt(2)
        return np.concatenate([[0.0], fitted])


def pool(held: Holdings, asked: Regression) -> Pooled:
    """Return what a curator has who holds every row."""
    if held.neighbours != "replace-one":
        raise InvalidInput(
            "methods of the literature are made for neighbours='replace-one', where the number of rows is "
            f"public; the consortium has {held.neighbours!r}"
        )
    design = Design(asked.features, asked.target, asked.norm, 1.0 if asked.intercept else 0.0)
    xs, ys, rows = [], [], 0
    for name, table in held.tables.items():
        if not isinstance(table, Table):
            raise InvalidInput(f"a regression needs tables, and site {name!r} holds something else")
        x, y = table.vectors(design)
        assert y is not None  # the design has a target
        xs.append(x / ONE)
        ys.append(y / ONE)
        rows += table.rows()
    return Pooled(np.concatenate(xs), np.concatenate(ys), rows, asked.intercept)
