"""What a multinomial or ordinal regression leaves behind: coefficients, probabilities, how it fits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.analyses.regression.effects import effect_table, forest, plainly, ratios_of
from cape.analyses.regression.joint import Joint, Rows, Tested, WaldTest
from cape.analyses.regression.limited import Limited
from cape.analyses.regression.misfit import spread_misfit
from cape.analyses.regression.multinomial_proportions import probabilities
from cape.analyses.regression.spreading import Spreading
from cape.blocks.choices import Model
from cape.blocks.design import Design
from cape.blocks.units import Units
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.arguments import joined
from cape.show import Figure, Shown, Table
from cape.show.numbers import count, counted, number
from cape.show.plain import plain
from cape.stats.estimates import Estimate

__all__ = ["ChoiceModel"]

_KINDS = {
    "multinomial": "A coefficient is that of the log-odds of a category, in brackets, against the first.",
    "ordinal": "A coefficient is that of the log-odds of a higher category, the same at every threshold.",
}


@dataclass(frozen=True, repr=False)
class ChoiceModel(Tested, Shown):
    """Probabilities of several categories.

    Attributes:
        family: "multinomial" or "ordinal".
        estimates: of a multinomial model, for each category but the first, the intercept and log-odds against
            the first category per unit of each feature, as in "age [high]"; of an ordinal one, thresholds and
            log-odds of a higher category per unit of each feature.
        joint: the estimates together, with the covariances of their errors.
        weights: for each category but the first, or each threshold, weights of (1, x), x as sites make it.
        rounds: the steps that were made.
        count: how many complete rows there are.
        deviance: the sum over rows, with its noise.
        pseudo_r2: McFadden's.
        calibration: what the estimates are.
        empty: a sentence on categories in which nobody is seen; empty if there are none.
        limited: what was capped and shortened.
        faults: what is wrong with the data or the fit, in sentences.
        count_noise: the noise in the number of rows, 0 if that is public.
        spreading: how scores spread beside what the model says; None where that is not seen.
    """

    target: str
    family: Model
    design: Design
    schema: Schema
    estimates: tuple[Estimate, ...]
    joint: Joint
    weights: Rows
    rounds: int
    count: float
    deviance: Estimate
    pseudo_r2: Estimate
    calibration: str
    empty: str
    limited: Limited
    faults: tuple[str, ...] = ()
    count_noise: float = 0.0
    spreading: Spreading | None = None

    def describe(self) -> str:
        """Return what was done, where the analysis said what might be."""
        of = f"{self.family} regression (logit) of {self.target} on {joined(self.design.features)}"
        return f"{of}, in {count(self.rounds, 'step')}"

    @property
    def classes(self) -> tuple[Any, ...]:
        """The categories."""
        return self.schema.category(self.target).values

    @cached_property
    def coefficients(self) -> dict[str, float]:
        """Log-odds per unit of each feature."""
        return {each.label: each.value for each in self._slopes}

    @property
    def _slopes(self) -> tuple[Estimate, ...]:
        return tuple(e for e in self.estimates if not e.label.startswith(("intercept [", "threshold [")))

    @property
    def ratios(self) -> dict[str, float]:
        """By what odds are multiplied for one unit more of each feature."""
        return ratios_of(self.coefficients)

    def test(self, *names: str) -> WaldTest:
        """Return Wald's test of whether these coefficients are all 0; a column stands for all of its own."""
        found: list[str] = []
        for name in names:
            of = [label for label in self.joint.labels if label.startswith((f"{name} [", f"{name}="))]
            found += of if of and name not in self.joint.labels else [name]
        return self.joint.test(*found)

    def predict_proba(self, data: Any) -> Floats:
        """Return the probability of each category, one row each; NaN where a feature is missing."""
        x, weights = Units(self.design, self.schema).rows(data), np.array(self.weights)
        return probabilities(self.family, weights, x)

    def predict(self, data: Any) -> NDArray[Any]:
        """Return the most probable category of each row."""
        chances = self.predict_proba(data)
        if np.isnan(chances).any():
            raise InvalidInput("a row to predict must have all features; leave out those that miss one")
        return np.asarray(np.array(self.classes)[chances.argmax(axis=1)])

    @property
    def title(self) -> str:
        """What stands above the table."""
        against = f" against {self.classes[0]}" if self.family == "multinomial" else ""
        rows = counted(self.count, self.count_noise, "row")
        return f"log-odds of {self.schema.label(self.target)}{against}, {self.family} ({rows})"

    def tables(self) -> Sequence[Table]:
        """Return odds ratios and coefficients with errors."""
        return [effect_table(self.estimates, self.coefficients, self.schema, self.title, "odds ratio")]

    def figures(self) -> Sequence[Figure]:
        """Return the odds ratios on one axis."""
        return forest(
            self._slopes, self.schema, f"Odds ratio of {self.schema.title(self.target)}", ratios=True
        )

    def notes(self) -> Sequence[str]:
        """Return what coefficients are, and how the model fits."""
        fit = "Pseudo-R² not known."
        if math.isfinite(self.pseudo_r2.value):
            low, high = self.pseudo_r2.interval()
            fit = f"Pseudo-R² (McFadden) {number(self.pseudo_r2.value)} ({number(low)} to {number(high)})."
        return [
            *([self.empty] if self.empty else []),
            *self.faults,
            self.calibration,
            _KINDS[self.family],
            fit,
            *([self.misfit] if self.misfit else []),
            "Standard errors are robust: they do not assume that the model is right.",
            *self.limited.notes(self.schema, self.count),
        ]

    @property
    def misfit(self) -> str:
        """A sentence where the model certainly does not hold, with what to ask instead; else nothing."""
        return spread_misfit(self.family, "log-odds", self.spreading)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data: coefficients per what `per` says."""
        return plain(
            {
                "target": self.target,
                "family": self.family,
                "link": "logit",
                "classes": list(self.classes),
                **plainly(self.estimates, {each.label for each in self.estimates}, self.schema),
                "predictions": {each.label: each.value for each in self.estimates},
                "steps": self.rounds,
                "rows": self.count,
                "deviance": self.deviance.value,
                "pseudo_r2": self.pseudo_r2.value,
                "covariance": self.covariance.to_dict(),
                "limited": self.limited.to_dict(),
                "faults": [*([self.empty] if self.empty else []), *self.faults],
                "misfit": self.misfit or None,
            }
        )
