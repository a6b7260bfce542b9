"""Whether plans can be believed: the noise of releases beside what was planned before any row was read.

On zero-inflated and lognormal columns (`benchmarks.columns`), 100,000 rows, epsilon 1, the whole budget for
each release; the schema states the expected mean and SD of each column, as they are. Real noise is the
standard deviation over releases of the same rows.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
import warnings

import numpy as np
import polars as pl

import cape
from benchmarks.columns import NUMBERS, SCHEMA, population, sample
from benchmarks.harness import Result, bench
from cape.data import Category, Number, Schema
from cape.engine.query import Analysis

ROWS = 100_000
RELEASES = 120  # which tells a standard deviation to 6.5%
MANY = 400  # and to 3.5%, where the range allows less than LEAST and MOST do
LEAST, MOST = 0.7, 1.4
MARGIN = 1.2  # of a range's ends
_SAME = 1.05

DETERMINED: dict[str, tuple[Analysis, str]] = {
    "mean": (cape.Mean(*NUMBERS), "sums with fixed noise, divided by rows"),
    "sum": (cape.Sum(*NUMBERS), "sums with fixed noise"),
    "variance": (cape.Variance(*NUMBERS), "noise in t², and in t times twice the mean"),
    "sd": (cape.StandardDeviation(*NUMBERS), "that of the variance over twice the SD"),
    "covariance": (
        cape.Covariance("inpatient", "emergency", "charges"),
        "noise in tt', and in t times the means",
    ),
    "correlation": (
        cape.Correlation("inpatient", "emergency"),
        "that of the covariance over the SDs; a correlation below .3 changes it by a few percent",
    ),
    "linear": (
        cape.LinearRegression("days", ["inpatient", "charges"], method="moments"),
        "noise in xy and x times the intercept, over the variance of x, where features are uncorrelated",
    ),
    "ecdf": (cape.ECDF("charges", bins=16), "counts with fixed noise, divided by rows"),
    "count": (cape.Count(readmitted=1), "counts with fixed noise"),
}
"""Analyses whose noise the stated moments determine, and why."""

OTHERS: dict[str, Analysis] = {
    "quantiles": cape.Quantiles("inpatient", "motion", "charges"),
    "table one": cape.TableOne("motion", "charges", by="readmitted"),  # whose groups are alike
    "linear, correlated features": cape.LinearRegression("days", ["inpatient", "emergency"]),  # by .27
    "logistic": cape.LogisticRegression("readmitted", ["inpatient", "emergency"]),  # of which little follows
    "pca": cape.PCA("inpatient", "emergency", "charges"),
}
"""Analyses whose noise depends on the density of cells, on correlations, or on how far a target follows its
features, which moments do not tell: within the range."""


def stated() -> Schema:
    """Return the schema with what is known of the population."""
    cells = population()
    found = {}
    for name, column in SCHEMA.items():
        if isinstance(column, Number):
            spread = {"mean": float(cells[name].mean()), "sd": float(cells[name].std())}
            found[name] = dataclasses.replace(column, expected=spread)
        elif isinstance(column, Category):
            found[name] = dataclasses.replace(column, expected={"share": float(cells[name].mean())})
    return Schema(found)


def measured(analysis: Analysis, schema: Schema, releases: int = RELEASES) -> dict[str, dict[str, float]]:
    """Return for each label the real noise, the planned, and the ends of its range."""
    table = pl.DataFrame(sample(ROWS, np.random.default_rng(2)))
    values: dict[str, list[float]] = {}

    def fresh() -> cape.Consortium:
        return cape.Consortium({"all": table}, schema, cape.Budget(1.0, 1e-6), colluding=0, scheme="pooled")

    plan = fresh().plan(analysis, 1.0)
    for _ in range(releases):
        for estimate in fresh().release(analysis, 1.0).estimates:
            values.setdefault(estimate.label, []).append(estimate.value)
    found = {}
    for label, each in values.items():
        planned = plan.noise[label]["pooled"]
        if planned == 0:  # public
            continue
        low, high = plan.shapes.ranges.get(label, (planned, planned))
        found[label] = {"real": statistics.stdev(each), "planned": planned, "low": low, "high": high}
    return found


def _outside(real: float, planned: float, low: float, high: float) -> float:
    """Return how far real noise lies outside the range, 1 being its end, or outside what is allowed."""
    if high <= _SAME * low:
        return max(LEAST * planned / real, real / planned / MOST)
    return max(low / real, real / high) / MARGIN


@bench("plan.shape")
def shape() -> Result:
    """The worst of real over planned noise, 1 being the edge of what is allowed, or of the range."""
    detail: dict[str, list[float]] = {}
    worst = 0.0
    schema = stated()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for name, (analysis, _) in DETERMINED.items():
            ratios = [each["real"] / each["planned"] for each in measured(analysis, schema).values()]
            detail[name] = [round(min(ratios), 3), round(max(ratios), 3)]
            worst = max(worst, LEAST / min(ratios), max(ratios) / MOST)
        for name, other in OTHERS.items():
            outside = [_outside(**each) for each in measured(other, schema, MANY).values()]
            detail[f"{name} (1: the end of the range)"] = [round(min(outside), 3), round(max(outside), 3)]
            worst = max(worst, *outside)
    return Result(worst, 1.0, "lower", detail=detail)


if __name__ == "__main__":
    warnings.simplefilter("ignore", UserWarning)
    known = {name: each for name, (each, _) in DETERMINED.items()} | OTHERS
    for wanted in sys.argv[1:] or known:
        analysis = known[wanted]
        for label, each in measured(analysis, stated()).items():
            print(
                json.dumps(
                    {"analysis": wanted, "label": label, "ratio": each["real"] / each["planned"], **each}
                )
            )
