"""Coverage of 95% intervals of AUC, Brier score, sensitivity, specificity, predictive values and calibration.

Models are fitted to real data that no model fits, and to columns of theirs with few values, mostly zeros, a
rare or an unrelated outcome; some are stretched or shrunk, so that risks are wrong, saturate or hardly
differ. The population is the data set; tables are drawn from it, with the two stages of an evaluation and the
noise of five sites of which one colludes. The schema is wrong about rows: the linear predictor is supposed to
lie one SD higher and to spread three times as far. The truth of each measure is that of the risks themselves
in the population, not binned; of calibration the share of events between the very edges that were chosen. A
cell is one measure of one model at one size and epsilon; where noise leaves only bounds, the interval is
[0, 1] and counts as a hit.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binom, rankdata

from benchmarks.harness import Result, Skip, bench
from cape import privacy
from cape.analyses.evaluate.bins import Bins, cell_edges, how_many, smoothed
from cape.analyses.evaluate.risk import MEASURES, Losses, RankSums, RiskTable
from cape.blocks import Design
from cape.blocks.predicted import RiskCounts, Risks
from cape.stats.estimates import Estimate

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

RUNS, LEAST, MEAN = 400, 0.90, 0.94
LEAST_TRUE = 0.93
SETTINGS = ((500, 0.4, 1.2), (2000, 0.3, 1.2), (2000, 0.05, 1.0), (20_000, 0.05, 1.0), (20_000, 0.3, 2.5))
SIZES, EPSILONS = (1000, 5000, 40_000), (0.3, 1.0, 3.0)
_LARGEST = 20  # times its own rows a population may be drawn
_DESIGN = Design(("x",), "y", cube=True)
_HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")


def simulated(
    rng: np.random.Generator, eta: Floats, outcomes: Integers, cells: tuple[float, ...], mu: float
) -> RiskTable:
    """Return the table of an evaluation under replace-one, in its two stages, at five sites."""
    risks, rows, noise = expit(eta), float(len(eta)), math.sqrt(5 / 4) / mu
    first = noise * math.sqrt(2 / 0.1)
    counts = np.bincount(RiskCounts(_DESIGN, (), "logit", cells).cells(risks), minlength=len(cells) - 1)
    shares = smoothed(counts + rng.normal(size=len(counts)) * first, first, rows)
    last = noise * math.sqrt(11 / 4 / 0.9)
    bins = Bins.at_quantiles(cells, shares, how_many(rows, last), 0.5)
    places, ranks = Risks(_DESIGN, (), "logit", cells, bins.starts, bins.ranks).placed(risks)
    sums = np.zeros((2, len(bins.starts), 2))
    np.add.at(sums[0], (places, outcomes), 1)
    np.add.at(sums[1], (places, outcomes), ranks)
    sums += rng.normal(size=sums.shape) * last * np.array([1, 2])[:, None, None]
    loss = float(((outcomes - risks) ** 2).sum() + rng.normal() * 2 * last)
    return RiskTable(
        bins.ends,
        sums[0],
        last,
        0.5,
        bins.predicted,
        RankSums(sums[1], 2 * last, bins.reach),
        Losses(loss, 2 * last, rows),
    )


def measured(table: RiskTable) -> list[Estimate]:
    """Return all measures, in the order of `MEASURES`."""
    return [table.auc(), table.brier(), *table.shares()]


def area(scores: Floats, outcomes: Integers) -> float:
    """Return the AUC of scores that are not binned."""
    ill = outcomes == 1
    ranks = rankdata(scores)[ill]
    return float((ranks.mean() - (ill.sum() + 1) / 2) / (~ill).sum())


@dataclass(frozen=True)
class Population:
    """Rows with the linear predictor of a model, and outcomes."""

    name: str
    eta: Floats
    outcomes: Integers

    @property
    def cells(self) -> tuple[float, ...]:
        spread = float(self.eta.std())
        return cell_edges(float(self.eta.mean()) + spread, 3 * spread, "logit", (0.5,))

    def truth(self) -> list[float | None]:
        """Return all measures, in the order of `MEASURES`; None where a share has no denominator."""
        said, ill = expit(self.eta) >= 0.5, self.outcomes == 1
        pairs = ((said, ill), (~said, ~ill), (ill, said), (~ill, ~said))
        shares = [float(part[whole].mean()) if whole.any() else None for part, whole in pairs]
        brier = float(((self.outcomes - expit(self.eta)) ** 2).mean())
        return [area(self.eta, self.outcomes), brier, *shares]

    def observed(self, edges: Floats) -> Floats:
        """Return the share of events of each bin, NaN in an empty one."""
        place = np.clip(np.searchsorted(edges, expit(self.eta), side="right") - 1, 0, len(edges) - 2)
        rows, events = (np.bincount(place, each, len(edges) - 1) for each in (None, self.outcomes))
        return np.asarray(np.where(rows > 0, events / np.maximum(rows, 1), math.nan))


def fitted(columns: Floats, outcomes: Integers, ridge: float = 1e-6) -> Floats:
    """Return the linear predictor of a logistic regression with a ridge, by Newton's steps."""
    z = (columns - columns.mean(axis=0)) / (columns.std(axis=0) + 1e-9)
    x = np.column_stack([np.ones(len(z)), z])
    weights = np.zeros(x.shape[1])
    for _ in range(30):
        p = expit(x @ weights)
        bent = (x * (p * (1 - p))[:, None]).T @ x + ridge * len(z) * np.eye(len(weights))
        weights += np.linalg.solve(bent, x.T @ (outcomes - p) - ridge * len(z) * weights)
    return np.asarray(x @ weights)


