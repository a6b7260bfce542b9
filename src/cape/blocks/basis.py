"""What terms make of a row: entries of a vector (`slots`), whose weights become coefficients (`coding`).

Tested in tests/unit/blocks/test_terms.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.blocks.coding import ModelColumn, coded, label_of
from cape.blocks.slots import Slots, slots_of
from cape.blocks.terms import Factor, Feature, parse
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data.schema import Category, Column, Number

__all__ = ["TermBasis", "basis_of"]

_MOST_ENTRIES = 1 << 14
_MOST_EXAMINED = 600  # of which it is seen in a second whether they depend on each other
_ROWS_PER_ENTRY = 20  # made-up ones, on which it is seen whether entries depend on each other
_SAME = 1e-7
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)


@dataclass(frozen=True, eq=False)
class TermBasis:
    """The entries that terms make of rows, in the order of the coefficients that they become.

    Attributes:
        labels: what each coefficient is called.
        owners: for each coefficient, which term it belongs to.
        raw: the columns that coefficients multiply, as statistics software has them.
        parts: how a row becomes entries, each in units of t.
    """

    labels: tuple[str, ...]
    owners: tuple[int, ...]
    raw: tuple[ModelColumn, ...]
    parts: tuple[Slots, ...]

    def evaluate(self, cells: Mapping[str, NDArray[Any]], rows: int) -> Floats:
        """Return the entries of rows in units of t, (rows, entries); NaN where a cell is missing."""
        out = np.empty((len(self.labels), rows))
        absent = np.zeros(rows, bool)
        for part in self.parts:
            missing = part.fill(cells, [out[place] for place in part.places], 1.0)
            if missing is not None:
                absent |= missing
        out[:, absent] = np.nan
        return out.T

    @cached_property
    def matrix(self) -> Floats:
        """What turns weights of (1, entries in units of t) into the intercept and coefficients."""
        constant = ModelColumn(frozenset(), frozenset(), frozenset())
        places = {constant: 0} | {entry.key: i for i, entry in enumerate(self.raw, 1)}
        size = len(places)
        values = {name: len(c.values) for part in self.parts for name, c in part.categories}

        def reduced(entry: ModelColumn, row: Floats, times: float) -> None:
            """Add a product of indicators as one of those without first values, which add up to 1 - them."""
            first = [name for name, code in entry.levels if code == 0]
            kept = [each for each in entry.levels if each[1]]
            for chosen in itertools.product(*([0, *range(1, values[name])] for name in first)):
                levels = frozenset(kept) | {each for each in zip(first, chosen, strict=True) if each[1]}
                sign = -1 if sum(map(bool, chosen)) % 2 else 1
                row[places[ModelColumn(entry.numbers, entry.curves, levels)]] += sign * times

        inside = np.zeros((size, size))
        inside[0, 0] = 1.0
        for part in self.parts:
            centred = {each.name: each.scale for each in part.numbers}
            unit = math.prod(curve.size for _, curve in part.curves)
            for place, entry in zip(part.places, part.entries, strict=True):
                for kept in itertools.product(
                    *((True, False) if s[0] else (True,) for s in centred.values())
                ):
                    times = 1 / unit
                    for (middle, size_), keep in zip(centred.values(), kept, strict=True):
                        times *= (1.0 if keep else -middle) / size_
                    names = frozenset(itertools.compress(centred, kept))
                    reduced(ModelColumn(names, entry.curves, entry.levels), inside[place + 1], times)
        if any(code == 0 for entry in self.raw for _, code in entry.levels):
            outside = np.zeros((size, size))
            outside[0, 0] = 1.0
            for i, entry in enumerate(self.raw, 1):
                reduced(entry, outside[i], 1.0)
            inside = inside @ np.rint(np.linalg.inv(outside))
        return np.asarray(inside.T)


def basis_of(
    features: tuple[str, ...], schema: Mapping[str, Column], cut: Mapping[str, Number] | None = None
) -> TermBasis:
    """Return the entries that features make, or raise an error that names what does not fit."""
    found: dict[str, Column] = {}
    for feature in features:
        term = parse(feature)
        for factor in term.factors:
            try:
                found[factor.column] = _checked(
                    factor, (cut or {}).get(factor.column) or schema[factor.column]
                )
            except InvalidInput as error:
                if term.plain:
                    raise
                raise InvalidInput(f"feature {feature!r}: {error}") from None
    return _basis(features, tuple(found.items()))


def _checked(factor: Factor, column: Column) -> Column:
    if isinstance(column, Category):
        if factor.spline is not None:
            raise InvalidInput(f"a spline is of a number; {factor.column!r} has categories")
        if len(column.values) < 2:
            raise InvalidInput(f"feature {factor.column!r} must have at least two categories, or bounds")
    return column


@lru_cache(maxsize=256)
def _basis(features: tuple[str, ...], columns: tuple[tuple[str, Column], ...]) -> TermBasis:
    known = dict(columns)
    terms = [parse(feature) for feature in features]
    count = sum(math.prod(_width(factor, known) for factor in term.factors) for term in terms)
    if count > _MOST_ENTRIES:
        raise InvalidInput(f"the features have {count:,} entries; at most {_MOST_ENTRIES:,} are possible")
    raw, owners = coded(terms, known)
    places = {entry.key: place for place, entry in enumerate(raw)}
    parts = []
    for part in slots_of(terms, known):
        parts.append(replace(part, places=tuple(places[entry.key] for entry in part.entries)))
    order = sorted(parts, key=lambda part: min(part.places))
    labels = [label_of(terms[owner], entry, known) for owner, entry in zip(owners, raw, strict=True)]
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise InvalidInput(f"two coefficients would be called {twice!r}; rename a column")
    basis = TermBasis(tuple(labels), tuple(owners), tuple(raw), tuple(order))
    _refuse_overlap(basis, terms, known)
    return basis


def _refuse_overlap(basis: TermBasis, terms: Sequence[Feature], known: Mapping[str, Column]) -> None:
    """Raise an error if a column is used in several ways of which one says what another does."""
    ways: dict[str, set[Factor]] = {}
    for term in terms:
        for factor in term.factors:
            ways.setdefault(factor.column, set()).add(factor)
    several = [name for name, used in ways.items() if len(used) > 1]
    if not several:
        return
    if len(basis.labels) > _MOST_EXAMINED:
        raise InvalidInput(
            f"{several[0]!r} is used in several ways among {len(basis.labels)} entries; with more than "
            f"{_MOST_EXAMINED} a column must be itself or one spline"
        )
    rows = _ROWS_PER_ENTRY * len(basis.labels)
    cells: dict[str, NDArray[Any]] = {}
    for i, (name, column) in enumerate(known.items()):
        ranks = (0.5 + np.arange(rows) * math.sqrt(_PRIMES[i % len(_PRIMES)])) % 1.0
        if isinstance(column, Category):
            cells[name] = (ranks * len(column.values)).astype(np.int64)
        else:
            cells[name] = column.low + 2 * column.half * ranks
    x = np.column_stack([np.ones(rows), basis.evaluate(cells, rows)])
    if np.linalg.matrix_rank(x, tol=_SAME * math.sqrt(rows)) < x.shape[1]:
        name = several[0]
        used = " and ".join(sorted(str(factor) for factor in ways[name]))
        raise InvalidInput(
            f"{used} say the same in part: a spline can be a straight line too; leave one of them out"
        )


def _width(factor: Factor, known: Mapping[str, Column]) -> int:
    column = known[factor.column]
    if isinstance(column, Category):
        return len(column.values)
    return 1 if factor.spline is None else factor.spline.freedom
