"""Figure 7: err_w, the distance from the true weights, on made-up data versus epsilon, N and delta."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cape.data import Number, Schema
from reproduction import regression
from reproduction.figure import Cell, Claim, Figure, Row
from reproduction.figures import _linear as panels
from reproduction.figures import _theory, figure_3
from reproduction.reference import Reference
from reproduction.seeds import FIRST_SEED, seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

__all__ = ["FIGURE", "Figure7"]

_MORE = (panels.synthetic(20, 20_000, 1.0, 1.0), panels.synthetic(50, 5000, 0.5, 0.5))
_PANELS = (figure_3.PANELS[0], _MORE[0], _MORE[1], figure_3.PANELS[1])
_UNIT = tuple(panels.unit_rows(sweeps) for sweeps in _PANELS)
_OWN = tuple(sweep for each in (_PANELS, _UNIT) for sweeps in each[1:3] for sweep in sweeps)
_WHERE = "Appendix I, Figure 7"
_REPORTED = {"cape-gaussian": 0.0089, "conventional": 0.0209, "local": 0.069, "dp-fm": 0.229}
_RATIOS = (("conventional", 1.0, 2.0, 2.7), ("local", 5.0, 4.5, 6.0))
_CORNER = (
    "Where noise outweighs the data the minimiser lies in a corner of the box, and err_w is sqrt(D + 1)/D "
    "whatever the noise."
)
_SAME_NOISE = (
    "Noise is the same; the spread of the rows is not. Scaled by the largest norm, as the paper says, they "
    "vary less in every direction than rows of length 1, with which the published values come out."
)


class Figure7(Figure):
    """err_w of linear regression on made-up data. What Figure 3 computes too is shared with it."""

    name = "figure-7"
    title = "Linear regression on synthetic data: err_w versus ε, N and δ"

    def cells(self, fast: bool, seed: int = FIRST_SEED) -> Sequence[Cell]:
        """Return the cells of Figure 3, and those of a second N for each D."""
        runs = seeds(seed, panels.FAST_RUNS if fast else panels.RUNS)
        own = [cell for sweep in _OWN for cell in sweep.cells(self.name, fast, runs)]
        return [*figure_3.FIGURE.cells(fast, seed), *own]

    def compute(self, cell: Cell) -> list[Row]:
        """Return what every algorithm makes of the data."""
        return regression.compute(cell)

    def draw(self, rows: Sequence[Row], reference: Reference | None) -> Mapping[str, Picture]:
        """Return err_w as published and at equal privacy."""
        pictures = {}
        for name, each in (("", _PANELS), ("unit-rows-", _UNIT)):
            columns = [(sweeps, "err_w") for sweeps in each]
            for how, told in (("published", "as published, at nominal ε"), ("equal", "at equal true (ε, δ)")):
                title = f"Figure 7 {told} ({panels.SCALES[each[0][0].data]})"
                held = reference if how == "published" else None
                pictures[name + how] = panels.draw(title, columns, rows, how, held)
        return pictures

    def claims(self, rows: Sequence[Row], reference: Reference | None) -> list[Claim]:
        """Compare with the published values, for both ways to scale rows."""
        found = []
        for each in (_PANELS, _UNIT):
            sweep = each[1][0]
            found += [_values(rows, sweep), *(_ratio(rows, sweep, *ratio) for ratio in _RATIOS)]
            sweeps = [sweep for sweeps in each for sweep in sweeps]
            by_epsilon, by_samples, by_delta = zip(*each, strict=True)
            scale = panels.SCALES[sweep.data]
            found += [panels.beats(rows, sweeps, how, "err_w", _WHERE) for how in ("published", "equal")]
            found += [
                panels.falls(rows, some, "err_w", f"err_w decreases with {x} ({scale}).", _WHERE, _CORNER)
                for some, x in ((by_epsilon, "ε"), (by_samples, "N"), (by_delta, "δ"))
            ]
            found += [_smaller_epsilon(rows, by_epsilon), _sharper(rows, by_samples)]
            found += panels.within_two(rows, sweeps, "err_w", reference, _WHERE)
        return [*found, *_theory.sensitivities(), _theory.composition(_together(), 3)]

    def notes(self, rows: Sequence[Row]) -> str:
        """Say what the largest err_w means."""
        return (
            "At small ε all of capeFM, conv, local and dp-fm sit in a corner of the box |w_d| <= 1, whose "
            "err_w is sqrt(D + 1)/D (0.229 for D = 20), whatever the noise: without the box there would be "
            "no minimiser. Predicting 0 has err_w = 1/D (0.05), far below."
        )


def _together() -> float:
    """Return the sensitivity of all arrays of linear regression together, each over its own noise."""
    schema = Schema({name: Number(-1.0, 1.0, missing=False) for name in ("x", "y")})
    asked = regression.FunctionalMechanism("y", ("x",), alone=False)
    return asked.query(schema, "replace-one").sensitivity


def _smaller_epsilon(rows: Sequence[Row], sweeps: Sequence[regression.Sweep]) -> Claim:
    """Compare widths at the same N: from which epsilon on capeFM predicts better than 0."""
    found: dict[int, dict[int, float]] = {}
    for sweep in sweeps:
        ours, zero = (
            panels.mean(rows, sweep, "published", name, "loss") for name in ("cape-gaussian", "zero")
        )
        bad = [x for x in ours if not ours[x] < zero[x]]
        good = [x for x in ours if x > max(bad, default=0.0)]
        found.setdefault(sweep.rows, {})[sweep.width] = min(good, default=math.inf)
    told = "; ".join(
        f"N = {n:,}: {', '.join(f'ε = {x:g} for D = {d}' for d, x in sorted(each.items()))}"
        for n, each in sorted(found.items())
    )
    return Claim(
        _WHERE,
        f"For data with fewer features a smaller ε gives the same utility ({panels.SCALES[sweeps[0].data]}).",
        f"The smallest ε of the grid from which on capeFM's loss is below that of predicting 0, at {told}.",
        all(each[20] <= each[50] for each in found.values())
        and any(each[20] < each[50] for each in found.values()),
    )


def _sharper(rows: Sequence[Row], sweeps: Sequence[regression.Sweep]) -> Claim:
    """Compare widths at the same epsilon: how much capeFM's loss falls from the least to the most N."""
    found: dict[float, dict[int, float]] = {}
    for sweep in sweeps:
        found.setdefault(sweep.epsilon, {})[sweep.width] = panels.changes(rows, sweep)
    told = "; ".join(
        f"ε = {e:g}: {', '.join(f'{factor:.3g} for D = {d}' for d, factor in sorted(each.items()))}"
        for e, each in sorted(found.items())
    )
    return Claim(
        _WHERE,
        f"The decrease with N is sharper for fewer features ({panels.SCALES[sweeps[0].data]}).",
        f"capeFM's true loss at the smallest N over that at the largest, at {told}.",
        all(each[20] > each[50] for each in found.values()),
    )


