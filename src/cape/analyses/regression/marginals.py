"""What columns of a model are like, from a first stage: caps, and coordinates in which entries are alike.

The stage counts rows of each column by itself: of a number in the bins of `cape.stats.capping`, of a category
by value.

**Sensitivity** sqrt(2 k) for k columns under replace-one, sqrt(k) under add-remove: a row is in one bin of
each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cape.blocks import Axis, Counts, Design
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Category, Number, Schema
from cape.engine.arguments import joined
from cape.engine.query import Answer, Neighbours, Query
from cape.stats.capping import Marginal, axis_edges, marginal

__all__ = [
    "Cap", "Marginals", "check_cap", "checked_cap", "marginals_query", "weight_share", "whitening",
]  # fmt: skip

Cap = Literal["auto", "none"] | tuple[tuple[str, tuple[float, float]], ...]
"""Where columns are cut: at released quantiles, nowhere, or where people say."""

_ROWS = 1024  # made up of the released marginals, to whiten with
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71)
_RARE = 0.02  # the least share that a category is taken to have
_RIDGE = 1e-6


def checked_cap(cap: Any) -> Cap:
    """Return where columns are cut, or raise `InvalidInput`."""
    if isinstance(cap, str) and cap in ("auto", "none"):
        return "auto" if cap == "auto" else "none"
    if not isinstance(cap, Mapping) or not cap:
        raise InvalidInput(
            "cap must be 'auto', 'none', or the ends of columns, as in {'nodes': (0, 24)}, not "
            f"{check.show(cap)}"
        )
    found = []
    for name, ends in cap.items():
        if not isinstance(name, str) or not isinstance(ends, (list, tuple)) or len(ends) != 2:
            raise InvalidInput(f"cap of {check.show(name)} must be two numbers that rise, as in (0, 24)")
        low, high = (check.real(f"cap of {name}", end) for end in ends)
        if not low < high:
            raise InvalidInput(f"cap of {name!r} must be two numbers that rise, not ({low:g}, {high:g})")
        found.append((name, (low, high)))
    return tuple(found)


def check_cap(cap: Cap, columns: Sequence[str], schema: Schema) -> None:
    """Raise `InvalidInput` for ends of a column that is no number of the model, or that leave none of it."""
    if isinstance(cap, str):
        return
    numbers = [name for name in columns if isinstance(schema[name], Number)]
    for name, (low, high) in cap:
        if name not in numbers:
            among = f"; these are: {joined(numbers)}" if numbers else ", and this model has none"
            raise InvalidInput(f"cap names {name!r}, which is no number of this model{among}")
        bounds = schema.number(name)
        if not (low < bounds.high and high > bounds.low):
            raise InvalidInput(
                f"cap of {name!r} is ({low:g}, {high:g}), outside its bounds {bounds.low:g} to "
                f"{bounds.high:g}"
            )


def marginals_query(columns: Sequence[str], schema: Schema, neighbours: Neighbours) -> Query:
    """Return the question for how rows are spread over each column."""
    blocks = []
    for name in columns:
        column = schema[name]
        edges = axis_edges(column.low, column.high) if isinstance(column, Number) else None
        blocks.append(Counts((Axis(name, edges),)))
    sensitivity = math.sqrt((2 if neighbours == "replace-one" else 1) * len(columns))
    return Query(tuple(blocks), ((1.0,),) * len(blocks), sensitivity)


@dataclass(frozen=True)
class Marginals:
    """Numbers as they were released, and the values of categories.

    Attributes:
        shares: of each value, none of them nearly 0.
        doubts: the noise in a share.
        counts: of each value, as they were released, with their noise.
    """

    schema: Schema
    numbers: Mapping[str, Marginal]
    shares: Mapping[str, Floats]
    doubts: Mapping[str, float]
    counts: Mapping[str, tuple[Floats, float]]

    @classmethod
    def of(cls, answer: Answer, columns: Sequence[str], caps: Cap) -> Marginals:
        """Return what an answer says, with these caps."""
        numbers: dict[str, Marginal] = {}
        shares: dict[str, Floats] = {}
        doubts: dict[str, float] = {}
        released: dict[str, tuple[Floats, float]] = {}
        for name, (counts,), (noise,) in zip(columns, answer.sums, answer.noise, strict=True):
            column = answer.schema[name]
            if isinstance(column, Number):
                edges = axis_edges(column.low, column.high)
                cap = caps == "auto" if isinstance(caps, str) else dict(caps).get(name, False)
                numbers[name] = marginal(edges, counts, noise, cap=cap, rows=answer.rows)
            else:
                total = max(float(counts.sum()), noise * math.sqrt(len(counts)), 1.0)
                released[name] = np.asarray(counts, np.float64), noise
                least = min(max(_RARE, noise / total), 1 / len(counts))
                found = np.maximum(counts / total, least)
                shares[name], doubts[name] = found / found.sum(), noise / total
        return cls(answer.schema, numbers, shares, doubts, released)

    def cut(self, names: Sequence[str]) -> tuple[tuple[str, Number], ...]:
        """Return narrower bounds for these columns, where there are caps."""
        found = []
        for name in names:
            one = self.numbers.get(name)
            if one is not None and any(one.capped):
                found.append((name, Number(one.low, one.high, missing=self.schema[name].missing)))
        return tuple(found)

    def means(self, names: Sequence[str]) -> tuple[tuple[str, float], ...]:
        """Return the means of these columns that are numbers, to two digits of their SDs."""
        found = []
        for name in names:
            if name in self.numbers:
                one = self.numbers[name]
                unit = 10.0 ** math.floor(math.log10(one.sd / 5))
                found.append((name, float(f"{round(one.mean / unit) * unit:.12g}")))
        return tuple(found)

    def rows(self, design: Design, schema: Schema) -> Floats:
        """Return made-up rows of independent columns with these marginals, as vectors with a constant."""
        basis = design.basis(schema)
        cells: dict[str, NDArray[Any]] = {}
        many = max(_ROWS, 4 * len(basis.labels))
        for i, name in enumerate(design.sources):
            root = math.sqrt(_PRIMES[i % len(_PRIMES)] + i // len(_PRIMES))
            ranks = np.asarray((0.5 + np.arange(many) * root) % 1.0, np.float64)
            if isinstance(schema[name], Category):
                under = np.cumsum(self.shares[name])
                cells[name] = np.minimum(np.searchsorted(under, ranks), len(under) - 1)
            else:
                cells[name] = self.numbers[name].quantiles(ranks)
        x = basis.evaluate(cells, many) / design.length(schema)
        x = x / np.fmax(np.linalg.norm(x, axis=1, keepdims=True), 1.0)
        if not design.intercept:
            return np.asarray(x)
        first = np.full((many, 1), design.intercept)
        return np.concatenate([first, x], axis=1) / math.hypot(1.0, design.intercept)

    def turn(self, design: Design, schema: Schema) -> Floats:
        """Return what makes entries of such rows uncorrelated, with a mean square of 1."""
        return whitening(self.rows(design, schema), constant=bool(design.intercept))

    def centred(self, design: Design, schema: Schema) -> tuple[Floats, Floats]:
        """Return the mean of such rows, and what whitens them about it."""
        x = self.rows(design, schema)
        mean = x.mean(axis=0)
        return mean, _white(x - mean)

    def target(self, name: str, ranks: int = 256) -> tuple[Floats, Floats]:
        """Return likely targets and their probabilities, those of categories drawn to each other as far as
        noise warrants (James and Stein)."""
        if name in self.shares:
            shares, many = self.shares[name], len(self.shares[name])
            apart = shares - 1 / many
            of_noise = (many - 1) * self.doubts[name] ** 2
            kept = max(0.0, 1 - of_noise / max(float(apart @ apart), 1e-300))
            return np.arange(many, dtype=float), 1 / many + kept * apart
        places = (np.arange(ranks) + 0.5) / ranks
        return self.numbers[name].quantiles(places), np.full(ranks, 1 / ranks)

    def share(self, weights: str) -> float:
        """Return how much a row typically counts, if this column weights rows."""
        return weight_share(self.numbers[weights].mean, self.schema.number(weights).high)


def weight_share(mean: float, high: float) -> float:
    """Return how much a row counts whose weight is this, beside the largest."""
    return min(max(mean / high, 1e-6), 1.0)


def whitening(x: Floats, *, constant: bool) -> Floats:
    """Return what makes entries of these rows uncorrelated, with a mean square of 1.

    `constant` says that the first entry is the same in all rows; others are then centred.
    """
    start = 1 if constant else 0
    part = x[:, start:]
    mean = part.mean(axis=0) if start else np.zeros(part.shape[1])
    white = _white(part - mean)
    if not start:
        return np.asarray(white)
    first = float(x[0, 0])
    turn = np.zeros((x.shape[1], x.shape[1]))
    turn[0, 0] = 1 / first
    turn[1:, 1:] = white
    turn[1:, 0] = -white @ mean / first
    return turn


def _white(x: Floats) -> Floats:
    """Return what makes entries of rows uncorrelated, with a mean square of 1."""
    second = x.T @ x / len(x)
    scale = np.sqrt(np.maximum(np.diag(second), 1e-18))
    second = second / np.outer(scale, scale) + _RIDGE * np.eye(len(scale))
    values, vectors = np.linalg.eigh(second)
    return np.asarray((vectors / np.sqrt(np.maximum(values, _RIDGE))) @ vectors.T / scale)
