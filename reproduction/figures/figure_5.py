"""Figure 5: delta and delta_conv versus tau_s, when both schemes leave the pooled noise in the average."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cape import privacy
from cape.privacy import correlated
from reproduction import style
from reproduction.figure import Cell, Claim, Figure, Row
from reproduction.figures import _guarantee as g
from reproduction.reference import Reference
from reproduction.seeds import FIRST_SEED

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

__all__ = ["FIGURE", "Figure5"]

_TAUS = np.logspace(-2, 2, 50)
_FLOOR = 1e-16
_WHERE = "Appendix B, Figure 5"


class Figure5(Figure):
    """delta and delta_conv versus tau_s."""

    name = "figure-5"
    title = "delta and delta_conv versus tau_s, with ceil(S/3) - 1 colluding sites"
    random = False

    def cells(self, fast: bool, seed: int = FIRST_SEED) -> Sequence[Cell]:
        """Return one cell for each panel; there is nothing to shorten."""
        return [Cell.of(self.name, seed, 0.01, sites=pair.sites) for pair in g.PAIRS]

    def compute(self, cell: Cell) -> list[Row]:
        """Return every delta on the paper's grid of tau."""
        setting = next(pair for pair in g.PAIRS if pair.sites == cell["sites"])
        return [g.point(setting, float(tau), setting.colluding) for tau in _TAUS]

    def draw(self, rows: Sequence[Row], reference: Reference | None) -> Mapping[str, Picture]:
        """Return the printed curves, and the exact ones with the noise that equal privacy takes."""
        return {"published": _published(rows), "equal": _equal(rows)}

    def claims(self, rows: Sequence[Row], reference: Reference | None) -> list[Claim]:
        """Count where delta lies below delta_conv, printed and exact, and where the printed is too small."""
        found = []
        for setting, panel in g.settings_in(rows):
            at = f"S = {setting.sites}, ε = {setting.epsilon:g}"
            printed = g.count(panel, "printed_log10", "conventional_log10", lambda a, b: min(a, b) >= 0)
            found.append(
                Claim(
                    _WHERE,
                    f"delta is always smaller than delta_conv ({at}), with the printed delta.",
                    f"{printed}, delta_conv by the same tail bound. Against the exact delta_conv the loose "
                    f"printed bound is larger at {_looser(panel)} of {len(panel)} points.",
                    printed.violations == 0,
                    "Theorem 1's sigma_z lies below the conventional scheme's at equal noise.",
                )
            )
            exact = g.count(panel, "exact_mu", "conventional_mu", lambda a, b: False)
            ratio = float(panel[0]["conventional_mu"] or 0) ** 2 / float(panel[0]["exact_mu"] or 1) ** 2
            found.append(
                Claim(
                    _WHERE,
                    f"delta is always smaller than delta_conv ({at}), with the exact delta.",
                    f"{exact}; mu² is {ratio:.2f} times smaller at every tau, not S = {setting.sites} times.",
                    exact.violations == 0,
                    "delta rises with mu; the ratio of mu² is (S + 1) S_H/(S + S_H), above 1 for S_H > 1.",
                )
            )
            found.append(_too_small(setting, panel))
        return found


def _looser(panel: list[Row]) -> int:
    pairs = zip(g.floats(panel, "printed"), g.floats(panel, "conventional_exact"), strict=True)
    return sum(printed > conventional for printed, conventional in pairs)


