"""The exact privacy of a Gaussian release: mu, epsilon and delta, each from the other two.

Claim: a release whose view is Gaussian with the same covariance for both adjacent data sets, and whose
means lie mu apart in that covariance's own norm, is (epsilon, delta)-private for exactly the pairs

    delta >= Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu).

Reason: the privacy loss is N(mu²/2, mu²), and the smallest delta is its hockey-stick mean E[(1 -
e^(epsilon - loss))+] (Balle & Wang 2018, Theorem 8). The losses of independent releases add, so mu²
adds (Dong, Roth & Su 2022, Corollary 3.3).

Tested in tests/unit/privacy/test_gaussian.py: relative error at most 1e-10 for delta down to 1e-300,
epsilon in [0, 1e4] and mu in [1e-8, 1e3], against arithmetic of 60 digits and more, and against
dp-accounting. Where epsilon is nearly 0 its relative error is that of delta(0, mu) - delta, which
no method can avoid.

Scalars give a float; arrays are broadcast and give an array. NaN, negative numbers and a delta to
invert that is not strictly between 0 and 1 raise `InvalidInput`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erf

from cape.core import check
from cape.core.errors import InvalidInput
from cape.privacy import tail

__all__ = ["compose", "delta", "epsilon", "mu"]

Array: TypeAlias = NDArray[np.float64]

_SQRT8 = math.sqrt(8.0)
_HUGE = 1e150  # mu² is about to leave the floats


@overload
def delta(epsilon: float, mu: float) -> float: ...
@overload
def delta(epsilon: ArrayLike, mu: ArrayLike) -> float | Array: ...
def delta(epsilon: ArrayLike, mu: ArrayLike) -> float | Array:
    """Return the smallest delta at which a mu-GDP release is (epsilon, delta)-private.

    | epsilon | mu     | delta            |
    |---------|--------|------------------|
    | any     | 0      | 0                |
    | inf     | any    | 0                |
    | finite  | inf    | 1                |
    | 0       | finite | erf(mu / sqrt 8) |

    Below 1e-300 the answer may be smaller than the truth, down to 0.
    """
    e, m, on = _arguments(_positive("epsilon", epsilon), _positive("mu", mu))
    with np.errstate(over="ignore", under="ignore"):
        result: float | Array = on.pick(
            (e < math.inf) & (m > 0.0) & (m < math.inf),
            lambda e, m: tail.delta(e, m, on),
            lambda e, m: on.where((e == math.inf) | (m == 0.0), 0.0, 1.0),
            e,
            m,
        )
    return result


@overload
def epsilon(delta: float, mu: float) -> float: ...
@overload
def epsilon(delta: ArrayLike, mu: ArrayLike) -> float | Array: ...
def epsilon(delta: ArrayLike, mu: ArrayLike) -> float | Array:
    """Return the smallest epsilon at which a mu-GDP release is (epsilon, delta)-private.

    | delta           | mu     | epsilon                             |
    |-----------------|--------|-------------------------------------|
    | any             | 0      | 0                                   |
    | >= delta(0, mu) | finite | 0                                   |
    | any             | inf    | inf (as from mu = 1e150: near mu²/2) |
    """
    d, m, on = _arguments(_probability("delta", delta), _positive("mu", mu))
    with np.errstate(over="ignore", under="ignore"):
        result: float | Array = on.pick(
            (m < _HUGE) & (d < erf(m / _SQRT8)),
            lambda d, m: tail.epsilon(d, m, on),
            lambda d, m: on.where(m < _HUGE, 0.0, math.inf),
            d,
            m,
        )
    return result


@overload
def mu(epsilon: float, delta: float) -> float: ...
@overload
def mu(epsilon: ArrayLike, delta: ArrayLike) -> float | Array: ...
def mu(epsilon: ArrayLike, delta: ArrayLike) -> float | Array:
    """Return the largest mu that is (epsilon, delta)-private: what a release may cost.

    | epsilon | delta | mu                     |
    |---------|-------|------------------------|
    | 0       | any   | sqrt 8 * erfinv(delta) |
    | inf     | any   | inf                    |
    """
    e, d, on = _arguments(_positive("epsilon", epsilon), _probability("delta", delta))
    with np.errstate(over="ignore", under="ignore"):
        result: float | Array = on.pick(
            (e > 0.0) & (e < math.inf),
            lambda e, d: tail.mu(e, d, on),
            lambda e, d: on.where(e == 0.0, _SQRT8 * on.erfinv(d), math.inf),
            e,
            d,
        )
    return result


@overload
def compose(*mus: float) -> float: ...
@overload
def compose(*mus: ArrayLike) -> float | Array: ...
def compose(*mus: ArrayLike) -> float | Array:
    """Return the mu of several releases together: mu² adds, exactly. No release at all has mu 0."""
    clean = [_positive("mus", value) for value in mus]
    if all(isinstance(value, float) for value in clean):
        return math.hypot(*clean)
    total: Array = np.zeros(())
    for value in clean:
        total, value, _ = _arguments(total, value)
        total = np.hypot(total, value)
    return total


def _arguments(first: Any, second: Any) -> tuple[Any, Any, tail.Operations]:
    if isinstance(first, float) and isinstance(second, float):
        return first, second, tail.FLOATS
    try:
        first, second = np.broadcast_arrays(first, second)
    except ValueError:
        raise InvalidInput(
            f"arguments must have shapes that broadcast, not {np.shape(first)} and {np.shape(second)}"
        ) from None
    return first, second, tail.ARRAYS


def _positive(name: str, value: Any) -> Any:
    def one(name: str, value: Any) -> float:
        return check.real(name, value, least=0.0, infinite=True)

    return _clean(name, value, one, lambda x: x >= 0.0)


def _probability(name: str, value: Any) -> Any:
    return _clean(name, value, check.probability, lambda x: (x > 0.0) & (x < 1.0))


def _clean(name: str, value: Any, one: Callable[[str, Any], float], holds: Callable[[Any], Any]) -> Any:
    """Return a float or a float64 array; `one` checks a scalar, `holds` says which values are right."""
    if type(value) is float and holds(value):
        return value
    try:
        array = np.asarray(value)
    except ValueError:
        raise InvalidInput(f"{name} must be a number or an array, not a ragged list") from None
    if array.ndim == 0:
        return one(name, array.item())
    if array.dtype.kind not in "iuf":
        raise InvalidInput(f"{name} must hold real numbers, not values of dtype {array.dtype}")
    wrong = array[~holds(array)]
    if wrong.size:
        one(name, wrong[0].item())
    return array.astype(np.float64)
