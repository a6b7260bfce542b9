"""How a linear mixed model is shown, and what can be asked of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cape.analyses.regression.effects import effects
from cape.analyses.regression.limited import NOTHING, Limited
from cape.analyses.sites.heterogeneity_model import published
from cape.data import Schema
from cape.engine.arguments import joined
from cape.show import Figure, Intervals, Mark, Shown, Table
from cape.show.figures import DOTS
from cape.show.numbers import LEVEL, between, p_value, rounded
from cape.show.plain import plain
from cape.stats.estimates import Estimate
from cape.stats.mixture import Mixture

__all__ = ["MixedEffectsModel"]


@dataclass(frozen=True, repr=False)
class MixedEffectsModel(Shown):
    """Fixed effects, variances of random effects, and the residual variance.

    Attributes:
        estimates: all of them, in this order.
        fixed_effects, random_effects: how many there are of the first two.
        sites: the names of all sites.
        used: whether each has coefficients of its own; noise hides those of the others.
        limited: what was capped and shortened.
        rows: how many complete rows there are.
    """

    target: str
    by: str
    schema: Schema
    estimates: tuple[Estimate, ...]
    fixed_effects: int
    random_effects: int
    sites: tuple[str, ...]
    used: tuple[bool, ...]
    limited: Limited = NOTHING
    rows: float = 0.0

    @property
    def coefficients(self) -> dict[str, float]:
        """The fixed effects by name."""
        return {each.label: each.value for each in self._fixed}

    @property
    def tau2(self) -> dict[str, float]:
        """The variances of the random effects by name."""
        return {each.label.partition(" ")[2]: each.value for each in self._random}

    @property
    def residual_variance(self) -> float:
        """The variance of rows about their site's line."""
        return self.estimates[-1].value

    def p_value(self, name: str) -> float:
        """Return the P value of a fixed effect: that it is 0; NaN if nothing is known."""
        for each in self._fixed:
            if each.label == name:
                return _p(each)
        raise KeyError(name)

    @property
    def _fixed(self) -> tuple[Estimate, ...]:
        return self.estimates[: self.fixed_effects]

    @property
    def _random(self) -> tuple[Estimate, ...]:
        return self.estimates[self.fixed_effects : self.fixed_effects + self.random_effects]

    def tables(self) -> Sequence[Table]:
        """Return fixed effects with tests, and variances."""
        rows: list[tuple[str, ...]] = [("Fixed effects",)]
        rows += [
            (*line, p_value(_p(each)))
            for line, each in zip(self._lines(self._fixed), self._fixed, strict=True)
        ]
        rows.append((f"Variances between {self.by}s" if self.by == "site" else f"Variances by {self.by}",))
        rows += [(*line, "") for line in self._lines(self._random)]
        rows += [("Within",), *((*line, "") for line in self._lines(self.estimates[-1:]))]
        heads = ("", "value", f"{LEVEL:.0%} interval", "standard error", "P")
        return [Table(heads, tuple(rows), drop=(3,))]

    def figures(self) -> Sequence[Figure]:
        """Return the fixed effects, each on an axis of its own, and the variances."""
        shown = effects((*self._fixed[1:], *self._random), self.schema)
        panels = [Intervals((Mark.of(each, each.title),), line=0.0) for each in shown]
        return [Figure(tuple(panels), DOTS)]

    def notes(self) -> Sequence[str]:
        """Return how the numbers were found, and which sites are hidden."""
        found: list[str] = []
        hidden = [name for name, known in zip(self.sites, self.used, strict=True) if not known]
        if hidden and any(self.used):
            found.append(
                f"{joined(hidden)}: too few rows to be told from noise, or none; nothing is known of effects "
                "there."
            )
        elif hidden:
            found.append(
                "Fewer than two sites have enough rows to be told from noise: nothing can be said of how "
                "sites differ."
            )
        found.append(
            "Restricted maximum likelihood. Intervals and P count rows, sites and privacy noise, and that "
            "little is known of the variances between so few sites."
        )
        found += self.limited.notes(self.schema, self.rows)
        found.append(published("sums", self.by))
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return plain(
            {
                "target": self.target,
                "by": self.by,
                "coefficients": self.coefficients,
                "tau2": self.tau2,
                "residual_variance": self.residual_variance,
                "p": {each.label: _p(each) for each in self._fixed},
                "limited": self.limited.to_dict(),
                "sites": dict(zip(self.sites, self.used, strict=True)),
            }
        )

    def _lines(self, estimates: Sequence[Estimate]) -> list[tuple[str, str, str, str]]:
        """Return title, value, interval and standard error, per what the schema says of a column."""
        found = []
        for each in effects(estimates, self.schema):
            error = each.standard_error
            ends = between(each.interval(), error)
            found.append(
                (each.title, rounded(each.value, error), ends, rounded(error, error) if error else "0")
            )
        return found


def _p(estimate: Estimate) -> float:
    return estimate.at.p_value() if isinstance(estimate.at, Mixture) else math.nan