def folder() -> Path:
    """Return where data sets lie."""
    found = Path(os.environ.get("CAPE_DATA", ""))
    files = ("adult/adult.csv", "crime/communities.data", "heart/processed.va.data")
    if "CAPE_DATA" not in os.environ or not all((found / file).exists() for file in files):
        raise Skip(f"set CAPE_DATA to a folder with {', '.join(files)}")
    return found


def populations() -> Iterator[Population]:
    """Return models of real data, right and wrong."""
    data = pl.read_csv(folder() / "adult" / "adult.csv")

    def of(*names: str) -> Floats:
        return data.select(names).to_numpy().astype(float)

    rich = data["income>50K"].to_numpy().astype(int)
    eta = fitted(of("age", "education-num", "hours-per-week", "capital-gain", "sex"), rich)
    yield Population("adult", eta, rich)
    yield Population("adult, shrunk", eta.mean() + 0.05 * (eta - eta.mean()), rich)
    yield Population("adult, stretched", -8 + 4 * (eta - eta.mean()), rich)
    for name, columns in {
        "32 risks": ("sex", "education-num"),
        "two risks": ("sex",),
        "74 risks": ("age",),
        "mostly zeros": ("capital-gain", "capital-loss"),
    }.items():
        yield Population(f"adult, {name}", fitted(of(*columns), rich), rich)
    loss = (of("capital-loss")[:, 0] > 0).astype(int)
    yield Population("adult, rare", fitted(of("age", "education-num", "hours-per-week"), loss), loss)
    hours = of("hours-per-week")[:, 0]
    part = (hours < np.median(hours) - 8).astype(int)
    yield Population("adult, not linear", fitted(of("education-num", "age"), part), part)
    crime = np.genfromtxt(folder() / "crime" / "communities.data", delimiter=",", usecols=range(5, 128))
    crime = crime[:, ~np.isnan(crime).any(axis=0)]
    for share, chosen, ridge in ((0.4, [0, 1, 2, 10, 20, 40], 1e-6), (0.7, [45, 46], 0.01)):
        events = (crime[:, -1] > share).astype(int)
        yield Population(f"crime above {share}", fitted(crime[:, chosen], events, ridge), events)
    heart = np.concatenate(
        [np.genfromtxt(folder() / "heart" / f"processed.{each}.data", delimiter=",") for each in _HOSPITALS]
    )
    heart = heart[~np.isnan(heart[:, [0, 1, 2, 7, 13]]).any(axis=1)]
    ill = (heart[:, 13] > 0).astype(int)
    yield Population("heart", fitted(heart[:, [0, 1, 2, 7]], ill), ill)
    yield Population("heart, four risks", fitted(heart[:, [2]], ill), ill)


