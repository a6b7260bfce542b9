"""Where quantiles lie, found in three stages: few counts, at edges that earlier answers choose.

1. Counts in equal parts of the bounds, and in ever smaller ones near the lower bound, where many columns
crowd.
2. Counts in cells of each *bracket*: the edges between which a quantile lies, noise and sampling counted.
3. Counts below one edge for each quantile, the nearest to it, with most of the budget.

A hierarchy (`tree`) knows every count below a point equally well; this one only those that matter.

Claim. One row moves a stage's counts of a column by at most `Cut.l1` in the L1 norm and `Cut.l2` in the L2
norm, whatever its edges are, and so whatever was released before, or was said to be.
Reason. Edges are finite, rise and lie within the bounds (`inner` keeps no others, `Axis` refuses them), so
that a row falls into one cell, or into none where it is missing: `one_hot`. A single count below an edge
moves by 1.
Tested in tests/unit/analyses/describe/test_quantile_search.py, also with answers that were made up.

*Fit.* The edges of all stages cut the bounds into atoms. Every count is a sum of atoms plus independent
noise of a known scale: weighted least squares gives all counts below edges, without bias, and their errors.
Intervals (Woodruff's) come from this fit and end at edges, so that they hold whatever lies between edges.
*Cells.* K cells of a bracket with R rows and noise s in each leave noise of s sqrt(K) / 2 in counts below
edges, which the last stage takes away at one edge only, and of s K / R in the slope by which the value lies
beside that edge. With K = (R / (8 s))^(2/3) the first is a sixteenth of a cell. Intervals end at edges, so
that a cell holds no more rows than two sampling errors.
*Value.* Between edges the fit says nothing. The value is read off a second fit, in which densities of
neighbouring atoms are alike, up to a quarter of them: that matters only where noise outweighs the atoms, and
interpolates there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from cape.analyses.describe.histogram import one_hot
from cape.blocks import Axis, Counts
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Number
from cape.engine.query import Neighbours
from cape.stats.estimates import Estimate
from cape.stats.laplace_tails import coarse
from cape.stats.law import GAUSSIAN, Law

__all__ = ["PARTS", "Counted", "Cut", "Ranks", "brackets", "first", "inner", "last"]

PARTS = {False: (0.15, 0.25, 0.6), True: (0.2, 0.3, 0.5)}
"""How the share is divided among the stages, under Gaussian and under Laplace noise."""

_EVEN, _NEAR = 16, 6  # parts of the first stage, and how often the lowest of them is halved
_BRACKET = 3.0  # standard errors
_CELL = 8.0  # how many rows of a bracket there are for each row of noise in a cell and root of its cells
_FEWEST, _MOST = 4, 192  # cells of a bracket, and of all brackets together
_ALIKE = 0.25  # how far densities of neighbouring atoms differ
_FAR = 4.0  # noise that a quantile may be away from an edge
_EXACT = 1e3  # how much better than any count a public total is known


def inner(edges: Iterable[float], low: float, high: float) -> Floats:
    """Return those of some numbers that can be edges: rising, finite, strictly within the bounds."""
    found = np.unique(np.asarray(list(edges), np.float64))
    return found[np.isfinite(found) & (found > low) & (found < high)] + 0.0


@dataclass(frozen=True, eq=False)
class Cut:
    """What a stage asks of one column: counts between edges, or the one count below a single edge."""

    name: str
    column: Number
    edges: Floats
    below: bool = False

    @property
    def block(self) -> Counts:
        axis = Axis(self.name, [self.column.low, *self.edges.tolist(), self.column.high])
        return Counts((axis,), (0,) if self.below else None)

    def l1(self, neighbours: Neighbours) -> float:
        """The most that one row changes the counts in the L1 norm: proof at the head of the module."""
        return 1.0 if self.below else one_hot(neighbours, len(self.edges) + 1)

    def l2(self, neighbours: Neighbours) -> float:
        """That in the L2 norm."""
        return math.sqrt(self.l1(neighbours))

    def counted(self, counts: Floats, noise: float) -> Counted:
        """Return what was released."""
        return Counted(self.edges, np.asarray(counts, np.float64).reshape(-1), noise)


@dataclass(frozen=True, eq=False)
class Counted:
    """Noisy counts between edges, or below the only one if there is one count."""

    edges: Floats
    counts: Floats
    noise: float

    def sums(self, edges: Floats) -> Floats:
        """Return which atoms between these edges each count is the sum of."""
        ends = np.searchsorted(edges, self.edges) + 1
        starts, ends = np.append(0, ends), np.append(ends, len(edges) + 1)
        place = np.arange(len(edges) + 1)
        many = len(self.counts)
        return ((place >= starts[:many, None]) & (place < ends[:many, None])).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Ranks:
    """What counts say of a column's distribution.

    Attributes:
        low, high: its bounds.
        counted: the stages so far.
        total: the number of rows, if it is public.
        law: the law of the noise.
    """

    low: float
    high: float
    counted: tuple[Counted, ...] = ()
    total: float | None = None
    law: Law = field(default=GAUSSIAN)

    @cached_property
    def edges(self) -> Floats:
        """All edges, with the bounds."""
        return np.concatenate([[self.low], self._inner, [self.high]])

    @cached_property
    def _inner(self) -> Floats:
        return np.unique(np.concatenate([each.edges for each in self.counted]))

    @property
    def noise(self) -> float:
        """The noise in each count of the last stage."""
        return self.counted[-1].noise

    @cached_property
    def _system(self) -> tuple[Floats, Floats]:
        """Return sums of atoms and counts, each over its noise; last the total, if it is public."""
        least = min(each.noise for each in self.counted) or 1.0
        sums = [each.sums(self._inner) / (each.noise or 1.0) for each in self.counted]
        counts = [each.counts / (each.noise or 1.0) for each in self.counted]
        if self.total is not None:
            sums.append(np.full((1, len(self._inner) + 1), _EXACT / least))
            counts.append(np.array([self.total * _EXACT / least]))
        return np.concatenate(sums), np.concatenate(counts)

    @cached_property
    def _inverse(self) -> Floats:
        sums, _ = self._system
        return np.asarray(np.linalg.inv(sums.T @ sums), np.float64)

    @cached_property
    def _atoms(self) -> Floats:
        sums, counts = self._system
        return np.asarray(self._inverse @ (sums.T @ counts))

    @cached_property
    def count(self) -> float:
        """The number of rows."""
        return float(self._atoms.sum()) if self.total is None else self.total

    @cached_property
    def count_noise(self) -> float:
        """The noise in it."""
        if self.total is not None or not self.noise:
            return 0.0
        return math.sqrt(max(float(self._inverse.sum()), 0.0))

    def over(self, prob: float) -> Floats:
        """Return how many rows more than this share lie below each edge."""
        return np.append(0.0, np.cumsum(self._atoms)) - prob * self.count

    def errors(self, prob: float) -> tuple[Floats, Law]:
        """Return the noise in that, none at the bounds, and its law near the quantile."""
        many = len(self._atoms)
        if not self.noise:
            return np.zeros(many + 1), self.law
        sums, _ = self._system
        noisy = sums if self.total is None else sums[:-1]
        asked = np.tri(many + 1, many, -1) - prob
        squares = (asked @ self._inverse @ noisy.T) ** 2
        squares[[0, -1]] = 0.0
        variances = squares.sum(axis=1)
        place = int(np.argmin(np.abs(self.over(prob)[1:-1]))) + 1 if many > 1 else 0
        return np.sqrt(variances), coarse(self.law.combined(*np.sqrt(squares[place])))

    def sampling(self, prob: float) -> float:
        """Return the sampling error of the number of rows below a quantile."""
        return math.sqrt(prob * (1 - prob) * max(self.count, 1.0))

    def between(self, prob: float, reach: Floats) -> tuple[float, float]:
        """Return the last edge that is clearly below a quantile and the first that is clearly above."""
        over, reach = self.over(prob), reach.copy()
        reach[[0, -1]] = 0.0
        over[0], over[-1] = -1.0, 1.0
        first = int(np.argmax(over + reach >= 0))
        last = len(over) - 1 - int(np.argmax((over - reach <= 0)[::-1]))
        return float(self.edges[max(first - 1, 0)]), float(self.edges[min(last + 1, len(over) - 1)])

    @cached_property
    def likely(self) -> Floats:
        """The share below each edge if neighbouring atoms are alike."""
        sums, counts = self._system
        wide = np.diff(self.edges) / (self.high - self.low)
        raw = _rising(np.append(0.0, np.cumsum(self._atoms)), self.count)
        if not self.noise or len(wide) < 2:
            return raw
        inner, right = sums.T @ sums, sums.T @ counts
        pair = wide[:-1] + wide[1:]
        for _ in range(2):
            atoms = np.diff(raw) * self.count
            unlike = _ALIKE * np.maximum(atoms[:-1] + atoms[1:], self.noise / 2) / pair
            bent = np.zeros((len(pair), len(wide)))
            place = np.arange(len(pair))
            bent[place, place] = 1 / (wide[:-1] * unlike)
            bent[place, place + 1] = -1 / (wide[1:] * unlike)
            fit = np.linalg.solve(inner + bent.T @ bent, right)
            raw = _rising(np.append(0.0, np.cumsum(fit)), self.count)
        return raw

    def value(self, share: float) -> float:
        """Return where the likely distribution reaches a share, straight between edges."""
        share, shares = min(max(share, 0.0), 1.0), self.likely
        i = min(max(int(np.searchsorted(shares, share)), 1), len(shares) - 1)
        low, high = shares[i - 1], shares[i]
        part = (share - low) / (high - low) if high > low else 0.5
        start, end = self.edges[i - 1], self.edges[i]
        return float(min(max(start + part * (end - start), start), end))

    def estimate(self, label: str, prob: float) -> Estimate:
        """Return a quantile of the population."""
        value, (noise, law) = self.value(prob), self.errors(prob)
        place = int(np.searchsorted(self.edges[1:-1], value, side="right"))
        blurred = float(np.interp(value, self.edges, noise)) / self.count
        drawn = self.sampling(prob) / self.count
        sampled, privacy = ((self.value(prob + e) - self.value(prob - e)) / 2 for e in (drawn, blurred))
        low, high = float(self.edges[place]), float(self.edges[place + 1])
        part = (value - low) / (high - low)
        within = (high - low) * math.sqrt(1 / 12 + (part - 0.5) ** 2)  # cells may lie anywhere between edges
        errors = math.hypot(sampled, within), privacy
        return Estimate(label, value, *errors, (self.low, self.high), Woodruff(self, prob), law)


@dataclass(frozen=True, eq=False)
class Woodruff:
    """From the last edge that is clearly below the quantile to the first clearly above: it holds at least at
    its level, whatever lies between edges."""

    ranks: Ranks
    prob: float

    def __call__(self, level: float) -> tuple[float, float]:
        noise, law = self.ranks.errors(self.prob)
        reach = law.quantile((1 + level) / 2, noise, self.ranks.sampling(self.prob))
        low, high = self.ranks.between(self.prob, np.asarray(reach))
        value = self.ranks.value(self.prob)
        return min(low, value), max(high, value)


def _rising(prefixes: Floats, count: float) -> Floats:
    """Return shares that rise, half way between the running maximum and the running minimum from the
    right."""
    shares = np.clip(prefixes / max(count, 1.0), 0.0, 1.0)
    up = np.maximum.accumulate(shares)
    found = (up + np.minimum.accumulate(shares[::-1])[::-1]) / 2
    found[0], found[-1] = 0.0, 1.0
    return np.asarray(found)


def first(name: str, column: Number) -> Cut:
    """Return the cut of the first stage, which depends on the bounds alone."""
    low, high = column.low, column.high
    if not math.isfinite(high - low):
        raise InvalidInput(f"the bounds of {name!r} are too far apart for quantiles: {low:g} and {high:g}")
    even = np.linspace(low, high, _EVEN + 1)
    near = low + (even[1] - low) * 0.5 ** np.arange(1, _NEAR + 1)
    return Cut(name, column, inner([*even, *near], low, high))


def brackets(
    name: str, column: Number, ranks: Ranks, probs: Sequence[float], noise: float, public: bool
) -> Cut:
    """Return the cut of the second stage, given the noise that its counts will have."""
    low, high = column.low, column.high
    edges: list[float] = []
    for prob in probs:
        reach = _BRACKET * np.hypot(ranks.errors(prob)[0], ranks.sampling(prob))
        start, end = ranks.between(prob, reach)
        held = np.interp([start, end], ranks.edges, ranks.likely) * ranks.count
        inside = max(float(held[1] - held[0]), 1.0)
        for_value = (inside / (_CELL * noise)) ** (2 / 3) if noise else math.inf
        wanted = max(for_value, inside / (2 * ranks.sampling(prob)))
        cells = int(min(max(wanted, _FEWEST), max(_MOST // len(probs), _FEWEST)))
        edges += np.linspace(start, end, cells + 1).tolist()
    return Cut(name, column, inner(edges, low, high))


def last(name: str, column: Number, ranks: Ranks, probs: Sequence[float], noise: float, public: bool) -> Cut:
    """Return the cut of the last stage; with a public total one count is enough for one quantile."""
    inside, shares = ranks.edges[1:-1], ranks.likely[1:-1] * ranks.count
    edges: list[float] = []
    for prob in probs:
        value = ranks.value(prob)
        if not len(inside):
            continue
        away = np.abs(shares - prob * ranks.count)
        place = int(np.argmin(away))
        edges.append(float(inside[place]) if away[place] <= _FAR * noise else value)
    found = inner(edges, column.low, column.high)
    return Cut(name, column, found, public and len(found) == 1)