def _too_small(setting: g.Setting, panel: list[Row]) -> Claim:
    """Say where Theorem 1 promises a delta that is smaller than the true one."""
    printed, exact, mu = (g.floats(panel, name) for name in ("printed", "exact", "exact_mu"))
    below = [i for i, (p, e) in enumerate(zip(printed, exact, strict=True)) if p < e]
    share = (float(panel[0]["exact_mu"] or 0) / float(panel[0]["printed_mu"] or 1)) ** 2
    measured = f"The exact mu² is {share:.2f} times sigma_z². "
    if below:
        tau = float(panel[below[0]]["tau"] or 0)
        seen = [i for i in below if exact[i] > _FLOOR] or below[:1]
        worst = max(seen, key=lambda i: exact[i] / max(printed[i], 1e-300))
        measured += (
            f"From tau = {tau:.3g} on the printed delta is below the exact one ({len(below)} of {len(panel)} "
            f"points, where floats can tell); at tau = {float(panel[worst]['tau'] or 0):.3g} it is "
            f"{printed[worst]:.1e} against {exact[worst]:.1e}."
        )
    else:
        measured += f"The loose tail bound hides it on this grid (largest exact mu {max(mu):.3g})."
    return Claim(
        "Theorem 1, as used in Figure 5",
        f"The algorithm guarantees (epsilon, delta) with the printed delta (S = {setting.sites}, S_C = "
        f"{setting.colluding}).",
        measured,
        not below,
        "The printed inverse covariance has 2/S_H where 1/(S_C + 1) belongs, and the proof's adversary does "
        "not use the colluders' own noise.",
    )


def _published(rows: Sequence[Row]) -> Picture:
    picture, grid = style.new(1, 2, (10, 4.2), "Figure 5 as published: δ at the pooled noise, as printed")
    for axes, (setting, panel) in zip(grid[0], g.settings_in(rows), strict=True):
        tau = g.floats(panel, "tau")
        axes.loglog(
            tau,
            g.floats(panel, "conventional_tail"),
            color=style.COLOURS["conventional"],
            label=r"$\delta_\mathrm{conv}$",
        )
        axes.loglog(
            tau,
            g.floats(panel, "printed"),
            color=style.COLOURS["cape-gaussian"],
            label=r"$\delta$, Theorem 1",
        )
        axes.loglog(tau, g.floats(panel, "ring"), color=style.COLOURS["cape"], label="δ of ring masks, exact")
        axes.set_ylim(_FLOOR, 3)
        style.tidy(axes, setting.title, r"$\tau_s$", "δ")
    style.legend(picture, grid[0][0], 3)
    return picture


def _equal(rows: Sequence[Row]) -> Picture:
    picture, grid = style.new(2, 2, (10, 7.6), "Figure 5 at true (ε, δ): the exact accountant")
    for (above, below), (setting, panel) in zip(zip(*grid, strict=True), g.settings_in(rows), strict=True):
        tau = g.floats(panel, "tau")
        curves = {
            "conventional_exact": ("conventional", "conventional"),
            "exact": ("cape-gaussian", "CAPE, the paper's noise"),
            "ring": ("cape", "CAPE, ring masks"),
        }
        for column, (colour, label) in curves.items():
            above.loglog(tau, g.floats(panel, column), color=style.COLOURS[colour], label=label)
        above.loglog(
            tau,
            g.floats(panel, "printed"),
            color=style.COLOURS["printed"],
            ls=(0, (4, 2)),
            lw=1.3,
            label="Theorem 1 as printed",
        )
        above.set_ylim(_FLOOR, 3)
        style.tidy(above, f"{setting.title}: same noise in the average", r"$\tau_s$", "true δ")
        deltas = np.logspace(-12, np.log10(0.2), 60)
        s, n, bad = setting.sites, setting.samples, setting.colluding
        pooled = 1.0 / (n * np.asarray(privacy.mu(setting.epsilon, deltas)))
        extra = {
            "conventional": float(s),
            "cape-gaussian": correlated.pooled_ratio(1.0, "paper", s, bad),
            "cape": s / (s - bad),
        }
        for colour, ratio in extra.items():
            below.loglog(deltas, pooled * np.sqrt(ratio), color=style.COLOURS[colour])
        below.loglog(deltas, pooled, color=style.COLOURS["pooled"], ls=":", label="a trusted curator")
        style.tidy(below, f"{setting.title}: same true (ε, δ)", "true δ", "noise in the average (std)")
    handles, labels = grid[0][0].get_legend_handles_labels()
    more, named = grid[1][0].get_legend_handles_labels()
    picture.legend(
        handles + more, labels + named, loc="outside lower center", ncols=5, frameon=False, fontsize=9
    )
    return picture


FIGURE = Figure5()
