"""Figures as inline SVG: plain shapes with tooltips; colours come from the page's style."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from html import escape

from cape.show.figures import Bars, Curves, Forest, HeatMap, Intervals, Line, Mark, Panel, extent
from cape.show.numbers import number

__all__ = ["NARROW", "WIDE", "Axis", "Sheet", "around", "draw"]

_UP = 62.0  # for the numbers of an axis that goes up
COLOURS = 6  # of curves in the page's style
_ROW = 26
_PLOT_HEIGHT = 220
_WIDEST = 1000.0  # the largest ratio that an axis is made for


@dataclass(frozen=True)
class Sheet:
    """How wide a picture is, and where its labels stand.

    Attributes:
        width: in units of which a letter takes about 7.
        left: the room for labels of rows; 0 puts them above their rows.
        named: the room for names of rows under a curve.
        ticks: about how many numbers stand at an axis.
        name: its class in the page's style, which shows the sheet that fits.
    """

    width: float
    left: float
    named: float
    ticks: int
    name: str
    right: float = 20.0

    @property
    def above(self) -> bool:
        """Whether labels stand above their rows."""
        return not self.left

    @property
    def start(self) -> float:
        """Where an axis below labelled rows begins."""
        return self.left or 20.0

    @property
    def stop(self) -> float:
        """Where an axis ends."""
        return self.width - self.right

    @property
    def row(self) -> float:
        """The height of a row."""
        return _ROW + 18 * self.above

    def label(self, y: float, text: str, style: str = "") -> str:
        """Return the label of a row whose middle is at y."""
        if self.above:
            return _text(2, y - 14, _cut(text, int(self.width / 7)), style)
        return _text(self.left - 10, y + 4, _cut(text), f"end {style}".rstrip())

    def middle(self, top: float, place: int) -> float:
        """Return the middle of a row, below the label if that stands above it."""
        return top + place * self.row + (_ROW / 2 if not self.above else 18 + _ROW / 2)


WIDE = Sheet(width=720.0, left=250.0, named=130.0, ticks=5, name="wide-plot")
NARROW = Sheet(width=340.0, left=0.0, named=84.0, ticks=4, name="narrow-plot")
"""For a phone, and for whoever reads with large letters."""


@dataclass(frozen=True)
class Axis:
    """An axis from `low` to `high` in units of the data, drawn from `start` to `stop` in the picture."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def at(self, value: float) -> float:
        """Return the position of a value; one outside the axis gets the nearer end."""
        low, high, inside = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, inside = math.log(low), math.log(high), math.log(inside)
        return self.start + (inside - low) / (high - low) * (self.stop - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        """Return round numbers on the axis."""
        if self.log and self.high > 3 * self.low:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            times = (1, 2, 5) if self.high < 100 * self.low else (1,)
            found = [time * 10.0**decade for decade in decades for time in times]
            return [tick for tick in found if self.low <= tick <= self.high]
        step = _round_step((self.high - self.low) / about)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [place * step for place in range(first, last + 1)]


def around(ends: Sequence[float], start: float, stop: float, *, zero: bool = False) -> Axis:
    """Return an axis with a little room around the finite values."""
    finite = [value for value in ends if math.isfinite(value)] + ([0.0] if zero else [])
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    room = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    return Axis(low if zero and low == 0 else low - room, high + room, start, stop)


def _ratios(ends: Sequence[float], start: float, stop: float) -> Axis:
    """Return an axis of ratios; one huge interval must not squeeze the others."""
    kept = [min(max(end, 1 / _WIDEST), _WIDEST) for end in ends]
    room = max(max(kept) / min(kept), 1.2) ** 0.08
    return Axis(min(kept) / room, max(kept) * room, start, stop, log=True)


@singledispatch
def draw(panel: Panel, sheet: Sheet = WIDE) -> str:
    """Return a panel as an SVG element."""
    kinds = "Intervals, Forest, Bars, Line, Curves or HeatMap"
    raise TypeError(f"a panel must be {kinds}, not {type(panel).__name__}")


@draw.register
def _intervals(panel: Intervals, sheet: Sheet = WIDE) -> str:
    marks, log = panel.marks, panel.log
    truths = [mark.truth for mark in marks if mark.truth is not None]
    held = [*(extent(marks) if panel.ends is None else panel.ends), *truths]
    held += [] if panel.line is None else [panel.line]
    axis = (_ratios if log else around)(held, sheet.start, sheet.stop)
    top, parts, bottom = _rows(panel.title, axis, panel.line, len(marks) * sheet.row, sheet)
    for i, mark in enumerate(marks):
        y, inner = sheet.middle(top, i), [axis.at(end) for end in mark.inner]
        parts.append(
            f"<g>{_hover(mark)}{sheet.label(y, mark.label)}"
            f'<path class="whisker" d="M{axis.at(mark.low):.1f} {y:g}H{axis.at(mark.high):.1f}"/>'
            f'<path class="privacy" d="M{inner[0]:.1f} {y:g}H{inner[1]:.1f}"/>'
            f'<circle class="dot" cx="{axis.at(mark.value):.1f}" cy="{y:g}" r="4.5"/></g>'
        )
        if mark.truth is not None:
            told = f"<title>truth: {number(mark.truth)}</title>"
            x = axis.at(mark.truth)
            parts.append(f'<path class="truth" d="M{x:.1f} {y - 12:g}V{y + 12:g}">{told}</path>')
    return _named(parts, bottom, panel.axis, panel.title or panel.axis or "intervals", sheet)


@draw.register
def _forest(panel: Forest, sheet: Sheet = WIDE) -> str:
    every = panel.every
    counted = [mark for mark, weight in zip(panel.marks, panel.weights, strict=True) if weight > 0]
    held = [*extent([*counted, *every[len(panel.marks) :]]), *([] if panel.line is None else [panel.line])]
    axis = around(held, sheet.start, sheet.stop)
    gap = _ROW / 2 if panel.pooled else 0
    top, parts, bottom = _rows(panel.title, axis, panel.line, len(every) * sheet.row + gap, sheet)
    for i, mark in enumerate(every):
        study = i < len(panel.marks)
        y = sheet.middle(top, i) + (0 if study else gap)
        low, x, high = axis.at(mark.low), axis.at(mark.value), axis.at(mark.high)
        shape = f'<path class="whisker" d="M{low:.1f} {y:g}H{high:.1f}"/>'
        if study:
            inner = [axis.at(end) for end in mark.inner]
            half = 3 + 9 * math.sqrt(min(max(panel.weights[i], 0.0), 1.0))
            shape += f'<path class="privacy" d="M{inner[0]:.1f} {y:g}H{inner[1]:.1f}"/>'
            shape += (
                f'<rect class="dot" x="{x - half / 2:.1f}" y="{y - half / 2:.1f}" width="{half:.1f}" '
                f'height="{half:.1f}"/>'
            )
        elif mark is not panel.range:
            corners = [(low, y), (x, y - 7), (high, y), (x, y + 7)]
            shape = f'<path class="dot" d="{_path(corners)}Z"/>'
        parts.append(f"<g>{_hover(mark)}{sheet.label(y, mark.label)}{shape}</g>")
    return _named(parts, bottom, panel.axis, panel.title or "forest plot", sheet)


def _rows(
    title: str, axis: Axis, line: float | None, height: float, sheet: Sheet
) -> tuple[float, list[str], float]:
    """Return where labelled rows begin, what is drawn behind them, and where they end."""
    top = 22.0 if title else 2.0
    bottom = top + height + 2
    parts = []
    if title:
        left = sheet.above
        parts.append(_text(2 if left else sheet.left - 10, 14, _cut(title), "title" if left else "end title"))
    for tick in axis.ticks(sheet.ticks):
        x = axis.at(tick)
        parts.append(f'<path class="grid" d="M{x:.1f} {top:g}V{bottom:g}"/>')
        parts.append(_text(x, bottom + 14, _short(tick), "mid soft"))
    if line is not None:
        parts.append(f'<path class="zero" d="M{axis.at(line):.1f} {top:g}V{bottom:g}"/>')
    return top, parts, bottom


def _named(parts: list[str], bottom: float, axis: str, about: str, sheet: Sheet) -> str:
    """Return rows above an axis, with its name."""
    if axis:
        parts.append(_text((sheet.start + sheet.stop) / 2, bottom + 32, axis, "mid soft"))
    return _svg(bottom + (40 if axis else 22), parts, about, sheet)


@draw.register
def _bars(panel: Bars, sheet: Sheet = WIDE) -> str:
    marks = panel.marks
    y = around(extent(marks), _PLOT_HEIGHT, 24, zero=True)
    step = (sheet.stop - _UP) / max(1, len(marks))
    parts = [_grid(y, panel.up, _UP, sheet)]
    longest = max((len(mark.label) for mark in marks), default=1)
    every = max(1, math.ceil(len(marks) / 16), math.ceil(longest * 7.5 / step))
    for i, mark in enumerate(marks):
        x = _UP + i * step
        middle, top, base = x + step / 2, y.at(max(mark.value, 0.0)), y.at(0.0)
        parts.append(
            f'<g>{_hover(mark)}<rect class="bar" x="{x + step * 0.08:.1f}" y="{top:.1f}" '
            f'width="{step * 0.84:.1f}" height="{max(base - top, 0):.1f}"/>'
            f'<path class="whisker" d="M{middle:.1f} {y.at(mark.low):.1f}V{y.at(mark.high):.1f}"/></g>'
        )
        if i % every == 0:
            parts.append(_text(middle, _PLOT_HEIGHT + 16, mark.label, "mid"))
    return _below(parts, panel.axis, sheet)


@draw.register
def _line(panel: Line, sheet: Sheet = WIDE) -> str:
    xs, marks, stop = panel.at, panel.marks, sheet.stop
    x = Axis(min(xs), max(xs), _UP, stop) if min(xs) < max(xs) else around(xs, _UP, stop)
    y = around(extent(marks), _PLOT_HEIGHT, 24) if panel.span is None else Axis(*panel.span, _PLOT_HEIGHT, 24)
    there = [(x.at(v), y.at(mark.low)) for v, mark in zip(xs, marks, strict=True)]
    back = [(x.at(v), y.at(mark.high)) for v, mark in zip(xs, marks, strict=True)]
    line = [(x.at(v), y.at(mark.value)) for v, mark in zip(xs, marks, strict=True)]
    parts = [_grid(y, panel.up, _UP, sheet), f'<path class="band" d="{_path(there + back[::-1])}Z"/>']
    if panel.diagonal:
        low, high = max(x.low, y.low), min(x.high, y.high)
        ends = [(x.at(end), y.at(end)) for end in (low, max(low, high))]
        parts.append(f'<path class="zero" d="{_path(ends)}"/>')
    parts.append(f'<path class="line" d="{_path(line)}"/>')
    parts += [
        f'<circle class="hover" cx="{px:.1f}" cy="{py:.1f}" r="5">{_hover(mark)}</circle>'
        for (px, py), mark in zip(line, marks, strict=True)
    ]
    parts += [_text(x.at(tick), _PLOT_HEIGHT + 16, _short(tick), "mid") for tick in x.ticks(sheet.ticks)]
    return _below(parts, panel.axis, sheet)


@draw.register
def _curves(panel: Curves, sheet: Sheet = WIDE) -> str:
    named = any(name for name, _ in (*panel.lines, *panel.below))
    beside = named and not sheet.above
    left, stop = (sheet.named, sheet.stop - 1.5 * sheet.right) if beside else (_UP, sheet.stop - 10)
    x = Axis(min(panel.at), max(panel.at), left, stop)
    y = Axis(*panel.span, _PLOT_HEIGHT, 24)
    parts = [_grid(y, panel.up, left, sheet)]
    for i, (_, marks) in enumerate(panel.lines):
        places = [x.at(value) for value in panel.at]
        lows, highs, values = (
            _stepped([(px, y.at(end)) for px, end in zip(places, ends, strict=True)], panel.steps)
            for ends in zip(*((mark.low, mark.high, mark.value) for mark in marks), strict=True)
        )
        colour = f"c{i % COLOURS}"
        parts.append(f'<path class="band {colour}" d="{_path(lows + highs[::-1])}Z"/>')
        parts.append(f'<path class="line {colour}" d="{_path(values)}"/>')
        parts += [
            f'<circle class="hover" cx="{px:.1f}" cy="{y.at(mark.value):.1f}" r="5">{_hover(mark)}</circle>'
            for px, mark in zip(places, marks, strict=True)
        ]
    parts += [_text(x.at(tick), _PLOT_HEIGHT + 16, _short(tick), "mid") for tick in x.ticks(sheet.ticks)]
    if panel.axis:
        parts.append(_text((left + stop) / 2, _PLOT_HEIGHT + 36, panel.axis, "mid soft"))
    under = _PLOT_HEIGHT + (44 if panel.axis else 24)
    if panel.below_title:
        parts.append(_text(2, under + 14, panel.below_title, "soft"))
        under += 20
    longest = max((len(cell) for _, cells in panel.below for cell in cells), default=1)
    fit = max(1, int((stop - left) / (7.5 * longest + 6)))
    every = max(1, math.ceil(len(panel.below_at) / fit))
    for i, (name, cells) in enumerate(panel.below):
        room = sheet.width if sheet.above else sheet.named
        parts.append(_text(2, under + 14, _cut(name, int(room / 8)), f"title c{i % COLOURS}"))
        under += 18 if sheet.above and name else 0
        for value, cell in list(zip(panel.below_at, cells, strict=True))[::every]:
            parts.append(_text(x.at(value), under + 14, cell, "mid"))
        under += 20
    return _svg(under + 4, parts, panel.up or panel.axis or "curves", sheet)


def _stepped(points: list[tuple[float, float]], steps: bool) -> list[tuple[float, float]]:
    """Return the points of a line, or of a step function that stays until the next point."""
    if not steps:
        return points
    found = points[:1]
    for (_, before), (px, py) in itertools.pairwise(points):
        found += [(px, before), (px, py)]
    return found


@draw.register
def _heat_map(panel: HeatMap, sheet: Sheet = WIDE) -> str:
    left = sheet.left or sheet.named
    most = max((abs(mark.value) for row in panel.marks for mark in row), default=1.0) or 1.0
    width = min(110.0, (sheet.stop - left) / max(1, len(panel.columns)))
    top = 38 if panel.axis else 22
    parts = [_text(left + 2, 14, panel.axis, "soft")] if panel.axis else []
    for j, name in enumerate(panel.columns):
        parts.append(_text(left + (j + 0.5) * width, top - 8, _cut(name, max(int(width / 7), 3)), "mid"))
    for i, (name, row) in enumerate(zip(panel.rows, panel.marks, strict=True)):
        y = top + i * 34
        parts.append(_text(left - 10, y + 20, _cut(name, int(left / 7)), "end"))
        for j, mark in enumerate(row):
            x, depth = left + j * width, abs(mark.value) / most
            style = "mid onDark" if depth > 0.6 else "mid"
            parts.append(
                f'<g>{_hover(mark)}<rect class="{"minus" if mark.value < 0 else "plus"}" x="{x + 1:.1f}" '
                f'y="{y}" width="{width - 2:.1f}" height="32" fill-opacity="{0.08 + 0.72 * depth:.2f}"/>'
                f"{_text(x + width / 2, y + 20, mark.number, style)}</g>"
            )
    return _svg(top + 2 + 34 * len(panel.rows), parts, panel.axis or "heat map", sheet)


def _grid(y: Axis, name: str, left: float, sheet: Sheet) -> str:
    lines = "".join(
        f'<path class="grid" d="M{left:g} {y.at(t):.1f}H{sheet.stop:g}"/>'
        f"{_text(left - 8, y.at(t) + 4, _short(t), 'end')}"
        for t in y.ticks()
    )
    return lines + (_text(left, 13, name, "soft") if name else "")


def _below(parts: list[str], axis: str, sheet: Sheet) -> str:
    """Return a plot with the name of its axis below it."""
    if axis:
        parts.append(_text((_UP + sheet.stop) / 2, _PLOT_HEIGHT + 36, axis, "mid soft"))
    return _svg(_PLOT_HEIGHT + (44 if axis else 24), parts, axis or "plot", sheet)


def _svg(height: float, parts: Sequence[str], about: str, sheet: Sheet) -> str:
    return (
        f'<svg class="{sheet.name}" viewBox="0 0 {sheet.width:g} {height:g}" role="img" '
        f'aria-label="{escape(about)}">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}">{escape(text)}</text>'


def _hover(mark: Mark) -> str:
    return f"<title>{escape(mark.text)}</title>"


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _cut(label: str, most: int = 35) -> str:
    return label if len(label) <= most else f"{label[: most - 1]}…"


def _short(value: float) -> str:
    return f"{value:,.10g}" if abs(value) < 1e15 else f"{value:.3g}"


def _round_step(step: float) -> float:
    size = 10.0 ** math.floor(math.log10(step))
    return next(size * times for times in (1, 2, 5, 10) if size * times >= step * 0.999)
