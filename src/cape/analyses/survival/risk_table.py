"""How many rows were at risk and had events in each bin, from noisy sums: the table below a survival curve.

A series of counts x, those of one group and one event, is released as y = W x with noise s in each entry
(`cape.blocks.survival`). There are two fits of counts to y by least squares:

- *free*: without constraints, but for a public total. It has no bias, and intervals are made from it.
- *fitted*: among counts that are not negative. Then numbers at risk fall, and no more rows have an event than
  were at risk; it is nearer to the truth, in the norm of X = W'W, and is what is shown. Near the end, where
  few are left, it has a bias: noise can only add to counts of 0.

Both add up to the number of rows where that is public and there is one group.

*Noise.* The free fit has the covariance s² X^-1. For cells that are known to be empty (events after the last
edge) rows and columns of X are left out. A public total takes away c c' / sum(c), c = s² X^-1 1.

*Within bins.* Rows that are censored in a bin are at risk for half of it, on average: the exposure is Y - c /
2, as in actuarial life tables. Where many leave in one bin, that is too much. If events and censoring have
constant hazards in it, the share with an event if none were censored is d / E, E = Y - c / 2 - c (2 d + c) /
(12 Y), to second order in d / Y and c / Y. With `at_edges` times are the ends of their bins, where
censored rows are still at risk: the exposure is Y.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.optimize import brentq, nnls

from cape.blocks.survival import woven
from cape.core.arrays import Floats
from cape.stats.law import GAUSSIAN, Law

__all__ = ["Blur", "RiskTable", "Slopes", "risk_tables"]

_STEPS = 50  # of a fit, per cell
_CLOSE = 1e-9


@dataclass(frozen=True)
class Slopes:
    """How some numbers change with each count of a group.

    Attributes:
        events: number x event x bin.
        censored: number x cell, the last one for rows that stay.
    """

    events: Floats
    censored: Floats


@lru_cache(64)
def _inverses(cells: int, plain: bool) -> tuple[Floats, Floats]:
    """Return X^-1 of series of events, which have no last cell, and of rows that were censored."""
    matrix = woven(cells, plain).matrix
    inner = matrix.T @ matrix
    return _inverse(inner[:-1, :-1]), _inverse(inner)


def _inverse(inner: Floats) -> Floats:
    return np.asarray(np.linalg.inv(inner), np.float64)


@dataclass(frozen=True)
class Blur:
    """The noise in the fitted counts of one group.

    Attributes:
        noise: the standard deviation s of the noise in what was released.
        bins: how many bins there are.
        kinds: how many series of events.
        tied: whether the counts add up to a public total.
        plain: whether counts were released by themselves.
        law: the law of the noise.
    """

    noise: float
    bins: int
    kinds: int
    tied: bool
    plain: bool = False
    law: Law = GAUSSIAN

    def covariance(self, of: Slopes) -> Floats:
        """Return the covariance of the noise in numbers with these slopes."""
        events, censored = _inverses(self.bins + 1, self.plain)
        found = of.censored @ censored @ of.censored.T
        for kind in range(self.kinds):
            found = found + of.events[:, kind] @ events @ of.events[:, kind].T
        if self.tied:
            ties = of.censored @ censored.sum(1) + of.events.sum(1) @ events.sum(1)
            found = found - np.outer(ties, ties) / (censored.sum() + self.kinds * events.sum())
        return np.asarray(self.noise**2 * found)


@dataclass(frozen=True)
class RiskTable:
    """The counts of one group.

    Attributes:
        events: event x bin.
        censored: by bin, and in the last cell those who stay.
        blur: the noise in them.
        at_edges: whether times are the ends of their bins.
        free: the fit without constraints; None if this is it.
    """

    events: Floats
    censored: Floats
    blur: Blur
    at_edges: bool
    free: RiskTable | None = None

    @property
    def bins(self) -> int:
        return int(self.events.shape[1])

    @cached_property
    def deaths(self) -> Floats:
        """Events of all kinds by bin."""
        return np.asarray(self.events.sum(0))

    @cached_property
    def at_risk(self) -> Floats:
        """Rows at risk at the start of each bin, and of those who stay after the last."""
        leaving = np.append(self.deaths, 0.0) + self.censored
        return np.cumsum(leaving[::-1])[::-1]

    @property
    def total(self) -> float:
        return float(self.at_risk[0])

    @cached_property
    def exposed(self) -> Floats:
        """Rows that are exposed to events of each bin."""
        whole = self.at_risk[:-1]
        if self.at_edges:
            return whole
        left = self.censored[:-1]
        bent = left * (2 * self.deaths + left) / (12 * np.maximum(whole, 1.0))
        return np.asarray(whole - left / 2 - bent)

    @cached_property
    def exposure_slopes(self) -> tuple[Floats, Floats]:
        """How the exposure of each bin changes with events and with censored rows, without its last term."""
        bins = self.bins
        later = np.triu(np.ones((bins, bins + 1)))
        censored = later.copy()
        if not self.at_edges:
            censored[np.arange(bins), np.arange(bins)] = 0.5
        return later[:, :-1], censored

    @cached_property
    def exposure_noise(self) -> Floats:
        """The standard deviation of the noise in each exposure."""
        events, censored = self.exposure_slopes
        kinds = self.events.shape[0]
        slopes = Slopes(np.repeat(events[:, None, :], kinds, 1), censored)
        return np.sqrt(np.maximum(np.diag(self.blur.covariance(slopes)), 0.0))

    @property
    def seen_events(self) -> tuple[float, float]:
        """How many events there are in all, from counts without constraints, and the noise in that."""
        free = self.free or self
        slopes = Slopes(np.ones((1, *self.events.shape)), np.zeros((1, self.bins + 1)))
        return float(free.deaths.sum()), math.sqrt(max(float(self.blur.covariance(slopes)[0, 0]), 0.0))

    def chained(self, direct: Floats, by_exposure: Floats) -> Slopes:
        """Return slopes of numbers that change with events of a bin and with its exposure.

        `direct` is number x event x bin and holds an exposure fixed; `by_exposure` is number x bin.
        """
        events, censored = self.exposure_slopes
        return Slopes(direct + (by_exposure @ events)[:, None, :], by_exposure @ censored)


def risk_tables(
    released: Floats,
    noise: float,
    total: float | None,
    at_edges: bool,
    plain: bool = False,
    law: Law = GAUSSIAN,
) -> list[RiskTable]:
    """Return the table of each group from group x event x cell of released sums.

    `total` is the public number of rows of which none is left out; it is used if there is one group. `plain`
    if counts were released by themselves.
    """
    groups, kinds, cells = released.shape
    known = total if groups == 1 and noise > 0 else None
    blur = Blur(noise, cells - 1, kinds - 1, known is not None, plain, law)
    tables = []
    for group in released:
        counts = _free(group, known, plain)
        if noise == 0:
            counts = np.rint(counts)
        free = RiskTable(counts[1:, :-1], counts[0], blur, at_edges)
        if noise > 0:
            counts = _fitted(group, known, plain)
        tables.append(RiskTable(counts[1:, :-1], counts[0], blur, at_edges, free))
    return tables


def _free(released: Floats, total: float | None, plain: bool) -> Floats:
    """Return counts without constraints, event x cell, of one group."""
    matrix = woven(released.shape[1], plain).matrix
    events, censored = _inverses(len(matrix), plain)
    counts = np.array(np.linalg.solve(matrix, released.T).T, np.float64)
    counts[1:, :-1] = released[1:] @ matrix[:, :-1] @ events
    counts[1:, -1] = 0.0
    if total is not None:
        whole = censored.sum() + (len(released) - 1) * events.sum()
        part = (total - counts.sum()) / whole
        counts[0] += part * censored.sum(1)
        counts[1:, :-1] += part * events.sum(1)
    return counts


def _fitted(released: Floats, total: float | None, plain: bool) -> Floats:
    """Return the nearest counts that are not negative, event x cell, of one group.

    Counts that add up to a total are those of y + m W'^-1 1 for a multiplier m, in which their sum rises.
    """
    matrix = woven(released.shape[1], plain).matrix
    apart = np.asarray(np.linalg.solve(matrix.T, np.ones(len(matrix))), np.float64)
    steps = _STEPS * len(matrix)

    def fit(multiplier: float) -> Floats:
        wanted = released + multiplier * apart
        censored = nnls(matrix, wanted[0], maxiter=steps)[0]
        events = [nnls(matrix[:, :-1], each, maxiter=steps)[0] for each in wanted[1:]]
        return np.array([censored, *(np.append(each, 0.0) for each in events)])

    found = fit(0.0)
    if total is None:
        return found
    if total <= 0:
        return np.zeros_like(found)
    missing = total - float(found.sum())
    step = missing / (float(apart @ apart) * len(released))
    if abs(missing) > _CLOSE * total:
        while (float(fit(step).sum()) - total) * missing < 0:
            step *= 2
        ends = min(0.0, step), max(0.0, step)
        found = fit(float(brentq(lambda each: float(fit(each).sum()) - total, *ends, rtol=1e-12)))
    return np.asarray(found * (total / found.sum()))
