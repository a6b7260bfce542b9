"""Lost sites: the noise that is left in a sum over the others, and what tolerating losses costs in bytes.

All of it through the whole protocol: the noise is a release's total minus the exact sums of the sites in it.
"""

from __future__ import annotations

import math
from itertools import cycle
from typing import Any

import numpy as np
import polars as pl

from benchmarks.harness import Result, bench
from cape import Budget, Schema
from cape.analyses import Histogram
from cape.blocks.table import Table
from cape.engine.consortium import Consortium
from cape.engine.contribution import exact_sums
from cape.engine.observer import Observer
from cape.engine.schemes import Parties
from cape.engine.schemes.cape import cape_choices
from cape.secagg import Surplus, simulate
from tests.unit.engine.losses import left, patterns

SETTINGS = ((4, 1, 3), (10, 1, 7), (30, 9, 20))  # sites, colluding, min_sites
ENTRIES = 400_000  # the standard error of a variance is then 0.22%; rounding to the grid adds up to 0.3%
EARLY = ("advertise", "share", "mask")  # rounds before a vector is in the sum
PATTERNS, MOST_SITES = 2_000, 12
SCHEMA = Schema(x=(0, 1))


@bench("dropout.none")
def nobody_lost() -> Result:
    """The largest relative deviation of variance over pooled from S/(S - C), with nobody lost."""
    return _largest_deviation({setting: range(1) for setting in SETTINGS})


@bench("dropout.late")
def lost_before_masking() -> Result:
    """The same from (S - d)/(S - d - C), with d = 1, ..., S - min_sites lost before they mask."""
    return _largest_deviation({setting: range(1, setting[0] - setting[2] + 1) for setting in SETTINGS})


def _largest_deviation(settings: dict[tuple[int, int, int], range]) -> Result:
    found = {}
    for (sites, colluding, min_sites), losses in settings.items():
        for lost in losses:
            expected = (sites - lost) / (sites - lost - colluding)
            ratio = variance_over_pooled(sites, colluding, min_sites, lost)
            found[f"{sites}, {colluding}, {min_sites}: {lost} lost"] = ratio / expected - 1
    detail = {name: round(deviation, 4) for name, deviation in found.items()}
    return Result(max(map(abs, found.values())), 0.03, "lower", unit="relative", detail=detail)


def variance_over_pooled(sites: int, colluding: int, min_sites: int, lost: int) -> float:
    """Return the variance of a release's noise over that of a trusted curator."""
    frames = {f"site {number}": pl.DataFrame({"x": [0.5]}) for number in range(sites)}
    drop = dict(zip(list(frames)[:lost], cycle(EARLY), strict=False))
    seen = _Noise(frames)
    consortium = Consortium(
        frames, SCHEMA, Budget(8.0, 1e-6), colluding=colluding, min_sites=min_sites, observer=seen
    )
    consortium.release(Histogram("x", bins=ENTRIES), 0.5, drop=drop)
    pooled = math.sqrt(2) / consortium.budget.cost(0.5).mu
    return float(np.mean(seen.noise**2)) / pooled**2


class _Noise(Observer):
    """Keeps the noise of a release: its total minus the exact sums of its participants."""

    def __init__(self, frames: dict[str, pl.DataFrame]) -> None:
        self._tables = {name: Table(name, frame, SCHEMA) for name, frame in frames.items()}

    def asked(self, query: Any, calibration: Any) -> None:
        self._query, self._calibration = query, calibration

    def released(self, outcome: Any) -> None:
        noise = outcome.total.copy()
        for name in outcome.participants:
            noise -= exact_sums(self._tables[name], self._query, self._calibration)
        (self.noise,) = self._calibration.decode(noise)


@bench("dropout.least")
def never_below() -> Result:
    """The least noise that no colluder knows, over the calibrated amount, in 2,000 random patterns of loss.

    Exact, from the keys that sites held and those on the wire; what releases report must be what is left.
    """
    kept, most, without = [], 0.0, 0
    for seed, pattern in enumerate(patterns(PATTERNS, MOST_SITES, 17)):
        for each in left(pattern, seed):
            if each is None:
                without += 1
                continue
            kept.append(each.honest)
            most = max(most, abs(each.told / float(each.whole) - 1))
    if most > 1e-12:
        raise AssertionError(f"the noise reported is not what is left: {most:.2g} apart")
    detail = {
        "patterns": PATTERNS,
        "sums": len(kept),
        "exactly the amount": sum(ratio < 1 + 1e-12 for ratio in kept),
        "largest": round(float(max(kept)), 3),
        "steps with too few sites": without,
    }
    least = min(kept)
    below = math.nextafter(1.0, 0.0)  # for a ratio below 1 that rounds to it
    return Result(min(float(least), below) if least < 1 else float(least), 1.0, "higher", detail=detail)


@bench("dropout.bytes")
def bytes_of_a_site() -> Result:
    """Bytes that a site sends at 10,000 numbers when a loss is tolerated, over those of the same run without.

    5 sites, 1 colluding, 4 must stay; one sum, with the setup.
    """
    vectors = [np.zeros(10_000, np.int64)] * 5
    choices = cape_choices(Parties(5, 1, 4))
    with_it, without = (
        sum(max(traffic.sent.values()) for traffic in simulate(vectors, **each).traffic.values())
        for each in (choices, choices | {"surplus": Surplus()})
    )
    return Result(with_it / without, 1.05, "lower", detail={"with": with_it, "without": without})
