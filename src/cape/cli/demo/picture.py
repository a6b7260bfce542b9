"""The picture of the demo: what each scheme released, with its interval, and the truth."""

from __future__ import annotations

from html import escape
from pathlib import Path

from cape.cli.demo.hospitals import COLUMNS, GROUPS, Demo
from cape.show import Figure, Intervals, Mark
from cape.show.figures import KEY
from cape.show.html import document, figure

__all__ = ["draw"]

_SCHEMES = ("cape", "conventional", "local")


def draw(done: Demo, path: Path) -> None:
    """Save the mean of each column in each group, by scheme, as one self-contained HTML file."""
    title = (
        f"The same table by three schemes, once each, at epsilon = {done.budget.epsilon:g}: means with 95% "
        "intervals"
    )
    parts = [f"<header><h1>{escape(title)}</h1></header>", *(_panel(done, name) for name in COLUMNS)]
    path.write_text(document("cape demo", parts), encoding="utf-8")


def _panel(done: Demo, name: str) -> str:
    marks = []
    for group in GROUPS:
        label = f"{name} mean | diagnosis={group}"
        for scheme in _SCHEMES:
            e, truth = done.released[scheme][label], done.truth[label].value
            marks.append(Mark.of(e, f"{group}, {scheme}", truth))
    caption = f"Dashed lines: the truth in all 569 rows. {KEY} marks the part that comes from privacy noise."
    drawn = figure(Figure((Intervals(tuple(marks)),), caption))
    return f"<section><h2>mean {escape(name)}</h2>{drawn}</section>"
