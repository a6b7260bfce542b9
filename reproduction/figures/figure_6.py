"""Figure 6: delta and delta_conv versus the share of sites that collude, at one tau_s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cape.privacy import correlated
from reproduction import style
from reproduction.figure import Cell, Claim, Figure, Row
from reproduction.figures import _guarantee as g
from reproduction.figures import _theory
from reproduction.reference import Reference
from reproduction.seeds import FIRST_SEED

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

__all__ = ["FIGURE", "Figure6"]

_WHERE = "Appendix C, Figure 6"


class Figure6(Figure):
    """delta and delta_conv versus S_C/S."""

    name = "figure-6"
    title = "delta and delta_conv versus S_C/S"
    random = False

    def cells(self, fast: bool, seed: int = FIRST_SEED) -> Sequence[Cell]:
        """Return one cell for each panel; there is nothing to shorten."""
        return [Cell.of(self.name, seed, 0.01, sites=pair.sites) for pair in g.PAIRS]

    def compute(self, cell: Cell) -> list[Row]:
        """Return every delta for each number of colluding sites, beyond what the theorem allows too."""
        setting = next(pair for pair in g.PAIRS if pair.sites == cell["sites"])
        rows = []
        for colluding in range(setting.sites):
            row = g.point(setting, setting.tau, colluding)
            row |= {"share": colluding / setting.sites, "in_theorem": colluding <= setting.colluding}
            row |= {"gain": correlated.gain(1.0, "paper", setting.sites, colluding)}
            rows.append(row | {"ring_gain": float(setting.sites - colluding)})
        return rows

    def draw(self, rows: Sequence[Row], reference: Reference | None) -> Mapping[str, Picture]:
        """Return the printed curves where the theorem is stated, and the exact ones with the gain."""
        return {"published": _published(rows), "equal": _equal(rows)}

    def claims(self, rows: Sequence[Row], reference: Reference | None) -> list[Claim]:
        """Count where delta lies below delta_conv: printed and exact, for each number of colluding sites."""
        found = []
        for setting, panel in g.settings_in(rows):
            at = f"S = {setting.sites}, ε = {setting.epsilon:g}, tau = {setting.tau:g}"
            inside = [row for row in panel if row["in_theorem"]]
            printed = g.count(inside, "printed_log10", "conventional_log10", lambda a, b: min(a, b) >= 0)
            exact = g.count(inside, "exact_mu", "conventional_mu", lambda a, b: False)
            found.append(
                Claim(
                    _WHERE,
                    f"delta is always smaller than delta_conv for fewer colluding sites ({at}).",
                    f"Printed: {printed}. Exact: {exact}.",
                    printed.violations == 0 and exact.violations == 0,
                    "The exact gain in mu² is (S + 1) S_H/(S + S_H); it falls to 1 at S_H = 1.",
                )
            )
            first, last = inside[0], inside[-1]
            found.append(
                Claim(
                    "Theorem 1, as used in Figure 6",
                    f"The printed delta is guaranteed for every S_C up to {setting.colluding} ({at}).",
                    f"Printed {_number(first, 'printed'):.2g} to {_number(last, 'printed'):.2g}; exact "
                    f"{_number(first, 'exact'):.2g} to {_number(last, 'exact'):.2g}: "
                    f"{_below(inside)} of {len(inside)} printed values are too small.",
                    _below(inside) == 0,
                    "mu² is understated for every S_C."
                    + ("" if _below(inside) else " The loose tail bound hides it at this tau."),
                )
            )
        return [*found, *_theory.pooled(), *_theory.gain(), _theory.unequal()]


def _number(row: Row, name: str) -> float:
    value = row[name]
    assert isinstance(value, (int, float))
    return float(value)


def _below(rows: Sequence[Row]) -> int:
    return sum(p < e for p, e in zip(g.floats(rows, "printed"), g.floats(rows, "exact"), strict=True))


def _published(rows: Sequence[Row]) -> Picture:
    picture, grid = style.new(1, 2, (10, 4.2), "Figure 6 as published: δ at the pooled noise, as printed")
    for axes, (setting, panel) in zip(grid[0], g.settings_in(rows), strict=True):
        inside = [row for row in panel if row["in_theorem"]]
        share = g.floats(inside, "share")
        axes.semilogy(
            share,
            g.floats(inside, "conventional_tail"),
            "o-",
            ms=4,
            color=style.COLOURS["conventional"],
            label=r"$\delta_\mathrm{conv}$",
        )
        axes.semilogy(
            share,
            g.floats(inside, "printed"),
            "o-",
            ms=4,
            color=style.COLOURS["cape-gaussian"],
            label=r"$\delta$, Theorem 1",
        )
        axes.semilogy(
            share,
            g.floats(inside, "ring"),
            "o-",
            ms=4,
            color=style.COLOURS["cape"],
            label="δ of ring masks, exact",
        )
        style.tidy(axes, f"{setting.title}, τ = {setting.tau:g}", r"$S_C / S$", "δ")
    style.legend(picture, grid[0][0], 3)
    return picture


def _equal(rows: Sequence[Row]) -> Picture:
    picture, grid = style.new(2, 2, (10, 7.6), "Figure 6 at true (ε, δ): the exact accountant")
    for (above, below), (setting, panel) in zip(zip(*grid, strict=True), g.settings_in(rows), strict=True):
        share = g.floats(panel, "share")
        inside = [row for row in panel if row["in_theorem"]]
        curves = {
            "conventional_exact": ("conventional", "conventional"),
            "exact": ("cape-gaussian", "CAPE, the paper's noise"),
            "ring": ("cape", "CAPE, ring masks"),
        }
        for column, (colour, label) in curves.items():
            above.semilogy(
                share, g.floats(panel, column), "o-", ms=3.5, color=style.COLOURS[colour], label=label
            )
        above.semilogy(
            g.floats(inside, "share"),
            g.floats(inside, "printed"),
            color=style.COLOURS["printed"],
            ls=(0, (4, 2)),
            label="Theorem 1 as printed",
        )
        style.tidy(above, f"{setting.title}, τ = {setting.tau:g}: same noise", r"$S_C / S$", "true δ")
        below.plot(
            share, [float(setting.sites)] * len(share), color=style.MUTED, ls=":", label="the paper's gain S"
        )
        below.plot(share, g.floats(panel, "gain"), "o-", ms=3.5, color=style.COLOURS["cape-gaussian"])
        below.plot(share, g.floats(panel, "ring_gain"), "o-", ms=3.5, color=style.COLOURS["cape"])
        below.set_ylim(0, setting.sites * 1.08)
        style.tidy(
            below, f"S = {setting.sites}: same true (ε, δ)", r"$S_C / S$", "variance of conventional / CAPE"
        )
        for axes in (above, below):
            axes.axvspan(setting.colluding / setting.sites, 1, color="#f3f5f7", zorder=0)
            axes.set_xlim(-0.02, 1)
        above.text(
            0.99,
            0.03,
            "beyond Theorem 1",
            transform=above.transAxes,
            ha="right",
            color=style.MUTED,
            fontsize=8,
        )
    handles, labels = grid[0][0].get_legend_handles_labels()
    more, named = grid[1][0].get_legend_handles_labels()
    picture.legend(
        handles + more, labels + named, loc="outside lower center", ncols=5, frameon=False, fontsize=9
    )
    return picture


FIGURE = Figure6()
