"""Coverage of 95% intervals of AUC, Brier score, sensitivity, specificity and predictive values.

Tables of risks and outcomes are drawn anew each time, with the noise that a release of five sites, of which
one colludes, has in each count. The truth is that of a million rows, binned alike. A cell is one measure at
one size, prevalence and epsilon; where noise leaves only bounds, the interval is [0, 1] and counts as a hit.
In the detail, `unbinned` is how often the interval covers the AUC of the risks themselves, and `far` the same
where the schema is wrong about rows: predictors lie 1 higher and spread 1.5 times as far as the bins were
made for.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binom, rankdata

from benchmarks.harness import Result, bench
from cape import privacy
from cape.analyses.evaluate.risk import MEASURES, RiskTable, default_edges
from cape.stats.estimates import Estimate

Floats = NDArray[np.float64]

RUNS, LEAST, BINS = 400, 0.93, 20
SETTINGS = ((500, 0.4, 1.2), (2000, 0.3, 1.2), (2000, 0.05, 1.0), (20_000, 0.05, 1.0), (20_000, 0.3, 2.5))
FAR = (1.0, 1.5)


def drawn(rng: np.random.Generator, rows: int, prevalence: float, spread: float) -> tuple[Floats, Floats]:
    """Return predicted risks, and outcomes that follow them."""
    risks = expit(rng.normal(size=rows) * spread + math.log(prevalence / (1 - prevalence)))
    return risks, (rng.random(rows) < risks).astype(float)


def table(
    rng: np.random.Generator, risks: Floats, outcomes: Floats, edges: Floats, noise: float
) -> RiskTable:
    """Return the noisy table of rows, with the threshold in its middle."""
    bins = len(edges) - 1
    place = np.clip(np.searchsorted(edges, risks, side="right") - 1, 0, bins - 1)
    counts = np.zeros((bins, 2))
    np.add.at(counts, (place, outcomes.astype(int)), 1)
    inside = (2 * risks - edges[place] - edges[place + 1]) / np.diff(edges)[place]
    within = np.bincount(place, inside, minlength=bins)
    counts += rng.normal(size=counts.shape) * noise
    within += rng.normal(size=bins) * 4 * noise
    return RiskTable(edges, counts, within, noise, 4 * noise, float(edges[bins // 2]))


def measured(found: RiskTable) -> list[Estimate]:
    """Return all measures, in the order of `MEASURES`."""
    return [found.auc(), found.brier(), *found.shares()]


def area(risks: Floats, outcomes: Floats) -> float:
    """Return the AUC of risks that are not binned."""
    ill = outcomes == 1
    ranks = rankdata(risks)[ill]
    return float((ranks.mean() - (ill.sum() + 1) / 2) / (~ill).sum())


@bench("evaluate.coverage")
def coverage() -> Result:
    """How many cells cover less than .93, by one-sided binomial tests at .05 over their number: none may."""
    rng = np.random.default_rng(5)
    shares: dict[str, float] = {}
    unbinned: dict[str, float] = {}
    far: dict[str, float] = {}
    for epsilon in (1.0, 3.0):
        noise = 1.5 / float(privacy.mu(epsilon, 1e-6)) * math.sqrt(5 / 4)
        for rows, prevalence, spread in SETTINGS:
            middle = math.log(prevalence / (1 - prevalence))
            name = f"{rows} rows, {prevalence:g}, epsilon {epsilon:g}"
            for off, times, into in ((0.0, 1.0, unbinned), (*FAR, far)):
                edges = np.array(default_edges(BINS, middle - off, spread / times, "logit"))
                whole = drawn(rng, 1_000_000, prevalence, spread)
                truth = [each.value for each in measured(table(rng, *whole, edges, 0.0))]
                hits, above, true = np.zeros(len(MEASURES)), 0, area(*whole)
                for _ in range(RUNS):
                    found = measured(table(rng, *drawn(rng, rows, prevalence, spread), edges, noise))
                    ends = [each.interval() for each in found]
                    hits += [low <= value <= high for (low, high), value in zip(ends, truth, strict=True)]
                    above += ends[0][0] <= true <= ends[0][1]
                into[name] = above / RUNS
                label = name if into is unbinned else f"{name}, far"
                shares |= {f"{label}, {what}": hit / RUNS for what, hit in zip(MEASURES, hits, strict=True)}
    level = 0.05 / len(shares)
    low = {name: share for name, share in shares.items() if binom.cdf(share * RUNS, RUNS, LEAST) < level}
    detail = {
        "cells": len(shares),
        "runs": RUNS,
        "lowest": min(shares.values()),
        "median": float(np.median(list(shares.values()))),
        "broken": low,
        "unbinned": unbinned,
        "far": far,
    }
    return Result(float(len(low)), 0.0, "lower", unit="cells", detail=detail)
