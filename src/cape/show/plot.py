"""Figures by matplotlib (the extra `plot`), from the same data as on a page: for papers and slides."""

from __future__ import annotations

import io
from functools import singledispatch
from typing import Any

import numpy as np

from cape.core.errors import MissingExtra
from cape.show.figures import KEY, Bars, Curves, Forest, HeatMap, Intervals, Line, Mark, Panel
from cape.show.shown import Shown

__all__ = ["plot"]

_ROW = 0.34  # inches
_INK, _SOFT, _NOISE = "#0f6a73", "#5c6b7a", "#e08e2b"
_COLOURS = ("#0f6a73", "#b4532a", "#5b4a9c", "#3c7a2e", "#a3286f", "#7a6a12")


def plot(shown: Shown, ax: Any = None) -> Any:
    """Draw the figures of what is shown, one panel below the other, and return matplotlib's figure.

    With `ax`, draw the first panel there and return `ax`.
    """
    panels = [panel for figure in shown.figures() for panel in figure.panels]
    if not panels:
        raise ValueError("there is nothing to draw: it has no figure")
    if ax is not None:
        _draw(panels[0], ax)
        return ax
    heights = [_height(panel) for panel in panels]
    canvas = _canvas(sum(heights))
    axes = canvas.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for panel, each in zip(panels, axes, strict=True):
        _draw(panel, each)
    caption = next(iter(shown.figures())).caption.replace(KEY, "the thick part")
    canvas.supxlabel(caption, fontsize=7, color=_SOFT, wrap=True)
    return canvas


def _canvas(height: float) -> Any:
    """Return an empty figure that a notebook shows as a picture, whatever its backend."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("plot()", "plot") from None

    class Canvas(Figure):
        def _repr_png_(self) -> bytes:
            drawn = io.BytesIO()
            self.savefig(drawn, format="png", dpi=110)
            return drawn.getvalue()

    return Canvas(figsize=(7.2, height), layout="constrained")


def _height(panel: Panel) -> float:
    if isinstance(panel, Intervals):
        return 0.9 + _ROW * len(panel.marks)
    if isinstance(panel, Forest):
        return 0.9 + _ROW * len(panel.every)
    return 0.9 + _ROW * len(panel.rows) if isinstance(panel, HeatMap) else 3.4


@singledispatch
def _draw(panel: Panel, ax: Any) -> None:
    raise TypeError(f"{type(panel).__name__} is not a panel")


@_draw.register
def _intervals(panel: Intervals, ax: Any) -> None:
    if panel.log:
        ax.set_xscale("log")
    _dots(panel.marks, ax)
    for place, mark in enumerate(panel.marks):
        if mark.truth is not None:
            ax.plot([mark.truth] * 2, [place - 0.4, place + 0.4], color=_COLOURS[1], linestyle="--")
    if panel.ends is not None:
        ax.set_xlim(min(panel.ends), max(panel.ends))
    _axis(panel, ax)


@_draw.register
def _forest(panel: Forest, ax: Any) -> None:
    _dots(panel.every, ax, [60 * weight + 10 for weight in panel.weights])
    _axis(panel, ax)


def _dots(marks: tuple[Mark, ...], ax: Any, sizes: list[float] | None = None) -> None:
    """Draw marks below each other: intervals, the part of noise, values."""
    for place, mark in enumerate(marks):
        ends = [end for end in (mark.low, mark.high) if np.isfinite(end)]
        if len(ends) == 2:
            ax.plot(ends, [place] * 2, color="#1b2733", linewidth=1.2)
            ax.plot(mark.inner, [place] * 2, color=_NOISE, linewidth=4, alpha=0.7)
        size = sizes[place] if sizes is not None and place < len(sizes) else 36.0
        pooled = sizes is not None and place >= len(sizes)
        ax.scatter([mark.value], [place], s=size, color=_INK, marker="D" if pooled else "o", zorder=3)
    ax.set_yticks(range(len(marks)), [mark.label for mark in marks])
    ax.set_ylim(len(marks) - 0.5, -0.5)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)


def _axis(panel: Intervals | Forest, ax: Any) -> None:
    if panel.line is not None:
        ax.axvline(panel.line, color=_SOFT, linewidth=1)
    ax.set_title(panel.title, loc="left", fontsize=10)
    ax.set_xlabel(panel.axis)


@_draw.register
def _bars(panel: Bars, ax: Any) -> None:
    values = [max(mark.value, 0.0) for mark in panel.marks]
    places = range(len(values))
    ax.bar(places, values, color=_INK, alpha=0.75)
    for place, mark in enumerate(panel.marks):
        ax.plot([place] * 2, [mark.low, mark.high], color="#1b2733", linewidth=1)
    every = max(1, len(values) // 12)
    ax.set_xticks(places[::every], [mark.label for mark in panel.marks[::every]], rotation=30, ha="right")
    ax.set_xlabel(panel.axis)
    ax.set_ylabel(panel.up)


@_draw.register
def _line(panel: Line, ax: Any) -> None:
    _function(panel.at, panel.marks, ax, 0)
    if panel.diagonal:
        low, high = min(panel.at), max(panel.at)
        ax.plot([low, high], [low, high], color=_SOFT, linewidth=1)
    if panel.span is not None:
        ax.set_ylim(*panel.span)
    ax.set_xlabel(panel.axis)
    ax.set_ylabel(panel.up)


@_draw.register
def _curves(panel: Curves, ax: Any) -> None:
    for place, (name, marks) in enumerate(panel.lines):
        _function(panel.at, marks, ax, place, name, "post" if panel.steps else None)
    if any(name for name, _ in panel.lines):
        ax.legend(frameon=False)
    ax.set_ylim(*panel.span)
    ax.set_xlabel(panel.axis)
    ax.set_ylabel(panel.up)


def _function(
    at: tuple[float, ...],
    marks: tuple[Mark, ...],
    ax: Any,
    place: int,
    name: str = "",
    step: str | None = None,
) -> None:
    colour = _COLOURS[place % len(_COLOURS)]
    drawn = {"drawstyle": f"steps-{step}"} if step else {}
    ax.plot(at, [mark.value for mark in marks], color=colour, label=name, **drawn)
    lows, highs = [mark.low for mark in marks], [mark.high for mark in marks]
    ax.fill_between(at, lows, highs, color=colour, alpha=0.15, step=step, linewidth=0)


@_draw.register
def _heat_map(panel: HeatMap, ax: Any) -> None:
    values = np.array([[mark.value for mark in row] for row in panel.marks])
    most = np.nanmax(np.abs(values)) or 1.0
    ax.imshow(values, cmap="BrBG", vmin=-most, vmax=most, aspect="auto")
    for i, row in enumerate(panel.marks):
        for j, mark in enumerate(row):
            ax.text(j, i, mark.number, ha="center", va="center", fontsize=8)
    ax.set_xticks(range(len(panel.columns)), panel.columns, rotation=30, ha="right")
    ax.set_yticks(range(len(panel.rows)), panel.rows)
    ax.set_title(panel.axis, loc="left", fontsize=10)
