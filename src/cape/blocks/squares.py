"""Sums of the squares of quadratic forms over rows: what the sampling error of a second moment depends on.

Claim. Each entry adds, for one row, an integer from 0 to 2^40 in units of 2^-40: a number within [0, 1].
The integers are the same for the same set of rows, in whichever parts, order and engine.
Reason. A form is divided by its bound, cut at -1 and 1, and truncated to whole steps of 2^-20 before it is
squared. It is computed row by row from sums and products of float64 in a fixed order, which IEEE 754
specifies to the bit. 8192 squares of at most 2^40 add up exactly in float64.
Tested in tests/unit/blocks/test_squares.py, and in databases in tests/unit/blocks/test_backends.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cape.blocks.block import T_BITS, Array, Sums, VectorBlock
from cape.blocks.parts import Part
from cape.blocks.steps import ONE
from cape.core import check
from cape.core.arrays import narrowed
from cape.core.errors import InvalidInput
from cape.data.schema import Schema

if TYPE_CHECKING:
    from cape.blocks.sql import Ask, SqlColumns, Totals

__all__ = ["Form", "Squares"]

_LARGEST = 1e100
_TINY = 1e-100  # a weight below it could make a product that some databases find too small


@dataclass(frozen=True)
class Form:
    """A quadratic form of a row about a centre: the sum of weight c_i c_j over its terms (i, j, weight).

    Attributes:
        terms: places in the vector, and a weight.
        bound: where its magnitude is cut; a form that never exceeds it is not changed.
    """

    terms: tuple[tuple[int, int, float], ...]
    bound: float


@dataclass(frozen=True, eq=False)
class Squares(VectorBlock):
    """Over complete rows, the sum of (q(x) / bound)² for each form q, with c = x - centre.

    Arrays: squares (forms,).
    """

    centre: tuple[float, ...]
    forms: tuple[Form, ...]

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.design.check(schema)
        width = self.design.width(schema)
        if self.design.target is not None or len(self.centre) != width or not self.forms:
            raise InvalidInput(f"squares need a design without target, a centre of {width} and a form")
        for value in self.centre:
            check.real("centre", value, least=-1.0, most=1.0)
        for form in self.forms:
            if not form.terms:
                raise InvalidInput("a form must have a term")
            check.real("bound", form.bound, least=1 / _LARGEST, most=_LARGEST)
            for i, j, weight in form.terms:
                check.integer("place", max(i, j), least=0, most=width - 1)
                check.real("weight", weight, least=-_LARGEST, most=_LARGEST)
        return (Array("squares", (len(self.forms),), 2 * T_BITS),)

    def added(self, part: Part) -> Sums:
        rows = part.vectors(self.design)
        centred = [column / ONE - at for column, at in zip(rows.x, self.centre, strict=True)]
        totals = np.empty(len(self.forms))
        for place, form in enumerate(self.forms):
            steps = np.trunc(np.clip(_value(form, centred) * (ONE / form.bound), -ONE, ONE))
            totals[place] = np.dot(steps, steps)
        return (totals.astype(np.int64),)

    def pushed(self, columns: SqlColumns) -> Ask | None:
        from cape.blocks.sql import Ask

        weights = [abs(weight) for form in self.forms for _, _, weight in form.terms]
        if not (self.design.cube and self.design.plain) or any(0 < weight < _TINY for weight in weights):
            return None
        cut = dict(self.design.cut)
        entries = [value for name in self.design.sources for value in columns.spread(name, cut.get(name))]
        centred = [entry / ONE - at for entry, at in zip(entries, self.centre, strict=True)]
        values = [columns.whole(_value(form, centred) * (ONE / form.bound)) for form in self.forms]
        squares = [(i, i) for i in range(len(values))]

        def finish(found: Mapping[int, Totals]) -> Sums:
            return (narrowed(found[0].products),)

        return Ask(finish, values, products=squares, complete=self.design.columns)


def _value(form: Form, centred: Sequence[Any]) -> Any:
    """Return the form of every row, in one order of operations for arrays and for columns of a database."""
    total: Any = None
    for i, j, weight in form.terms:
        term = centred[i] * centred[j] * weight
        total = term if total is None else total + term
    return total
