"""`cape demo`: what a release costs and gives, planned for five unequal sites and then measured."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from cape import check, privacy
from cape.noise import SecureStream, discrete_gaussian
from cape.privacy import correlated, paper

SIZES = {"north": 120, "east": 350, "south": 480, "west": 950, "centre": 2100}
LOW, HIGH = 18.0, 90.0  # the public bounds of a column `age`, in years
RESOLUTION = 2.0**20  # steps of the grid in one standard deviation of a site's noise
DRAWS = 20_000


@dataclass(frozen=True)
class Row:
    """One way to make noise: its standard deviation in the mean, planned and measured."""

    scheme: str
    site_noise: float
    planned: float
    measured: float
    over_pooled: float


@dataclass(frozen=True)
class Claim:
    """What the paper's Theorem 1 says of its own calibration, and what holds."""

    sites: int
    colluding: int
    paper_delta: float
    exact_delta: float
    exact_epsilon: float


def demo(
    epsilon: float = typer.Option(1.0, help="Total epsilon of the release."),
    delta: float = typer.Option(1e-6, help="Delta of the release."),
    colluding: int = typer.Option(1, help="How many of the five sites may side with the aggregator."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object instead of tables."),
) -> None:
    """Plan the mean of a column over five unequal sites, and measure its noise.

    Example: [bold]cape demo --epsilon 0.5 --colluding 2[/bold]
    """
    check.integer("colluding", colluding, least=0, most=len(SIZES) - 1)
    mu = privacy.mu(check.real("epsilon", epsilon, above=0.0), check.probability("delta", delta))
    rows = plan(mu, colluding)
    claims = [theorem(epsilon, delta, sites) for sites in (5, 10, 30, 100)]
    if as_json:
        answer: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "mu": mu, "colluding": colluding}
        answer |= {"schemes": [asdict(row) for row in rows], "theorem1": [asdict(c) for c in claims]}
        typer.echo(json.dumps(answer, indent=2))
        return
    console = Console()
    console.print(
        f"\nThe mean of [bold]age[/bold] (public bounds {LOW:g} to {HIGH:g}) over {len(SIZES)} sites of "
        f"{', '.join(map(str, SIZES.values()))} rows.\nGuarantee: ({epsilon:g}, {delta:g})-differential "
        f"privacy for every person (mu = {mu:.4f}), exact, even if the aggregator and {colluding} "
        f"{'site' if colluding == 1 else 'sites'} pool what they see.\n"
    )
    console.print(_schemes_table(rows))
    console.print(
        "\nThe paper's own calibration (classical tau, Theorem 1) beside the exact guarantee, for up to a "
        "third of the sites colluding:\n"
    )
    console.print(_claims_table(claims, epsilon, delta))
    console.print(
        "\nNothing above read any data. Noise is drawn on integers from AES; docs/guarantee.md explains.\n"
    )


def plan(mu: float, colluding: int) -> list[Row]:
    """Return the noise in the mean for every scheme at the same exact guarantee."""
    sites, people = len(SIZES), sum(SIZES.values())
    sensitivity = HIGH - LOW  # of the sum: one person replaced by another
    pooled = sensitivity / mu
    biggest = max(SIZES.values())
    stream = SecureStream()

    def row(scheme: str, site_noise: float, adders: int, rows: int) -> Row:
        # integer noise on the grid of the release, summed over the sites that add it
        step = site_noise / RESOLUTION
        noise = sum(
            (discrete_gaussian(RESOLUTION, DRAWS, stream) for _ in range(adders)), np.zeros(DRAWS, np.int64)
        )
        planned = site_noise * math.sqrt(adders) / rows
        measured = float(np.std(noise * step)) / rows
        return Row(scheme, site_noise, planned, measured, (planned * people / pooled) ** 2)

    ring = correlated.local_std(mu, sensitivity, sites, colluding, math.inf)
    gaussian = correlated.local_std(mu, sensitivity, sites, colluding, "paper")
    return [
        row("pooled", pooled, 1, people),
        row("cape", ring, sites, people),
        row("cape-gaussian", gaussian, sites, people),
        row("conventional", pooled, sites, people),
        row("local", pooled, 1, biggest),
    ]


def theorem(epsilon: float, delta: float, sites: int) -> Claim:
    """Return what Theorem 1 promises at the classical tau, and what the same noise really gives."""
    colluding = correlated.default_colluding(sites)
    tau = paper.classical_tau(epsilon, delta, 1.0)
    claimed = paper.theorem1(epsilon, tau, sites, colluding, samples=sites)  # one row a site: sensitivity 1
    mu = correlated.mu(1.0, tau / math.sqrt(sites), tau, sites, colluding)
    return Claim(sites, colluding, claimed.delta, privacy.delta(epsilon, mu), privacy.epsilon(delta, mu))


def _schemes_table(rows: list[Row]) -> Table:
    table = Table()
    table.add_column("scheme")
    for title in ("noise at a site", "in the mean", "measured", "variance over pooled"):
        table.add_column(title, justify="right")
    for r in rows:
        table.add_row(
            r.scheme, f"{r.site_noise:.1f}", f"{r.planned:.4f}", f"{r.measured:.4f}", f"{r.over_pooled:.2f}"
        )
    table.caption = (
        f"Standard deviations in years, measured over {DRAWS:,} draws. pooled: a trusted curator; "
        "cape: masks uniform over a ring; cape-gaussian: the paper's variances; conventional: nothing "
        f"cancels; local: the largest site ({max(SIZES.values())} rows) alone."
    )
    return table


def _claims_table(claims: list[Claim], epsilon: float, delta: float) -> Table:
    table = Table()
    for title in (
        "sites",
        "colluding",
        "delta by Theorem 1",
        "delta, exact",
        f"epsilon really, at {delta:g}",
    ):
        table.add_column(title, justify="right")
    for c in claims:
        table.add_row(
            str(c.sites),
            str(c.colluding),
            f"{c.paper_delta:.2g}",
            f"{c.exact_delta:.2g}",
            f"{c.exact_epsilon:.3f}",
        )
    table.caption = f"Theorem 1 and the exact delta are at epsilon = {epsilon:g}"
    return table
