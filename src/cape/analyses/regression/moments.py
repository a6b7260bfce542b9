"""Noisy sums of y, y², x, xy and xx' over the complete rows of a design: what regressions ask for first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cape.blocks import Design, Term
from cape.core.arrays import Floats
from cape.engine.query import Answer
from cape.stats.matrices import symmetric

__all__ = ["XX", "XY", "YY", "SecondMoments", "X", "Y"]

Y, YY, X, XY, XX = Term(0, (0.0, 1.0)), Term(0, (0.0, 0.0, 1.0)), Term(1), Term(1, (0.0, 1.0)), Term(2)


@dataclass(frozen=True)
class SecondMoments:
    """Noisy sums over rows of y, y², x, xy and xx', with ||x|| <= 1 and |y| <= 1, and the noise in each.

    `xx_noise` is that of the diagonal; off it, noise is smaller by sqrt(2). Sums that were not asked for are
    0, with no noise.
    """

    count: float
    y: float
    yy: float
    x: Floats
    xy: Floats
    xx: Floats
    count_noise: float
    y_noise: float
    yy_noise: float
    x_noise: float
    xy_noise: float
    xx_noise: float

    @classmethod
    def of(cls, answer: Answer, design: Design, terms: Sequence[Term]) -> SecondMoments:
        """Return what the answer to a query for these terms holds; the last of them is xx'."""
        arrays, noises = answer.sums[0], answer.noise[0]
        width = design.width(answer.schema)
        sums = {Y: np.zeros(1), YY: np.zeros(1), X: np.zeros(width)}
        noise = dict.fromkeys(sums, 0.0)
        for at, term in enumerate(terms, start=1):
            sums[term], noise[term] = arrays[at], noises[at]
        count, count_noise = answer.complete_rows(design.columns)
        above = arrays[-1] if width > 1 else np.zeros(0)
        return cls(
            count, float(sums[Y][0]), float(sums[YY][0]), sums[X], sums[XY], symmetric(sums[XX], above),
            count_noise, *(noise[term] for term in (Y, YY, X, XY, XX)),
        )  # fmt: skip

    @property
    def width(self) -> int:
        return len(self.xy)

    @property
    def silent(self) -> SecondMoments:
        """The same sums as if they had been released without noise."""
        return replace(
            self, count_noise=0.0, y_noise=0.0, yy_noise=0.0, x_noise=0.0, xy_noise=0.0, xx_noise=0.0
        )

    @property
    def enough(self) -> bool:
        """Whether the number of rows can be divided by."""
        return self.count > max(2.0, 3 * self.count_noise)
