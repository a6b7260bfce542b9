"""How well predicted risks tell outcomes apart and agree with them, from one noisy table of counts.

With N1 and N0 the counts of rows with and without the event by bins of predicted risk, F0(b) the share of
rows without it below bin b, half of the bin counted, and S1(b) that of rows with it above:

- AUC = sum_b [N1(b) F0(b) / n1 + h(b) (N0(b) V1(b) - N1(b) V0(b)) / (n0 n1)], V the sums of ranks in a bin.
  The AUC of the rows of one bin is 1/2 plus the mean rank, among all rows of the bin, of those with the event
  minus that of those without it, ties half: the second term is exact where ranks are those of `Bins`, which
  are stretched to [-1, 1] from a share 2 h(b) of the bin. Rows at one risk, however many, add nothing to it.
  Ranks are as good as the first stage's counts, and know no order inside of a cell: half of the second term,
  what noise may have added to it taken off, counts as a possible bias, at most half of the pairs in bins.
- One more row with the event in bin b moves the AUC by (G0(b) - AUC) / n1, G0 = F0 - h V0 / n0, one without
  by (G1(b) - AUC) / n0, G1 = S1 + h V1 / n1. Noise s in every count therefore gives it the variance s² [sum
  (G0 - AUC)² / n1² + sum (G1 - AUC)² / n0²], noise r in ranks r² sum h² [(N0 / n0)² / n1² + (N1 / n1)² /
  n0²], and sampling that of DeLong, sum N1 (G0 - AUC)² / n1² + sum N0 (G1 - AUC)² / n0². These are those of
  the plugged-in counts, which noise makes larger, not smaller. DeLong's is at least a quarter of Hanley and
  McNeil's, which depends on counts of events only: noise cannot make it vanish.
- The Brier score is the mean of squared errors of the risks themselves, which are added up beside the table.
- Sensitivity, specificity and predictive values are shares of sums of counts: `Share` has their intervals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cape.core.arrays import Floats
from cape.show.numbers import number
from cape.stats.estimates import Estimate, unknown
from cape.stats.moments import edge, enough, likely
from cape.stats.proportions import Share, quantile

__all__ = ["MEASURES", "Losses", "RankSums", "RiskTable"]

MEASURES = (
    "AUC",
    "Brier score",
    "sensitivity",
    "specificity",
    "positive predictive value",
    "negative predictive value",
)
_LEAST_SHARE = 0.25  # of Hanley and McNeil's variance
_FINER = 0.5  # of what ranks add to an AUC, for what is finer than they are


@dataclass(frozen=True, eq=False)
class RankSums:
    """Noisy sums of ranks of risks in their bins: (bins, 2), without and with the event.

    `reach` is half of the share of a bin's rows that the ranks from -1 to 1 stand for.
    """

    sums: Floats
    noise: float
    reach: Floats


@dataclass(frozen=True)
class Losses:
    """The noisy sum of squared errors of risks; over a number of rows that is public, or None."""

    total: float
    noise: float
    rows: float | None


@dataclass(frozen=True, eq=False)
class RiskTable:
    """Noisy counts by bin of predicted risk and by outcome, and how risks lie in their bins.

    Attributes:
        edges: of the bins.
        counts: (bins, 2), without and with the event.
        noise: the standard deviation of the noise in each of them.
        threshold: where risks count as positive: one of the edges.
        predicted: the mean predicted risk of each bin.
        ranks, losses: the sums of ranks, and of squared errors.
    """

    edges: Floats
    counts: Floats
    noise: float
    threshold: float
    predicted: Floats
    ranks: RankSums
    losses: Losses

    @cached_property
    def totals(self) -> Floats:
        """The number of rows without and with the event."""
        return np.asarray(self.counts.sum(axis=0))

    @property
    def bins(self) -> int:
        return len(self.counts)

    @property
    def known(self) -> bool:
        """Whether both outcomes are common enough to divide by."""
        spread = self.noise * math.sqrt(self.bins)
        return all(enough(float(total), spread) for total in self.totals)

    @cached_property
    def _shares(self) -> Floats:
        """The share of each bin, of rows without and with the event: (2, bins)."""
        return np.asarray((self.counts / self.totals).T)

    @cached_property
    def _pulls(self) -> tuple[Floats, Floats]:
        """G0 and G1 of each bin: the share of the other outcome on the right side of it."""
        (without, with_), reach = self._shares, self.ranks.reach
        inside = reach[:, None] * self.ranks.sums / self.totals
        below = np.cumsum(without) - without / 2 - inside[:, 0]
        return below, np.cumsum(with_[::-1])[::-1] - with_ / 2 + inside[:, 1]

    @cached_property
    def inside(self) -> float:
        """What the order of risks inside of bins adds to the AUC."""
        (without, with_), sums = self._shares, self.ranks.sums / self.totals
        return float(self.ranks.reach @ (without * sums[:, 1] - with_ * sums[:, 0]))

    @cached_property
    def _inside_noise(self) -> float:
        """The noise of ranks in that."""
        shares = (self.ranks.reach * self._shares / self.totals[::-1, None]).ravel()
        return self.ranks.noise * float(np.linalg.norm(shares))

    @cached_property
    def area(self) -> float:
        """The AUC as it was released: noise may put it outside of [0, 1]."""
        without, with_ = self._shares
        return float(with_ @ (np.cumsum(without) - without / 2)) + self.inside

    @cached_property
    def bias(self) -> float:
        """How far what ranks do not know may move the AUC."""
        pairs = float(np.prod(np.maximum(self._shares, 0.0), axis=0).sum())
        clear = math.sqrt(max(self.inside**2 - self._inside_noise**2, 0.0))
        return min(_FINER * clear, pairs / 2)

    def auc(self) -> Estimate:
        """Return the area under the ROC curve."""
        if not self.known:
            return unknown(MEASURES[0], 0.0, 1.0)
        (below, above), (n0, n1), raw = self._pulls, self.totals, self.area
        pulls = (above - raw) ** 2, (below - raw) ** 2
        constant, slope, bend = self._noise
        noise = math.sqrt(max(constant + slope * raw + bend * raw**2, 0.0))
        drawn = float(self.counts[:, 0] @ pulls[0]) / n0**2 + float(self.counts[:, 1] @ pulls[1]) / n1**2
        least = 1 / (2 * min(n0, n1) + 1)
        area = min(max(raw, 0.0), 1.0)
        inside = min(max(area, least), 1 - least)
        sampling = math.sqrt(max(drawn, _LEAST_SHARE * _hanley(inside, n0, n1)))
        at = _Area(area, sampling**2 / (inside * (1 - inside)), self._noise, self.bias)
        return Estimate(MEASURES[0], area, sampling, noise, (0.0, 1.0), at)

    @cached_property
    def _noise(self) -> tuple[float, float, float]:
        """The variance of noise in the AUC as a polynomial of the true one, A: c + b A + a A²."""
        (below, above), (n0, n1), square = self._pulls, self.totals, self.noise**2
        parts = ((above, n0), (below, n1))
        constant = sum(square * float(each @ each) / n**2 for each, n in parts)
        slope = sum(-2 * square * float(each.sum()) / n**2 for each, n in parts)
        bend = sum(square * self.bins / float(n) ** 2 for _, n in parts)
        return constant + self._inside_noise**2, slope, bend

    def brier(self) -> Estimate:
        """Return the mean squared error of predicted risks."""
        rows, rows_noise = self.losses.rows, 0.0
        if rows is None:
            rows, rows_noise = float(self.totals.sum()), self.noise * math.sqrt(2 * self.bins)
        if not enough(rows, rows_noise):
            return unknown(MEASURES[1], 0.0, 1.0)
        score = min(max(self.losses.total / rows, 0.0), 1.0)
        noise = math.hypot(self.losses.noise, rows_noise * score) / rows
        if not score + noise:
            return Estimate(MEASURES[1], 0.0, 0.0, 0.0, (0.0, 1.0))
        squares = np.stack([self.predicted**4, (1 - self.predicted) ** 4], axis=1)
        size = min(likely(score, noise), 1.0)
        spread = float((self.counts * squares).sum()) / rows - size**2
        blurred = self.noise * float(np.linalg.norm(squares)) / rows
        drawn = math.sqrt(likely(spread, blurred, size * (1 - size)) / rows)
        return Estimate(MEASURES[1], score, drawn, noise, (0.0, 1.0))

    def confusion(self) -> Floats:
        """Return the matrix of counts at the threshold: outcomes down, predictions across, negative first."""
        cut = self._cut
        return np.stack([self.counts[:cut].sum(axis=0), self.counts[cut:].sum(axis=0)], axis=1)

    @property
    def confusion_noise(self) -> tuple[float, float]:
        """The noise in counts of rows predicted below the threshold, and in those of the other ones."""
        return self.noise * math.sqrt(self._cut), self.noise * math.sqrt(self.bins - self._cut)

    @property
    def _cut(self) -> int:
        return int(np.searchsorted(self.edges, self.threshold))

    def shares(self) -> list[Estimate]:
        """Return sensitivity, specificity and predictive values at the threshold."""
        (tn, fp), (fn, tp) = self.confusion().tolist()
        low, high = self._cut, self.bins - self._cut  # how many bins each count adds up
        asked = ((tp, high, fn, low), (tn, low, fp, high), (tp, high, fp, high), (tn, low, fn, low))
        return [self._share(label, *each) for label, each in zip(MEASURES[2:], asked, strict=True)]

    def _share(self, label: str, part: float, cells: int, other: float, others: int) -> Estimate:
        whole, square = part + other, self.noise**2
        if not cells + others or not enough(whole, self.noise * math.sqrt(cells + others)):
            return unknown(label, 0.0, 1.0)
        share = Share(
            min(max(part, 0.0), whole), whole, square * cells, square * cells, square * (cells + others)
        )
        return Estimate(label, share.value, share.sampling, share.noise, (0.0, 1.0), share)

    def observed(self) -> list[Estimate | None]:
        """Return the share of events in each bin; None where noise hides the bin."""
        found: list[Estimate | None] = []
        for i, (low, high) in enumerate(zip(self.edges, self.edges[1:], strict=False)):
            without, with_ = self.counts[i].tolist()
            share = self._share(f"{number(low)} to {number(high)}", with_, 1, without, 1)
            found.append(None if share.at is None or not isinstance(share.at, Share) else share)
        return found

    def roc(self) -> list[tuple[float, Estimate]]:
        """Return 1 - specificity and sensitivity at each edge, from the highest threshold to the lowest."""
        if not self.known:
            return []
        points, false = [], 0.0
        for cut in range(self.bins, -1, -1):
            above = self.counts[cut:].sum(axis=0)
            false = min(max(float(above[0] / self.totals[0]), false), 1.0)  # it rises, whatever noise does
            cells = self.bins - cut
            rest = float(self.totals[1] - above[1])
            label = f"threshold {number(float(self.edges[cut]))}"
            points.append((false, self._share(label, float(above[1]), cells, rest, cut)))
        return points


def _hanley(area: float, n0: float, n1: float) -> float:
    """Return Hanley and McNeil's variance of an AUC."""
    q1, q2, square = area / (2 - area), 2 * area**2 / (1 + area), area**2
    found = area * (1 - area) + (n1 - 1) * (q1 - square) + (n0 - 1) * (q2 - square)
    return max(found, 0.0) / (n0 * n1)


@dataclass(frozen=True)
class _Area:
    """The interval of an AUC: all A within q errors of the released one, with the errors of A itself.

    `sampling` is its variance from sampling over A (1 - A), and `noise` the polynomial of that from noise. A
    bias of up to `bias` may come on top.
    """

    value: float
    sampling: float
    noise: tuple[float, float, float]
    bias: float

    def __call__(self, level: float) -> tuple[float, float]:
        square = quantile(level) ** 2
        constant, slope, bend = self.noise

        def holds(area: float) -> bool:
            noise = max(constant + slope * area + bend * area * area, 0.0)
            away = max(abs(self.value - area) - self.bias, 0.0)
            return away**2 <= square * (self.sampling * area * (1 - area) + noise)

        return edge(holds, self.value, 0.0), edge(holds, self.value, 1.0)
