"""Which plot suits which analysis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cape.analyses import ECDF, ContingencyTable, Correlation, Histogram, Quantiles, TableOne
from cape.cli.report import svg
from cape.cli.results import Answered
from cape.release.query import Estimate
from cape.site import Schema

__all__ = ["figure"]

_MOST_DOTS = 40
_DOTS = (
    'Dots are released values, lines 95% intervals; <span class="key"></span> is the part of an interval '
    "that privacy noise alone would take."
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
    together = 1  # estimates share an axis if they have a unit in common
    if isinstance(analysis, Quantiles):
        together = len(analysis.probs)
    elif isinstance(analysis, (Correlation, ContingencyTable)):
        together = len(estimates)
    shown = estimates[:_MOST_DOTS]
    panels = [shown[i : i + together] for i in range(0, len(shown), together)]
    return _captioned("".join(svg.intervals(panel, [e.label for e in panel]) for panel in panels), _DOTS)


def _by_group(estimates: Sequence[Estimate]) -> str:
    """Return a panel for each mean and each percentage of a Table One, with the groups below each other."""
    panels: dict[str, dict[str, Estimate]] = {}
    for e in estimates:
        stem, _, group = e.label.partition(" | ")
        if stem.endswith((" mean", " %")):
            panels.setdefault(stem, {})[group or "everyone"] = e
    return "".join(svg.intervals(list(panel.values()), list(panel), stem) for stem, panel in panels.items())


def _captioned(drawing: str, caption: str) -> str:
    return f"<figure>{drawing}<figcaption>{caption}</figcaption></figure>"


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
