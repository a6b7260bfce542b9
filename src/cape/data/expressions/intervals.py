"""Bounds of a result from the bounds of its arguments.

Claim. Every value that `evaluate` gives lies in the interval, or is missing.
Reason. +, -, *, / and sqrt round to nearest, which keeps order: the rounded ends are the sharp bounds of the
rounded values, and need no rounding outward. For functions of the mathematics library, whose last digits
nobody promises, ends are moved outward by a few units in the last place.
Tested in tests/unit/data/test_expressions.py (random rows stay inside, and ends are reached).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable

from cape.data.expressions import days
from cape.data.expressions.tree import TINY, TOP, UNKNOWN, Interval

__all__ = ["INTERVALS", "flushed", "hull", "may_underflow", "round_bounds", "square"]

_ULPS = 4
_UNIT = 2.0**-53
_EXACT = 2.0**52  # from here on every double is a whole number


def hull(intervals: Iterable[Interval]) -> Interval:
    """Return the smallest interval around all."""
    found = list(intervals)
    return Interval(
        min(each.low for each in found), max(each.high for each in found), min(each.least for each in found)
    )


def flushed(x: Interval) -> Interval:
    """Return the interval of values of which those smaller than TINY are 0."""
    low, high = (0.0 if abs(end) < TINY else end for end in (x.low, x.high))
    return Interval(low, high, max(x.least, TINY))


def may_underflow(x: Interval, y: Interval) -> bool:
    """Return whether a product of values that are not 0 could be too small for a double."""
    return max(x.least, y.least) < 1.0 and x.least * y.least < TINY * TINY


def _rounded(x: float, digits: int) -> float:
    """Return a double rounded to so many digits after the point, halves away from 0."""
    scale = 10.0 ** abs(digits)
    moved = x * scale if digits >= 0 else x / scale
    if not abs(moved) < _EXACT:
        return x
    whole = float(math.trunc(moved))
    if abs(moved - whole) >= 0.5:
        whole += math.copysign(1.0, moved)
    return whole / scale if digits >= 0 else whole * scale


def _outward(low: float, high: float) -> Interval:
    """Return an interval with room for the last digits of functions; none of them errs about the sign."""
    for _ in range(_ULPS):
        low = math.nextafter(low, -math.inf) if low else low
        high = math.nextafter(high, math.inf) if high else high
    return _known(low, high)


def _known(low: float, high: float, least: float = 0.0) -> Interval:
    """Return an interval whose ends beyond TOP are unknown: what lies there is missing."""
    return Interval(low if low >= -TOP else -math.inf, high if high <= TOP else math.inf, least)


def _corners(x: Interval, y: Interval, of: Callable[[float, float], float]) -> tuple[float, float]:
    ends = [of(a, b) for a in (x.low, x.high) for b in (y.low, y.high)]
    return min(ends), max(ends)


def _product(a: float, b: float) -> float:
    return 0.0 if a == 0.0 or b == 0.0 else a * b  # 0 times what is unknown is 0


def _sum_least(x: Interval, y: Interval) -> float:
    """Both are multiples of a unit in the last place of the smaller one, and so is their rounded sum."""
    return min(x.least, y.least) * _UNIT


def _add(x: Interval, y: Interval) -> Interval:
    return _known(x.low + y.low, x.high + y.high, _sum_least(x, y))


def _sub(x: Interval, y: Interval) -> Interval:
    return _known(x.low - y.high, x.high - y.low, _sum_least(x, y))


def _mul(x: Interval, y: Interval) -> Interval:
    return _known(*_corners(x, y, _product), x.least * y.least * (1 - _UNIT))


def square(x: Interval) -> Interval:
    """Return the interval of x * x."""
    return _mul(*(_abs(x),) * 2)


def _div(x: Interval, y: Interval) -> Interval:
    if y.low <= 0.0 <= y.high:
        return UNKNOWN
    if not (x.known and y.known):
        return UNKNOWN
    return _known(*_corners(x, y, operator.truediv))


def _mod(x: Interval, y: Interval) -> Interval:
    most = min(x.size, y.size)
    return _known(-most if x.low < 0 else 0.0, most if x.high > 0 else 0.0)


def _neg(x: Interval) -> Interval:
    return Interval(-x.high, -x.low, x.least)


def _abs(x: Interval) -> Interval:
    low = 0.0 if x.low <= 0.0 <= x.high else min(abs(x.low), abs(x.high))
    return Interval(low, x.size, x.least)


def _sign(x: Interval) -> Interval:
    return Interval(float((x.low > 0) - (x.low < 0)), float((x.high > 0) - (x.high < 0)), 1.0)


def _monotone(of: Callable[[float], float]) -> Callable[[Interval], Interval]:
    def bounds(x: Interval) -> Interval:
        return _outward(of(x.low), of(x.high))

    return bounds


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _log(of: Callable[[float], float]) -> Callable[[Interval], Interval]:
    def bounds(x: Interval) -> Interval:
        low = of(x.low) if x.low > 0 else -math.inf
        return _outward(low, of(x.high) if math.isfinite(x.high) else math.inf)

    return bounds


def _exp_bounds(x: Interval) -> Interval:
    found = _monotone(_exp)(x)
    return Interval(max(found.low, 0.0), found.high)


def _sqrt(x: Interval) -> Interval:
    return Interval(math.sqrt(max(x.low, 0.0)), math.sqrt(x.high))


def _whole(of: Callable[[float], float]) -> Callable[[Interval], Interval]:
    def bounds(x: Interval) -> Interval:
        low, high = (of(end) if math.isfinite(end) else end for end in (x.low, x.high))
        return Interval(low, high, 1.0)

    return bounds


def _power_of(a: float, b: float) -> float:
    try:
        return a**b if a or b >= 0 else math.inf
    except OverflowError:
        return math.inf


def _power(x: Interval, y: Interval) -> Interval:
    if not (x.known and y.known):
        return UNKNOWN
    if x.low > 0 or (x.low >= 0 and y.low >= 0):
        found = _outward(*_corners(x, y, _power_of))
        return Interval(max(found.low, 0.0), found.high)
    if y.low == y.high and y.low >= 0 and float(y.low).is_integer():
        most = _power_of(x.size, y.low)
        if y.low % 2 == 0:
            least = 0.0 if x.low <= 0 <= x.high else _power_of(min(abs(x.low), abs(x.high)), y.low)
            found = _outward(1.0 if y.low == 0 else least, most)
            return Interval(max(found.low, 0.0), found.high)
        return _outward(-_power_of(-x.low, y.low) if x.low < 0 else _power_of(x.low, y.low),
                        -_power_of(-x.high, y.low) if x.high < 0 else _power_of(x.high, y.low))  # fmt: skip
    return UNKNOWN


def _least(*given: Interval) -> Interval:
    least = min(each.least for each in given)
    return Interval(min(each.low for each in given), min(each.high for each in given), least)


def _greatest(*given: Interval) -> Interval:
    least = min(each.least for each in given)
    return Interval(max(each.low for each in given), max(each.high for each in given), least)


def _years_between(x: Interval, y: Interval) -> Interval:
    return Interval(days.years_between(x.high, y.low), days.years_between(x.low, y.high), 1.0)


INTERVALS: dict[str, Callable[..., Interval]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "mod": _mod,
    "neg": _neg,
    "abs": _abs,
    "sign": _sign,
    "flush": flushed,
    "floor": _whole(lambda x: float(math.floor(x)) if abs(x) < _EXACT else x),
    "ceil": _whole(lambda x: float(math.ceil(x)) if abs(x) < _EXACT else x),
    "ln": _log(math.log),
    "log10": _log(math.log10),
    "exp": _exp_bounds,
    "sqrt": _sqrt,
    "power": _power,
    "least": _least,
    "greatest": _greatest,
    "year": lambda x: Interval(days.year(x.low), days.year(x.high), 1.0),
    "month": lambda x: Interval(1.0, 12.0),
    "years_between": _years_between,
}


def round_bounds(x: Interval, digits: int) -> Interval:
    """Return the interval of rounded values; whole numbers are exact, others move outward."""
    low, high = (_rounded(end, digits) if math.isfinite(end) else end for end in (x.low, x.high))
    return Interval(low, high, 1.0) if digits == 0 else _outward(low, high)
