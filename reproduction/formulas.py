"""Formulas of the paper that no release uses, as printed: for redrawing its figures, never for calibration.

Each docstring says what is wrong and what to use instead. The letters are those of `cape.privacy.paper`, and
H(n) is the cost of unequal sizes. Tested in tests/unit/reproduction/test_formulas.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from cape.core import check
from cape.core.errors import InvalidInput
from cape.privacy import gaussian
from cape.privacy.paper import tail_bound

__all__ = ["SizePenalty", "conventional_delta", "gain", "size_penalty"]


class SizePenalty(NamedTuple):
    """H(n), its bounds over all sizes with the same total, and the two conditions of Proposition 2."""

    penalty: float
    lower: float
    upper: float
    convex_condition: bool
    general_condition: bool


def conventional_delta(
    epsilon: float,
    tau: float,
    sites: int,
    samples: int,
    form: Literal["tail", "classical", "exact"] = "tail",
) -> float:
    """Return delta_conv of Figures 5 and 6: the conventional scheme at the pooled noise variance.

    The conventional average has the pooled variance tau²/S² when each site adds N(0, tau²/S), to a
    mean of sensitivity S/N: one Gaussian release with mu² = S³/(N² tau²). The paper does not print
    how it turns that into delta; `form` chooses.

    - "tail": the bound of Theorem 1, with sigma_z = mu and mu_z = mu²/2, so that both curves of the
      figures are made in the same way. It is 1 where the bound says nothing.
    - "classical": 1.25 exp(-epsilon²/(2 mu²)), the inverse of `classical_tau`; valid for epsilon <=
      1 only.
    - "exact": `cape.privacy.delta(epsilon, mu)`. Use this one.

    Wrong in the comparison: the figures set this beside Theorem 1's delta, which is too small.
    Compare the noise of both schemes at equal exact (epsilon, delta) with `correlated.gain`.
    """
    epsilon = check.real("epsilon", epsilon, least=0.0)
    tau = check.real("tau", tau, above=0.0)
    sites = check.integer("sites", sites, least=1)
    samples = check.integer("samples", samples, least=sites)
    mu = math.sqrt(sites) * sites / (samples * tau)
    if form == "tail":
        return tail_bound(epsilon, mu * mu)
    if form == "classical":
        return min(1.0, 1.25 * math.exp(-0.5 * (epsilon / mu) * (epsilon / mu)))
    if form == "exact":
        return gaussian.delta(epsilon, mu)
    raise InvalidInput(f"form must be 'tail', 'classical' or 'exact', not {form!r}")


def size_penalty(sizes: Sequence[int], sensitivity: Callable[[float], float] | None = None) -> SizePenalty:
    """Return H(n), the variance of CAPE over the pooled variance, when site means are averaged.

    `sensitivity` is Delta(N), of a function of N records; 1/N by default, that of a mean. H(n) =
    sum Delta²(N_s) / (S³ Delta²(N)), between its value at equal sizes and at (N - S + 1, 1, ...,
    1); the bounds need Delta² convex. `convex_condition` is Delta(N/S) = S Delta(N),
    `general_condition` is sum Delta²(N_s) = S³ Delta²(N), both to 9 digits.

    Wrong: Proposition 2 concludes H(n) = 1 from its first condition for every n, but that is H at
    *equal* sizes: a mean meets it always, and four sites of 303, 294, 123 and 200 have H = 1.50.
    Averaging site means with weights 1/S is also biased when sizes differ.

    Use sums: each site reports the sum of its records, every record has the same sensitivity
    wherever it lies, and unequal sizes cost nothing.
    """
    sizes = [check.integer("sizes", size, least=1) for size in sizes]
    if not sizes:
        raise InvalidInput("sizes must have one entry for each site, not none")
    of = _inverse_size if sensitivity is None else sensitivity

    def squared(size: float) -> float:
        value = check.real(f"sensitivity({size:g})", of(size), above=0.0)
        return value * value

    sites, total = len(sizes), sum(sizes)
    pooled = sites**3 * squared(total)
    penalty = sum(squared(size) for size in sizes) / pooled
    lower = sites * squared(total / sites) / pooled
    upper = (squared(total - sites + 1) + (sites - 1) * squared(1)) / pooled
    return SizePenalty(
        penalty,
        lower,
        upper,
        convex_condition=math.isclose(lower, 1.0),
        general_condition=math.isclose(penalty, 1.0),
    )


def gain(sites: int, colluding: int | None = None) -> float:
    """Return G = S, the gain over the conventional scheme that Proposition 1 prints.

    Wrong: it holds at equal tau, not at equal privacy, and so does not depend on the number of
    colluding sites. At equal (epsilon, delta) the gain is S_H with ring masks, and (S + 1) S_H/(S +
    S_H) with the paper's variances: 4 and 2.7 for S = 5, S_C = 1.

    Use `correlated.gain`.
    """
    sites = check.integer("sites", sites, least=1)
    if colluding is not None:
        check.integer("colluding", colluding, least=0, most=sites - 1)
    return float(sites)


def _inverse_size(size: float) -> float:
    return 1.0 / size
