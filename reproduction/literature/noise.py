"""The noise that the literature asks for: Laplace on integers, and vectors of density exp(-rate |b|).

Claim. `laplace_sums` is epsilon-differentially private for integer sums of the given L1 sensitivity.
Reason. Sums are rounded once, to multiples of a step, which moves the difference of two of them by at most
one step an entry; that is added to the sensitivity, and the noise is exact on the integers.

`spherical` rounds to floats: its law is right to nine digits, and nothing is claimed beyond that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cape.noise import SecureStream, discrete_gaussian
from reproduction.literature.laplace import discrete_laplace

__all__ = ["laplace_sums", "spherical"]

Floats = NDArray[np.float64]

_FINE = 4096  # rounding adds less than one part in so many to the sensitivity
_STEPS = 1024  # steps in the scale of the noise, at least
_SURELY = 1 + 2.0**-40  # above what floats lose
_SMOOTH = 2.0**30  # steps in the scale of what is turned into a float


def laplace_sums(
    sums: Sequence[int], bits: int, sensitivity: float, epsilon: float, stream: SecureStream
) -> tuple[Floats, float]:
    """Return sums, which are given in units of 2^-bits, with noise, and the scale of the noise."""
    entries = len(sums)
    step = min(sensitivity / (_FINE * entries), sensitivity / (_STEPS * epsilon))
    shift = max(0, bits + math.floor(math.log2(step)))
    moved = math.ldexp(sensitivity, bits - shift) * _SURELY + (entries if shift else 0)
    scale = moved / epsilon
    half = (1 << shift) >> 1
    noise = discrete_laplace(scale, entries, stream)
    noisy = [((each + half) >> shift) + int(extra) for each, extra in zip(sums, noise, strict=True)]
    return np.ldexp(np.array(noisy, np.float64), shift - bits), math.ldexp(scale, shift - bits)


def spherical(width: int, rate: float, stream: SecureStream) -> Floats:
    """Return a vector of density proportional to exp(-rate |b|): of any direction, and of length Gamma.

    The length is a sum of `width` exponentials, each the magnitude of discrete Laplace noise.
    """
    direction = discrete_gaussian(_SMOOTH, width, stream).astype(np.float64)
    length = float(np.abs(discrete_laplace(_SMOOTH, width, stream)).sum()) / _SMOOTH / rate
    return np.asarray(direction * (length / (float(np.linalg.norm(direction)) or 1.0)))
