"""What a loader returns: plain arrays or frames, with public bounds and words on where it is from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.core import check
from cape.core.errors import InvalidInput
from cape.data import Number, Schema

__all__ = ["Dataset", "Floats", "MultiSite", "Origin"]

Floats = NDArray[np.float64]
Bounds = tuple[float, float]


@dataclass(frozen=True)
class Origin:
    """Where data is from, and on which terms it may be used."""

    title: str
    source: str
    licence: str
    citation: str = ""

    def __str__(self) -> str:
        cited = f" {self.citation}" if self.citation else ""
        return f"{self.title}.{cited} Source: {self.source}. Licence: {self.licence}."


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows in one place: a matrix of features and a target.

    Attributes:
        names: of the columns of X.
        bounds: public bounds of every column, the target's included; never computed from the rows, unless
            `note` says so.
        origin: title, source, licence.
        note: what a reader has to know about how the numbers came about.
        weights: where rows were made up, what they were made with.
    """

    name: str
    names: tuple[str, ...]
    X: Floats
    y: Floats
    target: str
    bounds: Mapping[str, Bounds]
    origin: Origin
    note: str = ""
    weights: Floats | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.X.shape != (len(self.y), len(self.names)):
            raise InvalidInput(
                f"X must have {len(self.y)} rows and {len(self.names)} columns, not {self.X.shape}"
            )
        if set(self.bounds) != {*self.names, self.target}:
            raise InvalidInput("bounds must name every feature and the target, and nothing else")

    @property
    def licence(self) -> str:
        """On which terms the data may be used."""
        return self.origin.licence

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.y)

    def schema(self) -> Schema:
        """Return the columns with their public bounds. No cell is empty."""
        return Schema(
            {name: Number(*self.bounds[name], missing=False) for name in (*self.names, self.target)}
        )

    def frame(self) -> Any:
        """Return all rows as a polars frame, the target last."""
        import polars

        columns = {name: self.X[:, i] for i, name in enumerate(self.names)}
        return polars.DataFrame({**columns, self.target: self.y})

    def split(self, sites: int) -> dict[str, Any]:
        """Return the rows in order at so many sites of equal size, as frames; the first may have one more."""
        sites = check.integer("sites", sites, least=1, most=self.rows)
        frame, least, more = self.frame(), *divmod(self.rows, sites)
        ends = [least * (i + 1) + min(i + 1, more) for i in range(sites)]
        return {
            f"site-{i + 1}": frame[start:end]
            for i, (start, end) in enumerate(zip([0, *ends], ends, strict=False))
        }

    def take(self, rows: Any) -> Dataset:
        """Return some of the rows: a number of the first, a slice or an array of places."""
        if not isinstance(rows, (slice, np.ndarray)):
            rows = slice(check.integer("rows", rows, least=1, most=self.rows))
        return Dataset(
            self.name,
            self.names,
            self.X[rows],
            self.y[rows],
            self.target,
            self.bounds,
            self.origin,
            self.note,
            self.weights,
        )


@dataclass(frozen=True, eq=False)
class MultiSite:
    """Rows at the sites where they were collected: a frame each, and the schema that all share."""

    name: str
    sites: Mapping[str, Any]
    columns: Schema
    origin: Origin
    note: str = ""

    @property
    def licence(self) -> str:
        """On which terms the data may be used."""
        return self.origin.licence

    def schema(self) -> Schema:
        """Return the columns with their public bounds and categories."""
        return self.columns
