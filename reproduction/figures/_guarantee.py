"""delta of CAPE and of the conventional scheme at the same noise: as printed, and exact. Figures 5 and 6."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cape import privacy
from cape.privacy import correlated, paper
from reproduction.figure import Row
from reproduction.formulas import conventional_delta

__all__ = ["PAIRS", "Counted", "Setting", "count", "floats", "log10_tail", "point", "settings_in"]


@dataclass(frozen=True)
class Setting:
    """A panel of the figures: N samples, S sites, epsilon, and the tau at which colluding sites vary."""

    samples: int
    sites: int
    epsilon: float
    tau: float

    @property
    def colluding(self) -> int:
        """The paper's S_C."""
        return math.ceil(self.sites / 3) - 1

    @property
    def title(self) -> str:
        """What stands above the panel."""
        return f"N = {self.samples:,}, S = {self.sites}, ε = {self.epsilon:g}"


PAIRS = (Setting(1000, 10, 1e-3, 50.0), Setting(5000, 30, 0.1, 0.5))


def point(setting: Setting, tau: float, colluding: int) -> Row:
    """Return every delta at one tau. All schemes leave the pooled variance tau²/S² in the average.

    `printed` is Theorem 1; `conventional_*` is one site that adds N(0, tau²/S) alone, by the same tail
    bound, by the classical formula, and exactly; `exact` is the paper's noise, `ring` is noise tau²/S under
    ring masks. Logarithms stay where numbers underflow. `printed_*` are empty where the formula has no value.
    """
    s, n, epsilon = setting.sites, setting.samples, setting.epsilon
    local = tau / math.sqrt(s)
    mus = {
        "exact": correlated.mu(s / n, local, "paper", s, colluding),
        "ring": correlated.mu(s / n, local, math.inf, s, colluding),
        "conventional": s / n / local,
    }
    stated = paper.theorem1(epsilon, tau, s, colluding, n) if 3 * colluding**2 < s * (s + 1) else None
    row: Row = {"samples": n, "sites": s, "epsilon": epsilon, "tau": tau, "colluding": colluding}
    row |= {"printed": stated and stated.delta, "printed_mu": stated and stated.sigma_z}
    row |= {"printed_log10": stated and log10_tail(epsilon, stated.sigma_z)}
    row |= {
        f"conventional_{form}": conventional_delta(epsilon, tau, s, n, form)
        for form in ("tail", "classical", "exact")
    }
    row |= {"conventional_log10": log10_tail(epsilon, mus["conventional"])}
    row |= {name: privacy.delta(epsilon, mus[name]) for name in ("exact", "ring")}
    return row | {f"{name}_mu": mu for name, mu in mus.items()}


def log10_tail(epsilon: float, mu: float) -> float:
    """Return log10 of the bound 2 phi(x)/x at x = epsilon/mu - mu/2; infinite where it says nothing."""
    x = epsilon / mu - mu / 2
    if x <= 0.0:
        return math.inf
    return (0.5 * math.log(2 / math.pi) - 0.5 * x * x - math.log(x)) / math.log(10)


@dataclass(frozen=True)
class Counted:
    """How often delta < delta_conv: at how many points, how often not, and where neither bound is below 1."""

    points: int
    violations: int
    silent: int

    def __str__(self) -> str:
        silent = f" ({self.silent} more say nothing: both bounds are 1)" if self.silent else ""
        return f"{self.violations} violations at {self.points} points{silent}"


def count(rows: Sequence[Row], ours: str, theirs: str, silent: Callable[[float, float], bool]) -> Counted:
    """Compare two columns that rise with delta, wherever both are numbers and not both are silent."""
    pairs = [
        (a, b)
        for a, b in ((row[ours], row[theirs]) for row in rows)
        if isinstance(a, (int, float)) and isinstance(b, (int, float))
    ]
    said = [(a, b) for a, b in pairs if not silent(a, b)]
    return Counted(len(said), sum(not a < b for a, b in said), len(pairs) - len(said))


def settings_in(rows: Sequence[Row]) -> list[tuple[Setting, list[Row]]]:
    """Return the panels with their rows."""
    return [(pair, [row for row in rows if row["sites"] == pair.sites]) for pair in PAIRS]


def floats(rows: Sequence[Row], name: str) -> list[float]:
    """Return a column; what is empty is NaN."""
    return [float(v) if isinstance(v := row[name], (int, float)) else math.nan for row in rows]
