"""Numbers as text: a value to the place that its standard error leaves meaningful."""

from __future__ import annotations

import math

__all__ = [
    "LEVEL",
    "at_most",
    "between",
    "count",
    "counted",
    "number",
    "p_said",
    "p_value",
    "rounded",
    "seen",
]

LEVEL = 0.95  # of every interval that is shown
_HIDDEN = 2.0  # times its noise: a count that is smaller may be none
_MOST_PLACES = 9  # after the point, before an exponent is shorter
_MOST_ZEROS = 4  # after the point, of a number that rounds to 0
_MOST_DIGITS = 1e15  # before it


def rounded(value: float, error: float, most: int | None = None) -> str:
    """Return a value to the place of its error's second digit: 54.37 for an error of 0.52, 54 for 12.

    `most` limits the digits after the point. A value with an error of 0 is exact; one whose error is unknown
    gets four digits.
    """
    if error == 0 and abs(value) < _MOST_DIGITS and value == int(value):
        return f"{value:,.0f}"
    if not (math.isfinite(value) and math.isfinite(error) and error > 0):
        return number(value)
    places = 1 - int(f"{error:.1e}".partition("e")[2])
    if most is not None:
        places = min(places, most)
    if places > _MOST_PLACES or abs(value) >= _MOST_DIGITS:
        digits = places + int(f"{value:e}".partition("e")[2])
        return f"{value:.{min(max(digits, 0), 15)}e}"
    shown = round(value, places) + 0.0  # + 0.0: no -0
    if not shown and places > _MOST_ZEROS:
        return "0"
    return f"{shown:,.{max(places, 0)}f}"


def number(value: float) -> str:
    """Return a number whose error is unknown: four digits, without an exponent if possible.

    A whole one is taken to be exact, as bounds and edges are: 90, not 90.00.
    """
    if value != value or abs(value) == float("inf"):
        return "-" if value != value else ("∞" if value > 0 else "-∞")
    if value == int(value) and abs(value) < _MOST_DIGITS:
        return f"{value + 0.0:,.0f}"  # + 0.0: no -0
    if 1e-3 <= abs(value) < 1e7:
        digits = max(0, 4 - len(str(int(abs(value)))))
        return f"{value:,.{digits}f}" if digits else f"{value:,.0f}"
    return f"{value:.3e}"


def between(ends: tuple[float, float], error: float = math.nan, most: int | None = None) -> str:
    """Return an interval, to the place of an error if one is given."""
    low, high = ends
    if low != low or high != high:
        return "not known"
    return f"{rounded(low, error, most)} to {rounded(high, error, most)}"


def p_value(p: float) -> str:
    """Return a P value as journals print it."""
    return "-" if p != p else "<0.001" if p < 0.001 else f"{p:.3f}"


def p_said(p: float) -> str:
    """Return a P value as a sentence has it: 'P = 0.169', 'P <0.001'."""
    return f"P {'' if p < 0.001 else '= '}{p_value(p)}"


def at_most(share: float) -> str:
    """Return a probability in percent, rounded up to a tenth: what is called `at most` must be."""
    return f"{min(math.ceil(share * 1000 - 1e-9) / 10, 100):.1f}%"


def counted(value: float, noise: float, what: str) -> str:
    """Return '1,500 rows' for an exact count, 'about 1,500 rows' for one with noise of this standard
    deviation, 'at most 40 rows' for one that noise hides."""
    if not noise:
        return count(round(value), what)
    if value <= _HIDDEN * noise:
        return f"at most {count(math.ceil(max(value, 0.0) + _HIDDEN * noise), what)}"
    return f"about {count(round(value), what)}"


def seen(value: float, noise: float) -> str:
    """Return a count without digits after the point, and '-' for one that noise of this size hides."""
    return "-" if noise and value <= _HIDDEN * noise else f"{value:,.0f}"


def count(number: int, what: str) -> str:
    """Return '1 site' or '4 sites'."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
