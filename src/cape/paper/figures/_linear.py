"""Panels of Figures 3, 4 and 7: which settings are varied, how curves are drawn, what is counted."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cape.paper import style
from cape.paper.figure import Claim, Row
from cape.paper.reference import Point, Reference
from cape.paper.regression import Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

__all__ = [
    "AUTHORS",
    "FAST_RUNS",
    "LABELS",
    "RUNS",
    "SCALES",
    "at_least",
    "crime",
    "draw",
    "mean",
    "of",
    "ordered",
    "synthetic",
    "truth",
    "twitter",
    "unit_rows",
    "within_two",
]

RUNS, FAST_RUNS = 10, 3
_EPSILONS = (1e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1.0, 5.0, 10.0)
_DELTAS = (1e-6, 5e-6, 1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2)
_SAMPLES = (500, 1000, 2000, 5000, 10_000, 20_000, 30_000)
_FAST_EPSILONS = (0.01, 0.5, 1.0, 5.0, 10.0)

LABELS = {
    "cape-gaussian": "capeFM",
    "conventional": "conv",
    "local": "local (one site)",
    "dp-fm": "dp-fm, Δ = 2(D+1)²/N",
    "dp-fm-tight": "dp-fm, Δ = 2(1+√D)²/N",
    "objective-perturbation": "objective perturbation",
    "output-perturbation-published": "output perturbation (published “objPert”)",
    "cape": "CAPE's own regression, at true (ε, δ)",
    "none": "non-private",
    "zero": "predict 0",
}
AUTHORS = {"cape-gaussian": "cape", "conventional": "conv", "local": "local", "dp-fm": "exst"}
_LOOKS = {
    "dp-fm-tight": ("dp-fm", "--"),
    "output-perturbation-published": ("objective-perturbation", "--"),
    "none": ("none", ":"),
}
SCALES = {"synthetic": "the longest row has length 1", "unit-rows": "every row has length 1"}
"""The two ways to scale made-up rows: as the paper says, and as its values suggest."""
_X = {"epsilon": "ε", "samples": "N", "delta": "δ"}
_Y = {
    "loss": "true loss f(w) on the data",
    "noisy_objective": "|mean noisy objective at its minimiser|",
    "err_w": "err$_w$ = |w - w*| / D",
}
_TITLES = {"synthetic": "synthetic", "unit-rows": "unit rows", "crime": "Crime", "twitter": "Twitter"}


def synthetic(width: int, rows: int, epsilon: float, delta_epsilon: float) -> tuple[Sweep, Sweep, Sweep]:
    """Return the three sweeps on made-up data: over epsilon at N, over N at epsilon, over delta."""
    stem = f"synth_D_{width}"
    return (
        Sweep(
            "synthetic",
            width,
            "epsilon",
            _EPSILONS,
            _FAST_EPSILONS,
            f"results_vs_epsilon_{stem}_N_{rows}",
            rows,
            delta=1e-5,
        ),
        Sweep(
            "synthetic",
            width,
            "samples",
            _SAMPLES,
            (1000, 5000, 30_000),
            f"results_vs_samples_{stem}_eps_{_dashed(epsilon)}",
            epsilon=epsilon,
            delta=1e-5,
        ),
        Sweep(
            "synthetic",
            width,
            "delta",
            _DELTAS,
            (1e-6, 1e-4, 1e-2),
            f"results_vs_delta_{stem}_N_{rows}_eps_{_dashed(delta_epsilon)}",
            rows,
            epsilon=delta_epsilon,
        ),
    )


def unit_rows(sweeps: Sequence[Sweep]) -> tuple[Sweep, ...]:
    """Return the sweeps over data whose rows all have length 1."""
    return tuple(
        replace(sweep, data="unit-rows", reference=f"{sweep.reference}/unit-rows") for sweep in sweeps
    )


def crime() -> tuple[Sweep, Sweep, Sweep]:
    """Return the three sweeps on Crime."""
    stem, samples = "crime_D_101", tuple(range(200, 1801, 200))
    return (
        Sweep("crime", 101, "epsilon", _EPSILONS, _FAST_EPSILONS, f"results_vs_epsilon_{stem}_N_1600", 1600, delta=1e-3),  # noqa: E501
        Sweep("crime", 101, "samples", samples, (200, 1000, 1800), f"results_vs_samples_{stem}_eps_0_2", epsilon=0.2, delta=1e-3),  # noqa: E501
        Sweep("crime", 101, "delta", _DELTAS[2:], (1e-5, 1e-2), f"results_vs_delta_{stem}_N_800", 800, epsilon=0.5),  # noqa: E501
    )  # fmt: skip


def twitter() -> tuple[Sweep, Sweep, Sweep]:
    """Return the three sweeps on Twitter."""
    stem = "twitter_D_77"
    return (
        Sweep("twitter", 77, "epsilon", _EPSILONS, _FAST_EPSILONS, f"results_vs_epsilon_{stem}_N_20000", 20_000, delta=1e-3),  # noqa: E501
        Sweep("twitter", 77, "samples", _SAMPLES[:-1], (1000, 5000, 20_000), f"results_vs_samples_{stem}_eps_1", epsilon=1.0, delta=1e-3),  # noqa: E501
        Sweep("twitter", 77, "delta", _DELTAS[2:], (1e-5, 1e-2), f"results_vs_delta_{stem}_N_20000", 20_000, epsilon=2.0),  # noqa: E501
    )  # fmt: skip


def of(rows: Sequence[Row], sweep: Sweep, calibration: str, algorithm: str) -> list[Row]:
    """Return the rows of one curve."""
    return [
        row
        for row in rows
        if row["sweep"] == sweep.reference
        and row["algorithm"] == algorithm
        and row["calibration"] in (calibration, "both")
    ]


def mean(
    rows: Sequence[Row], sweep: Sweep, calibration: str, algorithm: str, metric: str
) -> dict[float, float]:
    """Return the means over runs by place."""
    curve = of(rows, sweep, calibration, algorithm)
    return {point.x: point.mean for point in style.over_runs(curve, "x", metric)}


def draw(
    title: str,
    columns: Sequence[tuple[Sequence[Sweep], str]],
    rows: Sequence[Row],
    calibration: str,
    reference: Reference | None,
) -> Picture:
    """Return a picture with a column for each (sweeps, metric) and a row for each variable."""
    height = len(columns[0][0])
    picture, grid = style.new(height, len(columns), (4.4 * len(columns), 3.3 * height + 1.2), title)
    for column, (sweeps, metric) in enumerate(columns):
        for line, sweep in enumerate(sweeps):
            _panel(grid[line][column], sweep, metric, rows, calibration, reference)
    style.legend(picture, grid[0][0], 4)
    return picture


def _panel(
    axes: Axes, sweep: Sweep, metric: str, rows: Sequence[Row], calibration: str, reference: Reference | None
) -> None:
    low, high = math.inf, 0.0
    for algorithm, label in LABELS.items():
        points = _points(rows, sweep, calibration, algorithm, metric)
        colour, dashes = _LOOKS.get(algorithm, (algorithm, "-"))
        paint = style.COLOURS.get(colour, style.MUTED)
        if algorithm == "zero":
            dashes = (0, (1, 1))  # type: ignore[assignment]
        style.band(axes, points, paint, label, ls=dashes, marker="o", ms=3)
        if reference is not None and calibration == "published":
            style.markers(axes, _authors(reference, sweep, algorithm, metric), paint)
        if algorithm in (*AUTHORS, "cape", "zero"):
            sizes = [point.mean for point in points if point.mean > 0]
            low, high = min([low, *sizes]), max([high, *sizes])
    axes.set_xscale("linear" if max(sweep.values) < 20 * min(sweep.values) else "log")
    axes.set_yscale("log")
    if high > 0:  # what lies far outside is not shown: non-private on exact data, output perturbation
        axes.set_ylim(low / 4, high * 4)
    style.tidy(
        axes,
        f"{_TITLES[sweep.data]}, D = {sweep.width}: {sweep.held}",
        _X[sweep.variable],
        _Y[metric],
    )


def _points(rows: Sequence[Row], sweep: Sweep, calibration: str, algorithm: str, metric: str) -> list[Point]:
    """Return a curve; of the noisy objective |mean|, and of what has none the loss, as the authors do."""
    if metric == "noisy_objective" and algorithm in ("cape", "zero", "objective-perturbation"):
        return []
    if metric == "noisy_objective" and algorithm not in (*AUTHORS, "dp-fm-tight"):
        metric = "loss"
    points = style.over_runs(of(rows, sweep, calibration, algorithm), "x", metric)
    return [replace(point, mean=abs(point.mean)) for point in points]


def _authors(reference: Reference, sweep: Sweep, algorithm: str, metric: str) -> list[Point]:
    names = {"err_w": "errW", "noisy_objective": "noisy_objective"}
    file, algo, wanted = sweep.reference.partition("/")[0], AUTHORS.get(algorithm, ""), names.get(metric, "")
    if algorithm in ("none", "output-perturbation-published"):
        algo = {"none": "np"}.get(algorithm, "op")
        wanted = "errW" if metric == "err_w" else "loss_opt" if metric == "noisy_objective" else ""
        file = file if algo == "np" else f"OP_{file}"
    if not algo or not wanted:
        return []
    return [replace(point, mean=abs(point.mean)) for point in reference.curve(file, algo, wanted)]


def ordered(rows: Sequence[Row], sweeps: Sequence[Sweep], calibration: str, where: str) -> Claim:
    """Say whether cape < conv < local < dp-fm in true loss, wherever epsilon is at least 0.5."""
    points, broken = 0, []
    for sweep in sweeps:
        curves = [mean(rows, sweep, calibration, name, "loss") for name in AUTHORS]
        for x in curves[0]:
            epsilon = x if sweep.variable == "epsilon" else sweep.epsilon
            if epsilon < 0.5:
                continue
            points += 1
            values = [curve[x] for curve in curves]
            if not all(a < b for a, b in itertools.pairwise(values)):
                told = " / ".join(f"{value:.2g}" for value in values)
                broken.append(f"{_TITLES[sweep.data]} D = {sweep.width}, {sweep.held}, "
                              f"{_X[sweep.variable]} = {x:g}: {told}")  # fmt: skip
    what = SCALES.get(sweeps[0].data, "real data")
    how = "as published" if calibration == "published" else "at equal true (ε, δ)"
    measured = f"So at {points - len(broken)} of {points} points."
    if broken:
        measured += " Not at " + "; ".join(broken[:4]) + (" and others." if len(broken) > 4 else ".")
    why = "" if not broken else (
        "Where noise outweighs the data, the minimiser lies in a corner of the box |w_d| <= 1, for each "
        "algorithm alike, and which one is better is chance."
        + ("" if calibration == "published" else " dp-fm has its authors' ridge and trimming here.")
    )  # fmt: skip
    says = f"True loss at ε >= 0.5: cape < conv < local < dp-fm ({how}; {what})."
    return Claim(where, says, measured, not broken, why)


def at_least(rows: Sequence[Row], sweeps: Sequence[Sweep], calibration: str, algorithm: str) -> str:
    """Return where an algorithm predicts no better than 0, in words."""
    parts = []
    for sweep in sweeps:
        found, zero = (mean(rows, sweep, calibration, name, "loss") for name in (algorithm, "zero"))
        bad = [x for x in found if not found[x] < zero[x]]
        parts.append(
            f"{_TITLES[sweep.data]} D = {sweep.width} over {_X[sweep.variable]} ({sweep.held}): {len(bad)} "
            f"of {len(found)} points" + (f", up to {_X[sweep.variable]} = {max(bad):g}" if bad else "")
        )
    return "; ".join(parts)


def truth(rows: Sequence[Row], where: str) -> Claim:
    """Say what the nominal epsilon of capeFM is in truth."""
    held = [row for row in rows if row["calibration"] == "published" and row["algorithm"] == "cape-gaussian"]
    pairs = sorted({(float(r["epsilon"] or 0), float(r["delta"] or 0), float(r["true_epsilon"] or 0)) for r in held})  # noqa: E501  # fmt: skip
    shown = [p for p in pairs if p[0] in (0.5, 1.0, 10.0) and p[1] in (1e-5, 1e-3)]
    told = "; ".join(f"({e:g}, {d:g}) is truly ({t:.3g}, {d:g})" for e, d, t in shown)
    over = sum(t > e for e, _, t in pairs)
    return Claim(
        where,
        "capeFM with the paper's noise is (ε, δ)-differentially private (S = 5, S_C = 1).",
        f"Exceeded in {over} of {len(pairs)} settings: {told}.",
        over == 0,
        "Three arrays are released, each calibrated as if alone, and the correlated noise hides less than "
        "Theorem 1 states. The classical formula wastes some noise below ε = 1, which hides a part of that.",
    )


def within_two(
    rows: Sequence[Row], sweeps: Sequence[Sweep], metric: str, reference: Reference | None, where: str
) -> list[Claim]:
    """Compare curves with the authors', one claim for each algorithm, where both means are clear of 0."""
    if reference is None:
        return []
    what = SCALES.get(sweeps[0].data, "real data")
    name = {"noisy_objective": "published quantity", "err_w": "err_w"}[metric]
    claims = []
    for algorithm in AUTHORS:
        ratios = []
        unclear = 0
        for sweep in sweeps:
            ours = {p.x: p for p in style.over_runs(of(rows, sweep, "published", algorithm), "x", metric)}
            theirs = {p.x: p for p in reference.curve(
                sweep.reference.partition("/")[0], AUTHORS[algorithm],
                "errW" if metric == "err_w" else metric)}  # fmt: skip
            for x in ours.keys() & theirs.keys():
                if _clear(ours[x]) and _clear(theirs[x]):
                    ratios.append(abs(ours[x].mean) / abs(theirs[x].mean))
                else:
                    unclear += 1
        if not ratios:
            continue
        far = sum(not 0.5 <= ratio <= 2 for ratio in ratios)
        middle = statistics.median(ratios)
        more = f"; at {unclear} more a mean is not clear of 0" if unclear else ""
        claims.append(
            Claim(
                where,
                f"The {name} of {LABELS[algorithm]} is within a factor 2 of the authors' curves; {what}.",
                f"At {len(ratios) - far} of {len(ratios)} points; ours over theirs is {min(ratios):.2g} to "
                f"{max(ratios):.2g}, median {middle:.2g}{more}.",
                far == 0,
                _why(algorithm, metric, middle, sweeps[0].data) if far else "",
            )
        )
    return claims


def _why(algorithm: str, metric: str, middle: float, data: str) -> str:
    if algorithm == "dp-fm" and metric == "noisy_objective" and middle < 0.5:
        return (
            "Where noise is all there is, this quantity shows its scale: the authors' noise is several times "
            "that of Δ = 2(D+1)²/N, about as if N were the samples of one of the five sites."
        )
    if data not in SCALES:
        return (
            "Where the noisy quadratic is not convex the value depends on which local minimum is found; and "
            "which rows the authors took, and how they scaled them, is not known."
        )
    if metric == "err_w":
        return (
            "The noise is the same, and with every row of length 1 these values come out (below): the paper "
            "says that rows are divided by the largest norm, and its values that each was by its own."
        )
    return (
        "Where the noisy quadratic is not convex the value depends on which local minimum is found, and "
        "where it nearly is, on the scale of the rows, which seems to have been another one (Figure 7)."
    )


def _clear(point: Point) -> bool:
    return point.runs > 1 and abs(point.mean) > 3 * point.std / math.sqrt(point.runs)


def _dashed(value: float) -> str:
    return f"{value:g}".replace(".", "_")
