"""Which plot suits which analysis."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from cape.analyses import (
    ECDF,
    ContingencyTable,
    Covariance,
    Histogram,
    LinearRegression,
    LogisticRegression,
    Mean,
    PolynomialLoss,
    Quantiles,
    StandardDeviation,
    Sum,
    TableOne,
    Variance,
)
from cape.analyses.pca import PCAModel
from cape.cli.report import svg
from cape.cli.results import Answered
from cape.data import Number, Schema
from cape.engine.query import Analysis, Estimate
from cape.learning.clusters import KMeansModel
from cape.learning.neural_network import NetworkModel

__all__ = ["figure"]

_MOST_DOTS = 40
_MOST_COLUMNS = 8
_MOST_PANELS = 12
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
_SHARES = "The share of all variance that lies along each component."
_LOADINGS = (
    "What a component is made of: the weight of each column, from -1 to 1, as released. No errors are known."
)
_LOSS = (
    "The mean loss as it was released in each step, before that step was taken; the band is its 95% interval."
)


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
    if isinstance(analysis, (LinearRegression, LogisticRegression, PolynomialLoss)):
        return _coefficients(analysis, estimates, schema)
    model = answered.release.model
    if isinstance(model, PCAModel):
        return _components(model, estimates)
    if isinstance(model, KMeansModel):
        return _captioned(_clusters(model, estimates), _DOTS)
    if isinstance(model, NetworkModel):
        return _losses(model, estimates)
    shown = estimates[:_MOST_DOTS]
    if not shown:
        return ""
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


def _coefficients(
    analysis: LinearRegression | LogisticRegression | PolynomialLoss,
    estimates: Sequence[Estimate],
    schema: Schema,
) -> str:
    """Return coefficients around 0 on one axis, each for a change that bounds make comparable."""
    drawn = []
    for e in [e for e in estimates if e.label != "intercept"][:_MOST_DOTS]:
        column = schema[e.label] if e.label in analysis.features else None
        if isinstance(column, Number):
            drawn.append(_times(e, column.half, f"{e.label} + {column.half:g}"))
        else:
            drawn.append(e)
    if not drawn:
        return ""
    what = {
        LogisticRegression: f"log-odds of {analysis.target}",
        LinearRegression: analysis.target,
    }.get(type(analysis), "the score")
    told = (
        f"Change of {escape(what)}: for half the width of a number's bounds, for a category against "
        "the first one. "
        f"An interval without 0 tells the effect from none. {_DOTS}"
    )
    return _captioned(svg.intervals(drawn, _labels(drawn), zero=True), told)


def _times(e: Estimate, unit: float, label: str) -> Estimate:
    """Return an estimate for `unit` of what it is for one of."""

    def ends(level: float) -> tuple[float, float]:
        low, high = e.interval(level)
        return low * unit, high * unit

    return Estimate(label, e.value * unit, e.sampling * unit, e.privacy * unit, at=ends)


def _components(model: PCAModel, estimates: Sequence[Estimate]) -> str:
    """Return the share of each component, and what it is made of."""
    shares = [e for e in estimates if e.label.endswith(" share")][:_MOST_DOTS]
    names = [
        e.label.removesuffix(" share") + ("" if clear else " (noise)")
        for e, clear in zip(shares, model.clear, strict=False)
    ]
    held = svg.intervals(shares, names, ends=[0.0, *svg.extent(shares)])
    told = _captioned(held, f"{_SHARES} {_DOTS}")
    if len(names) > _MOST_COLUMNS:
        return told
    cells = [
        [
            Estimate(f"{name} in component {i + 1}", float(row[j]), 0.0, 0.0)
            for i, row in enumerate(model.components)
        ]
        for j, name in enumerate(model.names)
    ]
    top = [f"{i + 1}" if clear else f"{i + 1} (noise)" for i, clear in enumerate(model.clear)]
    return told + _captioned(svg.matrix(model.names, top, cells), _LOADINGS)


def _clusters(model: KMeansModel, estimates: Sequence[Estimate]) -> str:
    """Return a panel for the sizes and one for each column, with the clusters below each other."""
    panels: dict[str, list[Estimate]] = {}
    for e in estimates:
        panels.setdefault(e.label.partition(": ")[2], []).append(e)
    labels = [f"cluster {i + 1}" + ("" if seen else " (hidden)") for i, seen in enumerate(model.clear)]
    return "".join(
        svg.intervals(panel[:_MOST_DOTS], labels[:_MOST_DOTS], title)
        for title, panel in list(panels.items())[:_MOST_PANELS]
    )


def _losses(model: NetworkModel, estimates: Sequence[Estimate]) -> str:
    """Return the learning curve, if losses were watched."""
    if not estimates or not len(model.history):
        return ""
    noise = model.history[:, 3] / model.history[:, 1]
    noise = noise * (estimates[0].privacy / noise[-1] if noise[-1] else 0.0)
    drawn = [
        Estimate(f"loss at step {i + 1}", float(loss), 0.0, float(error), estimates[0].within)
        for i, (loss, error) in enumerate(zip(model.history[:, 0], noise, strict=True))
    ]
    steps = [float(i + 1) for i in range(len(drawn))]
    return _captioned(svg.curve(steps, drawn, "mean loss by step", None), _LOSS)


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
