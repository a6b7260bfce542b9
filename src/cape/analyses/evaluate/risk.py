"""How well predicted risks tell outcomes apart and agree with them, from one noisy table of counts.

With N1 and N0 the counts of rows with and without the event by bins of predicted risk, F0(b) the share of
rows without it below bin b, half of the bin counted, and S1(b) that of rows with it above:

- AUC = sum_b N1(b) F0(b) / n1. One more row with the event in bin b moves it by (F0(b) - AUC) / n1, one
  without by (S1(b) - AUC) / n0. Noise s in every count therefore gives it the variance s² [sum (F0 - AUC)² /
  n1² + sum (S1 - AUC)² / n0²], and sampling that of DeLong, sum N1 (F0 - AUC)² / n1² + sum N0 (S1 - AUC)² /
  n0². Both are those of the plugged-in counts, which noise makes larger, not smaller. DeLong's is at least a
  quarter of Hanley and McNeil's, which depends on counts of events only: noise cannot make it vanish.
- The Brier score is that of a bin's mean prediction for all of its rows.
- Sensitivity, specificity and predictive values are shares of sums of counts: `Share` has their intervals.

The AUC of binned risks counts two of one bin as a tie; it is smaller than that of the risks themselves, by
less than 0.004 with the default bins in `tests/unit/analyses/evaluate/test_evaluate.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import stdtrit

from cape.blocks.predicted import inverse
from cape.core.arrays import Floats
from cape.show.numbers import number
from cape.stats.estimates import Estimate, unknown
from cape.stats.moments import edge, enough
from cape.stats.proportions import Share, quantile

__all__ = ["MEASURES", "RiskTable", "default_edges"]

MEASURES = (
    "AUC",
    "Brier score",
    "sensitivity",
    "specificity",
    "positive predictive value",
    "negative predictive value",
)
_LEAST_SHARE = 0.25  # of Hanley and McNeil's variance
_LEAST_SPREAD = 0.25
_ROOM = 1.1
_LEAST_RISK = 0.001


def default_edges(bins: int, middle: float, spread: float, link: str) -> tuple[float, ...]:
    """Return edges of risks from 0 to 1: quantiles, if the linear predictor is around this mean with this SD.

    They are those of Student's distribution with three degrees of freedom, which leaves room for rows that
    are not typical. Rounded to three digits, so that everybody computes the same from public numbers.
    """
    at = middle + _ROOM * max(spread, _LEAST_SPREAD) * stdtrit(3, np.arange(1, bins) / bins)
    found = {float(f"{edge:.3g}") for edge in np.clip(inverse(link, at), _LEAST_RISK, 1 - _LEAST_RISK)}
    return (0.0, *sorted(found), 1.0)


@dataclass(frozen=True, eq=False)
class RiskTable:
    """Noisy counts by bin of predicted risk and by outcome, and where in their bins risks lie.

    Attributes:
        edges: of the bins.
        counts: (bins, 2), without and with the event.
        within: sums of where in its bin a risk lies, from -1 to 1.
        noise, within_noise: the standard deviations of the noise in each of them.
        threshold: where risks count as positive: one of the edges.
    """

    edges: Floats
    counts: Floats
    within: Floats
    noise: float
    within_noise: float
    threshold: float

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
    def predicted(self) -> Floats:
        """The mean predicted risk of each bin; its middle, where noise hides where in it the rows lie."""
        low, high = self.edges[:-1], self.edges[1:]
        rows = self.counts.sum(axis=1)
        clear = rows > max(0.5, 3 * self.noise * math.sqrt(2))
        inside = np.where(clear, self.within / np.where(clear, rows, 1.0), 0.0)
        return np.asarray((low + high) / 2 + (high - low) / 2 * np.clip(inside, -1.0, 1.0))

    @cached_property
    def _ranks(self) -> tuple[Floats, Floats]:
        """F0 and S1 of each bin: the share of the other outcome on the right side of it, ties half."""
        without, with_ = (self.counts[:, i] / self.totals[i] for i in (0, 1))
        return np.cumsum(without) - without / 2, np.cumsum(with_[::-1])[::-1] - with_ / 2

    @cached_property
    def area(self) -> float:
        """The AUC as it was released: noise may put it outside of [0, 1]."""
        return float(self.counts[:, 1] @ self._ranks[0] / self.totals[1])

    def auc(self) -> Estimate:
        """Return the area under the ROC curve."""
        if not self.known:
            return unknown(MEASURES[0], 0.0, 1.0)
        (below, above), (n0, n1), raw = self._ranks, self.totals, self.area
        pulls = (above - raw) ** 2, (below - raw) ** 2
        constant, slope, bend = self._noise
        noise = math.sqrt(max(constant + slope * raw + bend * raw**2, 0.0))
        drawn = float(self.counts[:, 0] @ pulls[0]) / n0**2 + float(self.counts[:, 1] @ pulls[1]) / n1**2
        least = 1 / (2 * min(n0, n1) + 1)
        area = min(max(raw, 0.0), 1.0)
        inside = min(max(area, least), 1 - least)
        sampling = math.sqrt(max(drawn, _LEAST_SHARE * _hanley(inside, n0, n1)))
        at = _Area(area, sampling**2 / (inside * (1 - inside)), self._noise)
        return Estimate(MEASURES[0], area, sampling, noise, (0.0, 1.0), at)

    @cached_property
    def _noise(self) -> tuple[float, float, float]:
        """The variance of noise in the AUC as a polynomial of the true one, A: c + b A + a A²."""
        (below, above), (n0, n1), square = self._ranks, self.totals, self.noise**2
        parts = ((above, n0), (below, n1))
        constant = sum(square * float(each @ each) / n**2 for each, n in parts)
        slope = sum(-2 * square * float(each.sum()) / n**2 for each, n in parts)
        return constant, slope, sum(square * self.bins / float(n) ** 2 for _, n in parts)

    def brier(self) -> Estimate:
        """Return the Brier score of the bins' mean predictions."""
        rows = float(self.totals.sum())
        if not enough(rows, self.noise * math.sqrt(2 * self.bins)):
            return unknown(MEASURES[1], 0.0, 1.0)
        p = self.predicted
        losses = np.stack([p**2, (1 - p) ** 2], axis=1)
        raw = float((self.counts * losses).sum()) / rows
        score = min(max(raw, 0.0), 1.0)
        pull = 2 * (p * self.counts.sum(axis=1) - self.counts[:, 1])  # of one more mean prediction
        sizes = np.maximum(self.counts.sum(axis=1), max(1.0, self.noise))
        inside = float(np.linalg.norm(pull * np.diff(self.edges) / 2 / sizes))
        noise = (
            math.hypot(self.noise * float(np.linalg.norm(losses - score)), self.within_noise * inside) / rows
        )
        spread = max(float((self.counts * losses**2).sum()) / rows - score**2, score * (1 - score) / rows)
        return Estimate(MEASURES[1], score, math.sqrt(spread / rows), noise, (0.0, 1.0))

    def confusion(self) -> Floats:
        """Return the matrix of counts at the threshold: outcomes down, predictions across, negative first."""
        cut = self._cut
        return np.stack([self.counts[:cut].sum(axis=0), self.counts[cut:].sum(axis=0)], axis=1)

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

    `sampling` is its variance from sampling over A (1 - A), and `noise` the polynomial of that from noise.
    """

    value: float
    sampling: float
    noise: tuple[float, float, float]

    def __call__(self, level: float) -> tuple[float, float]:
        square = quantile(level) ** 2
        constant, slope, bend = self.noise

        def holds(area: float) -> bool:
            noise = max(constant + slope * area + bend * area * area, 0.0)
            return (self.value - area) ** 2 <= square * (self.sampling * area * (1 - area) + noise)

        return edge(holds, self.value, 0.0), edge(holds, self.value, 1.0)
