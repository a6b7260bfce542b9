"""Any loss that is a polynomial in x·w: its tensors are released once, with joint sensitivity, and
minimised."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from cape.analyses.regression.approximate import Approximation, Fitting, approximate
from cape.analyses.regression.faults import sentence
from cape.analyses.regression.inference import unreliable
from cape.analyses.regression.minimise import Minimum, Objective, minimum
from cape.analyses.regression.polynomial_estimate import estimates_of, objective_of, spread_of, warn
from cape.analyses.regression.polynomial_model import PolynomialModel
from cape.analyses.tensor_sums import joint, largest
from cape.blocks.design import Design
from cape.blocks.tensors import Term
from cape.blocks.units import Units
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.arguments import joined, regression
from cape.engine.query import Analysis, AnalysisResult, Answer, Neighbours, Noise, Query
from cape.stats.matrices import spectral

__all__ = ["PolynomialLoss"]


_TYPICAL = 2.0  # the length of w that noise is shared out for
_MOST_ENTRIES = 1 << 24
_NEGLIGIBLE = 1e-12  # of the largest coefficient: what is smaller is left out
_MOST_RIDGE = 1e50
_HIDDEN = 0.5  # of a coefficient: what noise, or another column that repeats it, hides
_FLAT = 1e-9  # of the rows: a curvature that rounding makes


@dataclass(frozen=True, init=False)
class PolynomialLoss(Analysis):
    """The w that minimises the sum over complete rows of sum_j c_j(y) (x·w)^j, j = 1 to 4, over |w| <=
    radius.

    >>> consortium.release(PolynomialLoss("chol", ["age"], {1: [0, -2], 2: [1]}), share=0.1).model

    x is the row's features, scaled so that ||x|| <= 1, y the target, scaled to [-1, 1], or -1 and 1 for two
    categories. The sums of c_j(y) x⊗...⊗x are released once, as the functional mechanism does it, and what
    is minimised is the polynomial with noisy coefficients: a minimiser exists by construction, see
    `minimise`. A c_0 does not move it and is not released. Least squares is {1: [0, -2], 2: [1]};
    `approximating` gives the polynomial for a loss of the margin y x·w, such as log(1 + exp(-m)).

    Estimates are w per unit of each feature. Like a sum they are about the rows in the tables, and their
    errors count noise, and what the ridge may do, but no sampling.

    **Sensitivity** `sensitivity.moved` of the terms, jointly: exact up to 1e-6.

    *Choice.* Noise in the gradient at w has a variance proportional to sum_j j (m_j |w|^(j-1))² / a_j an
    entry, m_j the largest |c_j| and a_j the weight of term j over m_j². With a_j proportional to sqrt(j)
    m_j |w|^(j-1) and |w| = 2 that is least, if a row moved the terms by the sum of the weights.

    Args:
        target: a numeric column, or one with two categories.
        features: numeric columns, or categories: one 0 or 1 for each value but the first.
        coefficients: j -> c_j as coefficients of 1, y, y², ...; below 1e-12 of the largest they are left out.
        intercept: whether x starts with a 1; both are then divided by sqrt(2), to have length 1 together.
        radius: the longest that w may be.
        ridge: "auto", from the noise, or what is added to the mean of the loss times |w|².
        norm: the length that rows are shortened to.
    """

    kind: ClassVar[str] = "polynomial-loss"
    example: ClassVar[dict[str, Any]] = {
        "target": "chol",
        "features": ["age"],
        "coefficients": {"1": [0, -2], "2": [1]},
    }
    slopes: ClassVar[bool] = True
    target: str
    features: tuple[str, ...]
    coefficients: tuple[tuple[int, tuple[float, ...]], ...]
    intercept: bool
    radius: float
    ridge: float | Literal["auto"]
    norm: float | None

    def __init__(
        self,
        target: str,
        features: Sequence[str] | str,
        coefficients: Mapping[int, Sequence[float]],
        *,
        intercept: bool = True,
        radius: float = 4.0,
        ridge: float | Literal["auto"] = "auto",
        norm: float | None = None,
    ) -> None:
        self._set(
            **regression(target, features, intercept=intercept, ridge=ridge, norm=norm),
            coefficients=_clean(coefficients),
            radius=check.real("radius", radius, above=0.0, most=1e6),
        )
        if self.ridge != "auto" and not self.ridge / _unit(self.coefficients) <= _MOST_RIDGE:
            raise InvalidInput(
                f"ridge must be at most {_MOST_RIDGE:g} times the largest coefficient, not {ridge!r}"
            )
        _ = self.design  # refuses a target among the features

    @staticmethod
    def approximating(
        function: Callable[[Floats], Floats], degree: int, range: float, fit: Fitting = "minimax"
    ) -> Approximation:
        """Return the polynomial for a loss of the margin y x·w, y = -1 or 1, on [-range, range].

        Its `coefficients` are what `PolynomialLoss` takes; with `radius` at most `range` no margin is
        outside.
        """
        return approximate(function, degree, range, fit)

    @property
    def design(self) -> Design:
        return Design(self.features, self.target, self.norm, 1.0 if self.intercept else 0.0)

    @property
    def _terms(self) -> tuple[tuple[Term, float], ...]:
        """The terms, with |c(y)| <= 1, and what each was divided by, beside the unit of the loss.

        With its largest coefficient as the unit the loss is the same whatever it was measured in.
        """
        found = []
        for degree, given in self.coefficients:
            c = tuple(a / _unit(self.coefficients) for a in given)
            size = largest(c)
            if c[-1] < 0 and not any(c[:-1]):
                size = -size  # so that 1, y and y² keep their exact sums
            found.append((Term(degree, tuple(a / size + 0.0 for a in c)), size))
        return tuple(found)

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        width = self.design.width(schema)
        if width ** self.coefficients[-1][0] > _MOST_ENTRIES:
            raise InvalidInput(f"degree {self.coefficients[-1][0]} is for few features, not {width}")
        terms = tuple(term for term, _ in self._terms)
        weights = tuple(
            math.sqrt(term.degree) * abs(size) * _TYPICAL ** (term.degree - 1) for term, size in self._terms
        )
        return joint(self.design, terms, weights, schema, neighbours)

    def finish(self, answer: Answer) -> AnalysisResult:
        objective, rows = objective_of(answer, self.design, self._terms)
        ridge = (
            None if self.ridge == "auto" else float(self.ridge) / _unit(self.coefficients) * max(rows, 1.0)
        )
        found = minimum(objective, self.radius, rows, ridge)
        units = Units(Design(self.features, self.target, self.norm), answer.schema)
        labels, turn = self._turned(answer.schema)
        estimates = estimates_of(objective, found, turn, labels, self.radius)
        warn(objective, found, rows, self.target)
        values = turn @ found.weights
        shift = int(self.intercept)
        model = PolynomialModel(
            self.target,
            Design(self.features, self.target, self.norm),
            answer.schema,
            tuple(estimates),
            float(values[0]) if self.intercept else float(units.matrix[0, 1:] @ found.weights),
            dict(zip(units.names, map(float, values[shift:]), strict=True)),
            tuple(map(float, found.weights / (math.sqrt(2) if self.intercept else 1.0))),
            self.intercept,
            rows,
            found.ridge / max(rows, 1.0) * _unit(self.coefficients),
            self._faults(objective, found, labels, max(rows, 1.0)),
            answer.complete_rows(self.design.columns)[1],
        )
        return AnalysisResult(estimates, model)

    def expected(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return the noise of each weight, and how far a ridge moves it where there is one.

        A release counts the furthest that a ridge could move a weight, because it does not know the true
        ones; those of typical rows are known.
        """
        answer = self.typical(schema, noise, rows, neighbours)
        objective, count = objective_of(answer, self.design, self._terms)
        ridge = None if self.ridge == "auto" else float(self.ridge) / _unit(self.coefficients) * max(rows, 1)
        found = minimum(objective, self.radius, count, ridge)
        free = minimum(objective, self.radius, count, 0.0)
        labels, turn = self._turned(schema)
        moved = turn @ (found.weights - free.weights)
        errors = spread_of(objective, found, turn)
        most = self.radius * np.linalg.norm(turn, axis=1)
        total = np.minimum(np.hypot(errors, moved), most)
        return dict(zip(labels, map(float, total), strict=True))

    def _turned(self, schema: Schema) -> tuple[tuple[str, ...], Floats]:
        """Return what estimates are called, and what makes them of w."""
        units = Units(Design(self.features, self.target, self.norm), schema)
        turn = units.matrix / math.sqrt(2) if self.intercept else units.matrix[1:, 1:]
        return ("intercept", *units.names)[not self.intercept :], np.asarray(turn)

    def _faults(
        self, objective: Objective, found: Minimum, labels: Sequence[str], rows: float
    ) -> tuple[str, ...]:
        """Return a sentence on features along which the loss is flat, as far as noise lets it be seen."""
        bent = objective.hessian(found.weights)
        values, vectors = np.linalg.eigh(bent)
        noise = spectral(objective.width, math.sqrt(2) * objective.noise_of(2))
        parts = (vectors[:, values <= noise + _FLAT * rows] ** 2).sum(axis=1)
        shift = int(self.intercept)
        names, parts = list(labels[shift:]), parts[shift:]
        if not len(parts) or parts.max() < _HIDDEN:
            return ()
        return (sentence(unreliable(names, parts, noise=noise > 0), names),)

    def describe(self) -> str:
        degree = self.coefficients[-1][0]
        return f"loss of degree {degree} for {self.target}, linear in {joined(self.features)}"

    def keys(self) -> dict[str, Any]:
        return super().keys() | {"coefficients": {j: list(c) for j, c in self.coefficients}}


