"""Pictures of what was spent: bars against an allowance, and the running total over time. Inline SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from markupsafe import Markup, escape

from cape.show.svg import NARROW, WIDE, Axis, Sheet

__all__ = ["chain", "meter", "running"]

_WIDTH, _HEIGHT = 600.0, 22.0
_LEFT, _TOP, _BOTTOM, _BELOW = 46.0, 20.0, 180.0, 24.0


def meter(spent: float, after: float, most: float, about: str) -> Markup:
    """Return a bar: what was spent, what a study would add, and the room that is left."""
    whole = max(most, min(after, 2 * most)) or 1.0  # infinite where delta is too small

    def part(name: str, low: float, high: float) -> Markup:
        start, stop = (min(max(end, 0.0), whole) / whole * _WIDTH for end in (low, high))
        if stop - start <= 0:
            return Markup("")
        return Markup('<rect class="{}" x="{:.1f}" y="0" width="{:.1f}" height="{:g}"/>').format(
            name, start, max(stop - start, 1.5), _HEIGHT
        )

    return Markup(
        '<svg class="meter" viewBox="0 0 {w:g} {h:g}" role="img" aria-label="{about}">{parts}</svg>'
    ).format(
        w=_WIDTH,
        h=_HEIGHT,
        about=about,
        parts=part("room", 0.0, whole)
        + part("had", 0.0, spent)
        + part("adds", spent, min(after, most))
        + part("over", max(spent, most), after)
        + (_limit(most / whole * _WIDTH) if after > most else Markup("")),
    )


def _limit(x: float) -> Markup:
    return Markup('<path class="limit" d="M{:.1f} 0V{:g}"/>').format(x, _HEIGHT)


def chain(lines: int, broken: int | None) -> Markup:
    """Return the ledger as a strip of lines, from the first to the last, with a red line where it breaks."""
    if broken is None:
        about, parts = f"All {lines:,} lines fit together", '<rect class="sound" x="0" y="6" {}/>'
        return _strip(about, Markup(parts).format(Markup(f'width="{_WIDTH:g}" height="10"')))
    place = _WIDTH * min(max(broken - 1, 0) / max(lines, 1), 0.995)
    return _strip(
        f"The ledger breaks at line {broken:,} of {lines:,}",
        Markup(
            f'<rect class="sound" x="0" y="6" width="{place:.1f}" height="10"/>'
            f'<rect class="room" x="{place:.1f}" y="6" width="{_WIDTH - place:.1f}" height="10"/>'
            f'<path class="break" d="M{max(place, 2.0):.1f} 0V{_HEIGHT:g}"/>'
        ),
    )


def _strip(about: str, parts: Markup) -> Markup:
    return Markup('<svg class="meter" viewBox="0 0 {:g} {:g}" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH, _HEIGHT, about, parts
    )


def running(points: Sequence[tuple[datetime, float]], most: float, name: str, about: str) -> Markup:
    """Return the running total as a step curve below the line of the allowance, for wide and narrow pages."""
    if not points:
        return Markup("")
    return _curve(points, most, name, about, WIDE) + _curve(points, most, name, about, NARROW)


@dataclass(frozen=True)
class _Scales:
    x: Axis
    y: Axis

    def at(self, when: datetime, value: float) -> str:
        return f"{self.x.at(when.timestamp()):.1f} {self.y.at(value):.1f}"


def _curve(
    points: Sequence[tuple[datetime, float]], most: float, name: str, about: str, sheet: Sheet
) -> Markup:
    first, last = points[0][0], max(points[-1][0], datetime.now(UTC))
    if last - first < timedelta(minutes=1):
        first = last - timedelta(minutes=1)
    finite = [value for _, value in points if math.isfinite(value)]
    highest = max([most, *finite]) * 1.08 or 1.0
    stop = sheet.width - 12
    scales = _Scales(
        Axis(first.timestamp(), last.timestamp(), _LEFT, stop), Axis(0.0, highest, _BOTTOM, _TOP)
    )
    path = [f"M{scales.at(points[0][0], 0.0)}"]
    for when, value in points:
        path.append(f"H{scales.x.at(when.timestamp()):.1f}V{scales.y.at(value):.1f}")
    path.append(f"H{stop:.1f}")
    line = "".join(path)
    area = f"{line}V{_BOTTOM:g}H{scales.x.at(points[0][0].timestamp()):.1f}Z"
    parts = [
        *(
            f'<path class="grid" d="M{_LEFT:g} {scales.y.at(tick):.1f}H{stop:g}"/>'
            f'<text x="{_LEFT - 7:g}" y="{scales.y.at(tick) + 4:.1f}" class="end">{tick:g}</text>'
            for tick in scales.y.ticks(4)
        ),
        f'<path class="band" d="{area}"/><path class="line" d="{line}"/>',
        f'<path class="limit" d="M{_LEFT:g} {scales.y.at(most):.1f}H{stop:g}"/>',
        f'<text x="{stop:g}" y="{scales.y.at(most) - 5:.1f}" class="end">{escape(name)}</text>',
        *(
            f'<text x="{x:.1f}" y="{_BOTTOM + 18:g}" class="{side}">{when}</text>'
            for x, side, when in _dates(first, last, scales.x, sheet)
        ),
    ]
    return Markup(
        f'<svg class="{sheet.name}" viewBox="0 0 {sheet.width:g} {_BOTTOM + _BELOW:g}" role="img" '
        f'aria-label="{escape(about)}">{"".join(parts)}</svg>'
    )


def _dates(first: datetime, last: datetime, x: Axis, sheet: Sheet) -> list[tuple[float, str, str]]:
    """Return where dates stand below the axis: at both ends, and in between where there is room."""
    span = last - first
    form = "%Y-%m-%d" if span > timedelta(days=2) else "%H:%M" if span > timedelta(minutes=10) else "%H:%M:%S"
    count = sheet.ticks if sheet.ticks % 2 else sheet.ticks - 1
    found = []
    for place in range(count):
        when = first + (last - first) * place / (count - 1)
        side = "" if place == 0 else "end" if place == count - 1 else "mid"
        found.append((x.at(when.timestamp()), side, when.strftime(form)))
    return found
