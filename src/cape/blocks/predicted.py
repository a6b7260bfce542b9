"""Sums over rows of what a public model predicts for them, beside what they hold.

Claim. A row adds 1 to one count at most, and to every other entry a number in [-1, 1], or in [0, 1] where it
is a square. The integers are the same for the same set of rows, in whichever parts and order.
Reason. The linear predictor is added up column by column, and everything after it is computed for each row by
itself. Numbers are cut at their bounds and truncated to whole steps of 2^-20; squares of steps are at most
2^40, and 8192 of them add up exactly in float64.
Tested in tests/unit/blocks/test_predicted.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, ndtr

from cape.blocks import typical
from cape.blocks.block import T_BITS, Array, Sums, VectorBlock
from cape.blocks.parts import Part
from cape.blocks.rows import Vectors
from cape.blocks.squares import Form
from cape.blocks.steps import ONE
from cape.core import check
from cape.core.arrays import Floats, Integers
from cape.core.errors import InvalidInput
from cape.data.schema import Category, Number, Schema

__all__ = ["LINKS", "ErrorSquares", "Errors", "Risks", "inverse"]

_LARGEST = 1e100
_TYPICAL = 1024  # rows, for plans
_MOST_BINS = 1 << 12
_LOGARITHM = 700.0  # beyond, an exponential has no double
_NARROW = 2.0**-1022

LINKS: dict[str, Callable[[Any], Any]] = {
    "identity": lambda eta: eta,
    "log": lambda eta: np.exp(np.minimum(eta, _LOGARITHM)),
    "logit": expit,
    "probit": ndtr,
    "cloglog": lambda eta: -np.expm1(-np.exp(np.minimum(eta, _LOGARITHM))),
    "inverse": lambda eta: 1 / np.where(np.abs(eta) > 1 / _LARGEST, eta, 1 / _LARGEST),
}
"""What turns the linear predictor into a prediction, by the name of the link."""


def inverse(link: str, eta: Floats) -> Floats:
    """Return predictions from linear predictors."""
    return np.asarray(LINKS[link](eta), np.float64)


@dataclass(frozen=True)
class _Predicted(VectorBlock):
    """A sum over complete rows, each with the prediction of a model.

    Attributes:
        weights: of 1 and of each entry of the vector, in units of t.
        link: the link, by name.
    """

    weights: tuple[float, ...]
    link: str

    def check(self, schema: Schema) -> None:
        """Raise `InvalidInput` if the model does not fit the schema."""
        self.design.check(schema)
        width = self.design.width(schema)
        if self.design.target is None or not self.design.cube or len(self.weights) != width + 1:
            raise InvalidInput(f"predictions need a design in a cube with a target, and {width + 1} weights")
        if self.link not in LINKS:
            raise InvalidInput(f"link must be one of {', '.join(LINKS)}, not {check.show(self.link)}")
        for weight in self.weights:
            check.real("weights", weight, least=-_LARGEST, most=_LARGEST)

    def predictions(self, x: Floats) -> Floats:
        """Return predictions for vectors in units of t, (width, rows): column by column."""
        total, product = np.full(x.shape[1], self.weights[0]), np.empty(x.shape[1])
        for column, weight in zip(x, self.weights[1:], strict=True):
            np.multiply(column, weight, out=product)
            total += product
        return inverse(self.link, total)


@dataclass(frozen=True)
class Risks(_Predicted):
    """Rows by the bin of their predicted risk and by their outcome, a category of two values.

    Arrays: counts (bins, 2), and within (bins,), the sum of where in its bin a risk lies, from -1 to 1.

    Attributes:
        edges: of the bins, from 0 to 1; a bin has its lower edge, and the last both.
    """

    edges: tuple[float, ...]

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.check(schema)
        column = schema[self.design.target or ""]
        if not isinstance(column, Category) or len(column.values) != 2:
            raise InvalidInput(f"target {self.design.target!r} must have two categories for risks")
        edges = self.edges
        rising = all(a < b for a, b in itertools.pairwise(edges))
        if not rising or edges[:1] != (0.0,) or edges[-1:] != (1.0,) or not 3 <= len(edges) <= _MOST_BINS:
            raise InvalidInput("edges of risks must rise from 0 to 1, with at least two bins")
        bins = len(edges) - 1
        return (Array("counts", (bins, 2), 0), Array("within", (bins,), T_BITS))

    def added(self, part: Part) -> Sums:
        rows = part.vectors(self.design)
        place, within = self._placed(self.predictions(rows.x / ONE))
        cells = 2 * place + rows.y.astype(np.int64)
        bins = len(self.edges) - 1
        counts = np.bincount(cells, minlength=2 * bins).reshape(bins, 2)
        sums = np.bincount(place, np.trunc(within * ONE), minlength=bins)  # exact: below 2^53
        return counts.astype(np.int64), sums.astype(np.int64)

    def _placed(self, risks: Floats) -> tuple[Integers, Floats]:
        """Return the bin of each risk, and where in it the risk lies."""
        edges = np.array(self.edges)
        risks = np.clip(np.where(np.isnan(risks), 0.0, risks), 0.0, 1.0)
        place = np.clip(np.searchsorted(edges, risks, side="right") - 1, 0, len(edges) - 2)
        low, high = edges[place], edges[place + 1]
        half = np.maximum((high - low) / 2, _NARROW)  # half of the narrowest bin that floats have is 0
        return place, np.clip((risks - (low + high) / 2) / half, -1.0, 1.0)

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        """The sums of typical rows whose outcome follows the predictions."""
        risks = self.predictions(typical.rows(self.design, schema, _TYPICAL).T)
        place, within = self._placed(risks)
        bins = len(self.edges) - 1
        ill, well = (np.bincount(place, each, minlength=bins) for each in (risks, 1 - risks))
        found = np.stack([well, ill], axis=1), np.bincount(place, within, minlength=bins)
        return tuple(np.asarray(rows / _TYPICAL * each, np.float64) for each in found)


@dataclass(frozen=True)
class _Errors(_Predicted):
    """Sums of errors of predictions for a target that is a number.

    With t the target and p its prediction, both cut at the target's bounds and scaled to [-1, 1], the error
    is e = (t - p) / 2.
    """

    def check(self, schema: Schema) -> None:
        super().check(schema)
        schema.number(self.design.target or "")

    def errors(self, rows: Vectors, column: Number) -> tuple[Floats, Floats]:
        """Return e and t of each row, in whole steps."""
        predicted = np.clip((self.predictions(rows.x / ONE) - column.middle) / column.half, -1.0, 1.0)
        away = np.where(np.isnan(predicted), 0.0, predicted)
        return np.trunc(np.clip((rows.y / ONE - away) / 2, -1.0, 1.0) * ONE), rows.y

    def _typical(self, schema: Schema) -> tuple[Floats, Floats]:
        """Return e and t of typical rows: errors have half of the variance of the target."""
        target = schema.number(self.design.target or "")
        t = typical.Shape(target).at(np.arange(0.5, _TYPICAL) / _TYPICAL)
        e = np.sqrt(0.5) * (t - t.mean()) / 2
        return e, np.asarray(t)


@dataclass(frozen=True)
class Errors(_Errors):
    """Over complete rows: arrays count, target (the sum of t), squares (of t²), errors (of e²), each (1,)."""

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.check(schema)
        return (
            Array("count", (1,), 0),
            Array("target", (1,), T_BITS),
            Array("squares", (1,), 2 * T_BITS),
            Array("errors", (1,), 2 * T_BITS),
        )

    def added(self, part: Part) -> Sums:
        rows = part.vectors(self.design)
        e, t = self.errors(rows, part.schema.number(self.design.target or ""))
        found = (rows.count, t.sum(), np.dot(t, t), np.dot(e, e))
        return tuple(np.array([each], np.int64) for each in found)

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        e, t = self._typical(schema)
        return tuple(rows * np.array([mean]) for mean in (1.0, t.mean(), (t * t).mean(), (e * e).mean()))


@dataclass(frozen=True)
class ErrorSquares(_Errors):
    """Over complete rows, the sum of (q / bound)² for each quadratic form q of (e, t - centre).

    Arrays: squares (forms,).
    """

    centre: float
    forms: tuple[Form, ...]

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.check(schema)
        check.real("centre", self.centre, least=-1.0, most=1.0)
        if not self.forms:
            raise InvalidInput("squares of errors need a form")
        for form in self.forms:
            check.real("bound", form.bound, least=1 / _LARGEST, most=_LARGEST)
            for i, j, weight in form.terms:
                check.integer("place", i, least=0, most=1)
                check.integer("place", j, least=0, most=1)
                check.real("weight", weight, least=-_LARGEST, most=_LARGEST)
        return (Array("squares", (len(self.forms),), 2 * T_BITS),)

    def added(self, part: Part) -> Sums:
        rows = part.vectors(self.design)
        e, t = self.errors(rows, part.schema.number(self.design.target or ""))
        pair = e / ONE, t / ONE - self.centre
        totals = np.empty(len(self.forms))
        for place, form in enumerate(self.forms):
            q = np.zeros(rows.count)
            for i, j, weight in form.terms:
                q = q + pair[i] * pair[j] * weight
            steps = np.trunc(np.clip(q * (ONE / form.bound), -ONE, ONE))
            totals[place] = np.dot(steps, steps)
        return (totals.astype(np.int64),)
