"""Intervals that count how little is known of a variance: normal ones, mixed over the values it may have.

A variance tau² has a confidence distribution: the tau² with P(statistic larger | tau²) = p is its quantile p,
where what has a negative one is 0. Given tau², an estimate is normal with a known error; mixed over the
quantiles, its interval holds with few sites, where one value of tau² would make it too narrow. For k equal
sites without any other error the mixture is Student's t on k - 1 degrees of freedom exactly, because
(k - 1) s² / tau² is chi-square.
Tested in tests/unit/stats/test_mixture.py and tests/unit/stats/test_meta_analysis.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from cape.core.arrays import Floats
from cape.stats.moments import edge

__all__ = ["Mixture", "quantile", "quantiles"]

_GRID = 48
_DOUBLINGS = 200
_LEAST = 1e-5  # of the largest quantile, what is told from 0


@dataclass(frozen=True)
class Mixture:
    """Normal distributions of one quantity, equally likely."""

    values: tuple[float, ...]
    errors: tuple[float, ...]

    @classmethod
    def of(cls, values: Floats, errors: Floats) -> Mixture:
        """Return the mixture of these."""
        return cls(tuple(map(float, values)), tuple(map(float, errors)))

    def below(self, value: float) -> float:
        """Return the probability of less."""
        with np.errstate(divide="ignore", invalid="ignore"):
            z = (value - np.array(self.values)) / np.array(self.errors)
        return float(ndtr(np.nan_to_num(z, nan=0.0)).mean())

    def p_value(self, value: float = 0.0) -> float:
        """Return the two-sided P value of a value."""
        part = self.below(value)
        return min(2 * min(part, 1 - part), 1.0)

    def __call__(self, level: float) -> tuple[float, float]:
        """Return the interval at a level."""
        middle = float(np.mean(self.values))
        far = max(abs(value - middle) for value in self.values)
        far += (abs(float(ndtri((1 - level) / 2))) + 1) * max(self.errors)
        if far == 0:
            return middle, middle
        low = edge(lambda at: self.below(at) > (1 - level) / 2, middle, middle - far)
        return low, edge(lambda at: self.below(at) < (1 + level) / 2, middle, middle + far)


def quantile(tail: Callable[[float], float], rank: float, start: float, most: float = math.inf) -> float:
    """Return the tau² at which `tail`, which rises, reaches a rank; 0 if it does at 0."""
    if tail(0.0) >= rank:
        return 0.0
    high = start
    for _ in range(_DOUBLINGS):
        if high >= most or tail(high) >= rank:
            break
        high *= 2
    return edge(lambda tau2: tail(tau2) < rank, 0.0, min(high, most))


def quantiles(tail: Callable[[float], float], many: int, start: float, most: float = math.inf) -> Floats:
    """Return equally likely values of tau², rising."""
    ranks = (np.arange(many) + 0.5) / many
    top = quantile(tail, float(ranks[-1]), start, most)
    if top == 0:
        return np.zeros(many)
    grid = np.concatenate([[0.0], np.geomspace(_LEAST * top, top, _GRID)])
    tails = np.maximum.accumulate([tail(tau2) for tau2 in grid])
    return np.asarray(np.interp(ranks, tails, grid))