def _values(rows: Sequence[Row], sweep: regression.Sweep) -> Claim:
    found = {name: panels.mean(rows, sweep, "published", name, "err_w")[1.0] for name in _REPORTED}
    off = {name: found[name] / value - 1 for name, value in _REPORTED.items()}
    told = " / ".join(f"{found[name]:.4f} ({off[name]:+.0%})" for name in _REPORTED)
    good = all(abs(each) <= 0.25 for each in off.values())
    return Claim(
        _WHERE,
        "err_w at D = 20, N = 20,000, ε = 1 is 0.0089 / 0.0209 / 0.069 / 0.229 (cape / conv / local / dp-fm)"
        f", within 25%; {panels.SCALES[sweep.data]}.",
        f"{told}.",
        good,
        "" if good else _SAME_NOISE,
    )


def _ratio(
    rows: Sequence[Row],
    sweep: regression.Sweep,
    other: str,
    least: float,
    low: float,
    high: float,
) -> Claim:
    ours, theirs = (panels.mean(rows, sweep, "published", name, "err_w") for name in ("cape-gaussian", other))
    ratios = {x: theirs[x] / ours[x] for x in ours if x >= least}
    more = "sqrt(5)" if other == "conventional" else "5"
    good = all(low <= ratio <= high for ratio in ratios.values())
    return Claim(
        _WHERE,
        f"err_w of {panels.LABELS[other]} is {low:g} to {high:g} times that of cape for ε >= {least:g} "
        f"(D = 20, N = 20,000); {panels.SCALES[sweep.data]}.",
        ", ".join(f"{ratio:.2f} at ε = {x:g}" for x, ratio in ratios.items()) + ".",
        good,
        "" if good else f"The noise is {more} times as large, and so is err_w where the noisy quadratic "
        "stays convex; where it does not, w runs into the box, and the ratio with it. "
        "The rest is scatter over runs.",
    )  # fmt: skip


FIGURE = Figure7()
