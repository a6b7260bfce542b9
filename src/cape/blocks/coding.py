"""The columns that coefficients multiply, as formulaic, patsy and R have them for the same formula.

Products of numbers are as they are. A category is coded against its first value, or with one column for each
value where the margin of a term is not in the model: what a term spans that earlier ones do not, those of
fewer factors first, is written with as few products as possible.
Tested in tests/unit/blocks/test_terms.py, against formulaic and patsy.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cape.blocks.splines import knots_of
from cape.blocks.terms import Factor, Feature
from cape.data.schema import Category, Column

__all__ = ["ModelColumn", "categories_of", "coded", "label_of"]

Levels = frozenset[tuple[str, int]]
"""Values of categories by name, as codes."""


@dataclass(frozen=True)
class ModelColumn:
    """A column of the model: numbers, one function of each curve, and values of categories, multiplied."""

    numbers: frozenset[str]
    curves: frozenset[tuple[Factor, int]]
    levels: Levels

    @property
    def key(self) -> ModelColumn:
        """The same without first values: no two entries of a model have the same."""
        return ModelColumn(self.numbers, self.curves, frozenset(each for each in self.levels if each[1]))


def categories_of(term: Feature, known: Mapping[str, Column]) -> tuple[str, ...]:
    """Return the factors of a term that have categories."""
    return tuple(f.column for f in term.factors if isinstance(known[f.column], Category))


def coded(terms: Sequence[Feature], known: Mapping[str, Column]) -> tuple[list[ModelColumn], list[int]]:
    """Return the columns of the model as formulaic has them, in the order of terms, and whose each is.

    What a term spans that earlier ones do not, those of fewer factors first, is written with as few products
    as possible: a category against its first value, or with all values where its margin is not spanned.
    """
    spanned: set[frozenset[Factor]] = {frozenset()}
    found: dict[int, list[ModelColumn]] = {}
    for place in sorted(range(len(terms)), key=lambda i: len(terms[i].factors)):
        term = terms[place]
        categories = set(categories_of(term, known))
        optional = [f for f in term.factors if f.column in categories]
        subsets = []
        for chosen in itertools.product((True, False), repeat=len(optional)):
            kept = set(itertools.compress(optional, chosen))
            subset = tuple((f, f in kept) for f in term.factors if f in kept or f.column not in categories)
            if frozenset(f for f, _ in subset) not in spanned:
                subsets.append(subset)
        spanned |= {frozenset(f for f, _ in subset) for subset in subsets}
        found[place] = [e for product in _simplified(subsets) for e in _columns(product, known)]
    return (
        [entry for place in range(len(terms)) for entry in found[place]],
        [place for place in range(len(terms)) for _ in found[place]],
    )


Product = tuple[tuple[Factor, bool], ...]
"""Factors, each with whether it is a category against its first value."""


def _simplified(products: Iterable[Product]) -> list[Product]:
    """Join products: what has a category against its first value, and the same without it, has all values."""
    found: list[Product] = []
    for product in sorted(products, key=len):
        for other in found:
            more = set(product) - set(other)
            if len(product) - 1 == len(other) and len(more) == 1 and next(iter(more))[1]:
                (new,) = more
                joined = tuple((f, False) if (f, flag) == new else (f, flag) for f, flag in product)
                found = _simplified([*(each for each in found if each != other), joined])
                break
        else:
            found.append(product)
    return found


def _columns(product: Product, known: Mapping[str, Column]) -> list[ModelColumn]:
    """Return the columns of a product, the first factor's values following each other fastest."""
    choices: list[list[tuple[str, Any]]] = []
    for factor, reduced in product:
        column = known[factor.column]
        if isinstance(column, Category):
            choices.append([("level", (factor.column, c)) for c in range(int(reduced), len(column.values))])
        elif factor.spline is None:
            choices.append([("number", factor.column)])
        else:
            choices.append([("curve", (factor, j)) for j in range(1, factor.spline.freedom + 1)])
    found = []
    for chosen in itertools.product(*reversed(choices)):

        def of(kind: str, chosen: tuple[tuple[str, Any], ...] = chosen) -> frozenset[Any]:
            return frozenset(each for what, each in chosen if what == kind)

        found.append(ModelColumn(of("number"), of("curve"), of("level")))
    return found


def label_of(term: Feature, entry: ModelColumn, known: Mapping[str, Column]) -> str:
    """Return what the coefficient of a column of a term is called."""
    levels, curves = dict(entry.levels), dict(entry.curves)
    parts = []
    for factor in term.factors:
        column = known[factor.column]
        if isinstance(column, Category):
            if factor.column in levels:
                parts.append(f"{factor.column}={column.values[levels[factor.column]]}")
        elif factor.spline is not None:
            parts.append(f"{factor}[{_written(knots_of(factor, column))[curves[factor]]}]")
        else:
            parts.append(factor.column)
    return ":".join(parts)


def _written(knots: Sequence[float]) -> list[str]:
    """Return knots with six digits, or with all if two would be the same."""
    short = [f"{knot:.6g}" for knot in knots]
    return short if len(set(short)) == len(short) else [repr(knot) for knot in knots]
