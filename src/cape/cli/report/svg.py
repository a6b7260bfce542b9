"""Plots as inline SVG: plain shapes whose colours come from the page's style, with titles to hover over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from cape.engine.query import Estimate
from cape.engine.result import number

__all__ = ["Axis", "bars", "curve", "extent", "intervals", "matrix"]

WIDTH = 720
_LEFT = 215  # for the labels of rows
_RIGHT = 20
_ROW = 26
_PLOT_HEIGHT = 220
_LEVEL = 0.95


@dataclass(frozen=True)
class Axis:
    """A line from `low` to `high` in units of the data, drawn from `start` to `stop` on the picture."""

    low: float
    high: float
    start: float
    stop: float

    def at(self, value: float) -> float:
        """Return the place of a value, at the nearer end if it lies outside."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        """Return round numbers on the axis."""
        step = _round_step((self.high - self.low) / about)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [place * step for place in range(first, last + 1)]


def around(ends: Sequence[float], start: float, stop: float, *, zero: bool = False) -> Axis:
    """Return an axis with a little room around the finite ones of these values."""
    finite = [value for value in ends if math.isfinite(value)] + ([0.0] if zero else [])
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    room = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    return Axis(low if zero and low == 0 else low - room, high + room, start, stop)


def extent(estimates: Sequence[Estimate]) -> list[float]:
    """Return the finite ones of the values and ends of intervals: what an axis has to hold."""
    ends = [end for e in estimates for end in (e.value, *e.interval(_LEVEL))]
    return [end for end in ends if math.isfinite(end)]


def intervals(
    estimates: Sequence[Estimate],
    labels: Sequence[str],
    title: str = "",
    ends: Sequence[float] | None = None,
    *,
    zero: bool = False,
    truth: Sequence[float] = (),
) -> str:
    """Draw estimates as dots with intervals on one axis, under a title if they have one in common.

    `ends` are values that the axis holds, if not just these: for an axis that several plots share. With
    `zero` it holds 0, where a line is drawn. `truth`, where it is known, is one value a row.
    """
    held = list(extent(estimates) if ends is None else ends) + ([0.0] if zero else [])
    axis = around(held, _LEFT, WIDTH - _RIGHT)
    top = 22 if title else 2
    bottom = top + len(estimates) * _ROW + 2
    parts = [f'<text x="{_LEFT - 10}" y="14" class="end title">{escape(_cut(title))}</text>'] if title else []
    for tick in axis.ticks():
        x = axis.at(tick)
        parts.append(f'<path class="grid" d="M{x:.1f} {top}V{bottom}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 14}" class="mid soft">{_short(tick)}</text>')
    if zero:
        parts.append(f'<path class="zero" d="M{axis.at(0.0):.1f} {top}V{bottom}"/>')
    for i, (label, e) in enumerate(zip(labels, estimates, strict=True)):
        y, (low, high) = top + (i + 0.5) * _ROW, e.interval(_LEVEL)
        half = min(e.privacy / e.standard_error, 1.0) if e.standard_error else 0.0
        inner = axis.at(e.value - half * (e.value - low)), axis.at(e.value + half * (high - e.value))
        parts.append(
            f'<g><title>{_say(e)}</title><text x="{_LEFT - 10}" y="{y + 4}" class="end">'
            f"{escape(_cut(label))}</text>"
            f'<path class="whisker" d="M{axis.at(low):.1f} {y}H{axis.at(high):.1f}"/>'
            f'<path class="privacy" d="M{inner[0]:.1f} {y}H{inner[1]:.1f}"/>'
            f'<circle class="dot" cx="{axis.at(e.value):.1f}" cy="{y}" r="4.5"/></g>'
        )
    for i, value in enumerate(truth):
        x, y = axis.at(value), top + (i + 0.5) * _ROW
        told = f"<title>truth: {number(value)}</title>"
        parts.append(f'<path class="truth" d="M{x:.1f} {y - 12:g}V{y + 12:g}">{told}</path>')
    return _svg(bottom + 22, parts)


def bars(labels: Sequence[str], estimates: Sequence[Estimate]) -> str:
    """Draw counts as columns with intervals."""
    ends = [end for e in estimates for end in e.interval(_LEVEL)]
    y = around([e.value for e in estimates] + ends, _PLOT_HEIGHT, 10, zero=True)
    left, step = 56.0, (WIDTH - 56.0 - _RIGHT) / max(1, len(estimates))
    parts = [_grid(y, left)]
    every = max(1, math.ceil(len(labels) / 16), math.ceil(max(map(len, labels), default=1) * 7 / step))
    for i, (label, e) in enumerate(zip(labels, estimates, strict=True)):
        x, (low, high) = left + i * step, e.interval(_LEVEL)
        middle, top, base = x + step / 2, y.at(max(e.value, 0.0)), y.at(0.0)
        parts.append(
            f'<g><title>{_say(e)}</title><rect class="bar" x="{x + step * 0.08:.1f}" y="{top:.1f}" '
            f'width="{step * 0.84:.1f}" height="{max(base - top, 0):.1f}"/>'
            f'<path class="whisker" d="M{middle:.1f} {y.at(low):.1f}V{y.at(high):.1f}"/></g>'
        )
        if i % every == 0:
            parts.append(f'<text x="{middle:.1f}" y="{_PLOT_HEIGHT + 16}" class="mid">{escape(label)}</text>')
    return _svg(_PLOT_HEIGHT + 24, parts)


def curve(
    xs: Sequence[float],
    estimates: Sequence[Estimate],
    title: str,
    span: tuple[float, float] | None = (0.0, 1.0),
) -> str:
    """Draw a function with a band: from 0 to 1, or (`span` None) as high as it reaches."""
    x = Axis(min(xs), max(xs), 56, WIDTH - _RIGHT) if min(xs) < max(xs) else around(xs, 56, WIDTH - _RIGHT)
    y = around(extent(estimates), _PLOT_HEIGHT, 10) if span is None else Axis(*span, _PLOT_HEIGHT, 10)
    ends = [e.interval(_LEVEL) for e in estimates]
    there = [(x.at(v), y.at(low)) for v, (low, _) in zip(xs, ends, strict=True)]
    back = [(x.at(v), y.at(high)) for v, (_, high) in zip(xs, ends, strict=True)]
    line = [(x.at(v), y.at(e.value)) for v, e in zip(xs, estimates, strict=True)]
    parts = [_grid(y, 56.0), f'<path class="band" d="{_path(there + back[::-1])}Z"/>']
    parts.append(f'<path class="line" d="{_path(line)}"/>')
    parts.append(
        f'<text x="66" y="24" class="title">{escape(_cut(title))}</text>'
        if span is not None
        else f'<text x="{WIDTH - _RIGHT - 6}" y="24" class="end title">{escape(_cut(title))}</text>'
    )
    parts += [
        f'<circle class="hover" cx="{px:.1f}" cy="{py:.1f}" r="5"><title>{_say(e)}</title></circle>'
        for (px, py), e in zip(line, estimates, strict=True)
    ]
    parts += [
        f'<text x="{x.at(tick):.1f}" y="{_PLOT_HEIGHT + 16}" class="mid">{_short(tick)}</text>'
        for tick in x.ticks(8)
    ]
    return _svg(_PLOT_HEIGHT + 24, parts)


def matrix(
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[Estimate]],
) -> str:
    """Draw a table of numbers, deeper where they are larger; orange below zero."""
    most = max((abs(e.value) for row in cells for e in row), default=1.0) or 1.0
    width = min(110.0, (WIDTH - _LEFT - _RIGHT) / max(1, len(columns)))
    parts = [
        f'<text x="{_LEFT + (j + 0.5) * width:.1f}" y="14" class="mid">{escape(name)}</text>'
        for j, name in enumerate(columns)
    ]
    for i, (name, row) in enumerate(zip(rows, cells, strict=True)):
        y = 22 + i * 34
        parts.append(f'<text x="{_LEFT - 10}" y="{y + 20}" class="end">{escape(name)}</text>')
        for j, e in enumerate(row):
            x, depth = _LEFT + j * width, abs(e.value) / most
            parts.append(
                f'<g><title>{_say(e)}</title><rect class="{"minus" if e.value < 0 else "plus"}" '
                f'x="{x + 1:.1f}" y="{y}" width="{width - 2:.1f}" height="32" '
                f'fill-opacity="{0.08 + 0.72 * depth:.2f}"/><text x="{x + width / 2:.1f}" y="{y + 20}" '
                f'class="mid{" onDark" if depth > 0.6 else ""}">{number(e.value)}</text></g>'
            )
    return _svg(24 + 34 * len(rows), parts)


def _grid(y: Axis, left: float) -> str:
    return "".join(
        f'<path class="grid" d="M{left} {y.at(t):.1f}H{WIDTH - _RIGHT}"/>'
        f'<text x="{left - 8}" y="{y.at(t) + 4:.1f}" class="end">{_short(t)}</text>'
        for t in y.ticks()
    )


def _svg(height: float, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img">{"".join(parts)}</svg>'


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _say(e: Estimate) -> str:
    low, high = e.interval(_LEVEL)
    if low == high:
        return escape(f"{e.label}: {number(e.value)}")
    return escape(f"{e.label}: {number(e.value)} ({_LEVEL:.0%} interval {number(low)} to {number(high)})")


def _cut(label: str, most: int = 28) -> str:
    return label if len(label) <= most else f"{label[: most - 1]}…"


def _short(value: float) -> str:
    return f"{value:,.10g}" if abs(value) < 1e15 else f"{value:.3g}"


def _round_step(step: float) -> float:
    size = 10.0 ** math.floor(math.log10(step))
    return next(size * times for times in (1, 2, 5, 10) if size * times >= step * 0.999)
