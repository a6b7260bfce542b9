"""The audit's schema, analyses, studies of several analyses, and tables made from a seed.

There are three sites, of which the last colludes. The target row is at the first site, which is the
largest, so that `local` asks it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cape.analyses import CustomSum
from cape.analyses.registry import KINDS, build
from cape.blocks import sampling
from cape.blocks.block import Block
from cape.blocks.holder import Holder
from cape.blocks.table import Table
from cape.core.errors import CapeError
from cape.data import Person, Schema
from cape.data.schema import Category, Number
from cape.engine.query import Analysis
from cape.learning import GradientDescent
from cape.noise import SecureStream
from cape.noise.stream import KEY_BYTES

__all__ = [
    "ANALYSES",
    "HELD",
    "OWN",
    "SAMPLED",
    "SCHEMA",
    "STUDIES",
    "Cell",
    "Remembered",
    "Row",
    "Tables",
    "asked_of",
    "columns_of",
    "frame",
    "random_rows",
    "rate_of",
    "stream_of",
    "whole",
]

Floats = NDArray[np.float64]
Batch = dict[str, NDArray[Any]]
Cell = float | str | int | bool | None
Row = tuple[Cell, ...]
Sums = list[tuple[NDArray[np.int64], ...]]

SCHEMA = Schema(
    age=Number(18, 90),
    chol=Number(100, 600, missing=False),
    sex=["female", "male"],
    disease=Category(("no", "yes"), missing=False),
)

ANALYSES: dict[str, dict[str, Any]] = {
    kind: {"kind": kind, **analysis.example} for kind, analysis in KINDS.items()
}

SAMPLED: dict[str, dict[str, Any]] = {
    "neural-network, sampled": {
        **ANALYSES["neural-network"],
        "epochs": 2,
        "sampling": 0.4,
        "clip": 0.1,  # shorter than the gradients at first weights: a row adds as much as it may
        "rows": 14,
    },
}
"""Analyses whose steps use a sample of the rows: sums vary, and the likelihood is a mixture."""


def centred(batch: Batch) -> Floats:
    """Return age and chol of each row, between -1 and 1: a row in a corner is longer than the bound."""
    parts = []
    for name in ("age", "chol"):
        column = SCHEMA[name]
        assert isinstance(column, Number)
        parts.append((batch[name] - column.middle) / (column.high - column.middle))
    return np.column_stack(parts)


def pull(batch: Batch, parameters: Floats) -> Floats:
    """Return the gradient of half the squared distance between a row and the parameters."""
    return np.asarray(parameters - centred(batch))


OWN: dict[str, Callable[[], CustomSum | GradientDescent]] = {
    "custom-sum": lambda: CustomSum(centred, columns=["age", "chol"], bound=1.0, shape=2),
    "gradient-descent": lambda: GradientDescent(
        pull, columns=["age", "chol"], start=[0.0, 0.0], clip=0.5, epochs=3, rows=14
    ),
}
"""Analyses with a user's function, which study files cannot name."""

HELD = 2
"""A person at stake has so many times as many rows as may count."""

STUDIES: dict[str, tuple[tuple[str, float], ...]] = {
    "mean twice": (("mean", 0.5), ("mean", 0.5)),
    "mean and histogram": (("mean", 0.25), ("histogram", 0.75)),
    "count, mean and descent": (("count", 0.2), ("mean", 0.3), ("gradient-descent", 0.5)),
}
"""Several releases of one study, whose shares add up to the whole budget."""


def analysis_of(name: str) -> Analysis:
    """Return an analysis of the audit by its name."""
    return OWN[name]() if name in OWN else build(_said(name))


def asked_of(name: str) -> list[tuple[Analysis, float]]:
    """Return the releases in order, each with its budget share."""
    return [(analysis_of(part), share) for part, share in _parts(name)]


def _parts(name: str) -> tuple[tuple[str, float], ...]:
    return STUDIES.get(name, ((name, 1.0),))


def _said(name: str) -> dict[str, Any]:
    return SAMPLED[name] if name in SAMPLED else {"kind": name, **KINDS[name].example}


def columns_of(name: str) -> tuple[str, ...]:
    """Return the columns that an analysis or a study reads, whose cells are searched."""
    found: list[str] = []
    for part, _ in _parts(name):
        if part in OWN:
            found += OWN[part]().columns
            continue
        blocks = analysis_of(part).query(SCHEMA, "add-remove").blocks
        found += [name for block in blocks for name in block.reads]
    return tuple(name for name in SCHEMA if name in found)


def stream_of(*parts: object) -> SecureStream:
    """Return the stream of a purpose: the same for the same parts."""
    return SecureStream(hashlib.sha256(repr(("cape audit", *parts)).encode()).digest())


def uniform(stream: SecureStream) -> float:
    """Return a number between 0 and 1."""
    return stream.integer(1 << 53) * 2.0**-53


def anywhere(name: str, stream: SecureStream) -> Cell:
    """Return a cell at random, within the public bounds or among the public categories."""
    column = SCHEMA[name]
    if isinstance(column, Number):
        return column.low + (column.high - column.low) * uniform(stream)
    return column.values[stream.integer(len(column.values))]


def random_rows(count: int, stream: SecureStream) -> list[Row]:
    """Return whole rows at random."""
    return [tuple(anywhere(name, stream) for name in SCHEMA) for _ in range(count)]


