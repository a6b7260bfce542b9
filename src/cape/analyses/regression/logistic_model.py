"""What a logistic regression leaves behind: coefficients in people's units, predictions, a table to read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from scipy.special import expit

from cape import check
from cape.analyses.arguments import joined
from cape.analyses.regression.inference import z_and_p
from cape.blocks.design import Design
from cape.blocks.units import Units
from cape.data import Schema
from cape.engine.query import Estimate
from cape.engine.result import as_text, between, count, number
from cape.errors import InvalidInput

__all__ = ["LogisticModel"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class LogisticModel:
    """Log-odds of the second of `classes`, linear in the features.

    Attributes:
        estimates: the intercept, if there is one, and log-odds per unit of each feature.
        weights: the same for (1, x), with x as sites make it.
        intercept: log-odds where numbers and indicators of categories are all 0.
        rounds: the Newton steps that were made; with none, estimates are those of second moments.
        calibration: what was released about how right probabilities are.
    """

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

    def describe(self) -> str:
        """Return what was done, where the analysis said what might be."""
        how = f"with {count(self.rounds, 'Newton step')}" if self.rounds else "from second moments only"
        of = f"logistic regression of {self.target} on {joined(self.design.features)}"
        return f"{of}, {how}"

    @cached_property
    def coefficients(self) -> dict[str, float]:
        """Log-odds per unit of each feature; of a category, against its first value."""
        names = self.design.names(self.schema)
        return {each.label: each.value for each in self.estimates[-len(names) :]}

    @property
    def odds_ratios(self) -> dict[str, float]:
        """By what odds are multiplied for one unit more of each feature."""
        return {label: _exp(value) for label, value in self.coefficients.items()}

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

    def __rich__(self) -> Group:
        title = f"log-odds of {self.target} = {self.classes[1]} ({self.count:,.0f} rows)"
        table = Table(title=escape(title), title_justify="left")
        table.add_column("")
        for name in (
            "coef",
            "std err",
            "of it privacy",
            "z",
            "P>|z|",
            "95% interval",
            "odds ratio",
            "95% interval",
        ):
            table.add_column(name, justify="right")
        first = len(self.estimates) - len(self.coefficients)  # 1 with an intercept
        for i, each in enumerate(self.estimates):
            low, high = each.interval(0.95)
            ratios = ["", ""]
            if i >= first:
                ratios = [number(_exp(each.value)), between((_exp(low), _exp(high)))]
            table.add_row(
                escape(each.label),
                number(each.value),
                number(each.standard_error),
                number(each.privacy),
                *z_and_p(each),
                between((low, high)),
                *ratios,
            )
        return Group(table, Text(self.calibration, style="dim"))

    def summary(self) -> str:
        """Return the table of coefficients and odds ratios as text."""
        return as_text(self, 130)

    __str__ = summary
    __repr__ = summary


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))
