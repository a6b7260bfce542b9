"""The picture of the demo: what each scheme released, with its interval, and the truth."""

from __future__ import annotations

from html import escape
from pathlib import Path

from cape.cli.demo.hospitals import COLUMNS, GROUPS, Demo
from cape.cli.report import document
from cape.cli.report.svg import extent, intervals

__all__ = ["draw"]

_SCHEMES = ("cape", "conventional", "local")


def draw(done: Demo, path: Path) -> None:
    """Save the mean of each column in each group, by scheme, as one HTML file that needs nothing else."""
    title = (
        f"The same table by three schemes, once each, at epsilon = {done.budget.epsilon:g}: means with 95% "
        "intervals"
    )
    parts = [f"<header><h1>{escape(title)}</h1></header>", *map(_panel, [done] * len(COLUMNS), COLUMNS)]
    path.write_text(document("cape demo", parts), encoding="utf-8")


def _panel(done: Demo, name: str) -> str:
    rows = [(group, scheme) for group in GROUPS for scheme in _SCHEMES]
    labels = [f"{name} mean | diagnosis={group}" for group, _ in rows]
    estimates = [done.released[scheme][label] for (_, scheme), label in zip(rows, labels, strict=True)]
    truth = [done.truth[label].value for label in labels]
    plot = intervals(
        estimates,
        [f"{group}, {scheme}" for group, scheme in rows],
        ends=[*extent(estimates), *truth],
        truth=truth,
    )
    return (
        f'<section><h2>mean {escape(name)}</h2><figure><div class="plot">{plot}</div><figcaption>'
        'Dashed: the truth in all 569 rows. <span class="key"></span> of the interval, privacy noise.'
        "</figcaption></figure></section>"
    )
