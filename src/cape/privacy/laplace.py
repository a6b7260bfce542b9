"""Pure releases: the exact epsilon of Laplace noise that many sites make, alone and beside Gaussian releases.

Claim. A sum with the noise of honest sites whose shapes add up to at least 1, at scale b, is epsilon-private
with epsilon = D / b and no delta, D its L1 sensitivity; no smaller epsilon holds.
Reason. Each number's honest noise is a difference of two negative binomial (Polya) variables of the same
shape, which add (`cape.noise.polya`). Of a shape of at least 1, a part of shape 1 is discrete Laplace with
P(k) proportional to exp(-|k|/b), whose ratio under a shift by d is at most exp(d/b), and exactly that beyond
0 and d; the entries' shifts add up to at most D. All else that is known or added is independent of it. With a
larger shape the ratio tends to exp(d/b) in the tail. Of a shape below 1 the law is steeper at 0, and the loss
larger without a bound that is worth anything (1.18 times at 0.9, and at 1/2 it grows with the resolution):
`epsilon` refuses it.

Claim. Releases that are mu-GDP together with pure ones whose epsilons are given have at most `delta(epsilon,
mu, pures)`, and this is the smallest delta that follows from these numbers alone.
Reason. An epsilon-private release is dominated by randomised response: its loss is +epsilon with probability
e^epsilon/(1 + e^epsilon), else -epsilon (Kairouz, Oh & Viswanath 2015). Losses of independent releases add,
and dominating pairs compose (Zhu, Dong & Wang 2022), so delta is the mean of the Gaussian delta at epsilon
minus the loss of all responses together. Their sums are exact fractions; where they become more than 4,096,
they are rounded up to a grid: never optimistic. For one pure release the formula has two terms.
Tested in tests/unit/privacy/test_laplace.py: against the exact view of small sums with colluders and losses,
against dp-accounting, and against arithmetic of 50 digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit, ndtri_exp

from cape.core import check
from cape.core.errors import InvalidInput
from cape.privacy import gaussian

__all__ = ["bet", "composed_epsilon", "delta", "dominating_mu", "epsilon"]

Floats: TypeAlias = NDArray[np.float64]
Number: TypeAlias = float | Fraction

_MOST = 4096  # sums of losses that are kept apart


def epsilon(sensitivity: float, scale: float, shape: Number = 1) -> float:
    """Return the exact epsilon of a sum, given its L1 sensitivity and the shape of its honest noise.

    Raises `InvalidInput` for a shape below 1: such noise protects hardly anybody.
    """
    sensitivity = check.real("sensitivity", sensitivity, above=0.0)
    scale = check.real("scale", scale, above=0.0)
    if not shape >= 1:
        raise InvalidInput(
            f"the shapes of honest sites must add up to at least 1, not {float(shape):.4g}: less Laplace "
            "noise than that loses far more than its part"
        )
    return sensitivity / scale


def delta(epsilon: float, mu: float, pures: Sequence[Number] = ()) -> float:
    """Return the smallest delta of a mu-GDP release together with pure ones, at this epsilon."""
    epsilon = check.real("epsilon", epsilon, least=0.0)
    losses, chances = _losses(tuple(Fraction(each) for each in pures))
    left = epsilon - losses
    # below 0 a Gaussian delta follows from the symmetry of its two sides
    at = np.asarray(gaussian.delta(np.abs(left), mu))
    return float(chances @ np.where(left >= 0, at, 1.0 - np.exp(np.minimum(left, 0.0)) * (1.0 - at)))


def composed_epsilon(delta: float, mu: float, pures: Sequence[Number] = ()) -> float:
    """Return the smallest epsilon of a mu-GDP release together with pure ones, at this delta; rounded up."""
    pure = float(sum((Fraction(each) for each in pures), Fraction(0)))
    if delta <= 0 or mu == 0:
        return pure if mu == 0 else math.inf
    if not pure:
        return gaussian.epsilon(delta, mu)
    high = gaussian.epsilon(delta, mu) + pure  # what adding both would give
    if not math.isfinite(high) or _delta(0.0, mu, pures) <= delta:
        return 0.0 if math.isfinite(high) else math.inf
    if _delta(high, mu, pures) >= delta:
        return high
    from scipy.optimize import brentq

    found = float(brentq(lambda e: _delta(e, mu, pures) - delta, 0.0, high, xtol=1e-12, rtol=1e-12))
    return min(high, found * (1 + 1e-9) + 1e-11)


def bet(mu: float, pures: Sequence[Number] = (), extra: float = 0.0) -> float:
    """Return the most often that anybody wins a bet, 1 to 1, on which of two adjacent tables is the real one.

    The best guess between two equally likely distributions is right with probability (1 + d) / 2, where d is
    their total variation distance: delta at epsilon 0, and what is added to every delta (`extra`).
    """
    return min((1 + delta(0.0, mu, pures) + extra) / 2, 1.0)


def _delta(at: float, mu: float, pures: Sequence[Number]) -> float:
    return delta(at, mu, pures)


def dominating_mu(epsilon: float) -> float:
    """Return the mu of the weakest Gaussian release that dominates an epsilon-private one.

    Both have the same power against one half of false alarms and misses. It is wasteful (1.23 at epsilon 1):
    for totals, compose with `delta`.
    """
    return float(-2 * ndtri_exp(log_expit(-check.real("epsilon", epsilon, least=0.0))))


@lru_cache(maxsize=64)
def _losses(pures: tuple[Fraction, ...]) -> tuple[Floats, Floats]:
    """Return the losses of randomised responses together, and their chances; rounded up if they are many."""
    found = {Fraction(0): 1.0}
    grid = sum(pures, Fraction(0)) * 2 / _MOST
    for pure in pures:
        check.real("pures", float(pure), least=0.0)
        up = 1.0 / (1.0 + math.exp(-float(pure)))
        after: dict[Fraction, float] = {}
        for loss, chance in found.items():
            for then, part in ((loss + pure, up), (loss - pure, 1.0 - up)):
                after[then] = after.get(then, 0.0) + chance * part
        if len(after) > _MOST:
            coarse: dict[Fraction, float] = {}
            for loss, chance in after.items():
                then = math.ceil(loss / grid) * grid
                coarse[then] = coarse.get(then, 0.0) + chance
            after = coarse
        found = after
    losses = [math.nextafter(float(loss), math.inf) if loss else 0.0 for loss in found]
    return np.array(losses), np.array(list(found.values()))
