"""Weibull regressions: the coverage of 95% intervals of coefficients and of the shape.

`survival.coverage.weibull`: how many intervals cover less than .93, by one-sided binomial tests at .05 over
the cells, over 400 tables that are drawn anew, of 1,000 and 5,000 rows with shapes 0.7 and 1.5, epsilon 1 and
3, delta 1e-3. Sums are the blocks' own, and noise is that of 5 sites of which one colludes. Intervals may
cover more: they count how far scores that were shortened could have moved estimates, which is hardly at all
where the law is true, as here. `truth_survival` measures where it is not.
"""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from benchmarks.conversation import conducted
from benchmarks.harness import Result, bench
from cape import privacy
from cape.analyses.survival.parametric import SurvivalRegression
from cape.core.errors import TooNoisyWarning
from cape.data import Category, Number, Schema

RUNS, DELTA = 400, 1e-3
SIZES, EPSILONS, SHAPES = (1_000, 5_000), (1.0, 3.0), (0.7, 1.5)
SLOPES = np.array([0.03, 0.5, -0.4])
_LEAST = 0.93
SCHEMA = Schema(
    {
        "age": Number(18, 95, missing=False),
        "diabetes": Category(("no", "yes"), missing=False),
        "dose": Number(0, 2, missing=False),
        "time": Number(0, 10, missing=False),
        "event": Category(("no", "yes"), missing=False),
    }
)
ANALYSIS = SurvivalRegression("time", "event", ["age", "diabetes", "dose"])


def people(rows: int, shape: float, rng: np.random.Generator) -> dict[str, Any]:
    """Rows of Weibull's law, a third of them censored."""
    age, diabetes = np.clip(rng.gamma(9, 6, rows), 18, 95), rng.random(rows) < 0.2
    dose = rng.uniform(0, 2, rows)
    log = 0.03 * (age - 50) + 0.5 * diabetes - 0.4 * dose
    time = 4 * (rng.exponential(size=rows) * np.exp(-log)) ** (1 / shape)
    censored = rng.uniform(1, 10, rows)
    return {
        "age": age, "diabetes": np.where(diabetes, "yes", "no"), "dose": dose,
        "time": np.minimum(time, censored), "event": np.where(time <= censored, "yes", "no"),
    }  # fmt: skip


def covered(runs: int = RUNS) -> dict[str, NDArray[np.bool_]]:
    """For each cell, which intervals hold the truth."""
    found = {}
    for rows, epsilon, shape in itertools.product(SIZES, EPSILONS, SHAPES):
        rng, mu = np.random.default_rng([rows, int(epsilon)]), float(privacy.mu(epsilon, DELTA))
        truth = (*SLOPES, shape)
        hits = np.empty((runs, len(truth)), bool)
        for run in range(runs):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TooNoisyWarning)
                told = conducted(ANALYSIS, people(rows, shape, rng), SCHEMA, mu, rng)
            for place, each in enumerate(told.estimates):
                low, high = each.interval()
                hits[run, place] = low <= truth[place] <= high
        for place, each in enumerate(told.estimates):
            found[f"n={rows} epsilon={epsilon:g} shape={shape:g} {each.label}"] = hits[:, place]
    return found


@bench("survival.coverage.weibull")
def survival_coverage_weibull() -> Result:
    cells = covered()
    level, broken = 0.05 / len(cells), {}
    for name, hits in cells.items():
        if binom.cdf(int(hits.sum()), len(hits), _LEAST) < level:
            broken[name] = round(float(hits.mean()), 3)
    coverage = {name: round(float(hits.mean()), 3) for name, hits in cells.items()}
    detail = {"cells": len(cells), "least": min(coverage.items(), key=lambda each: each[1]), "broken": broken}
    return Result(float(len(broken)), 0.0, "lower", "cells", detail)
