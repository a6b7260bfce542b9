"""Theorem 1 of the paper and its calibration, as printed: to compare with, never for calibration.

Claim: none about privacy. Each function computes what the paper on Correlation Assisted Private Estimation
prints, and its docstring says what is wrong with it and what to use instead. The letters are the
paper's: S sites, S_C of them colluding, N samples in all, tau the noise of the conventional scheme
at a site. `reproduction.formulas` has the paper's other formulas.

Tested in tests/unit/privacy/test_paper.py, which also reproduces the table of the paper's mu² and the exact
one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from cape.core import check
from cape.core.errors import InvalidInput

__all__ = ["Theorem1", "classical_tau", "tail_bound", "theorem1"]


class Theorem1(NamedTuple):
    """What Theorem 1 states: the privacy loss's mean and standard deviation, and delta."""

    mu_z: float
    sigma_z: float
    delta: float


def theorem1(epsilon: float, tau: float, sites: int, colluding: int, samples: int) -> Theorem1:
    """Return (mu_z, sigma_z, delta) of Theorem 1 (equations CAPEmu and CAPEsigma), as printed.

    Wrong: sigma_z² understates the exact mu² of the same release, by 2.4 times at S = 100, S_C =
    33. The printed inverse covariance has 2/S_H where 1/(S_C + 1) belongs, and the adversary of the
    proof does not use the colluders' own noise. delta = 2 sigma_z/(epsilon - mu_z) phi((epsilon -
    mu_z)/sigma_z) is a tail bound: above the exact delta once mu_z and sigma_z are right, but
    loose.

    Use `correlated.mu(sites/samples, tau/sqrt(sites), "paper", sites, colluding)` and `delta`.

    The bound says nothing where epsilon <= mu_z, and may exceed 1 just above: delta is 1 in both
    cases. The formula itself needs 3 S_C² < S(S + 1); the theorem is stated for S_C <= ceil(S/3) -
    1.
    """
    epsilon = check.real("epsilon", epsilon, least=0.0)
    tau = check.real("tau", tau, above=0.0)
    sites = check.integer("sites", sites, least=1)
    colluding = check.integer("colluding", colluding, least=0, most=sites - 1)
    samples = check.integer("samples", samples, least=sites)
    denominator = sites * (1 + sites) - 3 * colluding**2
    if denominator <= 0:
        raise InvalidInput(
            f"colluding must be below sqrt(sites (sites + 1)/3) = {math.sqrt(sites * (1 + sites) / 3):.4g}"
            f" in the printed formula, not {colluding}"
        )
    honest = sites - colluding
    bracket = (honest + 2) / honest + 9 / honest * colluding**2 / denominator
    variance = sites**3 / (tau * tau * samples**2 * (1 + sites)) * bracket
    return Theorem1(variance / 2, math.sqrt(variance), tail_bound(epsilon, variance))


def classical_tau(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Return sensitivity/epsilon * sqrt(2 log(1.25/delta)) (equation GaussMech).

    Wrong: the proof of this formula needs epsilon <= 1, and the paper uses it up to 10. At (10,
    1e-5) the noise is too small by 3%: the true delta is 2.3e-5; at (10, 0.01) it is 0.041. And
    where the formula is valid it wastes noise: at (1, 1e-5) it is 30% too large, and the true
    epsilon is 0.75.

    Use `sensitivity / cape.privacy.mu(epsilon, delta)`, which is right for every epsilon and the
    smallest.
    """
    epsilon = check.real("epsilon", epsilon, above=0.0)
    delta = check.probability("delta", delta)
    sensitivity = check.real("sensitivity", sensitivity, above=0.0)
    return sensitivity / epsilon * math.sqrt(2.0 * math.log(1.25 / delta))


def tail_bound(epsilon: float, variance: float) -> float:
    """Return 2 phi(x)/x at x = (epsilon - variance/2)/sqrt(variance), and 1 where that says nothing."""
    x = (epsilon - variance / 2) / math.sqrt(variance)
    if x <= 0.0:
        return 1.0
    return min(1.0, math.sqrt(2.0 / math.pi) * math.exp(-0.5 * x * x) / x)
