"""Regressions of a target of several categories: multinomial logits, and proportional odds.

Steps are those of `score_stages`; scores are those of `cape.blocks.choices`, and how far one row moves
them is proved in `multinomial_query`. Steps start at the shares of the categories, as the first stage
released them, with every slope 0. All that follows a released sum is post-processing.
Tested in tests/unit/analyses/regression/test_multinomial.py.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.optimize import nnls
from scipy.special import expit, logit

from cape.analyses.regression.faults import warn
from cape.analyses.regression.inference import largest
from cape.analyses.regression.joint import rows_of
from cape.analyses.regression.marginals import Cap, Marginals, weight_share, whitening
from cape.analyses.regression.multinomial_model import ChoiceModel
from cape.analyses.regression.multinomial_proportions import fit_of, probabilities, unseen, unseen_labels
from cape.analyses.regression.multinomial_query import choice_query, moved
from cape.analyses.regression.score_query import Parts
from cape.analyses.regression.score_regression import MOST_MOVED, ScoreRegression
from cape.analyses.regression.score_regression_estimate import Fitted, Named, Scored, plain_design
from cape.analyses.regression.spreading import spreading
from cape.blocks import Choices, Design, typical
from cape.blocks.choices import LEAST_GAP, Model
from cape.blocks.units import Units
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Category, Number, Schema
from cape.engine.arguments import joined
from cape.engine.query import AnalysisResult, Neighbours, Noise, Query
from cape.stats.estimates import unknown
from cape.stats.matrices import symmetric_root
from cape.stats.score_steps import Point, ScoreStep

__all__ = ["ChoiceRegression"]

_CURVATURE = 0.5  # the least weight: there are more numbers in it to hide
_DEVIANCE = 16.0  # the largest of a row that counts
_MOST_LEVELS = 20
_GAP = 1e-4  # the least between two thresholds
_TYPICAL = 1024  # rows, for plans
_NEARER = 0.2  # of the distance of two thresholds: what a step leaves of it at least


@dataclass(frozen=True, init=False)
class ChoiceRegression(ScoreRegression):
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
        cap: Cap,
    ) -> None:
        self._set(target=target, features=features, model=model, weights=weights, cap=cap)
        self._set(rounds=rounds, intercept=intercept and model == "multinomial", norm=norm)

    @property
    def _beside(self) -> tuple[str, ...]:
        return () if self.weights is None else (self.weights,)

    def _design(self, cut: tuple[tuple[str, Number], ...] = (), *, scores: bool = False) -> Design:
        return replace(super()._design(cut, scores=scores), labels=True)

    def _check(self, schema: Schema) -> None:
        column = schema[self.target]
        if isinstance(column, Number) or not 3 <= len(column.values) <= _MOST_LEVELS:
            found = "bounds" if isinstance(column, Number) else f"{len(column.values)}"
            raise InvalidInput(
                f"target {self.target!r} must have 3 to {_MOST_LEVELS} categories for family {self.model!r}; "
                f"the schema gives it {found}. For two use family='binomial'"
            )

    def _many(self, schema: Schema) -> int:
        free, width = self._free(schema), super()._many(schema)
        return free * width if self.model == "multinomial" else free + width

    def _free(self, schema: Schema) -> int:
        """Return how many log-odds, or thresholds, there are."""
        return len(schema.category(self.target).values) - 1

    def _family(
        self, marginals: Marginals | None, steps: list[ScoreStep], schema: Schema, last: Any = None
    ) -> int:
        """Return how many categories there are."""
        return self._free(schema) + 1

    def _block(self, point: Point, design: Design, family: int, marginals: Marginals | None) -> Choices:
        return Choices(
            design,
            tuple(map(float, point.weights)),
            tuple(tuple(map(float, row)) for row in point.turn),
            float(point.bound),
            float(point.curve),
            self.model,
            family,
            point.edges,
            _DEVIANCE,
            self.weights is not None,
        )

    def _blocks(self, schema: Schema) -> int:
        return self._free(schema) if self.model == "multinomial" else 1

    def _asked(self, block: Scored, parts: Parts, schema: Schema, neighbours: Neighbours) -> Query:
        assert isinstance(block, Choices)
        return choice_query(block, parts, neighbours)

    @property
    def _parts(self) -> list[Parts]:
        return [replace(part, curvature=max(part.curvature, _CURVATURE)) for part in super()._parts]

    def _change(self, parts: Parts, neighbours: Neighbours, persons: int) -> float:
        return moved(parts, neighbours)

    def _begin(
        self, marginals: Marginals | None, schema: Schema, noise: float, count: float
    ) -> tuple[Point, Design, int]:
        """Return the shares of the categories with every slope 0, in coordinates that this whitens."""
        cut = () if marginals is None else marginals.cut(self._design().sources)
        design = self._design(cut, scores=True)
        _, shares = self._likely(marginals, schema)
        free = len(shares) - 1
        if self.model == "multinomial":
            weights, turn, bend = self._no_slopes(shares, self._white(design, marginals, schema))
        else:
            beside = replace(design, intercept=self._first)
            weights, turn, bend = self._thresholds(shares, self._white(beside, marginals, schema))
        share = self._share(marginals, schema)
        size = share * math.sqrt(bend)
        point = Point.first(
            weights,
            turn,
            size,
            share * bend,
            noise=noise,
            count=count,
            blocks=self._blocks(schema),
        )
        return point, design, free + 1

    def _no_slopes(self, shares: Floats, white: Floats) -> tuple[Floats, Floats, float]:
        """Return weights of multinomial logits without slopes, what whitens their scores, and a curvature."""
        free = len(shares) - 1
        weights = np.zeros((free, len(white)))
        if self.intercept:
            weights[:, 0] = np.log(shares[1:] / shares[0]) / self._constant
        else:
            shares = np.full(free + 1, 1 / (free + 1))
        information = np.diag(shares[1:]) - np.outer(shares[1:], shares[1:])
        bend = float(np.trace(information)) / free
        turn = np.asarray(np.kron(symmetric_root(information / bend, -0.5), white), np.float64)
        return weights.ravel(), turn, bend

    def _thresholds(self, shares: Floats, white: Floats) -> tuple[Floats, Floats, float]:
        """Return the same for thresholds, with slopes of 0; `white` is that of features after a constant.

        Features are centred: a threshold that moves with all others and a slope are told apart.
        """
        thresholds = logit(np.cumsum(shares)[:-1])
        steep = expit(thresholds) * expit(-thresholds)
        information = np.diag(steep**2 * (1 / shares[:-1] + 1 / shares[1:]))
        beside = -steep[:-1] * steep[1:] / shares[1:-1]
        information += np.diag(beside, 1) + np.diag(beside, -1)
        bend, free, width = float(information.sum()), len(thresholds), len(white) - 1
        turn = np.zeros((free + width,) * 2)
        turn[:free, :free] = symmetric_root(information / bend, -0.5)
        turn[free:, free:] = white[1:, 1:] / math.hypot(1.0, self._first)
        turn[free:, :free] = -white[1:, :1] * self._constant
        return np.concatenate([thresholds, np.zeros(width)]), turn, bend

    def _white(self, design: Design, marginals: Marginals | None, schema: Schema) -> Floats:
        """Return what whitens features."""
        if marginals is not None:
            return marginals.turn(design, schema)
        return whitening(typical.rows(design, schema, _TYPICAL), constant=bool(design.intercept))

    @property
    def _constant(self) -> float:
        """The entry of x that is the same in all rows, if there is one."""
        return self._first / math.hypot(1.0, self._first)

    def _share(self, marginals: Marginals | None, schema: Schema) -> float:
        if self.weights is None:
            return 1.0
        if marginals is not None:
            return marginals.share(self.weights)
        column = schema.number(self.weights)
        return weight_share(typical.Shape(column).expected.mean, column.high)

    def _allowed(self, weights: Floats, step: ScoreStep, schema: Schema) -> Floats:
        """Return weights whose thresholds rise: the most likely ones, as the step has it."""
        if self.model == "multinomial":
            return weights
        free, back = self._free(schema), np.linalg.inv(step.point.turn)
        apart = np.maximum(_NEARER * np.diff(step.point.weights[:free]), _GAP)
        return rising(weights, apart, back @ step.likely @ back.T)

    def _expected(
        self, point: Point, before: Floats, marginals: Marginals, design: Design, schema: Schema
    ) -> Floats | None:
        """Return how made-up rows with the released marginals say that the curvature changes."""
        x = marginals.rows(design, schema)
        first, last = (
            self._made_up(replace(point, weights=each), design, x, schema) for each in (before, point.weights)
        )
        back = symmetric_root(first, -0.5)
        return np.asarray(back @ last @ back)

    def _made_up(self, point: Point, design: Design, x: Floats, schema: Schema) -> Floats:
        """Return the mean curvature of rows whose categories are as likely as the weights say."""
        block, levels = self._block(point, design, self._free(schema) + 1, None), self._free(schema) + 1
        assert isinstance(block, Choices)
        total = np.zeros((block.size, block.size))
        for code in range(levels):
            found = block.at(np.ascontiguousarray(x.T), np.full(len(x), code), None, 1.0)
            z = found.roots * np.exp(-found.deviance / 4)[:, None, None]  # the root of the probability
            z = z.reshape(-1, block.size)
            total += z.T @ z / len(x)
        return total

    def _all(self, schema: Schema, single: Floats, thresholds: float) -> Floats:
        """Return a vector over all weights, from that of one predictor's."""
        free = self._free(schema)
        if self.model == "multinomial":
            return np.tile(single, free)
        return np.concatenate([np.full(free, thresholds), single])

    def _possible(self, design: Design, schema: Schema) -> Floats:
        if self.model == "multinomial":
            return self._all(schema, super()._possible(design, schema), 0.0)
        units = Units(plain_design(design), schema)
        return self._all(schema, largest(units, MOST_MOVED), MOST_MOVED)

    def _named(self, units: Units) -> Named:
        values = units.schema.category(self.target).values
        free, names, owners = len(values) - 1, units.names, units.owners
        if self.model == "multinomial":
            first = int(self.intercept)
            single = (units.matrix @ self._frame(len(names)).T)[1 - first :]
            before = ("intercept",) * first
            return Named(
                np.asarray(np.kron(np.eye(free), single), np.float64),
                tuple(f"{name} [{value}]" for value in values[1:] for name in (*before, *names)),
                (*("",) * first, *owners) * free,
                tuple(
                    (k * len(single) + first + i, f"{name} [{value}]")
                    for k, value in enumerate(values[1:])
                    for i, name in enumerate(names)
                ),
            )
        to = np.zeros((free + len(names),) * 2)
        to[:free, :free] = np.eye(free)
        to[:free, free:] = -units.matrix[0, 1:]
        to[free:, free:] = units.matrix[1:, 1:]
        between = tuple(f"threshold [{a}|{b}]" for a, b in itertools.pairwise(values))
        slopes = tuple((free + i, name) for i, name in enumerate(names))
        return Named(to, (*between, *names), (*("",) * free, *owners), slopes)

    @property
    def _kept(self) -> slice:
        return slice(None)

    def _by_x(self, weights: Floats, units: Units) -> Floats:
        """Return weights of (1, x), a row for each category but the first, or for each threshold."""
        free = self._free(units.schema)
        if self.model == "multinomial":
            return np.asarray(weights.reshape(free, -1) @ self._frame(len(units.names)))
        return np.column_stack([weights[:free], np.tile(weights[free:], (free, 1))])

    def _result(
        self,
        steps: list[ScoreStep],
        marginals: Marginals | None,
        design: Design,
        family: int,
        schema: Schema,
    ) -> AnalysisResult:
        """Return the model of what these steps say."""
        fitted = self._fitted(steps, marginals, design, schema)
        counts = None if marginals is None else marginals.counts[self.target]
        fitted, empty = self._without_empty(fitted, schema)
        plain = self.weights is None and (self.model == "ordinal" or self.intercept)
        model = ChoiceModel(
            self.target,
            self.model,
            fitted.units.design,
            schema,
            fitted.estimates,
            fitted.joint,
            rows_of(fitted.weights),
            len(steps),
            steps[-1].count,
            *fit_of(steps[-1], counts if plain else None),
            self._note(fitted),
            empty,
            fitted.limited,
            self._faults(fitted, empty),
            steps[-1].count_noise,
            None if self.weights is not None or empty else spreading(steps, self.falls[self.cap != "auto"]),
        )
        return AnalysisResult(fitted.estimates, model)

    def _without_empty(self, fitted: Fitted, schema: Schema) -> tuple[Fitted, str]:
        """Return what is known where nobody is seen in some categories, with a sentence about them."""
        if fitted.marginals is None:
            return fitted, ""
        values, labels = schema.category(self.target).values, fitted.joint.labels
        x = fitted.marginals.rows(fitted.units.design, schema)
        chance = probabilities(self.model, fitted.estimated, x).mean(axis=0)
        last, counts = fitted.steps[-1], fitted.marginals.counts[self.target]
        empty = unseen(*counts, last.count * chance, last)
        if not empty:
            return fitted, ""
        hidden = unseen_labels(labels, empty, values, self.model)
        named = f"{joined([repr(values[c]) for c in empty])} of {self.target!r}"
        noisy = last.score_noise > 0
        known = f"nothing is known about {joined(hidden)}" if hidden else "its thresholds are as good as one"
        seen = "noise hides whether anybody" if noisy else "nobody"
        text = f"{seen} is in {named}: {known}"
        warn(f"{text}. Leave the category out, or join it with another")
        to = self._named(fitted.units).to
        most = np.abs(to) @ self._possible(fitted.units.design, schema)
        places = [labels.index(label) for label in hidden]
        estimates, privacy = list(fitted.estimates), np.array(fitted.joint.privacy)
        for place in places:
            estimates[place] = unknown(labels[place], -float(most[place]), float(most[place]))
            privacy[place, place] += most[place] ** 2
        joint = replace(fitted.joint, privacy=rows_of(privacy))
        return replace(fitted, estimates=tuple(estimates), joint=joint), f"{text[0].upper()}{text[1:]}."

    def describe(self) -> str:
        """Return one line that an ethics board can read."""
        return f"{self.model} regression of {self.target} on {joined(self.features)}"

    def limits(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return how steep slopes can be."""
        two = schema.changed({self.target: Category((0, 1))})
        steep = typical.steepest(two, self.target, self.features)
        named = self._named(Units(plain_design(self._design()), schema))
        slopes = {
            label: steep[label if label in steep else label[: label.rindex(" [")]]
            for _, label in named.slopes
        }
        return {label: slopes.get(label, MOST_MOVED) for label in named.labels}


def rising(weights: Floats, apart: Floats, curvature: Floats) -> Floats:
    """Return the most likely weights whose first ones, thresholds, are at least so far apart.

    That is the least of d'(curvature)d over changes d of the weights: by duality a least square of as many
    numbers, none of them negative, as there are distances.
    """
    free = len(apart) + 1
    short = apart - np.diff(weights[:free])
    if not (short > 0).any():
        return weights
    steps = np.zeros((len(apart), len(weights)))
    steps[:, :free] = np.diff(np.eye(free), axis=0)
    moves = np.linalg.solve(curvature, steps.T)
    root = np.linalg.cholesky(steps @ moves)
    found = np.array(weights + moves @ nnls(root.T, np.linalg.solve(root, short))[0])
    for j in range(1, free):  # rounding
        found[j] = max(found[j], found[j - 1] + 2 * LEAST_GAP)
    return found
