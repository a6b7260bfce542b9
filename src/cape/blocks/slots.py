"""The entries of a row's vector that terms make, in parts of length at most 1.

A *part* of the vector has numbers and curves multiplied with each other, for each of some cells of
categories: of these a row is in one at most.

Claim. No entry is outside [-1, 1], and the squares of a part's entries add up to at most 1: no vector is
longer than the root of the number of parts. A row with all numbers at their upper bounds, all categories at
their last values and curves where they are longest has that length: only a column that is used in two ways,
as itself where it is not centred (see below) and as a curve, may keep rows a little shorter.
Reason. A number enters as t in [-1, 1]; the squares of the functions of a curve add up to at most 1
(`splines`), so those of products of such do; and a row fills one cell of a part.

*Which parts.* Terms that have the same numbers and curves differ in categories only. They are made of as few
parts as possible: "a + b + a:b" has one, an entry for each pair of values but the first, and "age + age:sex"
one, with an entry for each sex. So "age * sex * site" is as long as "age + sex", not as long as seven terms.

*Centring.* A number enters as t = (x - middle) / half where the model has the same products without it, as
"age * sex" has: then the vector with t spans what the vector with x does. Where it has not, as in "age:sex"
alone, it enters as x / max |x|.
Tested in tests/unit/blocks/test_terms.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.blocks.coding import ModelColumn, categories_of
from cape.blocks.splines import SplineBasis
from cape.blocks.terms import Factor, Feature
from cape.core.arrays import Flags, Floats
from cape.data.schema import Category, Column, Number

__all__ = ["Scaled", "Slots", "slots_of"]


@dataclass(frozen=True)
class Scaled:
    """A number in a part: t, or x / max |x| where it is not centred."""

    name: str
    column: Number
    centred: bool

    @property
    def scale(self) -> tuple[float, float]:
        """What is subtracted, and what it is divided by."""
        column = self.column
        return (
            (column.middle, column.half)
            if self.centred
            else (0.0, max(abs(float(column.low)), abs(float(column.high))))
        )

    def at(self, values: Floats) -> Floats:
        """Return it, between -1 and 1; NaN for NaN."""
        least, most = float(self.column.low), float(self.column.high)
        middle, size = self.scale
        with np.errstate(over="ignore"):
            return np.asarray(np.clip((np.clip(values, least, most) - middle) / size, -1.0, 1.0))


@dataclass(frozen=True, eq=False)
class Slots:
    """Entries of which a row fills those of one cell at most; `places` says where in the vector they are.

    Entries are in the order of cells, within a cell of the functions of curves. `contrasts` says of how many
    categories weights are differences from first values.
    """

    numbers: tuple[Scaled, ...]
    curves: tuple[tuple[Factor, SplineBasis], ...]
    categories: tuple[tuple[str, Category], ...]
    cells: tuple[tuple[int, ...], ...]
    contrasts: int
    places: tuple[int, ...] = ()

    @property
    def plain(self) -> tuple[str, Column] | None:
        """The column that it is, if it is a centred number or the values of one category but the first."""
        if not self.curves and not self.categories and len(self.numbers) == 1 and self.numbers[0].centred:
            return self.numbers[0].name, self.numbers[0].column
        one = len(self.categories) == 1 and not self.numbers and not self.curves
        return self.categories[0] if one and self.cells[0] == (1,) else None

    @property
    def entries(self) -> list[ModelColumn]:
        names = [name for name, _ in self.categories]
        numbers = frozenset(each.name for each in self.numbers)
        functions = itertools.product(*(range(1, curve.many + 1) for _, curve in self.curves))
        chosen = [frozenset(zip((f for f, _ in self.curves), js, strict=True)) for js in functions]
        return [
            ModelColumn(numbers, js, frozenset(zip(names, cell, strict=True)))
            for cell in self.cells
            for js in chosen
        ]

    def reach(self) -> Floats:
        """Return the largest weight of each entry, if no factor moves the prediction by more than 1.

        A product of centred numbers has at most half of that as its weight: of f(t, u, ...) it is a mean of
        halves of differences from t = -1 to t = 1, with signs. A difference from first values, or from a
        curve's lower bound, of what is within 1 is within 1 where nothing else is in the product; of a
        product's weight within r it is within 2 r, and so on.
        """
        away = self.contrasts + len(self.curves)
        if not self.numbers:
            most = np.full(1, 2.0 ** (away - 1))
        elif any(each.centred for each in self.numbers):
            most = np.full(1, 2.0**away / 2)
        else:
            ranges = [
                (float(each.column.high) - float(each.column.low)) / each.scale[1] for each in self.numbers
            ]
            most = np.full(1, 2.0**away / max(ranges))
        for _, curve in self.curves:
            most = np.repeat(most * curve.size, curve.many)
        return np.tile(most, len(self.cells))

    def fill(self, cells: Mapping[str, NDArray[Any]], out: Sequence[Floats], one: float) -> Flags | None:
        """Put the entries, times `one`, into rows of `out`; return which rows miss a cell, None if none."""
        missing: Flags | None = None
        values: list[Floats | None] = [None]
        for number in self.numbers:
            t = number.at(cells[number.name])
            values = [t if values[0] is None else values[0] * t]
        for factor, curve in self.curves:
            functions = curve.at(cells[factor.column])
            values = [f if v is None else v * f for v in values for f in functions]
        if values[0] is not None:
            absent = np.isnan(values[0])
            missing = absent if absent.any() else None
        code: Any = None
        ids = np.zeros(len(self.cells), np.int64)
        for place, (name, column) in enumerate(self.categories):
            found = cells[name]
            if found.min(initial=0) < 0:
                missing = found < 0 if missing is None else missing | (found < 0)
            many = len(column.values)
            code = found if code is None else code * many + found
            ids = ids * many + np.array([cell[place] for cell in self.cells])
        rows = iter(out)
        for cell in ids.tolist():
            for value in values:
                row = next(rows)
                if code is None:
                    np.multiply(value, one, out=row)  # type: ignore[arg-type]
                else:
                    np.multiply(code == cell, one, out=row)
                    if value is not None:
                        row *= value
        return missing


def _smooth(term: Feature, known: Mapping[str, Column]) -> frozenset[Factor]:
    """Return the factors of a term that are numbers or curves."""
    return frozenset(f for f in term.factors if isinstance(known[f.column], Number))


def slots_of(terms: Sequence[Feature], known: Mapping[str, Column]) -> list[Slots]:
    """Return the parts, without their places."""
    families: dict[frozenset[Factor], list[tuple[str, ...]]] = {}
    for term in terms:
        families.setdefault(_smooth(term, known), []).append(categories_of(term, known))
    spanned = {
        (smooth, frozenset(subset))
        for smooth, family in families.items()
        for names in family
        for size in range(len(names) + 1)
        for subset in itertools.combinations(names, size)
    } | {(frozenset[Factor](), frozenset[str]())}
    found = []
    for smooth, family in families.items():
        sets = [names for names in family if not any(set(names) < set(other) for other in family)]
        known_sets: list[set[str]] = [] if smooth else [set()]
        for names in sorted({frozenset(each): each for each in sets}.values(), key=lambda each: -len(each)):
            for categories, cells, contrasts in _cells(names, known_sets, known):
                found.append(_part(smooth, categories, cells, contrasts, spanned, known))
            known_sets.append(set(names))
    return found


def _cells(
    names: tuple[str, ...], spanned: Sequence[set[str]], known: Mapping[str, Column]
) -> list[tuple[tuple[str, ...], tuple[tuple[int, ...], ...], int]]:
    """Return categories, cells whose indicators span what is new of all functions of them, and contrasts.

    Those of the sets in `spanned` are known. If all that is known depends on the same categories, it is the
    cells in which the others do not all have their first values; if not, products of single values.
    """
    shared = [spanned_ & set(names) for spanned_ in spanned]
    most = max(shared, key=len, default=None)
    if most is None or all(each <= most for each in shared):
        rest = [i for i, name in enumerate(names) if most is None or name not in most]
        every = itertools.product(*(range(len(_values(known[name]))) for name in names))
        cells = tuple(cell for cell in every if most is None or any(cell[i] for i in rest))
        return [(names, cells, int(most is not None))] if cells else []
    found = []
    for size in range(1, len(names) + 1):
        for subset in itertools.combinations(names, size):
            if not any(set(subset) <= each for each in shared):
                every = itertools.product(*(range(1, len(_values(known[name]))) for name in subset))
                found.append((subset, tuple(every), size))
    return found


def _values(column: Column) -> tuple[Any, ...]:
    return column.values if isinstance(column, Category) else ()


def _part(
    smooth: frozenset[Factor],
    categories: tuple[str, ...],
    cells: tuple[tuple[int, ...], ...],
    contrasts: int,
    spanned: set[tuple[frozenset[Factor], frozenset[str]]],
    known: Mapping[str, Column],
) -> Slots:
    """Return a part; a number is centred where the model has the same without it."""
    curves, numbers = [], []
    for factor in sorted(smooth, key=str):
        column = known[factor.column]
        assert isinstance(column, Number)
        if factor.spline is None:
            numbers.append((factor, column))
        else:
            curves.append((factor, SplineBasis(factor, column)))
    centred: set[Factor] = set()
    for factor, _ in numbers:
        without = [
            smooth - {factor, *others}
            for size in range(len(centred) + 1)
            for others in itertools.combinations(sorted(centred, key=str), size)
        ]
        subsets = [
            frozenset(s)
            for size in range(len(categories) + 1)
            for s in itertools.combinations(categories, size)
        ]
        if all((each, subset) in spanned for each in without for subset in subsets):
            centred.add(factor)
    held = []
    for name in categories:
        column = known[name]
        assert isinstance(column, Category)
        held.append((name, column))
    return Slots(
        tuple(Scaled(factor.column, column, factor in centred) for factor, column in numbers),
        tuple(curves),
        tuple(held),
        cells,
        contrasts,
    )
