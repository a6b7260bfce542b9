"""What a generalised linear model leaves behind: coefficients in people's units, predictions, how it fits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cape.analyses.regression.diagnostics import ALPHA, AtLeast
from cape.analyses.regression.effects import effect_table, forest, plainly, ratios_of
from cape.analyses.regression.joint import Joint, Tested, WaldTest
from cape.analyses.regression.likelihoods import LIKELIHOODS, Likelihood
from cape.analyses.regression.limited import NOTHING, Limited
from cape.analyses.regression.misfit import misfit_of, spread_misfit
from cape.analyses.regression.portable import Portable
from cape.analyses.regression.reference import Reference, reference
from cape.analyses.regression.spreading import Spreading
from cape.blocks.design import Design
from cape.blocks.units import Units
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.arguments import joined
from cape.show import Figure, Table
from cape.show.numbers import count, counted, number, p_said
from cape.show.plain import plain
from cape.stats.estimates import Estimate

__all__ = ["GLMModel"]


@dataclass(frozen=True, repr=False)
class GLMModel(Tested, Portable):
    """A target of a family, whose mean by a link is linear in the features.

    Attributes:
        estimates: the intercept, if there is one, and the change of the predictor per unit of each feature.
        joint: the estimates together, with the covariances of their errors.
        weights: of predictions, for (1, x), with x as sites make it: estimates, drawn to no effect as far as
            noise hides them.
        intercept: of predictions, where numbers and indicators of categories are all 0, and the offset is.
        rounds: the steps that were made.
        count: how many complete rows there are.
        calibration: what the estimates are.
        offset: the column that is added to the predictor.
        deviance: the sum over rows, each cut at a public limit, with its noise.
        pseudo_r2: the share of the deviance of a constant that features explain; McFadden's for log-odds,
            elsewhere approximate, from the quadratic form of the slopes.
        dispersion: of the family, or, where it has none, the variance over that of the family.
        score_test: Wald's test of whether no feature matters.
        limited: what was capped and shortened.
        means: released means of numeric features: where the reference is.
        faults: what is wrong with the data or the fit, in sentences.
        count_noise: the noise in the number of rows, 0 if that is public.
        spreading: how scores spread beside what the model says; None where that is not seen.
    """

    target: str
    family: str
    link: str
    design: Design
    schema: Schema
    estimates: tuple[Estimate, ...]
    joint: Joint
    weights: tuple[float, ...]
    intercept: float
    rounds: int
    count: float
    calibration: str
    offset: str | None
    deviance: Estimate
    pseudo_r2: Estimate
    dispersion: Estimate | None
    score_test: WaldTest
    limited: Limited = NOTHING
    means: tuple[tuple[str, float], ...] = ()
    faults: tuple[str, ...] = ()
    count_noise: float = 0.0
    spreading: Spreading | None = None

    @property
    def _likelihood(self) -> Likelihood:
        return LIKELIHOODS[self.family, self.link]

    def describe(self) -> str:
        """Return what was done, where the analysis said what might be."""
        of = f"{self.family} regression ({self.link}) of {self.target} on {joined(self.design.features)}"
        return f"{of}, in {count(self.rounds, 'step')}"

    @property
    def classes(self) -> tuple[Any, ...]:
        """The categories of the target, if it has two."""
        binary = self._likelihood.binary
        return self.schema.category(self.target).values if binary else (None, None)

    @cached_property
    def coefficients(self) -> dict[str, float]:
        """The change of the predictor per unit of each feature; of a category, against its first value."""
        return {each.label: each.value for each in self._slopes}

    @property
    def _predicting(self) -> dict[str, float]:
        units = Units(self.design, self.schema)
        return dict(zip(units.names, map(float, units.values(np.array(self.weights))[1:]), strict=True))

    @property
    def _slopes(self) -> tuple[Estimate, ...]:
        return self.estimates[-len(self.design.names(self.schema)) :]

    @property
    def ratios(self) -> dict[str, float]:
        """By what odds, rates or means are multiplied for one unit more of each feature, where they are."""
        if not self._likelihood.ratio:
            raise InvalidInput(f"coefficients of link {self.link!r} are no logarithms of ratios")
        return ratios_of(self.coefficients)

    def decision_function(self, data: Any) -> Floats:
        """Return the predictor of each row, with its offset: see `Units.rows` for what data may be."""
        weights = np.array(self.weights)
        found = weights[0] + Units(self.design, self.schema).rows(data) @ weights[1:]
        if self.offset is None:
            return np.asarray(found)
        if isinstance(data, np.ndarray) and data.dtype.names is None:
            raise InvalidInput(f"a table to predict from must have the column {self.offset!r}, the offset")
        column = self.schema.number(self.offset)
        beside = Units(Design((self.offset,)), self.schema).rows(data)[:, 0]
        return np.asarray(found + column.middle + column.half * beside)

    def predict(self, data: Any) -> Floats:
        """Return the mean of the target for each row, of two categories the probability of the second.

        NaN where a feature is missing.
        """
        return self._likelihood.made(1.0).mean(self.decision_function(data))

    def predict_proba(self, data: Any) -> Floats:
        """Return the probabilities of both categories, one row each."""
        if not self._likelihood.binary:
            raise InvalidInput(f"family {self.family!r} predicts means, not probabilities: use predict")
        positive = self.predict(data)
        return np.stack([1 - positive, positive], axis=1)

    @property
    def _predictor(self) -> str:
        """What is linear in the features, in words: of the identity link, the mean itself."""
        return "mean" if self.link == "identity" else self._likelihood.predictor

    @property
    def title(self) -> str:
        """What stands above the table."""
        what = self.schema.title(self.target)
        if self._likelihood.binary:
            what = f"{self.schema.label(self.target)} = {self.schema.category(self.target).values[1]}"
        return f"{self._predictor} of {what}, {self.family} ({counted(self.count, self.count_noise, 'row')})"

    def tables(self) -> Sequence[Table]:
        """Return coefficients with errors and, where there are such, ratios."""
        ratio = self._likelihood.ratio
        names, at = self.coefficients, self.reference
        return [effect_table(self.estimates, names, self.schema, self.title, ratio, at)]

    def figures(self) -> Sequence[Figure]:
        """Return ratios, or coefficients, on one axis."""
        ratio, what = self._likelihood.ratio, self.schema.title(self.target)
        title = (
            f"{ratio[0].upper()}{ratio[1:]} of {what}"
            if ratio
            else f"Change of the {self._predictor} of {what}"
        )
        return forest(self._slopes, self.schema, title, ratios=bool(ratio))

    @cached_property
    def reference(self) -> Reference | None:
        """The predictor at typical values of the features, if there are such."""
        return reference(self.joint, self.schema, dict(self.means))

    def notes(self) -> Sequence[str]:
        """Return what the estimates are, and how the model fits."""
        fit = [_said(self.deviance), _said(self.pseudo_r2)]
        if self.dispersion is not None:
            fit.append(_said(self.dispersion))
        notes = [self.calibration, f"{fit[0][0].upper()}{'; '.join(fit)[1:]}."]
        if self.misfit:
            notes.append(self.misfit)
        if not math.isnan(self.score_test.p):
            notes.append(f"Test that no feature matters (Wald): {p_said(self.score_test.p)}.")
        if self.reference is not None:
            what = f"the mean of {self.schema.title(self.target)}"
            if self.classes[1] is not None:
                what = f"the probability of {self.schema.label(self.target)} = {self.classes[1]}"
            what += "" if self.offset is None else f", with {self.schema.label(self.offset)} (offset) 0,"
            notes.insert(0, self.reference.said(what, self._mean))
        notes.append("Standard errors are robust: they do not assume the variance that the family has.")
        return [*self.faults, *notes, *self.limited.notes(self.schema, self.count)]

    @property
    def misfit(self) -> str:
        """A sentence where the family certainly does not fit, with what to ask instead; else nothing."""
        found = misfit_of(self.family, self.dispersion, self.deviance, self.count)
        return found or spread_misfit(self.family, self._predictor, self.spreading)

    def _mean(self, predictor: float) -> float:
        return float(self._likelihood.made(1.0).mean(np.array([predictor]))[0])

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data: coefficients per what `per` says, predictions per unit."""
        fits = {"deviance": self.deviance, "pseudo_r2": self.pseudo_r2, "dispersion": self.dispersion}
        return plain(
            {
                "target": self.target,
                "family": self.family,
                "link": self.link,
                **plainly(self.estimates, self.coefficients, self.schema),
                "predictions": {"intercept": self.intercept, "coefficients": self._predicting},
                "reference": self.reference and self.reference.to_dict(),
                "offset": self.offset,
                "steps": self.rounds,
                "rows": self.count,
                **{
                    name: None if e is None else {"value": e.value, "interval": _ends(e)}
                    for name, e in fits.items()
                },
                "score_test": self.score_test.to_dict(),
                "covariance": self.covariance.to_dict(),
                "limited": self.limited.to_dict(),
                "faults": list(self.faults),
                "misfit": self.misfit or None,
            }
        )


def _ends(estimate: Estimate) -> tuple[float, float] | None:
    """Return an interval; None for a number that was held fixed, whose error is not known."""
    return None if estimate.label == ALPHA else estimate.interval()


def _said(estimate: Estimate) -> str:
    low, high = estimate.interval()
    if estimate.label == ALPHA:
        return (
            f"{ALPHA} {number(estimate.value)} (by moments, the spread of scores in earlier steps, and held "
            "fixed in the last)"
        )
    if isinstance(estimate.at, AtLeast):
        return f"{estimate.label} {number(estimate.value)} (at least {number(low)})"
    if estimate.value <= estimate.within[0] and estimate.privacy and math.isfinite(high):
        return f"{estimate.label} at most {number(high)}"
    if not high - low < math.inf or estimate.at is not None:
        return f"{estimate.label} not known"
    return f"{estimate.label} {number(estimate.value)} ({number(low)} to {number(high)})"