def frame(rows: Sequence[Row], schema: Schema = SCHEMA, ids: Sequence[int] | None = None) -> pl.DataFrame:
    """Return rows as a table, with whose they are where the unit is a person; by default all different."""
    kinds = {name: pl.Float64 if isinstance(schema[name], Number) else pl.String for name in schema}
    found = pl.DataFrame(list(rows), schema=kinds, orient="row")
    if schema.person is None:
        return found
    return found.with_columns(pl.Series(schema.person.id, ids or range(len(rows)), dtype=pl.Int64))


class Remembered(Holder):
    """A table whose sums the real code computes once for each query; then they are cached.

    Without sampling the sums are exact and do not change, so a run costs only noise and messages. With
    sampling the real code draws, and the same randomness repeats the draw: the table must give the sum over
    these rows, to the last bit.

    Attributes:
        given: the sums that it gave last.
        drawn: the rows that they are over, with sampling.
    """

    def __init__(
        self, name: str, rows: Sequence[Row], schema: Schema = SCHEMA, shared: int | None = None
    ) -> None:
        self.name, self._rows, self._schema = name, tuple(rows), schema
        self._shared = len(self._rows) if shared is None else shared  # rows after these are one person's
        self._tables: dict[tuple[int, ...], Table] = {}
        self._known: dict[Any, Sums] = {}
        self.given: Sums = []
        self.drawn: NDArray[np.int64] | None = None

    def rows(self) -> int:
        """Return the number of rows."""
        return len(self._rows)

    def of(self, schema: Schema) -> Remembered:
        """Return itself: it reads its rows by the audit's schema, which is the study's."""
        return self

    def sums(self, blocks: Sequence[Block], stream: SecureStream | None = None) -> Sums:
        """Return the sums of every block."""
        rate, everyone = rate_of(blocks), tuple(range(len(self._rows)))
        if rate == 1:
            self.given, self.drawn = self.over(everyone, blocks), None
            return self.given
        assert stream is not None
        key = stream.bytes(KEY_BYTES)
        self.given = self._table(everyone).sums(blocks, SecureStream(key))
        complete = sum(None not in row for row in self._rows)
        self.drawn = sampling.sample(SecureStream(key), complete, rate)
        expected = self.over(tuple(map(int, self.drawn)), blocks)
        pairs = [zip(*both, strict=True) for both in zip(self.given, expected, strict=True)]
        if not all(np.array_equal(one, two) for both in pairs for one, two in both):
            raise CapeError("a site's contribution is not the sum over the rows that it drew")
        return self.given

    def over(self, rows: tuple[int, ...], blocks: Sequence[Block]) -> Sums:
        """Return the exact sums over some of the rows, by their numbers."""
        asked = rows, tuple(whole(blocks))
        try:
            if asked in self._known:
                return self._known[asked]
        except (TypeError, ValueError):  # parameters of a step: asked once
            return self._table(rows).sums(asked[1])
        found = self._table(rows).sums(asked[1])
        if len(self._known) < 16:
            self._known[asked] = found
        return found

    def _table(self, rows: tuple[int, ...]) -> Table:
        if rows not in self._tables:
            ids = [row if row < self._shared else -1 for row in rows]
            made = frame([self._rows[row] for row in rows], self._schema, ids)
            self._tables[rows] = Table(self.name, made, self._schema)
        return self._tables[rows]


def rate_of(blocks: Sequence[Block]) -> float:
    """Return the probability that a row takes part: below 1 with sampling."""
    rates = [block.rate for block in blocks]
    if min(rates, default=1.0) < 1 and len(rates) > 1:
        raise CapeError("a query with sampling must be the only one of its stage")
    return min(rates, default=1.0)


def whole(blocks: Sequence[Any]) -> list[Block]:
    """Return the same blocks over all rows."""
    return [replace(block, rate=1.0) if block.rate < 1 else block for block in blocks]


@dataclass(frozen=True)
class Tables:
    """The rows of the target's site under both hypotheses, and those of the other sites.

    `one` is the target's site as it is, `two` its neighbour. With a `person` the first `shared` rows are of
    others, and all that follow of the person at stake, also at the second site if the person is at two: there
    the rows of others come before the same rows.
    """

    one: tuple[Row, ...]
    two: tuple[Row, ...]
    others: tuple[tuple[Row, ...], ...]
    person: Person | None = None

    @property
    def schema(self) -> Schema:
        """The columns, and who is protected."""
        return SCHEMA.of_persons(self.person)

    @property
    def shared(self) -> int:
        """How many rows of the target's site are not at stake."""
        return len(self.one) - (1 if self.person is None else HELD * self.person.rows)

    def sites(self, make: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return both worlds; the other sites are shared between them, unless the person is there too."""
        names, schema = site_names(1 + len(self.others)), self.schema
        worlds: list[dict[str, Any]] = []
        for rows in (self.one, self.two):
            worlds.append({names[0]: make(names[0], rows, schema, self.shared)})
        for number, (name, rows) in enumerate(zip(names[1:], self.others, strict=True), 1):
            if self.person is not None and number < self.person.sites:
                for world, mine in zip(worlds, (self.one, self.two), strict=True):
                    world[name] = make(name, (*rows, *mine[self.shared :]), schema, len(rows))
            else:
                there = make(name, rows, schema)
                for world in worlds:
                    world[name] = there
        return worlds[0], worlds[1]


def site_names(count: int) -> list[str]:
    """Return names in the order of the alphabet, which is the order of secure aggregation."""
    return [f"site-{number:02d}" for number in range(count)]
