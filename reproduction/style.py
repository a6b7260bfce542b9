"""How pictures look: a colour for each scheme everywhere, curves with their spread, files that repeat."""

from __future__ import annotations

import io
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D

from cape.core.errors import InvalidInput
from reproduction.figure import Row
from reproduction.reference import Point

__all__ = ["COLOURS", "INK", "MUTED", "band", "legend", "markers", "new", "over_runs", "save", "tidy"]

INK, MUTED = "#1b2733", "#6b7683"
COLOURS: Mapping[str, str] = {
    "cape": "#0f6a73",  # ring masks: the product's own scheme
    "cape-gaussian": "#2a9fb0",  # the paper's algorithm
    "conventional": "#c2542d",
    "local": "#8a94a0",
    "dp-fm": "#8d6bb5",
    "objective-perturbation": "#b0892c",
    "none": INK,
    "pooled": "#5b8c3a",
    "printed": "#d9a520",
}


def new(
    rows: int, columns: int, size: tuple[float, float], title: str = ""
) -> tuple[Picture, list[list[Axes]]]:
    """Return a picture with a grid of axes."""
    picture = Picture(figsize=size, layout="constrained")
    FigureCanvasAgg(picture)
    grid = picture.subplots(rows, columns, squeeze=False)
    if title:
        picture.suptitle(title, color=INK, fontsize=12)
    return picture, [list(line) for line in grid]


def tidy(axes: Axes, title: str, x: str, y: str) -> None:
    """Give axes their words, a light grid and no box."""
    axes.set_title(title, fontsize=10, color=INK)
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK)
    axes.grid(visible=True, which="major", color="#e3e7eb", lw=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK)


def legend(picture: Picture, axes: Axes, columns: int, authors: bool = False) -> None:
    """Put one legend below all panels, from the handles of one of them; `authors` names the rings too."""
    handles, labels = axes.get_legend_handles_labels()
    if authors:
        handles.append(Line2D([], [], ls="", marker="o", mfc="none", mec=INK, ms=6, alpha=0.6))
        labels.append("the authors' values")
    picture.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def over_runs(
    rows: Sequence[Row], x: str, y: str, keep: Callable[[Row], bool] = lambda row: True
) -> list[Point]:
    """Return the mean and the spread of `y` over all rows of the same `x`: one row for each run."""
    groups: dict[float, list[float]] = {}
    for row in rows:
        place, value = row[x], row[y]
        if keep(row) and isinstance(place, (int, float)) and isinstance(value, (int, float)):
            groups.setdefault(float(place), []).append(float(value))
    return [
        Point(
            place, statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0, len(values)
        )
        for place, values in sorted(groups.items())
    ]


def band(
    axes: Axes, points: Sequence[Point], colour: str, label: str, by_factor: bool = False, **line: Any
) -> None:
    """Draw means as a line, and one standard deviation over runs as a light band around it.

    `by_factor` is for a logarithmic axis: if the upper edge is k times the mean, the lower one is 1/k of it.
    """
    x = [point.x for point in points]
    axes.plot(x, [point.mean for point in points], color=colour, label=label, **{"lw": 1.8, **line})
    if any(point.std > 0 for point in points):
        high = [point.mean + point.std for point in points]
        low = [2 * point.mean - top for point, top in zip(points, high, strict=True)]
        if by_factor:
            low = [p.mean**2 / top if p.mean > 0 else p.mean for p, top in zip(points, high, strict=True)]
        axes.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)


def markers(axes: Axes, points: Sequence[Point], colour: str) -> None:
    """Draw the authors' values as light rings."""
    x, y = [point.x for point in points], [point.mean for point in points]
    axes.plot(x, y, "o", mfc="none", mec=colour, ms=6, alpha=0.45, zorder=1)


def save(picture: Picture, path: Path) -> list[Path]:
    """Save a picture as PNG and SVG; the same picture gives the same bytes."""
    files = [path.with_name(f"{path.name}{ending}") for ending in (".png", ".svg")]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with mpl.rc_context({"svg.hashsalt": "cape", "svg.fonttype": "path"}):
            picture.savefig(files[0], dpi=140)
            drawn = io.StringIO()
            picture.savefig(drawn, format="svg", metadata={"Date": None})
        lines = [line.rstrip() for line in drawn.getvalue().splitlines()]
        files[1].write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"--out: {path.parent} cannot be written: {error.strerror}") from None
    return files
