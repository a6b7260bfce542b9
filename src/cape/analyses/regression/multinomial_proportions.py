"""How many rows are in each category, as the first scores tell, and what follows: fit, and what is unseen.

All of it is post-processing. Where steps start, scores about the constant depend on the category alone, so
that their sum is a combination of the numbers of rows.
Tested in tests/unit/analyses/regression/test_glm.py and test_glm_ugly.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cape.analyses.regression.diagnostics import deviance_of, share_of
from cape.analyses.regression.scores import Step
from cape.blocks import Choices
from cape.blocks.choices import Model
from cape.core.arrays import Floats
from cape.stats.estimates import Estimate

__all__ = ["Shares", "fit_of", "unseen_labels"]

_FEW = 2.0  # times its noise: below that a number of rows may be none


@dataclass(frozen=True)
class Shares:
    """The shares of categories, of so many rows.

    Attributes:
        values: one for each category.
        by: what makes them of scores per row.
        score_noise: the noise in the sum of scores.
    """

    values: Floats
    by: Floats
    count: float
    score_noise: float

    @classmethod
    def of(cls, first: Step, block: Choices, constant: float) -> Shares:
        """Return what the first step says; `constant` is the entry of x that is the same in all rows."""
        _, g = block.likely(np.zeros((len(block.turn), 1)))
        places, per = np.arange(block.levels - 1), 1.0
        if block.model == "multinomial":
            places, per = places * len(block.turn), constant
        system = np.vstack([g[:, :, 0].T * per, np.ones(block.levels)])
        values = np.linalg.solve(system, np.append(first.score[places] / first.count, 1.0))
        return cls(values, np.linalg.inv(system)[:, :-1], first.count, first.score_noise)

    @property
    def empty(self) -> list[int]:
        """The categories in which nobody is seen to be."""
        noise = self.score_noise * np.linalg.norm(self.by, axis=1)
        few = self.values * self.count < np.maximum(_FEW * noise, 0.5)
        return [int(c) for c in np.flatnonzero(few)]

    @property
    def deviance(self) -> tuple[float, float]:
        """That of a model without features, and its noise."""
        shares = np.clip(self.values, 1e-6, 1.0)
        shares = shares / shares.sum()
        value = -2 * self.count * float((shares * np.log(shares)).sum())
        return value, 2 * self.score_noise * float(np.linalg.norm(np.log(shares) @ self.by))


def fit_of(last: Step, shares: Shares | None) -> tuple[Estimate, Estimate]:
    """Return the deviance, and McFadden's pseudo-R²."""
    deviance = deviance_of(last)
    found = None if shares is None else share_of(deviance, *shares.deviance)
    return deviance, found or Estimate("pseudo-R²", math.nan, 0.0, math.inf, (0.0, 1.0))


def unseen_labels(
    labels: Sequence[str], empty: Sequence[int], categories: Sequence[object], model: Model
) -> list[str]:
    """Return the coefficients of which nothing is known if nobody is in some categories.

    Log-odds against an empty category, or of it, are infinite; so is the threshold at an empty end.
    """
    if model == "multinomial":
        names = [f" [{categories[c]}]" for c in empty]
        return [label for label in labels if 0 in empty or any(label.endswith(each) for each in names)]
    ends = ((0, labels[0]), (len(categories) - 1, labels[len(categories) - 2]))
    return [label for c, label in ends if c in empty]
