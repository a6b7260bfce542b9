"""What a logistic regression leaves behind: coefficients in people's units, predictions, a table to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cape.analyses.regression.effects import effect_table, effects, forest, plainly, ratios_of
from cape.analyses.regression.joint import Joint, Tested
from cape.analyses.regression.limited import NOTHING, Limited
from cape.analyses.regression.misfit import spread_misfit
from cape.analyses.regression.portable import Portable
from cape.analyses.regression.reference import Reference, reference
from cape.analyses.regression.spreading import Spreading
from cape.blocks.design import Design
from cape.blocks.units import Units
from cape.core import check
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.arguments import joined
from cape.show import Figure, Table
from cape.show.numbers import count, counted
from cape.show.plain import plain
from cape.stats.estimates import Estimate

__all__ = ["LogisticModel"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class LogisticModel(Tested, Portable):
    """Log-odds of the second of `classes`, linear in the features.

    Attributes:
        estimates: the intercept, if there is one, and log-odds per unit of each feature.
        weights: of predictions, for (1, x), with x as sites make it: estimates, drawn to no effect as far as
            noise hides them.
        intercept: of predictions, where numbers and indicators of categories are all 0.
        rounds: the steps that were made.
        calibration: the share of the second class, and what the estimates are.
        joint: the estimates together, with the covariances of their errors.
        limited: what was capped and shortened.
        means: released means of numeric features: where the reference is.
        faults: what is wrong with the data or the fit, in sentences.
        count_noise: the noise in the number of rows, 0 if that is public.
        spreading: how scores spread beside what the model says; None where that is not seen.
    """

    link: ClassVar[str] = "logit"

    target: str
    classes: tuple[Any, ...]
    design: Design
    schema: Schema
    estimates: tuple[Estimate, ...]
    weights: tuple[float, ...]
    intercept: float
    threshold: float
    rounds: int
    count: float
    calibration: str
    joint: Joint
    limited: Limited = NOTHING
    means: tuple[tuple[str, float], ...] = ()
    faults: tuple[str, ...] = ()
    count_noise: float = 0.0
    spreading: Spreading | None = None

    def describe(self) -> str:
        """Return what was done, where the analysis said what might be."""
        of = f"logistic regression of {self.target} on {joined(self.design.features)}"
        return f"{of}, in {count(self.rounds, 'step')}"

    @cached_property
    def coefficients(self) -> dict[str, float]:
        """Log-odds per unit of each feature; of a category, against its first value."""
        return {each.label: each.value for each in self._slopes}

    @property
    def _predicting(self) -> dict[str, float]:
        units = Units(self.design, self.schema)
        return dict(zip(units.names, map(float, units.values(np.array(self.weights))[1:]), strict=True))

    @property
    def _slopes(self) -> tuple[Estimate, ...]:
        """The estimates without the intercept."""
        return self.estimates[-len(self.design.names(self.schema)) :]

    @property
    def odds_ratios(self) -> dict[str, float]:
        """By what odds are multiplied for one unit more of each feature."""
        return ratios_of(self.coefficients)

    def decision_function(self, data: Any) -> Floats:
        """Return log-odds of the second class for each row: see `Units.rows` for what data may be."""
        weights = np.array(self.weights)
        return np.asarray(weights[0] + Units(self.design, self.schema).rows(data) @ weights[1:])

    def predict_proba(self, data: Any) -> Floats:
        """Return the probabilities of both classes, one row each; NaN where a feature is missing."""
        positive = expit(self.decision_function(data))
        return np.stack([1 - positive, positive], axis=1)

    def predict(self, data: Any, threshold: float | None = None) -> NDArray[Any]:
        """Return the class of each row: the second where its probability is at least the threshold."""
        at = self.threshold if threshold is None else check.real("threshold", threshold, least=0.0, most=1.0)
        positive = self.predict_proba(data)[:, 1]
        if np.isnan(positive).any():
            raise InvalidInput("a row to predict must have all features; leave out those that miss one")
        return np.asarray(np.array(self.classes)[(positive >= at).astype(int)])

    @property
    def title(self) -> str:
        """What stands above the table."""
        rows = counted(self.count, self.count_noise, "row")
        return f"log-odds of {self.schema.label(self.target)} = {self.classes[1]} ({rows})"

    def tables(self) -> Sequence[Table]:
        """Return odds ratios and coefficients with errors."""
        names, at = self.coefficients, self.reference
        return [effect_table(self.estimates, names, self.schema, self.title, "odds ratio", at)]

    def figures(self) -> Sequence[Figure]:
        """Return the odds ratios on one axis."""
        what = f"Odds ratio of {self.schema.title(f'{self.target}={self.classes[1]}')}"
        return forest(self._slopes, self.schema, what, ratios=True)

    @cached_property
    def reference(self) -> Reference | None:
        """The log-odds at typical values of the features, if there are such."""
        return reference(self.joint, self.schema, dict(self.means))

    def notes(self) -> Sequence[str]:
        """Return the prediction at reference, the share of the second class, and what the estimates are."""
        found = [each for each in (self.calibration, self.misfit) if each]
        if self.reference is not None:
            what = f"the probability of {self.schema.label(self.target)} = {self.classes[1]}"
            found.insert(0, self.reference.said(what, lambda log_odds: float(expit(log_odds))))
        return [*self.faults, *found, *self.limited.notes(self.schema, self.count)]

    @property
    def misfit(self) -> str:
        """A sentence where the model certainly does not hold, with what to ask instead; else nothing."""
        return spread_misfit("binomial", "log-odds", self.spreading)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data: coefficients and ratios per what `per` says, predictions per unit."""
        return plain(
            {
                "target": self.target,
                "classes": list(self.classes),
                **plainly(self.estimates, self.coefficients, self.schema),
                "reference": self.reference and self.reference.to_dict(),
                "odds_ratios": {e.label: e.ratio_to_dict() for e in effects(self._slopes, self.schema)},
                "predictions": {"intercept": self.intercept, "coefficients": self._predicting},
                "steps": self.rounds,
                "rows": self.count,
                "threshold": self.threshold,
                "covariance": self.covariance.to_dict(),
                "limited": self.limited.to_dict(),
                "faults": list(self.faults),
                "misfit": self.misfit or None,
            }
        )
