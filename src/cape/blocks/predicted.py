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

__all__ = ["LINKS", "ErrorSquares", "Errors", "RiskCounts", "Risks", "inverse"]

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
class _Risks(_Predicted):
    """A sum over complete rows of what follows from predicted risks of a category of two values.

    Attributes:
        edges: of cells of risks, from 0 to 1; a cell has its lower edge, and the last both.
    """

    edges: tuple[float, ...]

    def check(self, schema: Schema) -> None:
        super().check(schema)
        column = schema[self.design.target or ""]
        if not isinstance(column, Category) or len(column.values) != 2:
            raise InvalidInput(f"target {self.design.target!r} must have two categories for risks")
        edges = self.edges
        rising = all(a < b for a, b in itertools.pairwise(edges))
        if not rising or edges[:1] != (0.0,) or edges[-1:] != (1.0,) or not 3 <= len(edges) <= _MOST_BINS:
            raise InvalidInput("edges of risks must rise from 0 to 1, with at least two bins")

    def risks(self, x: Floats) -> Floats:
        """Return predicted risks, in [0, 1] whatever the model is."""
        found = self.predictions(x)
        return np.clip(np.where(np.isnan(found), 0.0, found), 0.0, 1.0)

    def cells(self, risks: Floats) -> Integers:
        """Return the cell of each risk."""
        found = np.searchsorted(np.array(self.edges), risks, side="right") - 1
        return np.clip(found, 0, len(self.edges) - 2)

    def _typical_risks(self, schema: Schema) -> Floats:
        return self.risks(typical.rows(self.design, schema, _TYPICAL).T)


@dataclass(frozen=True)
class RiskCounts(_Risks):
    """Complete rows by the cell of their predicted risk: array counts (cells,)."""

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.check(schema)
        return (Array("counts", (len(self.edges) - 1,), 0),)

    def added(self, part: Part) -> Sums:
        cells = self.cells(self.risks(part.vectors(self.design).x / ONE))
        return (np.bincount(cells, minlength=len(self.edges) - 1).astype(np.int64),)

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        counts = np.bincount(self.cells(self._typical_risks(schema)), minlength=len(self.edges) - 1)
        return (np.asarray(rows / _TYPICAL * counts, np.float64),)


@dataclass(frozen=True)
class Risks(_Risks):
    """Rows by the bin of their predicted risk and by their outcome, a category of two values.

    Neighbouring cells make a bin. Arrays: counts (bins, 2); ranks (bins, 2), the sum of the ranks of risks,
    each from -1 to 1; and losses (1,), the sum of (outcome - risk)².

    Attributes:
        starts: the first cell of each bin.
        ranks: the rank of a risk at the lower and at the upper end of each cell, straight between them.
    """

    starts: tuple[int, ...]
    ranks: tuple[tuple[float, float], ...]

    def check(self, schema: Schema) -> None:
        super().check(schema)
        starts, cells = self.starts, len(self.edges) - 1
        rising = all(a < b for a, b in itertools.pairwise(starts))
        if not rising or starts[:1] != (0,) or not 0 <= starts[-1] < cells:
            raise InvalidInput(f"bins of risks must start at cells that rise from 0 to at most {cells - 1}")
        if len(self.ranks) != cells:
            raise InvalidInput(f"each of the {cells} cells of risks must have ranks, not {len(self.ranks)}")
        for rank in itertools.chain.from_iterable(self.ranks):
            check.real("ranks", rank, least=-1.0, most=1.0)

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.check(schema)
        bins = len(self.starts)
        return (
            Array("counts", (bins, 2), 0),
            Array("ranks", (bins, 2), T_BITS),
            Array("losses", (1,), T_BITS),
        )

    def added(self, part: Part) -> Sums:
        rows = part.vectors(self.design)
        risks, outcomes = self.risks(rows.x / ONE), rows.y.astype(np.int64)
        places, ranks = self.placed(risks)
        bins = len(self.starts)
        counts = np.bincount(2 * places + outcomes, minlength=2 * bins)
        summed = np.bincount(2 * places + outcomes, np.trunc(ranks * ONE), minlength=2 * bins)
        losses = np.trunc((outcomes - risks) ** 2 * ONE).sum(keepdims=True)  # exact, as all: below 2^53
        return tuple(
            each.astype(np.int64) for each in (counts.reshape(bins, 2), summed.reshape(bins, 2), losses)
        )

    def placed(self, risks: Floats) -> tuple[Integers, Floats]:
        """Return the bin of each risk, and its rank."""
        edges, cells = np.array(self.edges), self.cells(risks)
        low, high = edges[cells], edges[cells + 1]
        width = np.maximum(high - low, _NARROW)  # the narrowest that floats divide by
        first, last = np.array(self.ranks)[cells].T
        ranks = first + (last - first) * np.clip((risks - low) / width, 0.0, 1.0)
        return np.searchsorted(np.array(self.starts), cells, side="right") - 1, np.clip(ranks, -1.0, 1.0)

    def typical(self, schema: Schema, rows: int) -> tuple[Floats, ...]:
        """The sums of typical rows whose outcome follows the predictions."""
        risks = self._typical_risks(schema)
        places, ranks = self.placed(risks)
        both, bins = np.stack([1 - risks, risks], axis=1), len(self.starts)
        counts, summed = np.zeros((bins, 2)), np.zeros((bins, 2))
        np.add.at(counts, places, both)
        np.add.at(summed, places, both * ranks[:, None])
        losses = np.array([(risks * (1 - risks)).sum()])
        return tuple(np.asarray(rows / _TYPICAL * each, np.float64) for each in (counts, summed, losses))


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
