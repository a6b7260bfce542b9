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

__all__ = ["Axis", "around", "draw"]

WIDTH = 720
_LEFT = 250  # for the labels of rows
_RIGHT = 20
_UP = 62.0  # for the numbers of an axis that goes up
_NAMED = 130.0  # the same, with names of rows below
COLOURS = 6  # of curves in the page's style
_ROW = 26
_PLOT_HEIGHT = 220
_WIDEST = 1000.0  # the largest ratio that an axis is made for


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
def draw(panel: Panel) -> str:
    """Return a panel as an SVG element."""
    kinds = "Intervals, Forest, Bars, Line, Curves or HeatMap"
    raise TypeError(f"a panel must be {kinds}, not {type(panel).__name__}")


@draw.register
def _intervals(panel: Intervals) -> str:
    marks, log = panel.marks, panel.log
    truths = [mark.truth for mark in marks if mark.truth is not None]
    held = [*(extent(marks) if panel.ends is None else panel.ends), *truths]
    held += [] if panel.line is None else [panel.line]
    axis = (_ratios if log else around)(held, _LEFT, WIDTH - _RIGHT)
    top = 22 if panel.title else 2
    bottom = top + len(marks) * _ROW + 2
    parts = [_text(_LEFT - 10, 14, _cut(panel.title), "end title")] if panel.title else []
    for tick in axis.ticks():
        x = axis.at(tick)
        parts.append(f'<path class="grid" d="M{x:.1f} {top}V{bottom}"/>')
        parts.append(_text(x, bottom + 14, _short(tick), "mid soft"))
    if panel.line is not None:
        parts.append(f'<path class="zero" d="M{axis.at(panel.line):.1f} {top}V{bottom}"/>')
    for i, mark in enumerate(marks):
        y, inner = top + (i + 0.5) * _ROW, [axis.at(end) for end in mark.inner]
        parts.append(
            f"<g>{_hover(mark)}{_text(_LEFT - 10, y + 4, _cut(mark.label), 'end')}"
            f'<path class="whisker" d="M{axis.at(mark.low):.1f} {y}H{axis.at(mark.high):.1f}"/>'
            f'<path class="privacy" d="M{inner[0]:.1f} {y}H{inner[1]:.1f}"/>'
            f'<circle class="dot" cx="{axis.at(mark.value):.1f}" cy="{y}" r="4.5"/></g>'
        )
        if mark.truth is not None:
            told = f"<title>truth: {number(mark.truth)}</title>"
            x = axis.at(mark.truth)
            parts.append(f'<path class="truth" d="M{x:.1f} {y - 12:g}V{y + 12:g}">{told}</path>')
    if panel.axis:
        parts.append(_text((_LEFT + WIDTH - _RIGHT) / 2, bottom + 32, panel.axis, "mid soft"))
    return _svg(bottom + (40 if panel.axis else 22), parts)


@draw.register
def _forest(panel: Forest) -> str:
    every = panel.every
    counted = [mark for mark, weight in zip(panel.marks, panel.weights, strict=True) if weight > 0]
    held = [*extent([*counted, *every[len(panel.marks) :]]), *([] if panel.line is None else [panel.line])]
    axis = around(held, _LEFT, WIDTH - _RIGHT)
    top = 22 if panel.title else 2
    gap = _ROW / 2 if panel.pooled else 0
    bottom = top + len(every) * _ROW + gap + 2
    parts = [_text(_LEFT - 10, 14, _cut(panel.title), "end title")] if panel.title else []
    for tick in axis.ticks():
        x = axis.at(tick)
        parts.append(f'<path class="grid" d="M{x:.1f} {top}V{bottom:g}"/>')
        parts.append(_text(x, bottom + 14, _short(tick), "mid soft"))
    if panel.line is not None:
        parts.append(f'<path class="zero" d="M{axis.at(panel.line):.1f} {top}V{bottom:g}"/>')
    for i, mark in enumerate(every):
        study = i < len(panel.marks)
        y = top + (i + 0.5) * _ROW + (0 if study else gap)
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
        parts.append(f"<g>{_hover(mark)}{_text(_LEFT - 10, y + 4, _cut(mark.label), 'end')}{shape}</g>")
    if panel.axis:
        parts.append(_text((_LEFT + WIDTH - _RIGHT) / 2, bottom + 32, panel.axis, "mid soft"))
    return _svg(bottom + (40 if panel.axis else 22), parts)


@draw.register
def _bars(panel: Bars) -> str:
    marks = panel.marks
    y = around(extent(marks), _PLOT_HEIGHT, 24, zero=True)
    step = (WIDTH - _UP - _RIGHT) / max(1, len(marks))
    parts = [_grid(y, panel.up)]
    longest = max((len(mark.label) for mark in marks), default=1)
    every = max(1, math.ceil(len(marks) / 16), math.ceil(longest * 7 / step))
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
    return _below(parts, panel.axis)