def covered(population: Population, rows: int, epsilon: float, runs: int, seed: int = 5) -> dict[str, float]:
    """Return how often the interval of each measure covers; and how wide that of the AUC is, in the mean."""
    rng, mu = np.random.default_rng(seed), float(privacy.mu(epsilon, 1e-6))
    truth, cells = population.truth(), population.cells
    hits, bins, width = np.zeros(len(truth)), np.zeros(2), 0.0
    for _ in range(runs):
        drawn = rng.integers(0, len(population.eta), rows)
        table = simulated(rng, population.eta[drawn], population.outcomes[drawn], cells, mu)
        ends = [each.interval() for each in measured(table)]
        width += (ends[0][1] - ends[0][0]) / runs
        hits += [
            value is None or low <= value <= high for (low, high), value in zip(ends, truth, strict=True)
        ]
        for share, estimate in zip(population.observed(table.edges), table.observed(), strict=True):
            if estimate is not None and not math.isnan(share):
                low, high = estimate.interval()
                bins += (low <= share <= high, 1)
    shares = dict(zip(MEASURES, (hits / runs).tolist(), strict=True))
    return shares | {"calibration": float(bins[0] / bins[1]) if bins[1] else 1.0, "width": width}


@bench("evaluate.coverage")
def coverage() -> Result:
    """How many cells of true models cover less than .93, by one-sided binomial tests at .05 over all."""
    rng = np.random.default_rng(5)
    shares: dict[str, float] = {}
    for rows, prevalence, spread in SETTINGS:
        eta = rng.normal(size=500_000) * spread + math.log(prevalence / (1 - prevalence))
        population = Population("", eta, (rng.random(len(eta)) < expit(eta)).astype(int))
        for epsilon in (1.0, 3.0):
            found = covered(population, rows, epsilon, RUNS)
            name = f"{rows} rows, {prevalence:g}, epsilon {epsilon:g}"
            shares |= {f"{name}, {each}": found[each] for each in MEASURES}
    level = 0.05 / len(shares)
    low = {name: share for name, share in shares.items() if binom.cdf(share * RUNS, RUNS, LEAST_TRUE) < level}
    values = list(shares.values())
    detail = {
        "cells": len(shares),
        "runs": RUNS,
        "lowest": min(values),
        "median": float(np.median(values)),
        "broken": low,
    }
    return Result(float(len(low)), 0.0, "lower", unit="cells", detail=detail)


@bench("truth.evaluate")
def coverage_of_wrong_models() -> Result:
    """How many cells cover less than .90; one more if the mean of a measure is below .94."""
    found: dict[str, dict[str, float]] = {}
    for population in populations():
        for rows in SIZES:
            for epsilon in EPSILONS:
                if rows <= _LARGEST * len(population.eta):
                    name = f"{population.name}, {rows} rows, epsilon {epsilon:g}"
                    found[name] = covered(population, rows, epsilon, RUNS)
    measures = (*MEASURES, "calibration")
    means = {each: float(np.mean([cell[each] for cell in found.values()])) for each in measures}
    cells = {f"{name}, {each}": cell[each] for name, cell in found.items() for each in measures}
    low = {name: share for name, share in cells.items() if share < LEAST}
    detail = {
        "cells": len(cells),
        "runs": RUNS,
        "means": means,
        "lowest": min(cells.values()),
        "low": low,
        "widths": {name: round(cell["width"], 4) for name, cell in found.items()},
    }
    bad = len(low) + sum(mean < MEAN for mean in means.values())
    return Result(float(bad), 0.0, "lower", unit="cells", detail=detail)
