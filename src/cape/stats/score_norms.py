"""How long clipped scores should be, and what lies beyond, from a histogram of their lengths with noise.

One row is in one bin, so the histogram costs little; its bins are a factor of sqrt 2 apart. Bins that stand
out of noise count as seen. Beyond the last of them a tail is assumed: each bin has `FALLS` times as many rows
as the one before (with `cap = "none"` `FALLS_UNCAPPED`), at most what noise could hide. Rows of real tables
whose columns are capped fall faster than that in nearly all cases that were looked at
(`python -m benchmarks truth`), and slower than by a half in none.

Scores of hazards have longer tails: how slowly they fall, between that and `SLOWEST`, follows from the bins
beyond the last one that is seen (`Lengths.falling`), which say together what each by itself does not.

The bound is the one that makes the whole error smallest: sampling, noise, and what lies beyond. What lies
beyond is returned as well, because intervals count it: `excess`, the sum over rows of how much longer their
scores are than the bound, and `spread`, how much of the squared length is missing.
Tested in tests/unit/stats/test_score_norms.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cape.core.arrays import Flags, Floats

__all__ = ["BINS", "SLOWEST", "Beyond", "Lengths", "edges_around"]

BINS = 40  # a factor of sqrt 2 apart
BELOW = 14  # of them below the length that scores are expected to have
FALLS, FALLS_UNCAPPED = 0.25, 0.35
SLOWEST, _SLOWER = 0.6, 0.2  # how slowly rows may get fewer, and the SD of how much more slowly
_CLEAR = 3.8  # standard deviations: a bin, or two neighbours, are surely not noise
_FAR, _CERTAIN = 6, 5.5  # bins from the nearest clear one, and SDs that bins further out need together
_SEEN = 2.0  # the same next to such bins
_HIDDEN = 1.64  # standard deviations of noise: rows that it could hide
_LACKING = 2.5  # standard deviations of noise: rows that the bins seen certainly lack
_SHORT = 3  # bins below those seen, for the rows with the shortest scores
_FEWEST = 4  # bins, wherever scores can be
_INSIDE = 2**0.25  # the longest score of a bin over a typical one


def edges_around(length: float) -> tuple[float, ...]:
    """Return the edges of the histogram for scores that are expected to be about so long."""
    return tuple(float(length * 2.0 ** ((i - BELOW) / 2)) for i in range(BINS - 1))


@dataclass(frozen=True)
class Beyond:
    """What a bound leaves out.

    Attributes:
        bound: the longest that a score may be.
        rows: how many rows have longer ones.
        excess: the sum of how much longer these are.
        spread: the sum of how much longer their squares are.
    """

    bound: float
    rows: float
    excess: float
    spread: float


@dataclass(frozen=True)
class Lengths:
    """How many scores are how long, with noise; the last bin is open.

    Where few rows have long scores and most have short ones, as with rare events, `expected` says how many
    are in each bin: as many are taken to be there, beyond what is seen, as noise could hide. Where `total`
    says how many rows there are and the bins that are seen clearly hold fewer, the others are where they fit
    best. No score is longer than `longest`: a bound there leaves nothing out.
    """

    edges: Floats
    counts: Floats
    noise: float
    expected: Floats | None = None
    total: float | None = None
    longest: float = math.inf

    @classmethod
    def possible(cls, edges: Floats, counts: Floats, noise: float, total: float, longest: float) -> Lengths:
        """Return these counts without those of lengths that no row can have, which are noise alone."""
        many = max(int(np.searchsorted(edges, longest)), _FEWEST)
        return cls(
            edges[:many], counts[: many + 1], noise, total=total, longest=max(longest, float(edges[0]))
        )

    @property
    def _tops(self) -> Floats:
        return np.append(self.edges, self.edges[-1] * math.sqrt(2))

    @property
    def _typical(self) -> Floats:
        """How long scores of each bin typically are."""
        return np.minimum(self._tops / _INSIDE, self.longest)

    @property
    def _clear(self) -> Flags:
        z = self.counts / max(self.noise, 1e-9)
        two = (z[:-1] + z[1:]) / math.sqrt(2) > _CLEAR
        clear = z > _CLEAR
        clear[:-1] |= two & (z[:-1] > 1)
        clear[1:] |= two & (z[1:] > 1)
        places = np.flatnonzero(clear)
        for crowd in np.split(places, np.flatnonzero(np.diff(places) > _FAR) + 1)[1:]:
            # of 40 bins one is far out by chance in every few hundred histograms, several together are not
            if max(z[crowd].max(), z[crowd].sum() / math.sqrt(len(crowd))) <= _CERTAIN:
                clear[crowd] = False
        return np.asarray(clear)

    @property
    def _all_hidden(self) -> bool:
        """Whether no bin is seen: then all rows are where they fit noisy counts best."""
        return self.total is not None and self.noise > 0 and not self._clear.any()

    @property
    def _last(self) -> int:
        """The last bin that is seen."""
        if self._all_hidden:
            return len(self.counts) - 1
        clear = np.flatnonzero(self._clear)
        last = int(clear[-1]) if clear.size else int(np.argmax(self.counts))
        while last + 1 < len(self.counts) and self.counts[last + 1] > _SEEN * max(self.noise, 1e-9):
            last += 1
        return last

    @property
    def _unseen(self) -> Floats:
        """What is expected beyond the last bin that is seen, as far as noise could hide it."""
        if self.expected is None:
            return np.zeros(len(self.counts))
        beyond = np.arange(len(self.counts)) > self._last
        return np.where(beyond, np.minimum(self.expected, _HIDDEN * self.noise), 0.0)

    def typical(self) -> float | None:
        """Return the root mean square of lengths in bins that are seen; None if noise hides all."""
        clear = np.flatnonzero(self._clear)
        if not clear.size:
            return None
        within = slice(int(clear[0]), int(clear[-1]) + 1)
        counts = self._unseen
        counts[within] = np.maximum(self.counts[within], 0.0)
        return float(np.sqrt((counts * self._typical**2).sum() / counts.sum()))

    def rows(self, falls: float) -> Floats:
        """Return how many rows are likely to be in each bin."""
        if self._all_hidden:
            return _adding_up(self.counts, float(self.total or 0.0))
        last = self._last
        found = np.where(np.arange(len(self.counts)) <= last, np.maximum(self.counts, 0.0), 0.0)
        if self.noise > 0:
            beyond = np.arange(1, len(found) - last)
            tail = max(float(found[last]), self.noise) * falls**beyond
            found[last + 1 :] = np.maximum(np.minimum(tail, _HIDDEN * self.noise), self._missing)
        return np.maximum(found, self._unseen)

    def falling(self, falls: float) -> float:
        """Return how fast rows get fewer beyond the last bin that is seen, as fast as this or more slowly.

        It is the likeliest, if it is expected to be this with an SD of `_SLOWER`; at most `SLOWEST`.
        """
        last = self._last
        noisy = self.counts[last + 1 :]
        if not (self.noise > 0 and noisy.size):
            return falls
        rates = np.linspace(falls, max(SLOWEST, falls), 26)
        tails = max(float(self.counts[last]), self.noise) * rates[:, None] ** np.arange(1, len(noisy) + 1)
        away = (((noisy - tails) / self.noise) ** 2).sum(axis=1) + ((rates - falls) / _SLOWER) ** 2
        return float(rates[np.argmin(away)])

    def kurtosis(self, falls: float) -> float:
        """Return the mean of the fourth powers of lengths, over the squared mean of their squares."""
        rows, squares = self.rows(falls), self._typical**2
        return float(rows @ squares**2) * float(rows.sum()) / max(float(rows @ squares) ** 2, 1e-300)

    @property
    def _missing(self) -> Floats:
        """Return the rows that bins up to the last one seen clearly lack, where they fit best beyond it: the
        counts nearest to the noisy ones of which none is negative, and that add up."""
        last = self._last
        noisy = self.counts[last + 1 :]
        clear = np.flatnonzero(self._clear)
        if self.total is None or not clear.size or not noisy.size:
            return np.zeros(len(noisy))
        window = self.counts[max(clear[0] - _SHORT, 0) : last + 1]
        lacking = self.total - float(window.sum()) - _LACKING * self.noise * math.sqrt(len(window))
        if lacking <= 0:
            return np.zeros(len(noisy))
        return _adding_up(noisy, lacking)

    def beyond(self, bound: float, falls: float) -> Beyond:
        """Return what this bound leaves out."""
        rows = self.rows(falls)
        typical = self._typical
        longer = np.maximum(typical - bound, 0.0)
        squares = np.maximum(typical**2 - bound**2, 0.0)
        return Beyond(
            bound,
            float(rows[typical > bound].sum()),
            float((rows * longer).sum()),
            float((rows * squares).sum()),
        )

    def best(self, noise: float, width: int, falls: float) -> Beyond:
        """Return the bound with the smallest error; `noise` is that of one number for a bound of 1.

        Without noise nothing is clipped.
        """
        if noise == 0:
            last = int(np.flatnonzero(self.counts > 0)[-1]) if (self.counts > 0).any() else 0
            return Beyond(float(self._tops[last]), 0.0, 0.0, 0.0)
        rows, typical = self.rows(falls), self._typical
        seen = np.where(np.arange(len(rows)) <= self._last, rows, 0.0) + self._unseen
        sampling = float((seen * typical**2).sum()) / width
        least = float(np.sqrt((seen * typical**2).sum() / max(seen.sum(), 1.0))) / 2
        bounds = np.append(self.edges, self.longest if math.isfinite(self.longest) else [])
        bounds = bounds[(bounds >= least) & (bounds <= self.longest)]
        if not bounds.size:
            bounds = self.edges[-1:]
        excess = np.maximum(typical[None, :] - bounds[:, None], 0.0) @ rows
        cost = np.sqrt(sampling + (noise * bounds) ** 2) + excess / (2 * math.sqrt(width))
        return self.beyond(float(bounds[np.argmin(cost)]), falls)


def _adding_up(noisy: Floats, total: float) -> Floats:
    """Return the counts nearest to noisy ones of which none is negative, and that add up to a total."""
    falling = np.sort(noisy)[::-1]
    cuts = (np.cumsum(falling) - total) / np.arange(1, len(falling) + 1)
    found: Floats = np.maximum(noisy - cuts[np.flatnonzero(falling > cuts)[-1]], 0.0)
    return found
