"""How a row becomes a vector of bounded length and a target: what regressions and clusterings add up.

Claim. The vector x of a row has ||x|| <= 1 and its target |y| <= 1, whatever the row holds.
Reason. Numeric columns enter as t in [-1, 1], category columns as 0 or 1 for each value but the first, of
which at most one is 1, interactions as their products and splines as functions whose squares add up to at
most 1 (`slots`): together at most `bound(schema)` long, which some rows are. The vector is divided by `norm`,
scaled down to length 1 if it is longer (no row is, where `norm` is that bound), and rounded toward zero to
multiples of 2^-20, which cannot make it longer. With an intercept c the vector is (c, x) / sqrt(1 + c²).
In a cube none of that is done: entries lie in [-1, 1], and the block itself bounds what a row adds.
Tested in tests/unit/blocks/test_design.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cape.blocks.basis import TermBasis, basis_of
from cape.blocks.terms import Feature, parse
from cape.core import check
from cape.core.errors import InvalidInput
from cape.data.schema import Category, Number, Schema

__all__ = ["Design"]

_SMALLEST = 2.0**-40  # far below any use, and far above where floats lose their bits


@dataclass(frozen=True)
class Design:
    """Which columns make up the vector and the target of a row; a row that misses one has neither.

    Attributes:
        features: terms (`cape.blocks.terms`): numeric columns, or categories, which are spread out to 0 and 1
            without their first value, interactions and splines. A column's name that looks like a term is
            `quoted`.
        target: a numeric column, which enters as t, or a category of two values, the first as -1 and the
            second as 1.
        norm: the length, in units of t, that is scaled to 1, and that longer rows are shortened to; by
            default the longest that the schema allows.
        intercept: what stands before the features, 0 for nothing.
        cube: leave entries as they are, t and 0 or 1, whatever the vector's length; a target that is a
            category of any number of values is then its place among them, 0, 1, ...
        cut: narrower bounds for some numeric features, at which their cells are cut.
        labels: let a target that is a category of any number of values be its place among them.
        beside: numeric columns that stand beside the target, in steps of their own bounds.
    """

    features: tuple[str, ...]
    target: str | None = None
    norm: float | None = None
    intercept: float = 0.0
    cube: bool = False
    cut: tuple[tuple[str, Number], ...] = ()
    beside: tuple[str, ...] = ()
    labels: bool = False

    def __post_init__(self) -> None:
        terms = {frozenset(term.factors) for term in self.terms}
        if not self.features or len(terms) != len(self.features):
            raise InvalidInput("features must name at least one column, and each only once")
        if self.target in self.sources:
            raise InvalidInput(f"the target {self.target!r} must not be one of the features")
        if self.norm is not None:
            check.real("norm", self.norm, least=_SMALLEST)
        check.real("intercept", self.intercept, least=0.0, most=1 / _SMALLEST)
        if self.cube and (self.norm is not None or self.intercept):
            raise InvalidInput("a design in a cube has neither a norm nor an intercept")
        taken = (*self.sources, self.target)
        for name in self.beside:
            if name in taken or self.beside.count(name) > 1:
                raise InvalidInput(
                    f"{name!r} must not be a feature or the target, and stand beside them once"
                )

    @property
    def terms(self) -> tuple[Feature, ...]:
        """The features, parsed."""
        return tuple(map(parse, self.features))

    @property
    def plain(self) -> bool:
        """Whether every feature is a column as it is."""
        return all(term.plain for term in self.terms)

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns that features are made of, each once."""
        return tuple(dict.fromkeys(name for term in self.terms for name in term.columns))

    @property
    def columns(self) -> tuple[str, ...]:
        target = () if self.target is None else (self.target,)
        return (*self.sources, *target, *self.beside)

    def basis(self, schema: Schema) -> TermBasis:
        """Return what the features make of a row; raise an error that names what does not fit."""
        return basis_of(self.features, schema, dict(self.cut))

    def check(self, schema: Schema) -> None:
        """Raise an error that names the column which does not fit."""
        self.basis(schema)
        for name in self.beside:
            schema.number(name)
        if self.target is not None:
            column = schema[self.target]
            if isinstance(column, Category) and len(column.values) != 2 and not (self.cube or self.labels):
                raise InvalidInput(
                    f"target {self.target!r} must have two categories, not {len(column.values)}, or bounds"
                )

    def alone(self, feature: str, schema: Schema) -> bool:
        """Return whether a feature is a column that shares no entry with an interaction."""
        plain = {part.plain[0] for part in self.basis(schema).parts if part.plain is not None}
        return parse(feature).plain and parse(feature).columns[0] in plain

    def names(self, schema: Schema) -> tuple[str, ...]:
        """Return what each entry of x is called, without the intercept."""
        self.check(schema)
        return self.basis(schema).labels

    def width(self, schema: Schema) -> int:
        """Return how many entries x has, with the intercept."""
        return len(self.names(schema)) + (self.intercept > 0)

    def bound(self, schema: Schema) -> float:
        """Return the longest that the features of a row can be, in units of t."""
        self.check(schema)
        return math.sqrt(len(self.basis(schema).parts))

    def length(self, schema: Schema) -> float:
        """Return the length, in units of t, that is scaled to 1."""
        if self.cube:
            return 1.0
        return self.bound(schema) if self.norm is None else min(self.norm, self.bound(schema))

    def missing(self, schema: Schema) -> bool:
        """Return whether a row may lack one of the columns."""
        return any(schema[name].missing for name in self.columns)