@draw.register
def _line(panel: Line) -> str:
    xs, marks, stop = panel.at, panel.marks, WIDTH - _RIGHT
    x = Axis(min(xs), max(xs), _UP, stop) if min(xs) < max(xs) else around(xs, _UP, stop)
    y = around(extent(marks), _PLOT_HEIGHT, 24) if panel.span is None else Axis(*panel.span, _PLOT_HEIGHT, 24)
    there = [(x.at(v), y.at(mark.low)) for v, mark in zip(xs, marks, strict=True)]
    back = [(x.at(v), y.at(mark.high)) for v, mark in zip(xs, marks, strict=True)]
    line = [(x.at(v), y.at(mark.value)) for v, mark in zip(xs, marks, strict=True)]
    parts = [_grid(y, panel.up), f'<path class="band" d="{_path(there + back[::-1])}Z"/>']
    if panel.diagonal:
        low, high = max(x.low, y.low), min(x.high, y.high)
        ends = [(x.at(end), y.at(end)) for end in (low, max(low, high))]
        parts.append(f'<path class="zero" d="{_path(ends)}"/>')
    parts.append(f'<path class="line" d="{_path(line)}"/>')
    parts += [
        f'<circle class="hover" cx="{px:.1f}" cy="{py:.1f}" r="5">{_hover(mark)}</circle>'
        for (px, py), mark in zip(line, marks, strict=True)
    ]
    parts += [_text(x.at(tick), _PLOT_HEIGHT + 16, _short(tick), "mid") for tick in x.ticks(8)]
    return _below(parts, panel.axis)


@draw.register
def _curves(panel: Curves) -> str:
    named = any(name for name, _ in (*panel.lines, *panel.below))
    left, stop = (_NAMED, WIDTH - 2.5 * _RIGHT) if named else (_UP, WIDTH - _RIGHT)
    x = Axis(min(panel.at), max(panel.at), left, stop)
    y = Axis(*panel.span, _PLOT_HEIGHT, 24)
    parts = [_grid(y, panel.up, left)]
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
    parts += [_text(x.at(tick), _PLOT_HEIGHT + 16, _short(tick), "mid") for tick in x.ticks(8)]
    if panel.axis:
        parts.append(_text((left + stop) / 2, _PLOT_HEIGHT + 36, panel.axis, "mid soft"))
    under = _PLOT_HEIGHT + (44 if panel.axis else 24)
    if panel.below_title:
        parts.append(_text(2, under + 14, panel.below_title, "soft"))
        under += 20
    for i, (name, cells) in enumerate(panel.below):
        parts.append(_text(2, under + 14, _cut(name, 16), f"title c{i % COLOURS}"))
        for value, cell in zip(panel.below_at, cells, strict=True):
            parts.append(_text(x.at(value), under + 14, cell, "mid"))
        under += 20
    return _svg(under + 4, parts)


def _stepped(points: list[tuple[float, float]], steps: bool) -> list[tuple[float, float]]:
    """Return the points of a line, or of a step function that stays until the next point."""
    if not steps:
        return points
    found = points[:1]
    for (_, before), (px, py) in itertools.pairwise(points):
        found += [(px, before), (px, py)]
    return found


@draw.register
def _heat_map(panel: HeatMap) -> str:
    most = max((abs(mark.value) for row in panel.marks for mark in row), default=1.0) or 1.0
    width = min(110.0, (WIDTH - _LEFT - _RIGHT) / max(1, len(panel.columns)))
    top = 38 if panel.axis else 22
    parts = [_text(_LEFT + 2, 14, panel.axis, "soft")] if panel.axis else []
    for j, name in enumerate(panel.columns):
        parts.append(_text(_LEFT + (j + 0.5) * width, top - 8, _cut(name, max(int(width / 7), 3)), "mid"))
    for i, (name, row) in enumerate(zip(panel.rows, panel.marks, strict=True)):
        y = top + i * 34
        parts.append(_text(_LEFT - 10, y + 20, _cut(name), "end"))
        for j, mark in enumerate(row):
            x, depth = _LEFT + j * width, abs(mark.value) / most
            style = "mid onDark" if depth > 0.6 else "mid"
            parts.append(
                f'<g>{_hover(mark)}<rect class="{"minus" if mark.value < 0 else "plus"}" x="{x + 1:.1f}" '
                f'y="{y}" width="{width - 2:.1f}" height="32" fill-opacity="{0.08 + 0.72 * depth:.2f}"/>'
                f"{_text(x + width / 2, y + 20, mark.number, style)}</g>"
            )
    return _svg(top + 2 + 34 * len(panel.rows), parts)


def _grid(y: Axis, name: str, left: float = _UP) -> str:
    lines = "".join(
        f'<path class="grid" d="M{left} {y.at(t):.1f}H{WIDTH - _RIGHT}"/>'
        f"{_text(left - 8, y.at(t) + 4, _short(t), 'end')}"
        for t in y.ticks()
    )
    return lines + (_text(left, 13, name, "soft") if name else "")


def _below(parts: list[str], axis: str) -> str:
    """Return a plot with the name of its axis below it."""
    if axis:
        parts.append(_text((_UP + WIDTH - _RIGHT) / 2, _PLOT_HEIGHT + 36, axis, "mid soft"))
    return _svg(_PLOT_HEIGHT + (44 if axis else 24), parts)


def _svg(height: float, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img">{"".join(parts)}</svg>'


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
