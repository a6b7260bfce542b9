"""Regressions of a target of several categories: multinomial logits, and proportional odds.

Claim. A row adds (s, C, ss') with |s| <= 1 and C positive semidefinite, the root of the sum of its squares at
most 1, in the block's units. With weights 1, b = 1/2 and m = 0.3 on their sums (off-diagonals counted twice),
e on the deviance and c on the count, one row changes the sums, each divided by its scale, by at most
sqrt(4 + 2 b + e) under replace-one if c <= 4 + b - 1 - m, and by sqrt(1 + b + m + c + e) under add-remove.
Reason. |C - C'|² <= |C|² + |C'|² <= 2, because the inner product of two positive semidefinite matrices is not
negative. With r, r' the lengths of s and s' and k the cosine between s and -s',

    r² + r'² + 2 r r' k + m (r⁴ + r'⁴ - 2 r² r'² k²)

is convex in r and r', so that each is 0 or 1: it is 1 + m, or 2 + 2 k + 2 m (1 - k²), which rises up to
k = 1: 4. A row that is added, left out, or replaced by an incomplete one changes the sums, squared, by
1 + b + m + c + e at most. Rounding moves C, which is a sum of L products of vectors of length at most 1 (each
is at most C), by at most 2 L (2 sqrt(d) + 2) steps of 2^-20, and ss' as in `scores`; both are added.
Tested in tests/unit/analyses/regression/test_glm.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.special import logit

from cape.analyses.regression.by_scores import MOST_MOVED, SPREAD, ByScores, warn
from cape.analyses.regression.inference import Reach, ends, largest
from cape.analyses.regression.joint import Joint, rows_of
from cape.analyses.regression.multinomial_model import ChoiceModel
from cape.analyses.regression.multinomial_proportions import Shares, fit_of, unseen_labels
from cape.analyses.regression.score_query import check_few
from cape.analyses.regression.scores import Belief, Point, Scale, Step, left_of
from cape.blocks import Choices, Design
from cape.blocks.block import T_BITS
from cape.blocks.choices import Model
from cape.blocks.families import Logit
from cape.blocks.units import Units
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Number, Schema
from cape.engine.arguments import joined
from cape.engine.query import AnalysisResult, Answer, Neighbours, Noise, Query
from cape.stats.estimates import Estimate, unknown

__all__ = ["ChoiceRegression", "choice_query"]

_CURVE, _SPREAD, _DEVIANCE = 0.5, 0.3, 0.02
_FLOAT = 1 + 1e-12
_LIMIT = 16.0  # the largest deviance of a row that counts
_FAR = 0.7  # of the bound on scores that leaves most rows as they are: there are more coefficients to hide
_GAP = 0.01  # the least between two thresholds
_LEAST = 0.1  # of the curvature of a typical row: what thresholds have together at least
_MOST_LEVELS = 20


def choice_query(
    design: Design,
    point: Point,
    model: Model,
    levels: int,
    weighted: bool,
    schema: Schema,
    neighbours: Neighbours,
) -> Query:
    """Return the question for scores at a point: proof at the head of the module."""
    replaced, alone = neighbours == "replace-one", 1 + _CURVE + _SPREAD
    count = 4 + 2 * _CURVE - alone if replaced else alone / 8
    weights = (count, 1.0, _CURVE, 2 * _CURVE, _SPREAD, 2 * _SPREAD, _DEVIANCE)
    turn = tuple(tuple(map(float, row)) for row in _small(point.turn, model, levels))
    block = Choices(
        design,
        tuple(map(float, point.weights)),
        turn,
        float(point.bound),
        float(point.curve),
        model,
        levels,
        _LIMIT,
        weighted,
        _middle(point.turn, model, levels),
    )
    roots = math.sqrt(len(point.weights))
    steps = 8 * roots * (1 + 2 * math.sqrt(_SPREAD)) + math.sqrt(_CURVE) * 4 * levels * (2 * roots + 2)
    squared = 4 + 2 * _CURVE if replaced else alone + count
    sensitivity = math.sqrt(squared + _DEVIANCE) + math.ldexp(steps, -T_BITS)
    return Query((block,), (tuple(1 / math.sqrt(weight) for weight in weights),), sensitivity * _FLOAT)


def _small(matrix: Floats, model: Model, levels: int) -> Floats:
    """Return the part of a matrix that belongs to the features: of several categories, their mean."""
    free = levels - 1
    if model == "ordinal":
        return matrix[free:, free:]
    width = len(matrix) // free
    return np.asarray(
        np.mean(
            [matrix[k * width : (k + 1) * width, k * width : (k + 1) * width] for k in range(free)], axis=0
        )
    )


def _middle(turn: Floats, model: Model, levels: int) -> tuple[float, ...]:
    """Return what is taken off turned features: a score has -(sum of g) (Tx - m) beside g."""
    return tuple(map(float, turn[levels - 1 :, 0])) if model == "ordinal" else ()


def _large(turn: Floats, model: Model, levels: int, middle: Floats | None = None) -> Floats:
    """Return what turns all weights, if this turns those of the features, less their middle."""
    free = levels - 1
    if model == "multinomial":
        return np.asarray(np.kron(np.eye(free), turn), np.float64)
    found = np.eye(free + len(turn))
    found[free:, free:] = turn
    if middle is not None:
        found[free:, :free] = middle[:, None]
    return found


def _together(step: Step, levels: int) -> tuple[Floats, float]:
    """Return the middle of an ordinal model's turned features, weighted as curvature does, and the weight.

    Thresholds that move together change every log-odds alike. The middle is nearer to 0 as noise hides it.
    """
    free = levels - 1
    total = max(float(step.curvature[:free, :free].sum()), _LEAST * step.count * step.point.scale.weight)
    found = -step.curvature[free:, :free].sum(axis=1) / total
    noise = len(found) * free * (step.curvature_noise / total) ** 2
    return max(0.0, 1 - noise / max(float(found @ found), 1e-300)) * found, total


@dataclass(frozen=True, init=False)
class ChoiceRegression(ByScores):
    """What `GLM` does for families of several categories."""

    kind: ClassVar[str] = "glm"
    example: ClassVar[dict[str, Any]] = {}
    predictor: ClassVar[str] = "log-odds"
    model: Model
    weights: str | None

    def __init__(
        self,
        target: str,
        features: tuple[str, ...],
        model: Model,
        *,
        weights: str | None,
        rounds: int | Literal["auto"],
        intercept: bool,
        norm: float | None,
    ) -> None:
        self._set(target=target, features=features, model=model, weights=weights)
        self._set(rounds=rounds, intercept=intercept and model == "multinomial", norm=norm)

    def _design(self, scores: bool) -> Design:
        beside = (self.weights,) if self.weights and scores else ()
        return replace(super()._design(scores), labels=True, beside=beside)

    def _check(self, schema: Schema) -> None:
        column = schema[self.target]
        if isinstance(column, Number) or not 3 <= len(column.values) <= _MOST_LEVELS:
            found = "bounds" if isinstance(column, Number) else f"{len(column.values)}"
            raise InvalidInput(
                f"target {self.target!r} must have 3 to {_MOST_LEVELS} categories for family {self.model!r}; "
                f"the schema gives it {found}. For two use family='binomial'"
            )

    def _levels(self, schema: Schema) -> int:
        return len(schema.category(self.target).values)

    def _begin(self, schema: Schema) -> Point:
        """Return equal probabilities of all categories, where no score is clipped."""
        levels, width = self._levels(schema), self._width(schema)
        free = levels - 1
        check_few(free * width if self.model == "multinomial" else free + width)
        if self.model == "multinomial":
            weights, weight = np.zeros(free * width), free / levels**2
            longest = math.sqrt(1 - 2 / levels + free / levels**2)
            curve = math.sqrt(free / levels**2 - 2 * free / levels**3 + (free / levels**2) ** 2)
        else:
            weights = np.concatenate([logit(np.arange(1, levels) / levels), np.zeros(width)])
            probe = Choices(
                self._design(True),
                tuple(weights),
                ((1.0,) * width,) * width,
                1.0,
                1.0,
                "ordinal",
                levels,
                1.0,
            )
            chance, g = probe.likely(np.zeros((width, 1)))
            sums = g[:, :, 0].sum(axis=1)
            weight = float((chance[:, 0] * sums**2).sum())
            longest = float(np.sqrt((g[:, :, 0] ** 2).sum(axis=1) + sums**2).max())
            inner = np.einsum("c,cj,ck->jk", chance[:, 0], g[:, :, 0], g[:, :, 0])
            row = inner.sum(axis=0)
            curve = math.sqrt(float((inner**2).sum() + 2 * (row**2).sum() + row.sum() ** 2))
        most = 1.5 if self.model == "multinomial" else 10.0
        scale = Scale(Logit(), math.sqrt(weight), weight, most, 1.0, _LIMIT, far=_FAR)
        return Point(weights, np.eye(len(weights)), 1.001 * longest, 1.001 * curve, scale)

    def _query(self, point: Point, schema: Schema, neighbours: Neighbours) -> Query:
        levels, weighted = self._levels(schema), self.weights is not None
        return choice_query(self._design(True), point, self.model, levels, weighted, schema, neighbours)

    def _steps(self, schema: Schema, neighbours: Neighbours) -> Generator[Query, Answer, list[Step]]:
        self._check(schema)
        shares, point, levels = self.stages(), self._begin(schema), self._levels(schema)
        scale, steps = point.scale, list[Step]()
        for share in shares:
            step = self._read((yield self._query(point, schema, neighbours)), point, steps, schema)
            steps.append(step)
            if step.settled:
                break
            turn = self._turned(step, levels, first=len(steps) == 1)
            weights = self._rising(self._likely_of(steps, schema).mean, levels)
            point = step.next(weights, turn, shares[-1] / share, scale)
        return steps

    def _rising(self, weights: Floats, levels: int) -> Floats:
        """Return weights whose thresholds rise."""
        if self.model == "multinomial":
            return weights
        free, steps = levels - 1, _GAP * np.arange(levels - 1)
        found = np.array(weights)
        found[:free] = np.maximum.accumulate(found[:free] - steps) + steps
        return found

    def _whitened(self, step: Step, levels: int, first: bool) -> Floats:
        curvature = _small(step.curvature, self.model, levels)
        if self.model == "ordinal":
            apart, total = _together(step, levels)
            curvature = curvature - np.outer(apart, apart) * total
        small = replace(
            step,
            curvature=curvature,
            point=replace(step.point, turn=_small(step.point.turn, self.model, levels)),
        )
        return small.trusting.turn(first=first)

    def _turned(self, step: Step, levels: int, first: bool) -> Floats:
        """Return what whitens features; of an ordinal model about their middle.

        Its thresholds stand for a constant, and features that are not centred could hardly be told from it.
        """
        turn = self._whitened(step, levels, first)
        if self.model == "multinomial":
            return _large(turn, self.model, levels)
        was = step.point.turn[levels - 1 :]
        middle = was[:, 0] + _together(step, levels)[0]
        return _large(turn, self.model, levels, turn @ np.linalg.solve(was[:, levels - 1 :], middle))

    def _all(self, schema: Schema, single: Floats, thresholds: float) -> Floats:
        """Return a vector over all weights, from that of one predictor's."""
        free = self._levels(schema) - 1
        if self.model == "multinomial":
            return np.tile(single, free)
        return np.concatenate([np.full(free, thresholds), single])

    def _possible(self, schema: Schema) -> Floats:
        if self.model == "multinomial":
            return self._all(schema, super()._possible(schema), 0.0)
        return self._all(schema, largest(Units(self._design(False), schema), MOST_MOVED), MOST_MOVED)

    def _prior(self, steps: list[Step], schema: Schema) -> Floats:
        """Return the covariance of weights before anything is seen of the target."""
        levels = self._levels(schema)
        turn = self._whitened(steps[0], levels, first=True)
        covariance = SPREAD**2 / max(len(turn) - self.intercept, 1) * turn.T @ turn
        if self.intercept:
            covariance[0, 0] += 1 + self._first**-2
        found = _large(covariance, self.model, levels)
        if self.model == "ordinal":
            found[: levels - 1, : levels - 1] *= 4.0
        return np.linalg.inv(np.linalg.inv(found) + np.diag(self._possible(schema) ** -2.0))

    def _likely_of(self, steps: list[Step], schema: Schema) -> Belief:
        trusting = [step.trusting for step in self._counted(steps)]
        return Belief.after(trusting, self._prior(steps, schema), steps[0].point.weights)

    def _to(self, schema: Schema) -> tuple[Floats, tuple[str, ...]]:
        """Return what makes coefficients of weights, and their labels."""
        units, values = Units(self._design(False), schema), schema.category(self.target).values
        free = len(values) - 1
        if self.model == "multinomial":
            single = (units.matrix @ self._frame(len(units.names)).T)[0 if self.intercept else 1 :]
            names = ("intercept", *units.names) if self.intercept else units.names
            return np.asarray(np.kron(np.eye(free), single), np.float64), tuple(
                f"{n} [{v}]" for v in values[1:] for n in names
            )
        to = np.zeros((free + len(units.names),) * 2)
        to[:free, :free] = np.eye(free)
        to[:free, free:] = -units.matrix[0, 1:]
        to[free:, free:] = units.matrix[1:, 1:]
        between = tuple(f"threshold [{a}|{b}]" for a, b in itertools.pairwise(values))
        return to, (*between, *units.names)

    def _owners(self, schema: Schema) -> tuple[str, ...]:
        """Return which feature each coefficient belongs to."""
        owners, free = Units(self._design(False), schema).owners, self._levels(schema) - 1
        if self.model == "ordinal":
            return (*("",) * free, *owners)
        return (*(("",) if self.intercept else ()), *owners) * free

    def _told(self, steps: list[Step], schema: Schema) -> AnalysisResult:
        last, possible = steps[-1], self._possible(schema)
        to, labels = self._to(schema)
        free = Belief.after(self._counted(steps), np.diag(possible**2), steps[0].point.weights)
        weights = self._rising(self._likely_of(steps, schema).mean, self._levels(schema))
        values, centres = to @ weights, to @ free.mean
        sampling, noise = (
            np.sqrt(np.maximum(np.diag(to @ each @ to.T), 0.0)) for each in (last.sampling, free.noise)
        )
        off = left_of(steps)
        error, left = np.maximum(np.hypot(sampling, noise), 1e-150), np.abs(to @ off)
        most, drawn = np.abs(to) @ possible, np.abs(to @ free.pull) @ possible
        possible = np.maximum(possible, np.abs(free.mean))
        bias = np.abs(to @ free.pull) @ possible + left
        within = ends(most, values, drawn)
        estimates = tuple(
            Estimate(
                label,
                float(values[i]),
                float(sampling[i]),
                math.hypot(noise[i], bias[i]),
                within[i],
                Reach(float(centres[i]), float(error[i]), float(bias[i])),
            )
            for i, label in enumerate(labels)
        )
        joint = Joint(
            labels,
            tuple(each.within for each in estimates),
            tuple(map(float, centres)),
            rows_of(to @ free.noise @ to.T),
            rows_of(to @ last.sampling @ to.T),
            pulls=rows_of(np.column_stack([to @ free.pull * possible, to @ off])),
            owners=self._owners(schema),
        )
        shares, categories = self._shares(steps[0], schema), schema.category(self.target).values
        empty = [] if shares is None else shares.empty
        unseen = unseen_labels(labels, empty, categories, self.model)
        if unseen:
            warn(
                f"noise hides whether anybody is in {joined([repr(categories[c]) for c in empty])} of "
                f"{self.target!r}: nothing is known about {joined(unseen)}. Leave the category out, or join "
                "it with another"
            )
            estimates = tuple(
                unknown(each.label, -float(most[i]), float(most[i])) if each.label in unseen else each
                for i, each in enumerate(estimates)
            )
        model = ChoiceModel(
            self.target,
            self.model,
            self._design(False),
            schema,
            estimates,
            joint,
            rows_of(self._by_predictor(weights, schema)),
            len(steps),
            last.count,
            *fit_of(last, shares),
        )
        return AnalysisResult(estimates, model)

    def _by_predictor(self, weights: Floats, schema: Schema) -> Floats:
        """Return weights of (1, x), a row for each category but the first, or for each threshold."""
        free = self._levels(schema) - 1
        if self.model == "multinomial":
            return weights.reshape(free, -1) @ self._frame(len(self._design(False).names(schema)))
        slopes = np.tile(weights[free:], (free, 1))
        return np.column_stack([weights[:free], slopes])

    def _shares(self, first: Step, schema: Schema) -> Shares | None:
        """Return the share of each category, which the first scores tell."""
        if self.weights is not None or (self.model == "multinomial" and not self.intercept):
            return None
        (block,) = self._query(first.point, schema, "replace-one").blocks
        assert isinstance(block, Choices)
        return Shares.of(first, block, self._constant)

    def describe(self) -> str:
        """Return one line that an ethics board can read."""
        return f"{self.model} regression of {self.target} on {joined(self.features)}"

    def expected(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return the noise of each coefficient after all steps over typical rows, and what it draws to 0."""
        steps = self._over_typical(schema, noise, rows, neighbours)
        to, labels = self._to(schema)
        free = Belief.after(self._counted(steps), np.diag(self._possible(schema) ** 2))
        total = free.noise + free.pull @ self._prior(steps, schema) @ free.pull.T
        return dict(zip(labels, map(float, np.sqrt(np.diag(to @ total @ to.T))), strict=True))

    def limits(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return how steep slopes can be, less the furthest that they could be drawn to 0."""
        steps, possible = self._over_typical(schema, noise, rows, neighbours), self._possible(schema)
        to, labels = self._to(schema)
        drawn = np.abs(to @ Belief.after(self._counted(steps), np.diag(possible**2)).pull) @ possible
        most = np.abs(to) @ possible
        return dict(zip(labels, map(float, most - drawn), strict=True))
