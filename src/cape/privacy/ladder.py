"""Noise that can be taken off again: made for the worst loss of sites, left as large as the real one needs.

S sites take part with ring masks, C of them may collude, and at least m must be in the sum. Each site adds a
base part and L surplus parts of noise, all independent; level j is the base and the first j parts. With d
sites missing from the sum, the parts beyond the first level that is made for d losses are revealed by the
sites in the sum, and subtracted.

Claim. Whichever sites are lost, and whoever of the others reveals nothing, a sum over at least m sites costs
at most mu = sensitivity / (base sqrt(S - C)).
Reason. Level j is made for t_j losses, 0 = t_0 < t_1 < ... < t_L = S - m, and its variance is

    base² (S - C) / (S - C - t_j).

With d <= t_j missing, at least S - d - C >= S - C - t_j honest sites are in the sum, and each keeps at least
level j: together base² (S - C) or more, which no colluder knows. Revealed parts are independent of those that
are kept, so they say nothing about them; a site that reveals nothing adds variance. The view is Gaussian, and
one record moves its mean by the sensitivity in the direction of the sum, so mu is that shift over the
standard deviation of the honest noise that is left (`mu`).
Total variance over a trusted curator's: (S - d)/(S - d - C) with a level for every number of losses; with
nobody lost S/(S - C), whatever m is.
Levels. Up to `MOST_PARTS` losses each has a level. Beyond that levels form a geometric progression, so a sum
with losses holds at most ((S - C)/(m - C))^(1/MOST_PARTS) times the variance that it needs: 6% more where
2m > S + C. Level 0 is always exact.
Laplace noise. The same holds with shapes in place of variances, because shapes of negative binomial parts add
as variances do (`cape.privacy.laplace`): level j has the shape 1/(S - C - t_j), so that honest sites together
keep a shape of at least 1, whose loss is the L1 sensitivity over the scale, exactly (`epsilon`).
Tested in tests/unit/privacy/test_ladder.py, against the covariance of the whole view in exact arithmetic, for
all patterns of up to 6 sites; shapes in tests/unit/privacy/test_laplace.py.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from cape.core import check
from cape.core.errors import InvalidInput
from cape.privacy import laplace

__all__ = ["MOST_PARTS", "Ladder", "ladder"]

MOST_PARTS = 12


@dataclass(frozen=True)
class Ladder:
    """The levels of a site's noise, in units of the variance of its base part.

    Attributes:
        sites, colluding: S and C.
        losses: t_0, ..., t_L: how many losses each level is made for.
    """

    sites: int
    colluding: int
    losses: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.losses[:1] != (0,) or any(a >= b for a, b in pairwise(self.losses)):
            raise InvalidInput("losses must ascend from 0")
        if self.colluding < 0 or self.losses[-1] >= self.honest:
            raise InvalidInput("an honest site must be left after the largest loss")

    @property
    def honest(self) -> int:
        """S - C: how many sites are honest at least."""
        return self.sites - self.colluding

    @property
    def parts(self) -> tuple[float, ...]:
        """The standard deviation of each surplus part, over that of the base; rounded up.

        Rounding up keeps every level at least as large as it must be.
        """
        levels = [self.variance(level) for level in range(len(self.losses))]
        return tuple(_root_above(high - low) for low, high in pairwise(levels))

    @property
    def shapes(self) -> tuple[Fraction, ...]:
        """The shapes of the base and of each surplus part, for Laplace noise; exact."""
        levels = [self.variance(level) / self.honest for level in range(len(self.losses))]
        return levels[0], *(high - low for low, high in pairwise(levels))

    def variance(self, level: int) -> Fraction:
        """Return the variance of a site's noise at a level."""
        return Fraction(self.honest, self.honest - self.losses[level])

    def level(self, lost: int) -> int:
        """Return how many surplus parts stay in a sum from which so many sites are missing."""
        lost = check.integer("lost", lost, least=0, most=self.losses[-1])
        return bisect_left(self.losses, lost)

    def left(self, survivors: int, late: int = 0) -> Fraction:
        """Return the variance of the noise that is left in a sum over `survivors` sites.

        `late` of them revealed nothing, so all their parts are in it.
        """
        kept = self.variance(self.level(self.sites - survivors))
        late = check.integer("late", late, least=0, most=survivors)
        return (survivors - late) * kept + late * self.variance(len(self.losses) - 1)

    def mu(
        self,
        sensitivity: float,
        base_std: float,
        survivors: int | None = None,
        colluding: int | None = None,
        late: int = 0,
    ) -> float:
        """Return the exact mu of a sum: in the worst pattern that is accepted, or in the one given.

        Args:
            sensitivity: of the sum.
            base_std: the standard deviation of a site's base part.
            survivors: how many sites are in the sum; the worst number by default.
            colluding: how many of them collude; by default as many as may.
            late: how many of the honest ones among them reveal nothing.
        """
        sensitivity = check.real("sensitivity", sensitivity, above=0.0)
        base_std = check.real("base_std", base_std, above=0.0)
        left = self._honest_left(survivors, colluding, late)
        return sensitivity / (base_std * math.sqrt(left))

    def epsilon(
        self,
        sensitivity: float,
        scale: float,
        survivors: int | None = None,
        colluding: int | None = None,
        late: int = 0,
    ) -> float:
        """Return the exact epsilon of a sum with Laplace noise; the arguments are those of `mu`.

        `sensitivity` is in the L1 norm, `scale` that of all parts.
        """
        shape = self._honest_left(survivors, colluding, late) / self.honest
        return laplace.epsilon(sensitivity, scale, shape)

    def _honest_left(self, survivors: int | None, colluding: int | None, late: int) -> Fraction:
        if survivors is None:  # within a level the worst case is the largest loss that it is made for
            return min(self._honest_left(self.sites - lost, None, 0) for lost in self.losses)
        bad = min(self.colluding, survivors) if colluding is None else colluding
        bad = check.integer("colluding", bad, least=0, most=min(self.colluding, survivors - 1))
        late = check.integer("late", late, least=0, most=survivors - bad)
        kept = self.variance(self.level(self.sites - survivors))
        return (survivors - bad - late) * kept + late * self.variance(len(self.losses) - 1)


@lru_cache(maxsize=1024)
def ladder(sites: int, colluding: int, min_sites: int) -> Ladder:
    """Return the ladder for sums over at least `min_sites` of the sites."""
    sites = check.integer("sites", sites, least=1)
    colluding = check.integer("colluding", colluding, least=0, most=sites - 1)
    most = sites - check.integer("min_sites", min_sites, least=colluding + 1, most=sites)
    if most <= MOST_PARTS:
        return Ladder(sites, colluding, tuple(range(most + 1)))
    honest = sites - colluding
    growth = (honest - most) / honest
    inner = (math.floor(honest * (1 - growth ** (part / MOST_PARTS))) for part in range(1, MOST_PARTS))
    return Ladder(sites, colluding, tuple(sorted({0, *inner, most})))


def _root_above(square: Fraction) -> float:
    """Return the smallest float whose square is at least `square`, or the next one."""
    root = math.sqrt(square)
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root
