"""Logistic regression: log-odds of the second of two categories, from second moments and Newton steps.

The first round asks for the second moments of (1, x, y), y = -1 or 1: `odds` says what they tell, and
`sensitivity` how far one row moves them. Newton steps from there end at the maximum-likelihood estimates,
up to noise: `newton` has their sensitivity. All that follows a released sum is post-processing.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from cape import check
from cape.analyses.arguments import features_of, joined
from cape.analyses.matrices import spectral, symmetric
from cape.analyses.regression.inference import Between, Reach
from cape.analyses.regression.logistic_model import LogisticModel
from cape.analyses.regression.newton import CLEAR, Step, newton_query
from cape.analyses.regression.odds import Fit, Lean, SecondMoments, curvature, fit_odds
from cape.analyses.regression.sensitivity import joint
from cape.blocks.design import Design
from cape.blocks.tensors import Term
from cape.blocks.typical import SQUARE as _SQUARE
from cape.blocks.units import Units
from cape.data import Category, Number, Schema
from cape.engine.query import (
    Analysis,
    Answer,
    Conversation,
    Estimate,
    Finding,
    Neighbours,
    Query,
)
from cape.engine.result import count
from cape.errors import InvalidInput, TooNoisyWarning

__all__ = ["LogisticRegression"]

Floats = NDArray[np.float64]
Scale = Literal["calibrated", "minimax", "taylor"]

_Y, _X, _XY, _XX = Term(0, (0.0, 1.0)), Term(1), Term(1, (0.0, 1.0)), Term(2)
_MEANS = 0.25  # the weight of the sums of y and x, beside 1 on that of xy
_INTERCEPT = 0.5  # what stands before x in a Newton step: rows are about that long
_AUTO = 2
_MOST_ROUNDS = 20
_LAST = 3.0  # the last stage's share, in units of an earlier one's
_LEAST_SIGNAL = 4.0  # twice a log-likelihood ratio
_MOST_ERROR = 0.5  # of log-odds, from noise, that a Newton step may be expected to have
_MOST_LOST = 0.3  # the share of the variance of x that may lie where noise hides the Hessian
_FAR = 1.0  # standard errors that a last step may end beside where it should, without a warning
_SKEWED = 0.25  # of all slopes together, what skewed features were found to do to second moments' scale
_APART = 3.0  # standard deviations from the cautious weights to the bold ones
_MOST_MOVED = 20.0  # the most that a column is thought to change log-odds as it goes through its range
_ON_THE_WAY = ((0.1127, 0.5, 0.8873), (5 / 18, 8 / 18, 5 / 18))  # Gauss and Legendre's rule
_RARE = 3.0


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
    shape_matters: ClassVar[bool] = True
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
        return _AUTO if self.rounds == "auto" else int(self.rounds)

    def stages(self) -> tuple[float, ...]:
        """Return the shares of the second moments and of each step: 1 each, and 3 for the last step."""
        if not self.steps:
            return (1.0,)
        total = self.steps + _LAST
        return (*[1 / total] * self.steps, 1 - self.steps / total)

    def _design(self, newton: bool) -> Design:
        return Design(self.features, self.target, self.norm, _INTERCEPT if newton and self.intercept else 0.0)

    def _check(self, schema: Schema) -> None:
        column = schema[self.target]
        if isinstance(column, Number) or len(column.values) != 2:
            found = "bounds" if isinstance(column, Number) else f"{len(column.values)}"
            raise InvalidInput(
                f"target {self.target!r} must have two categories for a logistic regression; "
                f"the schema gives it {found}"
            )

    def _moments_query(self, schema: Schema, neighbours: Neighbours) -> Query:
        self._check(schema)
        if not self.intercept:
            return joint(self._design(False), (_XY, _XX), (1.0, 0.5), schema, neighbours)
        weights = (_MEANS, _MEANS, 1.0, (1 - _MEANS) / 2)
        return joint(self._design(False), (_Y, _X, _XY, _XX), weights, schema, neighbours)

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return the last question: the second moments, or a Newton step (here from weights of 0)."""
        if not self.steps:
            return self._moments_query(schema, neighbours)
        self._check(schema)
        design = self._design(True)
        return newton_query(design, np.zeros(design.width(schema)), schema, neighbours)

    def finish(self, answer: Answer) -> Finding:
        """Return what the answer to `query` says by itself."""
        if not self.steps:
            moments = self._moments(answer)
            return self._told(moments, answer.schema)
        design = self._design(True)
        step = Step.of(answer, design, np.zeros(design.width(answer.schema)))
        return self._arrived(
            step, float(np.trace(step.hessian)) * np.eye(len(step.weights)), answer.schema, 1
        )

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        """Ask for second moments, then for steps from what they say, or for moments again."""
        first = self._moments_query(schema, neighbours)
        answer = yield first
        moments = self._moments(answer)
        shares = self.stages()
        unit = moments.xy_noise * math.sqrt(shares[0]) / first.sensitivity  # of noise, for the whole share
        design, step, made, spent = self._design(True), None, 0, 0.0
        weights = self._spread_out(self._fit(moments, 0).weights)
        before = np.zeros((len(weights), len(weights)))
        expected = math.inf
        for i, share in enumerate(shares[1:], start=1):
            asked = newton_query(design, weights, schema, neighbours)
            if step is None:
                noise = unit * asked.sensitivity / math.sqrt(sum(shares[i:]))
                expected = self._expected_error(moments, weights, noise)
                if expected > _MOST_ERROR:
                    moments = moments.merged(self._moments((yield first)))
                    weights = self._spread_out(self._fit(moments, 0).weights)
                    continue
                before = self._start_error(moments)
            elif step.would_show(math.sqrt(spent / (spent + sum(shares[i:])))):
                # the same step again, and the average of both, is one step with the shares of both
                step, spent = step.merged(Step.of((yield asked), design, weights)), spent + share
                continue
            else:
                left, added = self._remainder(step, moments, before)
                before = sum(step.errors(before), added + np.outer(left, left))
                weights = weights + step.change
                asked = newton_query(design, weights, schema, neighbours)
            step, spent, made = Step.of((yield asked), design, weights), share, made + 1
        if step is None:
            return self._told(moments, schema, expected if self.steps else None)
        return self._arrived(step, before, schema, made, moments)

    def _moments(self, answer: Answer) -> SecondMoments:
        design = self._design(False)
        count, *sums = answer.sums[0]
        _, *noise = answer.noise[0]
        rows = answer.at_most(float(count[0]))
        if answer.rows is not None and not design.missing(answer.schema):
            rows = float(answer.rows)
        width = design.width(answer.schema)
        y, x, y_noise, x_noise = 0.0, np.zeros(width), 0.0, 0.0
        if self.intercept:
            y, x, y_noise, x_noise = float(sums[0][0]), sums[1], noise[0], noise[1]
            sums, noise = sums[2:], noise[2:]
        above = sums[2] if width > 1 else np.zeros(0)
        square = symmetric(sums[1], above)
        return SecondMoments(
            max(rows, 1.0),
            y,
            x,
            sums[0],
            square,
            y_noise,
            x_noise,
            noise[0],
            noise[1] / math.sqrt(2),
            self.intercept,
        )

    def _fit(self, moments: SecondMoments, lean: Lean = -1) -> Fit:
        scale = None if self.fit == "calibrated" else 1 / (4 * curvature(self.fit, self.range))
        return fit_odds(moments, scale=scale, ridge=None if self.ridge == "auto" else self.ridge, lean=lean)

    def _start_error(self, moments: SecondMoments) -> Floats:
        """Return the covariance of the errors that a step starts with, as `_spread_out` has weights."""
        plain, bold = self._fit(moments, 0), self._fit(moments, 1)
        apart = bold.weights - plain.weights
        slopes = plain.weights[1:]
        skewed = _SKEWED * np.concatenate([[-float(moments.mean_x @ slopes)], slopes])
        both = plain.sampling + plain.privacy + np.outer(apart, apart) + np.outer(skewed, skewed)
        if not self.intercept:
            return np.asarray(both[1:, 1:])
        lengths = self._lengths(len(both))
        return np.asarray(both / np.outer(lengths, lengths))

    def _likely_hessian(self, moments: SecondMoments, weights: Floats) -> Floats:
        """Return the Hessian of a step, a row, at some weights, if features are normal."""
        whole = moments.hessian(self._gathered(weights))
        if not self.intercept:
            return np.asarray(whole[1:, 1:])
        lengths = self._lengths(len(whole))
        return np.asarray(whole * np.outer(lengths, lengths))

    def _remainder(self, step: Step, moments: SecondMoments, before: Floats) -> tuple[Floats, Floats]:
        """Return how far a step ends from where the gradient is 0, and the covariance of what may add to it.

        With H the Hessian before the step and G its mean on the way, the gradient says G times the way to
        go, and a step goes H^-1 of it. What is wrong along directions that noise hides turns it further.
        """
        start = self._likely_hessian(moments, step.weights)
        on_the_way = sum(
            weight * self._likely_hessian(moments, step.weights + at * step.change)
            for at, weight in zip(*_ON_THE_WAY, strict=True)
        )
        turned = step.inverse @ (on_the_way - start) * step.count
        hidden = turned @ step.hidden
        return np.asarray(turned @ step.change), np.asarray(hidden @ before @ hidden.T)

    def _spread_out(self, weights: Floats) -> Floats:
        """Return weights for a Newton step's vector (c, x) / sqrt(1 + c²), from those for (1, x)."""
        return weights / self._lengths(len(weights)) if self.intercept else weights[1:]

    def _gathered(self, weights: Floats) -> Floats:
        """Return weights for (1, x)."""
        return weights * self._lengths(len(weights)) if self.intercept else np.concatenate([[0.0], weights])

    @staticmethod
    def _lengths(width: int) -> Floats:
        long = math.sqrt(1 + _INTERCEPT**2)
        return np.array([_INTERCEPT / long] + [1 / long] * (width - 1))

    def _expected_error(self, moments: SecondMoments, weights: Floats, noise: float) -> float:
        """Return the error of log-odds, over people, that noise is expected to cause in a step.

        The Hessian is that of normal features, which is near enough for that; infinite where noise would
        hide too much of it.
        """
        values, vectors = np.linalg.eigh(moments.count * self._likely_hessian(moments, weights))
        second = self._likely_hessian(moments, np.zeros(len(weights))) * 4
        across = np.einsum("ij,ik,kj->j", vectors, second, vectors)  # the mean square along each direction
        hidden = spectral(len(values), noise / math.sqrt(48))
        # what noise in the moments may have added to them
        added = moments.xx_noise * float(moments.hessian(self._gathered(weights))[0, 0])
        clear = values - added > max(CLEAR * hidden, 1e-9 * moments.count)
        about = second - np.outer(second[0], second[0]) / second[0, 0] if self.intercept else second
        varied = np.einsum("ij,ik,kj->j", vectors, about, vectors)  # the same without the mean
        if not (moments.varies and clear.any()) or varied[~clear].sum() > _MOST_LOST * varied.sum():
            return math.inf
        return noise * math.sqrt(float((across[clear] / values[clear] ** 2).sum()))

    def _told(self, moments: SecondMoments, schema: Schema, expected: float | None = None) -> Finding:
        """Return what second moments say, with a warning if it is next to nothing.

        Weights are the cautious ones, which predict best. Intervals reach from them to the bold ones.
        """
        fit, bold = self._fit(moments), self._fit(moments, 1)
        sizes = [float(np.linalg.norm(each.weights[1:])) for each in (fit, bold)]
        wide = sizes[1] / max(sizes[0], 1e-300)
        noise = math.sqrt(moments.product_noise * len(moments.x))
        ratio = noise / max(float(np.linalg.norm(moments.product)), 1e-300)
        if fit.signal < _LEAST_SIGNAL:
            _warn(
                f"no relation of {self.target!r} to its features can be told from chance and noise: noise in "
                f"their covariances is {ratio:.2g} times as large as what was released; predictions are near "
                "the share of each category"
            )
        elif expected is not None:
            reach = "more than the moments can tell" if expected == math.inf else f"{expected:.2g}"
            _warn(
                "Newton steps were not made, since noise would change log-odds by "
                f"{reach}; estimates are those of second moments, which are right for normal features, and "
                f"as small as noise lets them be: it would also let them be {wide:.2g} times as large"
            )
        share = (1 + moments.mean_y) / 2
        self._warn_of_one_class(share, moments.y_noise / moments.count / 2, moments.count)
        told = (
            f"Released share of {self._classes(schema)[1]!r}: {share:.3f} (noise "
            f"{moments.y_noise / moments.count / 2:.2g}). "
            if self.intercept
            else ""
        )
        told += (
            f"Log-odds have a standard deviation of {fit.spread:.2f} over people. Second moments "
            "only: the scale is "
            + (
                "right if features are normal."
                if self.fit == "calibrated"
                else f"that of the {self.fit} quadratic."
            )
        )
        if not moments.varies:
            _warn(
                "noise hides how much features vary: intervals count on no column changing log-odds by more "
                f"than {_MOST_MOVED:.0f} as it goes through its range"
            )
        return self._finding(
            fit.weights,
            fit.sampling,
            fit.privacy,
            schema,
            told,
            0,
            moments.count,
            other=bold if moments.varies else None,
            rough=True,
        )

    def _arrived(
        self,
        step: Step,
        before: Floats,
        schema: Schema,
        made: int,
        moments: SecondMoments | None = None,
    ) -> Finding:
        """Return the weights after the last step, with their errors."""
        width = len(step.weights)
        change = step.change
        moved = math.sqrt(max(float(change @ step.hessian @ change), 0.0) / step.count) * 2
        if not step.clear.any():
            _warn(
                f"noise hides the whole Hessian: its largest eigenvalue is {step.spread[0][-1]:.3g}, that of "
                f"noise {spectral(width, step.hessian_noise):.3g}; the start was kept"
            )
        elif not step.clear.all():
            _warn(
                f"{int((~step.clear).sum())} of {width} directions of features are hidden by noise, or do "
                "not vary: coefficients along them are those of second moments, and their errors say so"
            )
        sampling, privacy = step.errors(before)
        left = np.zeros(width)
        if moments is not None:
            left, added = self._remainder(step, moments, before)
            privacy = privacy + added
        long = self._lengths(width) if self.intercept else np.ones(width)
        parts = [each * np.outer(long, long) for each in (sampling, privacy)]
        if not self.intercept:
            parts = [np.pad(each, (1, 0)) for each in parts]
        told = "Maximum-likelihood estimates, up to noise, which is counted."
        if self.intercept:
            off = float(step.gradient[0]) / self._lengths(width)[0] / step.count
            noise = step.gradient_noise / self._lengths(width)[0] / step.count
            told += f" Before the last step, predicted less observed share: {off:+.4f} (noise {noise:.2g})."
            if moments is not None:
                self._warn_of_one_class(
                    (1 + moments.mean_y) / 2, moments.y_noise / moments.count / 2, step.count
                )
        weights = self._gathered(step.weights + change)
        units = Units(self._design(False), schema)
        error = np.sqrt(np.maximum(np.diag(units.covariance(parts[0] + parts[1])), 1e-300))
        left = self._gathered(left)
        far = float(np.max(np.abs(units.values(left)) / error))
        if far > _FAR:
            _warn(
                f"the last step still changed log-odds by {moved:.2g}, and may have left estimates off by "
                f"{far:.2g} standard errors, which intervals count; more rounds, rows or epsilon would help"
            )
        return self._finding(weights, parts[0], parts[1], schema, told, made, step.count, left=left)

    def _classes(self, schema: Schema) -> tuple[Any, ...]:
        return schema.category(self.target).values

    def _warn_of_one_class(self, share: float, noise: float, count: float) -> None:
        rare = min(share, 1 - share)
        if self.intercept and rare * count < max(_RARE, _RARE * noise * count):
            _warn(
                f"at most {max(rare, 0.0) * count + _RARE * noise * count:.3g} of {count:.0f} rows can be "
                f"told to be in one of the categories of {self.target!r}: what sets it apart is not known"
            )

    def _finding(
        self,
        weights: Floats,
        sampling: Floats,
        privacy: Floats,
        schema: Schema,
        told: str,
        rounds: int,
        count: float,
        *,
        other: Fit | None = None,
        rough: bool = False,
        left: Floats | None = None,
    ) -> Finding:
        """Return the estimates and the model.

        Args:
            weights: of (1, x).
            sampling: the covariance of their errors from having sampled rows.
            privacy: that from noise.
            schema: the columns.
            told: what was released about how right they are.
            rounds: how many Newton steps were made.
            count: how many rows there are.
            other: weights that are as large as noise lets them be, where the given ones are as small.
            rough: whether there ought to be such.
            left: how far the last step may have ended from where it should.
        """
        units = Units(self._design(False), schema)
        values = units.values(weights)
        errors = [np.sqrt(np.maximum(np.diag(units.covariance(each)), 0.0)) for each in (sampling, privacy)]
        labels = ("intercept", *units.names)
        first = 0 if self.intercept else 1
        most = _widest(units)
        bias, ends, far = np.zeros(len(values)), values, np.zeros(len(values))
        if left is not None:
            bias = np.abs(units.values(left))
        if other is not None:
            ends = units.values(other.weights)
            far = np.sqrt(np.maximum(np.diag(units.covariance(other.sampling + other.privacy)), 0.0))
            bias = np.abs(ends - values) / _APART
        estimates = []
        for i in range(first, len(labels)):
            value, sampled, noise = float(values[i]), float(errors[0][i]), float(errors[1][i])
            error, limit = math.hypot(sampled, noise), max(float(most[i]), abs(value))
            at: Callable[[float], tuple[float, float]] | None = None
            if rough:
                both = (error, float(far[i])) if other is not None else (limit, limit)
                at = Between((value, float(ends[i])), both)
                noise = math.hypot(noise, float(bias[i])) if other is not None else limit
            elif bias[i] > 1e-3 * error:
                at = Reach(value, error, float(bias[i]))
                noise = math.hypot(noise, float(bias[i]))
            within = (-limit, limit) if at is not None else (-math.inf, math.inf)
            estimates.append(Estimate(labels[i], value, sampled, noise, within, at))
        model = LogisticModel(
            self.target,
            self._classes(schema),
            self._design(False),
            schema,
            tuple(estimates),
            tuple(float(w) for w in weights),
            float(values[0]),
            self.threshold,
            rounds,
            count,
            told,
        )
        return Finding(tuple(estimates), model)

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
        second = units.typical(_SQUARE)
        count = max(rows, 1)
        if self.steps:
            lengths = self._lengths(len(second)) if self.intercept else np.ones(len(second) - 1)
            kept = second if self.intercept else second[1:, 1:]
            inverse = np.linalg.inv(kept * np.outer(lengths, lengths) * count / 4)
            of_weights = inverse @ inverse * noise[0][1] ** 2 * np.outer(lengths, lengths)
            if not self.intercept:
                of_weights = np.pad(of_weights, (1, 0))
        else:
            each = noise[0][1:4] if self.intercept else (0.0, 0.0, noise[0][1])
            of_sums = np.diag([each[0] ** 2] + [each[2] ** 2] * len(units.names))
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


def _widest(units: Units) -> Floats:
    """Return the largest intercept and coefficients, if no column changes log-odds by more than 20."""
    length, largest = units.design.length(units.schema), [_MOST_MOVED]
    for name in units.design.features:
        column = units.schema[name]
        if isinstance(column, Category):
            largest += [_MOST_MOVED * length] * (len(column.values) - 1)
        else:
            largest.append(_MOST_MOVED / 2 * length)
    matrix = np.stack([units.values(unit) for unit in np.eye(len(largest))], axis=1)
    return np.asarray(np.abs(matrix) @ np.array(largest))


def _warn(text: str) -> None:
    warnings.warn(text, TooNoisyWarning, stacklevel=4)
