"""Panels of Figures 3, 4 and 7: which settings are varied, how curves are drawn, what is counted."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from scipy import stats

from reproduction import style
from reproduction.figure import Claim, Row
from reproduction.reference import Point, Reference
from reproduction.regression import Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

__all__ = [
    "AUTHORS",
    "FAST_RUNS",
    "LABELS",
    "NEAR",
    "RUNS",
    "SCALES",
    "at_least",
    "beats",
    "changes",
    "corner",
    "crime",
    "draw",
    "falls",
    "far_from_private",
    "flat_in_delta",
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
NEAR = 0.05  # of the way from no privacy to predicting 0
_SURE = 3.0  # standard errors from which on a difference counts
_CHANCE = 1e-3  # below it, a test says that groups differ
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


def corner(sweeps: Sequence[Sweep]) -> Sweep:
    """Return the setting with both the largest epsilon and the largest N, which no panel has."""
    by_epsilon, by_samples = sweeps[:2]
    return replace(
        by_epsilon,
        values=by_epsilon.values[-1:],
        fast=by_epsilon.fast[-1:],
        rows=int(by_samples.values[-1]),
        reference=f"corner_{by_epsilon.data}_D_{by_epsilon.width}",
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
    style.legend(picture, grid[0][0], 4, reference is not None)
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
        if algorithm == "output-perturbation-published":  # spread over decades: a band would hide the rest
            points = [replace(point, std=0.0) for point in points]
        style.band(axes, points, paint, label, by_factor=True, ls=dashes, marker="o", ms=3)
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


def _points_of(rows: Sequence[Row], sweep: Sweep, how: str, algorithm: str, metric: str) -> list[Point]:
    return style.over_runs(of(rows, sweep, how, algorithm), "x", metric)


def _error(a: Point, b: Point) -> float:
    """Return the standard error of the difference of two means."""
    return math.sqrt(a.std**2 / a.runs + b.std**2 / b.runs)


def _named(sweep: Sweep) -> str:
    return f"{_TITLES[sweep.data]} D = {sweep.width} ({sweep.held})"


def falls(
    rows: Sequence[Row], sweeps: Sequence[Sweep], metric: str, says: str, where: str, why: str = ""
) -> Claim:
    """Say whether a metric of capeFM falls along each sweep; None where it may be chance.

    Judged by logarithms, since values of one setting may lie decades apart.
    """
    told, verdicts = [], []
    for sweep in sweeps:
        curve = of(rows, sweep, "published", "cape-gaussian")
        first, *_, last = style.over_runs(curve, "x", metric)
        name = _X[sweep.variable]
        points = style.over_runs([_log(row, metric) for row in curve], "x", metric)
        rises = [b.x for a, b in itertools.pairwise(points) if b.mean - a.mean > _SURE * _error(a, b) + 1e-12]
        drop = points[0].mean - points[-1].mean > _SURE * _error(points[0], points[-1])
        verdicts.append(False if rises else True if drop else None)
        told.append(
            f"{_named(sweep)} {first.mean:.3g} at {name} = {first.x:g} to {last.mean:.3g} at {last.x:g}"
            + (f", with a rise at {', '.join(f'{x:g}' for x in rises)}" if rises else "")
            + ("" if rises or drop else ", which may be chance")
        )
    holds = False if False in verdicts else None if None in verdicts else True
    what = "true loss" if metric == "loss" else "err_w"
    reason = f"A change counts from {_SURE:g} standard errors of log values on. {why}"
    reason = "" if holds is True else reason
    return Claim(where, says, f"capeFM as published, {what}: {'; '.join(told)}.", holds, reason.strip())


def _log(row: Row, metric: str) -> Row:
    return {**row, metric: math.log(float(row[metric] or 1e-300))}


_RIVALS = ("conventional", "local", "dp-fm", "objective-perturbation", "output-perturbation-published")


def beats(rows: Sequence[Row], sweeps: Sequence[Sweep], calibration: str, metric: str, where: str) -> Claim:
    """Say whether capeFM clearly outperforms every other private algorithm: never worse beyond chance."""
    told, verdicts = [], []
    for rival in _RIVALS:
        better, worse, points = 0, [], 0
        for sweep in sweeps:
            ours = _points_of(rows, sweep, calibration, "cape-gaussian", metric)
            theirs = _points_of(rows, sweep, calibration, rival, metric)
            for a, b in zip(ours, theirs, strict=True):
                points += 1
                better += b.mean - a.mean > _SURE * _error(a, b)
                if a.mean - b.mean > _SURE * _error(a, b):
                    worse.append(f"{_named(sweep)}, {_X[sweep.variable]} = {a.x:g}")
        verdicts.append(not worse and better > 0)
        more = f" ({'; '.join(worse[:2])}{' and others' if len(worse) > 2 else ''})" if worse else ""
        told.append(f"{LABELS[rival]}: better at {better} of {points}, worse at {len(worse)}{more}")
    what = SCALES.get(sweeps[0].data, "real data")
    how = "as published" if calibration == "published" else "at equal true (ε, δ)"
    name = "true loss" if metric == "loss" else "err_w"
    why = (
        "Where noise outweighs the data capeFM ends in a corner of the box |w_d| <= 1, which is worse than "
        "predicting 0; objective perturbation (Chaudhuri et al.) stays near 0. What the published code has "
        "under that name is output perturbation."
    )
    if calibration == "equal":
        why += " dp-fm has its authors' ridge and trimming here, which keep it out of the corners."
    return Claim(
        where,
        f"capeFM clearly outperforms dp-fm, objective perturbation, conv and local ({name}; {how}; {what}).",
        f"Points where the difference is more than {_SURE:g} standard errors. {'; '.join(told)}.",
        all(verdicts),
        "" if all(verdicts) else why,
    )


def far_from_private(rows: Sequence[Row], sweep: Sweep) -> tuple[float, str]:
    """Return how far capeFM is from no privacy at the last place, in the loss of predicting 0; and words."""
    curves = {
        name: mean(rows, sweep, "published", name, "loss") for name in ("cape-gaussian", "none", "zero")
    }
    x = max(curves["none"])
    found, best, zero = (curve[x] for curve in curves.values())
    share = (found - best) / (zero - best)
    name = _X[sweep.variable]
    return share, (
        f"{_TITLES[sweep.data]} D = {sweep.width}, {name} = {x:g} ({sweep.held}): loss {found:.3g}, "
        f"non-private {best:.2g}, predicting 0 {zero:.2g}: {share:.2%}"
    )


def flat_in_delta(rows: Sequence[Row], sweeps: Sequence[Sweep], where: str) -> Claim:
    """Say whether dp-fm and objective perturbation depend on delta."""
    told, least = [], 1.0
    for algorithm in ("dp-fm", "objective-perturbation"):
        for sweep in sweeps:
            groups: dict[float, list[float]] = {}
            for row in of(rows, sweep, "published", algorithm):
                groups.setdefault(float(row["x"] or 0), []).append(float(row["loss"] or 0))
            p = float(stats.kruskal(*groups.values()).pvalue)
            least = min(least, p)
            told.append(f"{LABELS[algorithm]} on {_named(sweep)} p = {p:.2g}")
    return Claim(
        where,
        "dp-fm and objective perturbation are ε-differentially private, and do not vary with δ.",
        f"Kruskal-Wallis test over δ of the true losses of all runs: {'; '.join(told)}.",
        least > _CHANCE,
        "" if least > _CHANCE else "Their noise does not depend on δ; a p this small should not come up.",
    )


def changes(rows: Sequence[Row], sweep: Sweep, metric: str = "loss") -> float:
    """Return by which factor capeFM's mean at the first place exceeds that at the last."""
    curve = mean(rows, sweep, "published", "cape-gaussian", metric)
    return curve[min(curve)] / curve[max(curve)]


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
    """Compare curves of one data set with the authors', one claim for each algorithm.

    Where one of the two means is not clear of 0 there is no ratio; such points are counted.
    """
    if reference is None:
        return []
    data = sweeps[0].data
    what = SCALES.get(data, _TITLES[data])
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
                _why(algorithm, metric, middle, data) if far else "",
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
            "Where the noisy quadratic is not convex the value depends on which local minimum is found, and "
            + ("ours is the deeper one nearly everywhere" if middle > 1 else "theirs is the larger one")
            + "; which rows the authors took, and how they scaled them, is not known."
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
