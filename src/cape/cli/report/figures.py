"""Which plot suits which analysis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cape.analyses import (
    ECDF,
    ContingencyTable,
    Covariance,
    Histogram,
    Mean,
    Quantiles,
    StandardDeviation,
    Sum,
    TableOne,
    Variance,
)
from cape.cli.report import svg
from cape.cli.results import Answered
from cape.release.query import Analysis, Estimate
from cape.site import Schema

__all__ = ["figure"]

_MOST_DOTS = 40
_DOTS = (
    'Dots are released values, lines 95% intervals; <span class="key"></span> is the part of an interval '
    "that privacy noise alone would take."
)
_TO_SCALE = (
    "Every number has an axis in its own unit; axes are equally long in proportion to the columns' bounds, "
    "so a longer line is a less precise number."
)
_BARS = "Released counts; lines are 95% intervals, from privacy noise."
_CURVE = "The share of people below each value; the band is the 95% interval at each point."
_CELLS = "Released values; hover over a cell for its interval."


def figure(answered: Answered) -> str:
    """Return the plot of an analysis with its caption."""
    analysis, estimates = answered.release.analysis, answered.release.estimates
    schema = answered.schema
    if isinstance(analysis, Histogram):
        return _captioned(svg.bars([_bin(analysis.column, e) for e in estimates], estimates), _BARS)
    if isinstance(analysis, ECDF):
        return _captioned(_curves(analysis, estimates, schema), _CURVE)
    if isinstance(analysis, ContingencyTable) and len(analysis.columns) == 2:
        rows, columns = (list(map(str, schema.category(name).values)) for name in analysis.columns)
        cells = [estimates[i * len(columns) : (i + 1) * len(columns)] for i in range(len(rows))]
        return _captioned(svg.matrix(rows, columns, cells), _CELLS)
    if isinstance(analysis, TableOne):
        return _captioned(_by_group(estimates), _DOTS)
    shown = estimates[:_MOST_DOTS]
    if isinstance(analysis, Quantiles):
        together = len(analysis.probs)
        panels = [shown[i : i + together] for i in range(0, len(shown), together)]
        return _captioned("".join(svg.intervals(panel, _labels(panel)) for panel in panels), _DOTS)
    units = _units(analysis, schema)
    if units is None or len(shown) == 1:
        return _captioned(svg.intervals(shown, _labels(shown)), _DOTS)
    return _captioned(_to_scale(shown, units), f"{_DOTS} {_TO_SCALE}")


def _units(analysis: Analysis, schema: Schema) -> list[float] | None:
    """Return for each estimate what half the width of its columns' bounds is in its unit.

    None if all are in the same unit: counts, correlations.
    """
    if isinstance(analysis, (Sum, Mean, StandardDeviation)):
        return [schema.number(name).half for name in analysis.columns]
    if isinstance(analysis, Variance):
        return [schema.number(name).half ** 2 for name in analysis.columns]
    if isinstance(analysis, Covariance):
        halves = [schema.number(name).half for name in analysis.columns]
        return [halves[i] * halves[j] for i, j in analysis.pairs]
    return None


def _to_scale(estimates: Sequence[Estimate], units: Sequence[float]) -> str:
    """Return a plot for each estimate, all axes equally long in units of the columns' bounds."""
    extents = [svg.extent([e]) for e in estimates]
    widest = max((max(e) - min(e)) / unit for e, unit in zip(extents, units, strict=False))
    drawn = []
    for e, ends, unit in zip(estimates, extents, units, strict=False):
        middle, reach = (min(ends) + max(ends)) / 2, widest * unit / 2
        drawn.append(svg.intervals([e], _labels([e]), ends=[middle - reach, middle + reach]))
    return "".join(drawn)


def _labels(estimates: Sequence[Estimate]) -> list[str]:
    return [e.label for e in estimates]


def _by_group(estimates: Sequence[Estimate]) -> str:
    """Return a panel for each mean and each percentage of a Table One, with the groups below each other."""
    panels: dict[str, dict[str, Estimate]] = {}
    for e in estimates:
        stem, _, group = e.label.partition(" | ")
        if stem.endswith((" mean", " %")):
            panels.setdefault(stem, {})[group or "everyone"] = e
    percent = svg.extent([e for stem, panel in panels.items() if stem.endswith(" %") for e in panel.values()])
    return "".join(
        svg.intervals(list(panel.values()), list(panel), stem, percent if stem.endswith(" %") else None)
        for stem, panel in panels.items()
    )


def _captioned(drawing: str, caption: str) -> str:
    return f'<figure><div class="plot">{drawing}</div><figcaption>{caption}</figcaption></figure>'


def _bin(column: str, estimate: Estimate) -> str:
    """Return the bin or category that a label of a histogram ends with."""
    return estimate.label.removeprefix(column).removeprefix(" in ").removeprefix("=")


def _curves(analysis: ECDF, estimates: Sequence[Estimate], schema: Schema) -> str:
    drawn, inner = [], analysis.bins - 1
    for i, name in enumerate(analysis.columns):
        column = schema.number(name)
        edges = np.linspace(column.low, column.high, analysis.bins + 1)[1:-1].tolist()
        drawn.append(svg.curve(edges, estimates[i * inner : (i + 1) * inner], name))
    return "".join(drawn)
