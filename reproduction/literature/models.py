"""Models that a method of the literature fitted: they predict as the analyses' own, and say by what."""

from __future__ import annotations

from dataclasses import dataclass

from cape.analyses.regression.linear_model import LinearModel
from cape.analyses.regression.logistic_model import LogisticModel
from cape.engine.arguments import joined

__all__ = ["LinearByMethod", "LogisticByMethod"]


@dataclass(frozen=True, repr=False)
class LinearByMethod(LinearModel):
    """A linear model; errors of its coefficients are not known, NaN."""

    method: str = ""

    @property
    def title(self) -> str:
        """What stands above the table."""
        return f"{self.target} by {self.method} ({self.rows:,.0f} rows)"


@dataclass(frozen=True, repr=False)
class LogisticByMethod(LogisticModel):
    """A logistic model; errors of its coefficients are not known, NaN."""

    method: str = ""

    def describe(self) -> str:
        """Return what was done."""
        features = joined(self.design.features)
        return f"logistic regression of {self.target} on {features}, by {self.method}"
