"""Linear regression: second moments asked for once, a ridge that their noise sets, coefficients with
errors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from cape.analyses.regression.inference import Coefficients, Reach, coefficients, largest, unreliable, widest
from cape.analyses.regression.linear_model import LinearModel
from cape.analyses.regression.moments import XX, XY, YY, SecondMoments, X, Y
from cape.analyses.regression.ridge import fit
from cape.analyses.regression.sensitivity import joint
from cape.blocks import Design, Term
from cape.blocks.units import Units
from cape.data import Category, Schema
from cape.engine.arguments import joined, regression
from cape.engine.estimates import unknown
from cape.engine.query import Analysis, AnalysisResult, Answer, Estimate, Neighbours, Query
from cape.errors import InvalidInput, TooNoisyWarning

__all__ = ["LinearRegression"]


_TERMS = (Y, YY, X, XY, XX)
_WEIGHTS = (0.2, 1.0, 0.3, 0.75, 1.0)
_TERMS_THROUGH_MIDDLE = (YY, XY, XX)
_WEIGHTS_THROUGH_MIDDLE = (1.0, 0.75, 1.0)
_PAID = 0.3  # the weight of y² where it is not free
INTERCEPT = "intercept"


@dataclass(frozen=True, init=False)
class LinearRegression(Analysis):
    """The target as a linear function of the features, by least squares over complete rows.

    Two sets of coefficients come out of one release. *Estimates* are least squares less what noise does to
    them, each with an interval that counts sampling and noise: see `inference`. *Predictions* are those of
    a ridge regression, whose ridge the noise sets: see `ridge`. They differ where noise is large, and
    predictions are then the middle of the target's bounds rather than noise. A row whose features are
    longer than `norm`, in units of half their bounds, is shortened to it, here and in predictions; by
    default none is.

    **Sensitivity** sqrt(5.00125) under replace-one. With weights w = 1/5, 1, v = 3/10, r = 3/4 and 1 on the
    sums of y, y², x, xy and xx', two rows of length 1 with opposite targets, -1 and 1, and x·z = (r - v) / 2
    move them by 2 + 2 (r + v) + (r - v)² / 2 + 4 w, squared, and no two rows further: y² is free up to about
    1. Without an intercept 2 (1 + r/2)², sqrt(3.78125). Under add-remove the weights add up, y² having 3/10:
    2.55, 2.05 without an intercept, and an eighth more for the count.

    *Choice.* For weights r on xy, v on x and 1 on xx' one row moves the sums by 2 (1 + (r + v) / 2)² or a
    little more, squared, and the noise in the normal equations for coefficients w and an intercept b has a
    variance proportional to that times |w|²/2 + 1/r + b²/v an entry. With |w| between 1 and 2 and |b|
    around 1/3, as rows of length 1 have them whose target fills its bounds, r between 0.6 and 1 and v
    between 0.2 and 0.4 are within a few percent of the best. The sum of y is what is left where noise hides
    all else: it gets more than what is free.

    Args:
        target: a numeric column.
        features: numeric columns, or categories: one 0 or 1 for each value but the first.
        intercept: if False, the prediction where all features are in the middle of their bounds (or in their
            first category) is the middle of the target's.
        ridge: "auto", or what is added to the mean of xx', with ||x|| <= 1, for predictions; it is raised
            where noise needs more.
        norm: the length that rows are shortened to.
    """

    kind: ClassVar[str] = "linear-regression"
    example: ClassVar[dict[str, Any]] = {"target": "chol", "features": ["age"]}
    shape_matters: ClassVar[bool] = True
    slopes: ClassVar[bool] = True
    target: str
    features: tuple[str, ...]
    intercept: bool
    ridge: float | Literal["auto"]
    norm: float | None

    def __init__(
        self,
        target: str,
        features: Sequence[str] | str,
        *,
        intercept: bool = True,
        ridge: float | Literal["auto"] = "auto",
        norm: float | None = None,
    ) -> None:
        self._set(**regression(target, features, intercept=intercept, ridge=ridge, norm=norm))
        _ = self.design  # refuses a target among the features

    @property
    def design(self) -> Design:
        return Design(self.features, self.target, self.norm)

    @property
    def _terms(self) -> tuple[Term, ...]:
        return _TERMS if self.intercept else _TERMS_THROUGH_MIDDLE

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        if isinstance(schema[self.target], Category):
            raise InvalidInput(
                f"target {self.target!r} must have bounds; for two categories use LogisticRegression"
            )
        terms = self._terms
        weights: tuple[float, ...] = _WEIGHTS if self.intercept else _WEIGHTS_THROUGH_MIDDLE
        if neighbours == "add-remove":
            weights = tuple(_PAID if term == YY else w for term, w in zip(terms, weights, strict=True))
        return joint(self.design, terms, weights, schema, neighbours)

    def finish(self, answer: Answer) -> AnalysisResult:
        sums = SecondMoments.of(answer, self.design, self._terms)
        ridge = None if self.ridge == "auto" else float(self.ridge) * sums.count
        found = fit(sums, centred=self.intercept, ridge=ridge)
        units = Units(self.design, answer.schema)
        limits = self._limits(units)
        labels = (INTERCEPT, *units.names)[not self.intercept :]
        known = coefficients(sums, centred=self.intercept, loss=found.loss) if sums.enough else None
        if known is None:
            estimates = [unknown(label, *limit) for label, limit in zip(labels, limits, strict=True)]
        else:
            estimates = self._estimates(known, units, labels, limits)
        self._warn(estimates, known, sums, units)
        column = answer.schema.number(self.target)
        raw = column.half * units.values(np.concatenate([[found.intercept], found.weights]))
        raw[0] += column.middle
        model = LinearModel(
            self.target,
            self.design,
            answer.schema,
            tuple(estimates),
            float(raw[0]),
            dict(zip(units.names, map(float, raw[1:]), strict=True)),
            (found.intercept, *map(float, found.weights)),
            sums.count,
            found.ridge / sums.count if sums.count > 0 else math.inf,
            column.half * math.sqrt(found.loss),
            math.nan if known is None else column.half * math.sqrt(known.residual),
            math.nan if known is None else known.explained,
            math.nan if known is None else known.noise / max(known.smallest, 1e-300),
        )
        return AnalysisResult(estimates, model)

    def describe(self) -> str:
        return f"linear regression of {self.target} on {joined(self.features)}"

    def _limits(self, units: Units) -> list[tuple[float, float]]:
        """Return bounds on coefficients, if no column moves the target by more than its whole range."""
        column = units.schema.number(self.target)
        slopes = widest(units, 2.0, 1.0) * column.half
        limits = [(-float(slope), float(slope)) for slope in slopes[1:]]
        if self.intercept:
            limits.insert(0, (column.middle - float(slopes[0]), column.middle + float(slopes[0])))
        return limits

    def _estimates(
        self,
        known: Coefficients,
        units: Units,
        labels: Sequence[str],
        limits: Sequence[tuple[float, float]],
    ) -> list[Estimate]:
        column = units.schema.number(self.target)
        half, first = column.half, int(not self.intercept)
        values = half * units.values(known.values)
        values[0] += column.middle
        sampling, privacy = (
            half * np.sqrt(np.maximum(np.diag(units.covariance(matrix)), 0.0))
            for matrix in (known.sampling, known.privacy)
        )
        pull = np.stack([units.values(column_) for column_ in known.pull.T], axis=1)
        bias = half * np.abs(pull) @ largest(units, 2.0)
        estimates = []
        for i, (label, (low, high)) in enumerate(zip(labels, limits, strict=True), start=first):
            error = math.hypot(sampling[i], privacy[i])
            if not bias[i] > 1e-3 * error:
                estimates.append(Estimate(label, float(values[i]), float(sampling[i]), float(privacy[i])))
                continue
            if bias[i] + error >= (high - low) / 2:
                estimates.append(unknown(label, low, high))
                continue
            value = min(max(float(values[i]), low), high)
            interval = Reach(value, error, float(bias[i]))
            noise = math.hypot(float(privacy[i]), float(bias[i]))
            estimates.append(Estimate(label, value, float(sampling[i]), noise, (low, high), interval))
        return estimates

    def _warn(
        self, estimates: Sequence[Estimate], known: Coefficients | None, sums: SecondMoments, units: Units
    ) -> None:
        if all(estimate.at is None for estimate in estimates):
            return
        if known is None:
            text = (
                f"noise hides the number of rows ({sums.count:.0f}, with noise of {sums.count_noise:.0f}): "
                "no coefficient is known. Use more rows, a larger share or more epsilon."
            )
        else:
            text = unreliable(units.names, known.hidden, noise=sums.xx_noise > 0)
            if sums.xx_noise > 0:
                needed = 3 * known.noise / max(known.smallest, known.noise / 3)
                text += f" About {max(needed, 1.0):.1f} times the rows or the epsilon would be enough."
        warnings.warn(
            f"{text} Wide intervals assume that no column moves {self.target} by more than its whole range.",
            TooNoisyWarning,
            stacklevel=3,
        )
