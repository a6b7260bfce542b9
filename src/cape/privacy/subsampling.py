"""Many Gaussian releases, each over a random sample of the records: the total (epsilon, delta), numerically.

Claim: with records of norm at most C, each taken into each step with the same probability q,
independently and secretly, and noise N(0, (C * noise_multiplier)² I) on the sum of those taken, the
pair returned holds for all steps together, however later steps depend on earlier results.

Reason: one step is dominated by a pair of Gaussian mixtures on a line, with z the noise over C:

    add-remove     (1-q) N(0, z²) + q N(1, z²)    against    N(0, z²), and the reverse
    replace-one    (1-q) N(0, z²) + q N(1, z²)    against    (1-q) N(0, z²) + q N(-1, z²)

and dominating pairs compose (Zhu, Dong & Wang 2022). For "replace-one" the worst pair of records is x'
= -x at the bound: the hockey-stick divergence is the mean of ((1-q)(1-a) + q e^U - a q e^V)+ with
(U, V) jointly Gaussian, a spread option; it rises with both variances (convexity in e^U and e^V)
and falls with the covariance x'x (its mixed derivative is negative). The composition is Google's
dp-accounting, whose discretised privacy losses err on the safe side.

Claim: all steps together are dominated by one mu-GDP mechanism with mu = `dominating_mu(...)`, up to `slack`
of delta. So mu² of such a run adds to that of other releases, and `slack` to their delta.
Reason: for every epsilon the delta of the run is at most (1 - slack) delta_mu(epsilon) + slack: the delta of
a Gaussian release that with probability `slack` reveals everything. That pair dominates the run, and
composes. It is checked on a grid of epsilons, each against the next one's Gaussian, since both deltas fall;
beyond the last one the run's delta is below the slack. Negative epsilons follow by exchanging the two sides,
under which both are symmetric.

Tested in tests/unit/privacy/test_subsampling.py: at q = 1 against the exact formula, at one step against
the integral, the worst pair against others, and the dominating mu against the composed run.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from cape.core import check
from cape.core.errors import InvalidInput, MissingExtra
from cape.privacy import gaussian

__all__ = ["Total", "dominating_mu", "noise_for_mu", "subsampled"]

Adjacency = Literal["replace-one", "add-remove"]

_FLOOR = 1e-12  # below, rounding in the fast Fourier transforms is as large as delta
_MOST_CELLS = 4e6
_EPSILONS = 300
_LEAST_NOISE = 0.5
_NEAR = 1e-3  # how closely noise is found for a given mu, on the safe side


class Total(NamedTuple):
    """The total over all steps."""

    epsilon: float
    delta: float


def subsampled(
    noise_multiplier: float,
    sampling_rate: float,
    steps: int,
    delta: float | None = None,
    epsilon: float | None = None,
    *,
    adjacency: Adjacency = "replace-one",
    grid: float | None = None,
) -> Total:
    """Return the total (epsilon, delta) of `steps` Poisson-subsampled Gaussian releases.

    Exactly one of `delta` and `epsilon` is given; the other one is found. Needs the extra
    `accounting`.

    `noise_multiplier` is, under both relations, the standard deviation of the noise on the sum over
    the largest norm C of ONE record's contribution. It is not the noise over the sensitivity of a
    replaced pair, which is up to 2C. The adjacency:

    - "replace-one" (the library's default): one record becomes another one, both of norm at most C.
      Without sampling a step has mu = 2/noise_multiplier.
    - "add-remove": one record is there or not (or is zeroed out). Without sampling a step has
      mu = 1/noise_multiplier. The number of records is then not public.

    C cannot be had from a pair's sensitivity alone: a record that is not sampled adds 0, so it
    matters how far from 0 a contribution lies. Centre the contributions first; for values in [0, 1]
    minus 1/2, C is 1/2. With correlated noise across sites the multiplier is 1/correlated.mu(C,
    ...).

    `grid` is the step of the discretised privacy loss; by default fine enough for the loss of one
    step. A delta below 1e-12 drowns in rounding: it may not be asked for, and is never returned.
    """
    noise_multiplier = check.real("noise_multiplier", noise_multiplier, above=0.0)
    sampling_rate = check.real("sampling_rate", sampling_rate, above=0.0, most=1.0)
    steps = check.integer("steps", steps, least=1)
    if (delta is None) == (epsilon is None):
        raise InvalidInput("exactly one of delta and epsilon must be given")
    _require_adjacency(adjacency)
    if grid is None:
        grid = _grid(noise_multiplier, sampling_rate, steps)
    grid = check.real("grid", grid, above=0.0)
    if delta is not None:
        delta = check.probability("delta", check.real("delta", delta, least=_FLOOR))
    else:
        epsilon = check.real("epsilon", epsilon, least=0.0)

    losses = _accountant(noise_multiplier, sampling_rate, steps, adjacency, grid)
    if delta is not None:
        return Total(float(losses.get_epsilon(delta)), delta)
    assert epsilon is not None
    return Total(epsilon, min(1.0, max(_FLOOR, float(losses.get_delta(epsilon)))))


def dominating_mu(
    noise_multiplier: float,
    sampling_rate: float,
    steps: int,
    slack: float,
    *,
    adjacency: Adjacency = "replace-one",
) -> float:
    """Return the mu of a Gaussian release that dominates all steps together, up to `slack` of delta.

    The arguments are those of `subsampled`. Without sampling it is exact, and needs no slack.
    """
    noise_multiplier = check.real("noise_multiplier", noise_multiplier, above=0.0)
    sampling_rate = check.real("sampling_rate", sampling_rate, above=0.0, most=1.0)
    steps = check.integer("steps", steps, least=1)
    slack = check.probability("slack", check.real("slack", slack, least=_FLOOR))
    _require_adjacency(adjacency)
    return _dominating_mu(noise_multiplier, sampling_rate, steps, slack, adjacency)


def noise_for_mu(
    mu: float, sampling_rate: float, steps: int, slack: float, *, adjacency: Adjacency = "replace-one"
) -> float:
    """Return the noise multiplier at which `dominating_mu` is at most mu, and within 0.1% of it.

    Below 0.5 sampling hides next to nothing: from there on what is needed without sampling is returned.
    """
    mu = check.real("mu", mu, above=0.0)
    steps = check.integer("steps", steps, least=1)
    full = (2.0 if adjacency == "replace-one" else 1.0) * math.sqrt(steps) / mu
    if sampling_rate == 1.0:
        return full

    def excess(log_noise: float) -> float:
        noise = math.exp(log_noise)
        found = dominating_mu(noise, sampling_rate, steps, slack, adjacency=adjacency)
        return math.log(found / mu) if found > 0 else -math.inf

    # Sampling only helps, so `full` is enough. The noise needed is at least about the rate times `full`; the
    # dominating mu falls at least as fast as noise rises, which bounds the search from above.
    low = math.log(max(sampling_rate * full, _LEAST_NOISE))
    if low >= math.log(full):
        return full
    over = excess(low)
    if over <= 0:
        return math.exp(low)
    high = min(low + over + _NEAR, math.log(full))
    if excess(high) > 0:
        return full
    from scipy.optimize import brentq

    found = float(brentq(excess, low, high, xtol=_NEAR / 2))
    while excess(found) > 0:
        found += _NEAR / 4
    return math.exp(found)


def effort(sampling_rate: float) -> float:
    """Return a bound on the seconds of CPU that `noise_for_mu` takes.

    The losses of one step lie on a grid that is as fine as the rate is low; a dozen multipliers are tried.
    """
    return 0.0 if sampling_rate == 1.0 else 0.05 + 9e-4 / sampling_rate


@lru_cache(maxsize=256)
def _dominating_mu(
    noise_multiplier: float, sampling_rate: float, steps: int, slack: float, adjacency: Adjacency
) -> float:
    if sampling_rate == 1.0:
        return (2.0 if adjacency == "replace-one" else 1.0) * math.sqrt(steps) / noise_multiplier
    grid = 10 * _grid(noise_multiplier, sampling_rate, steps)  # coarse is safe, and within 0.1% here
    losses = _accountant(noise_multiplier, sampling_rate, steps, adjacency, grid)
    epsilons = np.linspace(0.0, float(losses.get_epsilon(slack)), _EPSILONS + 1)
    deltas = (np.asarray(losses.get_delta(epsilons[:-1])) - slack) / (1.0 - slack)
    mu = 0.0
    for after, wanted in zip(map(float, epsilons[1:]), map(float, deltas), strict=True):
        if wanted > 0.0 and gaussian.delta(after, mu) < wanted:
            mu = gaussian.mu(after, wanted)
            while gaussian.delta(after, mu) < wanted:
                mu = math.nextafter(mu, math.inf)
    return mu


def _require_adjacency(adjacency: str) -> None:
    if adjacency not in ("replace-one", "add-remove"):
        raise InvalidInput(f"adjacency must be 'replace-one' or 'add-remove', not {adjacency!r}")


def _accountant(
    noise_multiplier: float, sampling_rate: float, steps: int, adjacency: str, grid: float
) -> Any:
    try:
        from dp_accounting import dp_event
        from dp_accounting.pld import PLDAccountant
        from dp_accounting.privacy_accountant import NeighboringRelation
    except ImportError:
        raise MissingExtra("accounting", "cape.privacy.subsampled") from None
    relations = {
        "replace-one": NeighboringRelation.REPLACE_ONE,
        "add-remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
    }
    step = dp_event.PoissonSampledDpEvent(sampling_rate, dp_event.GaussianDpEvent(noise_multiplier))
    return PLDAccountant(relations[adjacency], grid).compose(step, steps)


def _grid(noise_multiplier: float, sampling_rate: float, steps: int) -> float:
    """Return a grid below the loss of one step, but of no more than some million cells in all."""
    pair = (2.0 / noise_multiplier) ** 2  # mu² of a step without sampling, under "replace-one"
    taken = steps * sampling_rate  # steps that use a given record
    span = taken * pair / 2.0 + 10.0 * math.sqrt(taken * pair * (1.0 + pair / 4.0))
    return max(min(1e-4, 0.05 * sampling_rate / noise_multiplier), span / _MOST_CELLS)
