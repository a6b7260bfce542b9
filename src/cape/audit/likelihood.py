"""The optimal test for an adversary who knows the design: the likelihood ratio of the two tables.

Claim. Given its view of one stage the adversary can compute a vector z with, by the design, independent
entries of variance 1 around `shift` if the neighbour is the truth and around 0 if not; no other test is
better.
Reason. The view is Gaussian with the same covariance Sigma under both, and only the target's message moves.
With w = Sigma^-1 e_target, z = w'(x - mean) / sqrt(w_target) is sufficient. For ring masks x is the sum over
the honest sites; alone, each of their messages is uniform. Its noise is what the ladder leaves
(`cape.privacy.ladder`) once the surplus that sites gave up is subtracted, which is independent of the rest.
For the paper's scheme the honest messages x_h,
with the announced sum put back, have covariance alpha² (I - 11'/H) + gamma² I, once the colluders' part of
the sum is taken off.
So the log-likelihood ratio over all stages is sum(shift z - shift²/2), with 0 as the threshold: fixed before
any run. It is normal with mean -+ mu²/2 and variance mu², mu² the sum of all shift².
Where rows are sampled z is the same, and the ratio is that of two mixtures: `cape.audit.sampled`.
Laplace noise. The honest sites' parts make Laplace noise of scale RESOLUTION steps, once all surplus is
taken off, so the log-likelihood ratio is the sum of |x - first| - |x - second| in scales. It is at most the
distance of the tables in the L1 norm, which it attains with probability 1/2: there the test that is best for
epsilon has its threshold.
Tested in tests/unit/audit/test_likelihood.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cape.audit.sampled import Draw, apart, log_ratio
from cape.audit.view import Stage
from cape.engine.calibration import RESOLUTION
from cape.noise import LaplacePart
from cape.noise.ring import zero_sum_share

__all__ = ["Evidence", "evidence", "gaussian_weights"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Evidence:
    """The evidence of a run: log-likelihood ratio, squared shift, and squares of its standardised noise.

    With Laplace noise the shift is in the L1 norm, and noise counts by its magnitude in place of its square.
    `moved` is the squared distance of the neighbour, in standard deviations of the adversary's view;
    `squares` are the residuals against the truth, which only the audit knows.
    """

    ratio: float
    moved: float
    squares: float
    count: int


def evidence(scheme: str, stages: Sequence[Stage], target: str, swapped: bool) -> Evidence:
    """Return the evidence for the second of two tables; `swapped` says that it is the true one."""
    ratio = moved = squares = 0.0
    count = 0
    for stage in stages:
        noisy, mean, scale = _honest(scheme, stage, target)
        if isinstance(stage.calibration.part, LaplacePart):
            told, far, sizes = _laplace(stage, (noisy - mean) / RESOLUTION, target, swapped)
            ratio, moved, squares, count = ratio + told, moved + far, squares + sizes, count + mean.size
            continue
        residual = (noisy - mean) * scale  # against the truth: standard normal by the design
        squares += float(residual @ residual)
        count += residual.size
        if stage.draw is not None:
            told, far = _sampled(stage.draw, residual, scale, swapped)
        else:
            away = _floats(stage.other - stage.exact[target])  # towards the table that is not true
            shift = away * scale * (-1.0 if swapped else 1.0)  # from the first table to the second
            z = residual + shift if swapped else residual  # against the first
            told, far = float(shift @ z - shift @ shift / 2), float(shift @ shift)
        ratio, moved = ratio + told, moved + far
    return Evidence(ratio, moved, squares, count)


def _laplace(stage: Stage, residual: Floats, target: str, swapped: bool) -> tuple[float, float, float]:
    """Return the log-ratio, the squared distance and the magnitude of the noise, in Laplace's scales."""
    away = _floats(stage.other - stage.exact[target]) / RESOLUTION
    true, other = np.abs(residual).sum(), np.abs(residual - away).sum()
    told = other - true if swapped else true - other  # in favour of the second table
    return float(told), float(np.abs(away).sum() ** 2), float(true)


def _sampled(draw: Draw, residual: Floats, scale: float, swapped: bool) -> tuple[float, float]:
    """Return the log-ratio of a step over a sample, and how far apart its two tables are."""
    row, other = _floats(draw.row) * scale, _floats(draw.other) * scale
    first, second = (other, row) if swapped else (row, other)
    z = residual + row if draw.taken else residual  # around what the other rows add
    return float(log_ratio(z, first, second, draw.rate)), apart(first, second, draw.rate)


def _honest(scheme: str, stage: Stage, target: str) -> tuple[Floats, Floats, float]:
    """Return the view of the target's sums, the same without noise, and one over the noise's standard
    deviation.

    Units are such that the target's sums have weight one.
    """
    exact, own = stage.exact, float(RESOLUTION)
    if scheme in ("conventional", "local", "none"):
        return _floats(stage.seen[target]), _floats(exact[target]), 1 / own
    if scheme == "pooled":
        total = sum(exact[name] for name in exact)
        return _floats(stage.total), _floats(total), 1 / own
    if scheme == "cape":
        honest = [name for name in exact if name not in stage.held]
        known = sum(stage.held[name] for name in stage.held)
        mean = sum(exact[name] for name in honest)
        left = math.fsum(stage.variance[name] for name in honest)
        return _floats(stage.total - known), _floats(mean), 1 / (own * math.sqrt(left))
    return _gaussian(stage, target, own)


def _gaussian(stage: Stage, target: str, own: float) -> tuple[Floats, Floats, float]:
    """Do the same for the paper's scheme, from all honest messages together."""
    assert stage.told is not None
    names = list(stage.seen)
    honest = [name for name in names if name not in stage.drawn]
    theirs = stage.told - sum(stage.drawn.values())  # the honest sites' part of the announced sum
    first, rest = gaussian_weights(len(names), len(honest))
    noisy: Floats = np.zeros(stage.told.size)
    for name in honest:
        whole = stage.seen[name] + zero_sum_share(stage.told, len(names), names.index(name))
        seen = _floats(whole - stage.exact[name]) - _floats(theirs) / len(honest)
        noisy += (first if name == target else rest) / first * seen
    return noisy, np.zeros(noisy.size), math.sqrt(first) / own


def gaussian_weights(sites: int, honest: int) -> tuple[float, float]:
    """Return Sigma^-1 e_target for alpha² = sites and gamma = 1: the target's entry, and the others'."""
    ratio = float(sites)
    rest = ratio / (1 + ratio) / honest
    return 1 / (1 + ratio) + rest, rest


def _floats(values: object) -> Floats:
    return np.asarray(values).astype(np.float64)
