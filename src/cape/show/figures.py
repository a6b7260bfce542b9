"""Figures as plain data: marks with intervals on named axes, and a caption."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cape.show.numbers import LEVEL, between, rounded
from cape.show.tables import Estimated

__all__ = [
    "DOTS",
    "Bars",
    "Curves",
    "Figure",
    "Forest",
    "HeatMap",
    "Intervals",
    "Line",
    "Mark",
    "Panel",
    "dots",
    "extent",
    "strip",
    "to_scale",
]

MOST_MARKS = 40
KEY = "[key]"  # where a caption shows the colour of privacy noise
DOTS = (
    f"Dots are released values and lines are {LEVEL:.0%} intervals; {KEY} marks the part of an interval that "
    "comes from privacy noise."
)
_TO_SCALE = (
    "Every number has an axis in its own unit. Axes are scaled to the columns' bounds, so a longer line "
    "means a less precise number."
)


@dataclass(frozen=True)
class Mark:
    """A number in a figure, with its interval and the part of it that comes from privacy noise."""

    label: str
    value: float
    low: float
    high: float
    inner: tuple[float, float]
    error: float
    truth: float | None = None
    most: int | None = None  # digits after the point

    @classmethod
    def of(
        cls,
        e: Estimated,
        label: str | None = None,
        truth: float | None = None,
        most: int | None = None,
    ) -> Mark:
        """Return the mark of an estimate."""
        (low, high), error = e.interval(LEVEL), e.standard_error
        if low != low or high != high:  # the interval is not known
            low = high = e.value
        part = min(e.privacy / error, 1.0) if error > 0 else 0.0
        inner = e.value - part * (e.value - low), e.value + part * (high - e.value)
        return cls(e.label if label is None else label, e.value, low, high, inner, error, truth, most)

    @classmethod
    def exact(cls, label: str, value: float) -> Mark:
        """Return the mark of a number without an interval."""
        return cls(label, value, value, value, (value, value), math.nan)

    def exponential(self) -> Mark:
        """Return the ratio of a mark on the scale of logarithms."""
        value, low, high, *inner = (
            math.exp(min(end, 700.0)) for end in (self.value, self.low, self.high, *self.inner)
        )
        return Mark(self.label, value, low, high, (inner[0], inner[1]), value * self.error)

    @property
    def number(self) -> str:
        """The value as text."""
        return rounded(self.value, self.error, self.most)

    @property
    def text(self) -> str:
        """The text of its tooltip."""
        if self.low == self.high:
            return f"{self.label}: {self.number}"
        ends = between((self.low, self.high), self.error, self.most)
        return f"{self.label}: {self.number} ({LEVEL:.0%} interval {ends})"


@dataclass(frozen=True)
class Intervals:
    """Dots with intervals, one below the other on one axis.

    `ends` sets the range of an axis that several panels share. `line` is the value of no effect. `log` asks
    for a logarithmic axis.
    """

    marks: tuple[Mark, ...]
    title: str = ""
    axis: str = ""
    ends: tuple[float, ...] | None = None
    line: float | None = None
    log: bool = False


@dataclass(frozen=True)
class Forest:
    """A forest plot: one square with an interval for each study, sized by its weight, and diamonds below.

    `weights` are parts of 1. `pooled` are drawn as diamonds, `range`, an interval without a value, as a line.
    `line` is where all would agree.
    """

    marks: tuple[Mark, ...]
    weights: tuple[float, ...]
    pooled: tuple[Mark, ...]
    title: str = ""
    axis: str = ""
    line: float | None = None
    range: Mark | None = None

    @property
    def every(self) -> tuple[Mark, ...]:
        """All marks, from top to bottom."""
        return (*self.marks, *self.pooled, *(() if self.range is None else (self.range,)))


@dataclass(frozen=True)
class Bars:
    """Counts as columns with intervals."""

    marks: tuple[Mark, ...]
    axis: str = ""
    up: str = "rows"


@dataclass(frozen=True)
class Line:
    """A function with a band; the axis covers `span`, or the band."""

    at: tuple[float, ...]
    marks: tuple[Mark, ...]
    axis: str = ""
    up: str = ""
    span: tuple[float, float] | None = None
    diagonal: bool = False  # whether the line of equal values is drawn


@dataclass(frozen=True)
class Curves:
    """Several functions with bands on one axis, and numbers below it at some of its values.

    Attributes:
        at: where the functions are known.
        lines: the name of each function, and its marks.
        steps: whether a function stays as it is until the next value.
        below: rows of text under the axis, each with a name and a cell for each of `below_at`.
    """

    at: tuple[float, ...]
    lines: tuple[tuple[str, tuple[Mark, ...]], ...]
    axis: str = ""
    up: str = ""
    span: tuple[float, float] = (0.0, 1.0)
    steps: bool = False
    below_at: tuple[float, ...] = ()
    below: tuple[tuple[str, tuple[str, ...]], ...] = ()
    below_title: str = ""


@dataclass(frozen=True)
class HeatMap:
    """A table of numbers, coloured by size: marks by row, then by column."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    marks: tuple[tuple[Mark, ...], ...]
    axis: str = ""


Panel = Intervals | Forest | Bars | Line | Curves | HeatMap


@dataclass(frozen=True)
class Figure:
    """Panels below each other, and a caption."""

    panels: tuple[Panel, ...]
    caption: str


def extent(marks: Sequence[Mark]) -> list[float]:
    """Return the finite values and interval ends, which an axis must cover."""
    ends = [end for mark in marks for end in (mark.value, mark.low, mark.high)]
    return [end for end in ends if math.isfinite(end)]


def strip(mark: Mark, ends: tuple[float, float], symbol: str = "■", width: int = 25) -> str:
    """Return a mark with its interval as a line of text, on an axis between these ends."""
    low, high = ends
    if not (math.isfinite(mark.low) and math.isfinite(mark.high)) or high <= low:
        return ""

    def place(value: float) -> int:
        part = (min(max(value, low), high) - low) / (high - low)
        return round(part * (width - 1))

    left, right = place(mark.low), place(mark.high)
    line = ["·", *" " * (width - 2), "·"]
    line[left : right + 1] = "─" * (right + 1 - left)
    if symbol:
        line[place(mark.value)] = symbol
    return "".join(line)


def dots(estimates: Sequence[Estimated], title: Callable[[str], str] = str) -> tuple[Mark, ...]:
    """Return the marks of estimates, as many as a figure holds."""
    return tuple(Mark.of(e, title(e.label)) for e in estimates[:MOST_MARKS])


def to_scale(marks: Sequence[Mark], units: Sequence[float]) -> Figure:
    """Return a panel for each mark, all axes equally long in units of the columns' bounds."""
    extents = [extent([mark]) for mark in marks]
    widest = max((max(e) - min(e)) / unit for e, unit in zip(extents, units, strict=False))
    panels = []
    for mark, ends, unit in zip(marks, extents, units, strict=False):
        middle, reach = (min(ends) + max(ends)) / 2, widest * unit / 2
        panels.append(Intervals((mark,), ends=(middle - reach, middle + reach)))
    return Figure(tuple(panels), f"{DOTS} {_TO_SCALE}")
