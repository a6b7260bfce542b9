"""The numerics under `gaussian`: the trade-off of one Gaussian release, and its two inverses.

With u = (epsilon/mu - mu/2)/sqrt2, h = mu/sqrt2 and w = u + h, Balle & Wang's formula reads

    delta     = exp(-u²)/2 * (erfcx(u) - erfcx(w))           (no e^epsilon left to overflow)
    1 - delta = exp(-u²)/2 * (erfcx(-u) + erfcx(w))          (a sum: nothing cancels)

The first bracket cancels when h is small; there it is the integral of -erfcx' over [u, w], by
Gauss-Legendre, which does not. The inverses run Halley's iteration on the logarithm of the smaller
of delta and 1 - delta. Both logarithms are concave in epsilon ((1 - e^-x)+ and min(1, e^x) are
log-concave, and so stays their mean under a Gaussian), so Newton-like steps converge; a bracket
guards them all the same.

One text serves floats and arrays: `Operations` holds what differs between them. Tested in
tests/unit/privacy/test_gaussian.py against arithmetic of 60 digits and more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy import special

__all__ = ["ARRAYS", "FLOATS", "Operations", "delta", "epsilon", "mu"]

Value: TypeAlias = Any  # a float with FLOATS, a float64 array with ARRAYS
Terms: TypeAlias = tuple[Value, Value, Value]  # a value and its first two derivatives
Residual: TypeAlias = Callable[[Value], Terms]

_SQRT2 = math.sqrt(2.0)
_SQRT_PI = math.sqrt(math.pi)
_NARROW = 0.1  # below this h the bracket is integrated: 4 nodes leave less than 1e-13
_NODES, _WEIGHTS = (column.tolist() for column in np.polynomial.legendre.leggauss(4))
_FAR = 40.0  # exp(-u²) is 0 in a float from here on
_CLOSE = 1e-6  # the steps are cubic: after one this small, what is left is far below rounding
_MOST_STEPS = 60
_TINY = 5e-324


class Operations(NamedTuple):
    """What differs between floats and arrays."""

    exp: Callable[[Value], Value]
    log: Callable[[Value], Value]
    hypot: Callable[[Value, Value], Value]
    erfcx: Callable[[Value], Value]
    erfcinv: Callable[[Value], Value]
    erfinv: Callable[[Value], Value]
    where: Callable[[Any, Value, Value], Value]
    pick: Callable[..., Value]  # like where, but each function sees only its own elements
    every: Callable[[Any], bool]


def _pick_float(condition: bool, yes: Callable[..., Value], no: Callable[..., Value], *args: Value) -> Value:
    return (yes if condition else no)(*args)


def _pick_array(condition: Any, yes: Callable[..., Value], no: Callable[..., Value], *args: Value) -> Value:
    result = np.empty(condition.shape)
    for mask, function in ((condition, yes), (~condition, no)):
        if mask.any():
            result[mask] = function(*(arg[mask] for arg in args))
    return result


FLOATS = Operations(
    exp=math.exp,
    log=math.log,
    hypot=math.hypot,
    erfcx=lambda x: float(special.erfcx(x)),
    erfcinv=lambda x: float(special.erfcinv(x)),
    erfinv=lambda x: float(special.erfinv(x)),
    where=lambda condition, yes, no: yes if condition else no,
    pick=_pick_float,
    every=bool,
)
ARRAYS = Operations(
    exp=np.exp,
    log=np.log,
    hypot=np.hypot,
    erfcx=special.erfcx,
    erfcinv=special.erfcinv,
    erfinv=special.erfinv,
    where=np.where,
    pick=_pick_array,
    every=np.all,
)


def delta(epsilon: Value, mu: Value, on: Operations) -> Value:
    """Return delta, for finite epsilon >= 0 and mu > 0."""
    h = mu / _SQRT2
    u = (epsilon / mu - mu / 2.0) / _SQRT2
    u = on.where(u < _FAR, u, _FAR)
    return on.pick(
        (u < 0.0) & (h >= _NARROW),
        lambda u, h: 1.0 - 0.5 * on.exp(-u * u) * _total(on, u, h),
        lambda u, h: 0.5 * on.exp(-u * u) * _gap(on, u, h),
        u,
        h,
    )


def epsilon(delta: Value, mu: Value, on: Operations) -> Value:
    """Return the epsilon at which mu has this delta, for 0 < delta < delta(0, mu)."""
    solve = partial(_solve_epsilon, on)
    return on.pick(delta > 0.5, partial(solve, True), partial(solve, False), delta, mu)


def mu(epsilon: Value, delta: Value, on: Operations) -> Value:
    """Return the mu that has this delta at epsilon, for finite epsilon > 0 and 0 < delta < 1."""
    solve = partial(_solve_mu, on)
    return on.pick(delta > 0.5, partial(solve, True), partial(solve, False), epsilon, delta)


def _solve_epsilon(on: Operations, upper: bool, delta: Value, mu: Value) -> Value:
    """Solve for m = epsilon/(mu sqrt2), the middle of [u, w]: no digits are lost as epsilon -> 0."""
    h = mu / _SQRT2
    goal = on.log(1.0 - delta if upper else delta)

    def residual(m: Value) -> Terms:
        u = m - 0.5 * h
        tail = on.erfcx(u + h)
        curve = 4.0 * h * (1.0 / _SQRT_PI - h * tail)
        return _residual(on, upper, u, h, goal, -2.0 * h * tail, curve)

    above = on.erfcinv(2.0 * delta)  # delta <= erfc(u)/2
    start = _start(on, delta, h, above) + 0.5 * h
    start = on.where(start > 0.0, start, 0.0)
    return 2.0 * h * _halley(on, residual, start, 0.0, above + 0.5 * h, scale=lambda m: 1.0)


def _solve_mu(on: Operations, upper: bool, epsilon: Value, delta: Value) -> Value:
    """Solve for u, with w = sqrt(u² + epsilon) and mu = sqrt2 (w - u)."""
    goal = on.log(1.0 - delta if upper else delta)
    root = epsilon**0.5

    def width(u: Value) -> Value:
        return on.pick(
            u > 0.0,
            lambda u, root: root / (on.hypot(u, root) + u) * root,
            lambda u, root: on.hypot(u, root) - u,
            u,
            root,
        )

    def scale(u: Value) -> Value:
        w = on.hypot(u, root)
        return w / (1.0 + w)

    def residual(u: Value) -> Terms:
        h, w, unit = width(u), on.hypot(u, root), scale(u)
        pull = 2.0 / _SQRT_PI * (h / w) * unit
        curve = pull * (2.0 * u * unit + (1.0 + u / w) / (1.0 + w))
        return _residual(on, upper, u, h, goal, -pull, curve)

    below = -on.erfinv(delta)  # the u of epsilon = 0
    above = on.erfcinv(2.0 * delta)
    falling = below - 0.25 * (epsilon / below)  # the u of that mu at this epsilon: mu grows with it
    above = on.where(falling < above, falling, above)
    start = _start(on, delta, width(above), above)
    start = on.where((start > below) & (start < above), start, above)
    return _SQRT2 * width(_halley(on, residual, start, below, above, scale))


def _residual(
    on: Operations, upper: bool, u: Value, h: Value, goal: Value, slope: Value, curve: Value
) -> Terms:
    """Return what is to vanish, falling in the unknown, and its two derivatives.

    `slope` and `curve` are those of delta over exp(-u²)/2, in the unit of the unknown's scale.
    """
    bracket, sign = (_total(on, u, h), -1.0) if upper else (_gap(on, u, h), 1.0)
    slope = slope / bracket
    value = sign * (on.log(0.5 * bracket) - u * u - goal)
    return value, slope, curve / bracket - sign * slope * slope


def _start(on: Operations, delta: Value, h: Value, u: Value) -> Value:
    """Improve u = erfcinv(2 delta): the bracket is about h/(h + u + 0.9) of erfcx(u) alone."""
    for _ in range(2):
        share = h / (h + on.where(u > 0.0, u, 0.0) + 0.9)
        inflated = delta / share
        u = on.erfcinv(2.0 * on.where(inflated < 0.9, inflated, on.where(delta > 0.9, delta, 0.9)))
    return u


def _halley(
    on: Operations,
    residual: Residual,
    x: Value,
    low: Value,
    high: Value,
    scale: Callable[[Value], Value],
) -> Value:
    """Return the root in [low, high] of a falling function whose derivatives come in units of `scale`."""
    for _ in range(_MOST_STEPS):
        value, slope, curve = residual(x)
        low = on.where(value > 0.0, x, low)
        high = on.where(value > 0.0, high, x)
        newton = value / slope
        bend = 1.0 - 0.5 * newton * curve / slope
        step = newton / on.where(bend > 0.5, bend, 0.5)
        close = abs(step) <= _CLOSE
        new = x - step * scale(x)
        nearest = on.where(new < low, low, on.where(new > high, high, new))
        x = on.where((new == nearest) | close, nearest, 0.5 * (low + high))
        if on.every(close):
            break
    return x


def _total(on: Operations, u: Value, h: Value) -> Value:
    return on.erfcx(-u) + on.erfcx(u + h)


def _gap(on: Operations, u: Value, h: Value) -> Value:
    return on.pick(h < _NARROW, partial(_narrow_gap, on), lambda u, h: on.erfcx(u) - on.erfcx(u + h), u, h)


def _narrow_gap(on: Operations, u: Value, h: Value) -> Value:
    half = 0.5 * h
    middle = u + half
    total = 0.0
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        x = middle + half * node
        total = total + weight * (1.0 / _SQRT_PI - x * on.erfcx(x))
    return h * total + _TINY
