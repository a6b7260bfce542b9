"""Logistic regression: log-odds of the second of two categories, from second moments and Newton steps.

The first round asks for the second moments of (1, x, y), y = -1 or 1: `odds` says what they tell, and
`sensitivity` how far one row moves them. Newton steps from there end at the maximum-likelihood estimates,
up to noise: `newton` has their sensitivity. All that follows a released sum is post-processing.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from cape import check
from cape.analyses.matrices import CLEAR, spectral
from cape.analyses.regression.inference import unreliable
from cape.analyses.regression.logistic_model import LogisticModel
from cape.analyses.regression.moments import XX, XY, SecondMoments, X, Y, pooled
from cape.analyses.regression.newton import Step, newton_query
from cape.analyses.regression.normal_odds import MOST_MOVED
from cape.analyses.regression.odds import (
    BOLD,
    CAUTIOUS,
    LIKELY,
    Fit,
    Lean,
    Reading,
    curvature,
    fit_odds,
)
from cape.analyses.regression.odds_intervals import after_steps, from_moments, standard_errors
from cape.analyses.regression.outlook import INTERCEPT, Outlook, frame
from cape.analyses.regression.sensitivity import joint
from cape.blocks import Design, Term
from cape.blocks.units import Units
from cape.data import Number, Schema
from cape.engine.arguments import features_of, joined
from cape.engine.query import (
    Analysis,
    AnalysisResult,
    Answer,
    Conversation,
    Estimate,
    Neighbours,
    Query,
)
from cape.errors import InvalidInput, TooNoisyWarning
from cape.show.numbers import count

__all__ = ["LogisticRegression"]

Floats = NDArray[np.float64]
Scale = Literal["calibrated", "minimax", "taylor"]

# Choices, measured by `python -m benchmarks.logistic_choices`, which halves and doubles each.
MEANS = 0.25  # the weight of the sums of y and x, beside 1 on xy: less hurts rare categories, more all others
ROUNDS = 2  # for "auto"; with 1 skewed features lose 2% of coverage, with 4 mild effects lose 4%
LAST = 3.0  # the last stage's share, in units of an earlier one's: with 6 skewed features lose 2% of coverage
# The share of the variance of x that noise may hide from a step: with half of it intervals of strong effects
# are 1.4 times as wide, with twice of it skewed features lose 2% of coverage.
MOST_HIDDEN = 0.3
_MOST_ROUNDS = 20
_RARE = 3.0  # rows: 95% of samples have none of a category of which 3 are expected


@dataclass(frozen=True, init=False)
class LogisticRegression(Analysis):
    """The log-odds of the second category of `target`, linear in the features.

    With `rounds=0` second moments are asked for once. The weights are then those of a quadratic in place of
    the logistic loss, with a ridge that the noise asks for and, by default, with the scale at which
    probabilities are right if features are normal: good predictions at any budget, and no claim to be the
    maximum-likelihood estimates. Slopes are as small as noise lets them be; intervals reach to those that
    are as large.

    With `rounds=k` that many Newton steps follow, and estimates are the maximum-likelihood ones, up to
    noise, which is counted, as is what the last step leaves. A step whose noise would hide its result is not
    made: the question for second moments is put again in its place, and its answers are averaged, which is
    as good as if it had been put once for the whole share. A step that shows only part of its result is
    asked for again at the same weights, if that would show more, and averaged likewise. "auto" stands for
    two such rounds. Which question is put depends on what was released before and on public things.

    Rows are complete ones. A row whose features are longer than `norm`, in units of half their bounds, is
    shortened to it, here and in predictions; by default none is.

    **Sensitivity** sqrt(5), 2 without an intercept, for the second moments under replace-one: with weights
    1/4, 1/4, 1 and 3/8 on the sums of y, x, xy and xx' two rows of different classes move them, squared, by
    1 + (1 - s) / 2 + 2 (1 + s) + 3/4 (1 - s²), which rises up to s = 1, and two of the same class by (1 -
    s) 5/2 + 3/4 (1 - s²), which falls from s = -1: 5 both times. xx' is free. Newton steps: 2, see
    `newton`.

    Args:
        target: a column with two categories; log-odds are those of the second.
        features: numeric columns, or categories: one 0 or 1 for each value but the first.
        rounds: how many Newton steps, or "auto".
        fit: "calibrated"; or the scale of the quadratic "minimax" on |log-odds| <= `range`, or "taylor".
        range: where the minimax quadratic is to be right.
        intercept: whether log-odds may be other than 0 where all features are in the middle of their bounds
            (or in their first category).
        ridge: "auto", or what is added to the mean of xx' with ||x|| <= 1 in the first round.
        norm: the length that rows are shortened to.
        threshold: the probability from which on a prediction is the second category.
    """

    kind: ClassVar[str] = "logistic-regression"
    example: ClassVar[dict[str, Any]] = {"target": "disease", "features": ["age", "chol"], "rounds": 1}
    shape_matters: ClassVar[bool] = True
    slopes: ClassVar[bool] = True
    target: str
    features: tuple[str, ...]
    rounds: int | Literal["auto"]
    fit: Scale
    range: float
    intercept: bool
    ridge: float | Literal["auto"]
    norm: float | None
    threshold: float

    def __init__(
        self,
        target: str,
        features: Sequence[str] | str,
        *,
        rounds: int | Literal["auto"] = "auto",
        fit: Scale = "calibrated",
        range: float = 4.0,
        intercept: bool = True,
        ridge: float | Literal["auto"] = "auto",
        norm: float | None = None,
        threshold: float = 0.5,
    ) -> None:
        if not isinstance(target, str):
            raise InvalidInput(f"target must be a column's name, not {target!r}")
        if not isinstance(fit, str) or fit not in ("calibrated", "minimax", "taylor"):
            raise InvalidInput(f"fit must be 'calibrated', 'minimax' or 'taylor', not {fit!r}")
        if not isinstance(intercept, bool):
            raise InvalidInput(f"intercept must be True or False, not {intercept!r}")
        given = {
            "target": target,
            "features": features_of(features, intercept),
            "rounds": rounds
            if isinstance(rounds, str) and rounds == "auto"
            else check.integer("rounds", rounds, least=0, most=_MOST_ROUNDS),
            "fit": fit,
            "range": check.real("range", range, above=0.0, most=1e3),
            "intercept": intercept,
            "ridge": ridge
            if isinstance(ridge, str) and ridge == "auto"
            else check.real("ridge", ridge, least=0.0),
            "norm": None if norm is None else check.real("norm", norm, above=0.0),
            "threshold": check.probability("threshold", threshold),
        }
        for name, value in given.items():
            object.__setattr__(self, name, value)
        self._design(False)  # refuses a target among the features

    @property
    def steps(self) -> int:
        """How many Newton steps there may be."""
        return ROUNDS if self.rounds == "auto" else int(self.rounds)

    def stages(self) -> tuple[float, ...]:
        """Return the shares of the second moments and of each step: 1 each, and 3 for the last step."""
        if not self.steps:
            return (1.0,)
        total = self.steps + LAST
        return (*[1 / total] * self.steps, 1 - self.steps / total)

    def _design(self, newton: bool) -> Design:
        return Design(self.features, self.target, self.norm, INTERCEPT if newton and self.intercept else 0.0)

    def _check(self, schema: Schema) -> None:
        column = schema[self.target]
        if isinstance(column, Number) or len(column.values) != 2:
            found = "bounds" if isinstance(column, Number) else f"{len(column.values)}"
            raise InvalidInput(
                f"target {self.target!r} must have two categories for a logistic regression; "
                f"the schema gives it {found}"
            )

    @property
    def _terms(self) -> dict[Term, float]:
        """The sums of the first round, and their weights."""
        if not self.intercept:
            return {XY: 1.0, XX: 0.5}
        return {Y: MEANS, X: MEANS, XY: 1.0, XX: (1 - MEANS) / 2}

    def _moments_query(self, schema: Schema, neighbours: Neighbours) -> Query:
        self._check(schema)
        terms = self._terms
        return joint(self._design(False), tuple(terms), tuple(terms.values()), schema, neighbours)

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return the last question: the second moments, or a Newton step (here from weights of 0)."""
        if not self.steps:
            return self._moments_query(schema, neighbours)
        self._check(schema)
        design = self._design(True)
        return newton_query(design, np.zeros(design.width(schema)), schema, neighbours)

    def finish(self, answer: Answer) -> AnalysisResult:
        """Return what second moments say by themselves."""
        return self._told(self._moments(answer), answer.schema)

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        """Ask for second moments until a step would be seen, and then for steps."""
        first = self._moments_query(schema, neighbours)
        moments = self._moments((yield first))
        shares = self.stages()
        unit = moments.xy_noise * math.sqrt(shares[0]) / first.sensitivity  # of noise, for the whole share
        design, stage, hidden = self._design(True), 1, None
        while stage < len(shares):
            outlook = Outlook(self._reading(moments, LIKELY), self._fit(moments, LIKELY))
            asked = newton_query(design, outlook.start, schema, neighbours)
            noise = unit * asked.sensitivity / math.sqrt(sum(shares[stage:]))
            hidden = outlook.hidden(noise * asked.scales[0][-1])
            if hidden <= MOST_HIDDEN:
                break
            moments = pooled(moments, self._moments((yield first)), "xy_noise")
            stage += 1
        else:
            return self._told(moments, schema, hidden)
        before = outlook.start_error(self._fit(moments, BOLD))
        step, spent, made = Step.of((yield asked), design, outlook.start), shares[stage], 1
        for i in range(stage + 1, len(shares)):
            if step.would_show(math.sqrt(spent / (spent + sum(shares[i:])))):
                # the same step again, and the average of both, is one step with the shares of both
                again = Step.of((yield asked), design, step.weights)
                step, spent = pooled(step, again, "gradient_noise"), spent + shares[i]
                continue
            left, added = outlook.remainder(step, before)
            before = sum(step.errors(before), added + np.outer(left, left))
            weights = step.weights + step.change
            asked = newton_query(design, weights, schema, neighbours)
            step, spent, made = Step.of((yield asked), design, weights), shares[i], made + 1
        return self._arrived(step, before, schema, made, outlook)

    def _moments(self, answer: Answer) -> SecondMoments:
        moments = SecondMoments.of(answer, self._design(False), tuple(self._terms))
        return replace(moments, count=max(moments.count, 1.0))

    def _reading(self, moments: SecondMoments, lean: Lean) -> Reading:
        return Reading(moments, self.intercept, lean)

    def _fit(self, moments: SecondMoments, lean: Lean) -> Fit:
        scale = None if self.fit == "calibrated" else 1 / (4 * curvature(self.fit, self.range))
        ridge = None if self.ridge == "auto" else self.ridge
        return fit_odds(self._reading(moments, lean), scale=scale, ridge=ridge)

    def _told(self, moments: SecondMoments, schema: Schema, hidden: float | None = None) -> AnalysisResult:
        """Return what second moments say, with a warning if it is next to nothing.

        Weights are the cautious ones, which predict best. `hidden` is what noise would hide from a step.
        """
        reading, fit = self._reading(moments, CAUTIOUS), self._fit(moments, CAUTIOUS)
        bold = self._fit(moments, BOLD) if reading.varies else None
        if not fit.seen:
            noise = math.sqrt(reading.product_noise * moments.width)
            ratio = noise / max(float(np.linalg.norm(reading.product)), 1e-300)
            _warn(
                f"no relation of {self.target!r} to its features can be told from chance and noise: noise in "
                f"their covariances is {ratio:.2g} times as large as what was released; predictions are near "
                "the share of each category"
            )
        elif hidden is not None:
            text = (
                f"Newton steps were not made, since noise would hide {100 * hidden:.0f}% of the variance of "
                "features; estimates are those of second moments, which are right for normal features, and "
                "as small as noise lets them be"
            )
            if bold is not None:
                sizes = [float(np.linalg.norm(each.weights[1:])) for each in (fit, bold)]
                text += f": it would also let them be {sizes[1] / max(sizes[0], 1e-300):.2g} times as large"
            _warn(text)
        told = ""
        if self.intercept:
            noise = moments.y_noise / moments.count / 2
            share = (1 + reading.mean_y) / 2
            self._warn_of_one_class(reading)
            told = f"Released share of {self._classes(schema)[1]!r}: {share:.3f} (noise {noise:.2g}). "
        scale = "right if features are normal"
        if self.fit != "calibrated":
            scale = f"that of the {self.fit} quadratic"
        told += (
            f"Log-odds have a standard deviation of {fit.spread:.2f} over people. Second moments only: the "
            f"scale is {scale}."
        )
        if bold is None:
            _warn(
                "noise hides how much features vary: intervals count on no column changing log-odds by more "
                f"than {MOST_MOVED:.0f} as it goes through its range"
            )
        units = Units(self._design(False), schema)
        return self._finding(units, from_moments(units, fit, bold), fit.weights, told, 0, moments.count)

    def _arrived(
        self, step: Step, before: Floats, schema: Schema, made: int, outlook: Outlook
    ) -> AnalysisResult:
        """Return the weights after the last step, with their errors."""
        width = len(step.weights)
        if not step.clear.any():
            _warn(
                "no Newton step was made, since noise hides the Hessian (its largest eigenvalue is "
                f"{step.spread[0][-1]:.3g}, that of noise {spectral(width, step.hessian_noise):.3g}); the "
                "coefficients are those of second moments. Use fewer features, or spend more."
            )
        elif not step.clear.all():
            names = ("intercept", *self._design(False).names(schema))[not self.intercept :]
            _warn(unreliable(names, np.diag(step.hidden), noise=step.hessian_noise > 0))
        sampling, privacy = step.errors(before)
        left, added = outlook.remainder(step, before)
        F = outlook.frame
        sampling, privacy, left = F.T @ sampling @ F, F.T @ (privacy + added) @ F, F.T @ left
        told = "Maximum-likelihood estimates, up to noise, which is counted."
        if self.intercept:
            rows = F[0, 0] * step.count
            off, noise = float(step.gradient[0]) / rows, step.gradient_noise / rows
            told += f" Before the last step, predicted less observed share: {off:+.4f} (noise {noise:.2g})."
            self._warn_of_one_class(outlook.reading)
        units = Units(self._design(False), schema)
        error = np.maximum(standard_errors(units, sampling + privacy), 1e-150)
        far = float(np.max(np.abs(units.values(left)) / error))
        if far > 1:
            _warn(
                f"the last step still changed log-odds by {step.moved(step.change):.2g}, and may have left "
                f"estimates off by {far:.2g} standard errors, which intervals count; more rounds, rows or "
                "epsilon would help"
            )
        weights = F.T @ (step.weights + step.change)
        estimates = after_steps(units, weights, sampling, privacy, left)
        return self._finding(units, estimates, weights, told, made, step.count)

    def _classes(self, schema: Schema) -> tuple[Any, ...]:
        return schema.category(self.target).values

    def _warn_of_one_class(self, reading: Reading) -> None:
        rows = reading.sums.count
        rare, noise = (1 - abs(reading.mean_y)) / 2 * rows, reading.sums.y_noise / 2
        if rare < max(_RARE, CLEAR * noise):
            _warn(
                f"at most {rare + CLEAR * noise:.3g} of {rows:.0f} rows can be told to be in one of the "
                f"categories of {self.target!r}: what sets it apart is not known"
            )

    def _finding(
        self, units: Units, estimates: list[Estimate], weights: Floats, told: str, rounds: int, rows: float
    ) -> AnalysisResult:
        kept = tuple(estimates if self.intercept else estimates[1:])
        model = LogisticModel(
            self.target,
            self._classes(units.schema),
            self._design(False),
            units.schema,
            kept,
            tuple(float(w) for w in weights),
            estimates[0].value,
            self.threshold,
            rounds,
            rows,
            told,
        )
        return AnalysisResult(kept, model)

    def expected(
        self,
        schema: Schema,
        noise: Sequence[Sequence[float]],
        rows: int,
        neighbours: Neighbours = "replace-one",
    ) -> dict[str, float]:
        """Return the noise of each coefficient for log-odds near 0 and independent features.

        Without a ridge; the Hessian is then a quarter of the second moments.
        """
        units = Units(self._design(False), schema)
        second = units.typical()
        count = max(rows, 1)
        if self.steps:
            F = frame(len(units.names), self.intercept)
            inverse = np.linalg.inv(F @ second @ F.T * count / 4)
            of_weights = F.T @ inverse @ inverse @ F * noise[0][1] ** 2
        else:
            y, xy = (noise[0][1], noise[0][3]) if self.intercept else (0.0, noise[0][1])
            of_sums = np.diag([y**2] + [xy**2] * len(units.names))
            kept = second if self.intercept else np.diag(np.concatenate([[1.0], np.diag(second)[1:]]))
            inverse = np.linalg.inv(kept * count / 2)
            of_weights = inverse @ of_sums @ inverse
        errors = np.sqrt(np.diag(units.covariance(of_weights)))
        labels = ("intercept", *units.names)
        return {labels[i]: float(errors[i]) for i in range(0 if self.intercept else 1, len(labels))}

    def describe(self) -> str:
        """Return one line that an ethics board can read."""
        steps = f", with up to {count(self.steps, 'Newton step')}" if self.steps else ""
        return f"logistic regression of {self.target} on {joined(self.features)}{steps}"


def _warn(text: str) -> None:
    warnings.warn(text, TooNoisyWarning, stacklevel=4)