def _clean(given: Any) -> tuple[tuple[int, tuple[float, ...]], ...]:
    if not isinstance(given, Mapping) or not given:
        raise InvalidInput(f"coefficients must map powers of x·w to polynomials in y, not {given!r}")
    found: dict[int, list[float]] = {}
    for power, c in given.items():
        key = int(power) if isinstance(power, str) and power.isascii() and power.isdigit() else power
        degree = check.integer("coefficients", key, least=0, most=4)
        if degree in found:
            raise InvalidInput(f"coefficients must have each power of x·w once; {degree} occurs twice")
        if isinstance(c, (str, bytes, Mapping)) or not isinstance(c, Iterable):
            raise InvalidInput(f"coefficients must map {power!r} to a list, of 1, y, y² and so on, not {c!r}")
        found[degree] = [check.real("coefficients", value) for value in c]
    found.pop(0, None)  # it does not move the minimiser
    largest_of_all = max((abs(a) for c in found.values() for a in c), default=0.0)
    kept = {}
    for degree, values in found.items():
        values = [a if abs(a) > _NEGLIGIBLE * largest_of_all else 0.0 for a in values]
        while values and values[-1] == 0:
            values.pop()
        if values:
            kept[degree] = tuple(values)
    if not kept:
        raise InvalidInput("coefficients must have a power of x·w, from 1 to 4, that is not 0")
    return tuple(sorted(kept.items()))


def _unit(coefficients: tuple[tuple[int, tuple[float, ...]], ...]) -> float:
    """Return the largest coefficient: the unit of the loss."""
    return max(abs(a) for _, c in coefficients for a in c)
