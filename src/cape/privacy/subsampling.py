"""Many Gaussian releases, each over a random sample of the records: the total (epsilon, delta), numerically.

Claim: with records of norm at most C, each taken into each step with the same probability q,
independently and secretly, and noise N(0, (C * noise_multiplier)² I) on the sum of those taken, the
pair returned holds for all steps together, however the later steps depend on the earlier results.

Reason: one step is dominated by a pair of Gaussian mixtures on a line, with z the noise over C:

    add-or-remove    (1-q) N(0, z²) + q N(1, z²)    against    N(0, z²), and the reverse
    replace          (1-q) N(0, z²) + q N(1, z²)    against    (1-q) N(0, z²) + q N(-1, z²)

and dominating pairs compose (Zhu, Dong & Wang 2022). For "replace" the worst pair of records is x'
= -x at the bound: the hockey-stick divergence is the mean of ((1-q)(1-a) + q e^U - a q e^V)+ with
(U, V) jointly Gaussian, a spread option; it rises with both variances (convexity in e^U and e^V)
and falls with the covariance x'x (its mixed derivative is negative). The composition is Google's
dp-accounting, whose discretised privacy losses err on the safe side.

Tested in tests/privacy/test_subsampling.py: at q = 1 against the exact formula, at one step against
the integral, and the worst pair against others.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

from cape import check
from cape.errors import InvalidInput, MissingExtra

__all__ = ["Total", "subsampled"]

_FLOOR = 1e-12  # below, rounding in the fast Fourier transforms is as large as delta
_MOST_CELLS = 4e6


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
    relation: Literal["replace", "add-or-remove"] = "replace",
    grid: float | None = None,
) -> Total:
    """Return the total (epsilon, delta) of `steps` Poisson-subsampled Gaussian releases.

    Exactly one of `delta` and `epsilon` is given; the other one is found. Needs the extra
    `accounting`.

    `noise_multiplier` is, under both relations, the standard deviation of the noise on the sum over
    the largest norm C of ONE record's contribution. It is not the noise over the sensitivity of a
    replaced pair, which is up to 2C. What a neighbour is:

    - "replace" (the library's default): one record becomes another one, both of norm at most C.
      Without sampling a step has mu = 2/noise_multiplier.
    - "add-or-remove": one record is there or not (or is zeroed out). Without sampling a step has
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
    if relation not in ("replace", "add-or-remove"):
        raise InvalidInput(f"relation must be 'replace' or 'add-or-remove', not {relation!r}")
    if grid is None:
        grid = _grid(noise_multiplier, sampling_rate, steps)
    grid = check.real("grid", grid, above=0.0)
    if delta is not None:
        delta = check.probability("delta", check.real("delta", delta, least=_FLOOR))
    else:
        epsilon = check.real("epsilon", epsilon, least=0.0)

    losses = _accountant(noise_multiplier, sampling_rate, steps, relation, grid)
    if delta is not None:
        return Total(float(losses.get_epsilon(delta)), delta)
    assert epsilon is not None
    return Total(epsilon, min(1.0, max(_FLOOR, float(losses.get_delta(epsilon)))))


def _accountant(noise_multiplier: float, sampling_rate: float, steps: int, relation: str, grid: float) -> Any:
    try:
        from dp_accounting import dp_event
        from dp_accounting.pld import PLDAccountant
        from dp_accounting.privacy_accountant import NeighboringRelation
    except ImportError:
        raise MissingExtra("accounting", "cape.privacy.subsampled") from None
    neighbours = {
        "replace": NeighboringRelation.REPLACE_ONE,
        "add-or-remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
    }
    step = dp_event.PoissonSampledDpEvent(sampling_rate, dp_event.GaussianDpEvent(noise_multiplier))
    return PLDAccountant(neighbours[relation], grid).compose(step, steps)


def _grid(noise_multiplier: float, sampling_rate: float, steps: int) -> float:
    """Return a grid below the loss of one step, but of no more than some million cells in all."""
    pair = (2.0 / noise_multiplier) ** 2  # mu² of a step without sampling, under "replace"
    taken = steps * sampling_rate  # steps that use a given record
    span = taken * pair / 2.0 + 10.0 * math.sqrt(taken * pair * (1.0 + pair / 4.0))
    return max(min(1e-4, 0.05 * sampling_rate / noise_multiplier), span / _MOST_CELLS)
