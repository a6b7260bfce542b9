"""Cox regressions: the error of coefficients, the coverage of their intervals, and the time of a fit.

`survival.cox`: 30,000 or 5,000 rows in 5 sites of which one colludes, 3 features uniform within 1 / sqrt(3),
coefficients (0, .5, .8), exponential censoring at rate .3, follow-up to 1, delta 1e-3: the setting of
FDPCox's own experiment. Every run is a whole release of `Consortium`. The figure is the mean over 200 runs of
the squared error, summed over coefficients; beside it is that of Cox's partial likelihood on the same rows.

`survival.rotterdam`: 2,982 patients in 3 sites, six binary features; the squared distance to the partial
likelihood of all rows over its squared length, mean of 200 whole releases.

`survival.coverage.cox`: how many 95% intervals break a rule, by one-sided binomial tests at .05 over the
cells: coverage is at least .93, and at most .985 where the sampling error is larger than that of noise. Each
cell is one coefficient at one number of rows and one epsilon, over 400 tables that are drawn anew: those of
`survival.cox`, of columns as hospitals have them (a rare category, counts that are mostly 0, a hazard that
rises, censoring that depends on a feature), and 7,800 rows whose features decide who leaves early, at delta
1e-6. Sums are the blocks' own, and noise is that of 5 sites of which one colludes.

`survival.proportional`: how often the test of proportional hazards rejects at .05 where they are.

`survival.time`: 1,000,000 rows, 10 features and 20 bins in 5 sites: seconds of a whole release.

`python -m benchmarks.survival_cox choices [RUNS]` halves and doubles what was chosen, one at a time.
"""

from __future__ import annotations

import importlib
import itertools
import math
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import binom

from benchmarks.conversation import conducted
from benchmarks.harness import Result, Skip, bench, best_seconds
from cape import Budget, privacy
from cape.analyses.survival.cox import Cox
from cape.core.errors import CapeError, TooNoisyWarning
from cape.data import Category, Number, Schema
from cape.engine.consortium import Consortium
from cape.engine.query import AnalysisResult

Floats = NDArray[np.float64]
Columns = dict[str, Any]

DELTA, TRUE = 1e-3, np.array([0.0, 0.5, 0.8])
RUNS, COVERED = 200, 400
SIZES, EPSILONS = (600, 3_000, 30_000), (1.0, 3.0)
_SIDE = 1 / math.sqrt(3)
_LEAST, _MOST = 0.93, 0.985

UNIFORM = Schema(
    {name: Number(-_SIDE, _SIDE, missing=False) for name in "abc"}
    | {"time": Number(0, 20, missing=False), "event": Category(("no", "yes"), missing=False)}
)
HOSPITAL = Schema(
    {
        "age": Number(18, 90, missing=False),
        "visits": Number(0, 50, missing=False),
        "rare": Category(("no", "yes"), missing=False),
        "time": Number(0, 10, missing=False),
        "event": Category(("no", "yes"), missing=False),
    }
)
HOSPITAL_TRUE = np.array([0.03, 0.05, 0.7])
LEAVING = Schema(
    {
        "age": Number(18, 95, missing=False),
        "diabetes": Category(("no", "yes"), missing=False),
        "time": Number(0, 120, missing=False),
        "event": Category(("no", "yes"), missing=False),
    }
)
LEAVING_TRUE = np.array([0.03, 0.5])
PATIENTS = ("hormon", "chemo", "meno", "grade", "size20", "size50")
ANALYSIS = Cox("time", "event", ["a", "b", "c"], edges=(np.arange(1, 21) / 20).tolist())
HOSPITAL_ANALYSIS = Cox("time", "event", ["age", "visits", "rare"])
LEAVING_ANALYSIS = Cox("time", "event", ["age", "diabetes"])


def uniform(rows: int, rng: np.random.Generator) -> Columns:
    """The rows of FDPCox's experiment."""
    x = rng.uniform(-_SIDE, _SIDE, (rows, 3))
    time, censored = rng.exponential(size=rows) * np.exp(-x @ TRUE), rng.exponential(1 / 0.3, rows)
    event = np.where(time < censored, "yes", "no")
    return {**dict(zip("abc", x.T, strict=True)), "time": np.minimum(time, censored), "event": event}


def hospital(rows: int, rng: np.random.Generator) -> Columns:
    """Rows as hospitals have them: hazards rise with time, and the old are censored earlier."""
    age = np.clip(rng.normal(60, 14, rows), 18, 90)
    visits = np.where(rng.random(rows) < 0.6, 0.0, np.minimum(rng.geometric(0.25, rows), 50))
    rare = rng.random(rows) < 0.06
    log = 0.03 * (age - 60) + 0.05 * visits + 0.7 * rare
    time = (rng.exponential(size=rows) * np.exp(-log) * 20) ** (1 / 1.5)
    censored = rng.uniform(1, 10, rows) * np.where(age > 70, 0.7, 1.0)
    event = np.where(time <= censored, "yes", "no")
    return {
        "age": age, "visits": visits, "rare": np.where(rare, "yes", "no"),
        "time": np.minimum(time, censored), "event": event,
    }  # fmt: skip


def leaving(rows: int, rng: np.random.Generator) -> Columns:
    """Rows whose features decide who leaves early, so that those at risk become other people over time."""
    age, diabetes = np.clip(rng.gamma(9, 6, rows), 18, 95), rng.random(rows) < 0.2
    time = rng.exponential(60 / np.exp(0.03 * (age - 50) + 0.5 * diabetes))
    censored = rng.uniform(0, 120, rows)
    return {
        "age": age.round(1), "diabetes": np.where(diabetes, "yes", "no"),
        "time": np.minimum(time, censored).round(2), "event": np.where(time <= censored, "yes", "no"),
    }  # fmt: skip


def partial_likelihood(x: Floats, time: Floats, event: NDArray[np.bool_], until: float = math.inf) -> Floats:
    """The maximum of Cox's partial likelihood over events until a time; rows leave at different times."""
    order = np.argsort(-time, kind="stable")
    x, counts = x[order], (event & (time <= until))[order]
    squares = np.einsum("ni,nj->nij", x, x).reshape(len(x), -1)
    weights = np.zeros(x.shape[1])
    for _ in range(30):
        r = np.exp(x @ weights)
        total = np.cumsum(r)[counts]
        mean = np.cumsum(r[:, None] * x, axis=0)[counts] / total[:, None]
        second = (np.cumsum(r[:, None] * squares, axis=0)[counts] / total[:, None]).sum(axis=0)
        curve = second.reshape(x.shape[1], -1) - mean.T @ mean
        change = np.linalg.solve(curve, (x[counts] - mean).sum(axis=0))
        weights = weights + change
        if np.abs(change).max() < 1e-9:
            break
    return weights


def whole(analysis: Cox, table: Columns, schema: Schema, epsilon: float, sites: int) -> Floats:
    """The coefficients of a whole release, rows dealt out to sites of which one colludes."""
    frame = pl.DataFrame(table)
    tables = {str(site): frame[site::sites] for site in range(sites)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooNoisyWarning)
        consortium = Consortium(tables, schema, budget=Budget(epsilon, DELTA), colluding=1)
        release = consortium.release(analysis, share=1.0)
    return np.array([each.value for each in release.estimates])


def simulated(
    analysis: Cox,
    table: Columns,
    schema: Schema,
    epsilon: float,
    rng: np.random.Generator,
    delta: float = DELTA,
) -> AnalysisResult:
    """What the analysis makes of the blocks' own sums, with the noise of 5 sites of which one colludes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooNoisyWarning)
        return conducted(analysis, table, schema, float(privacy.mu(epsilon, delta)), rng)


def _error(rows: int, epsilon: float, bar: float) -> Result:
    found, plain = [], []
    for seed in range(RUNS):
        table = uniform(rows, np.random.default_rng(seed))
        x = np.column_stack([table[name] for name in "abc"])
        plain.append(partial_likelihood(x, table["time"], table["event"] == "yes", 1.0) - TRUE)
        found.append(whole(ANALYSIS, table, UNIFORM, epsilon, 5) - TRUE)
    errors, others = ((np.array(each) ** 2).sum(axis=1) for each in (found, plain))
    detail = {
        "without privacy": round(float(others.mean()), 5),
        "standard error": round(float(errors.std()) / math.sqrt(RUNS), 5),
        "runs": RUNS,
    }
    return Result(float(errors.mean()), bar, "lower", "squared error", detail)


@bench("survival.cox.epsilon1")
def survival_cox_1() -> Result:
    return _error(30_000, 1.0, 0.0033)


@bench("survival.cox.epsilon3")
def survival_cox_3() -> Result:
    return _error(30_000, 3.0, 0.0024)


@bench("survival.cox.small")
def survival_cox_small() -> Result:
    return _error(5_000, 3.0, 0.085)


def rotterdam() -> tuple[Columns, Schema, Floats, float]:
    """The patients, their schema, the partial likelihood's coefficients, and the end of follow-up."""
    path = Path(os.environ.get("CAPE_DATA", "")) / "rotterdam" / "rotterdam.csv"
    if "CAPE_DATA" not in os.environ or not path.exists():
        raise Skip("set CAPE_DATA to a folder with rotterdam/rotterdam.csv, as in the SurvSet collection")
    data = pl.read_csv(path)
    size = data["fac_tsize"]
    features = {
        "hormon": data["fac_hormon"] == "yes",
        "chemo": data["fac_chemo"] == "yes",
        "meno": data["fac_meno"] == "post",
        "grade": data["fac_grade"] == 3,
        "size20": size != "<=20mm",
        "size50": size == ">50mm",
    }
    time, event = data["time"].to_numpy(), data["event"].to_numpy() == 1
    x = np.column_stack([each.to_numpy() for each in features.values()]).astype(float)
    two = Category(("no", "yes"), missing=False)
    schema = Schema({**dict.fromkeys(PATIENTS, two), "time": Number(0, 240, missing=False), "event": two})
    table = {name: np.where(each.to_numpy(), "yes", "no") for name, each in features.items()}
    table |= {"time": time, "event": np.where(event, "yes", "no")}
    return table, schema, partial_likelihood(x, time, event), 240.0


def _distance(epsilon: float, bar: float) -> Result:
    table, schema, plain, _ = rotterdam()
    analysis = Cox("time", "event", PATIENTS)
    found = np.array([whole(analysis, table, schema, epsilon, 3) for _ in range(RUNS)])
    apart = ((found - plain) ** 2).sum(axis=1) / float(plain @ plain)
    detail = {
        "mean": dict(zip(PATIENTS, found.mean(axis=0).round(3).tolist(), strict=True)),
        "without privacy": dict(zip(PATIENTS, plain.round(3).tolist(), strict=True)),
        "standard error": round(float(apart.std()) / math.sqrt(RUNS), 4),
        "runs": RUNS,
    }
    return Result(float(apart.mean()), bar, "lower", "relative squared error", detail)


@bench("survival.rotterdam.epsilon3")
def survival_rotterdam_3() -> Result:
    return _distance(3.0, 0.49)


@bench("survival.rotterdam.epsilon9")
def survival_rotterdam_9() -> Result:
    return _distance(9.0, 0.20)


def covered(runs: int = COVERED) -> dict[str, tuple[Floats, bool]]:
    """For each cell, which intervals hold the truth, and whether the sampling error is the larger one."""
    found = {}
    cases: tuple[tuple[Any, ...], ...] = (
        ("uniform", ANALYSIS, uniform, UNIFORM, TRUE, SIZES, DELTA),
        ("hospital", HOSPITAL_ANALYSIS, hospital, HOSPITAL, HOSPITAL_TRUE, SIZES, DELTA),
        ("leaving", LEAVING_ANALYSIS, leaving, LEAVING, LEAVING_TRUE, (7_800,), 1e-6),
    )
    for name, analysis, make, schema, truth, sizes, delta in cases:
        for rows, epsilon in itertools.product(sizes, EPSILONS):
            rng = np.random.default_rng([rows, int(epsilon)])
            hits, sampled = np.empty((runs, len(truth))), np.empty((runs, len(truth)))
            for run in range(runs):
                told = simulated(analysis, make(rows, rng), schema, epsilon, rng, delta)
                for place, each in enumerate(told.estimates):
                    low, high = each.interval()
                    hits[run, place] = low <= truth[place] <= high
                    sampled[run, place] = each.sampling > each.privacy
            for place, label in enumerate(e.label for e in told.estimates):
                larger = float(np.mean(sampled[:, place])) > 0.5
                found[f"{name} n={rows} epsilon={epsilon:g} {label}"] = hits[:, place], larger
    return found


@bench("survival.coverage.cox")
def survival_coverage() -> Result:
    cells = covered()
    level, broken = 0.05 / len(cells), {}
    for name, (hits, larger) in cells.items():
        held, runs = int(hits.sum()), len(hits)
        low = binom.cdf(held, runs, _LEAST) < level
        high = larger and binom.sf(held - 1, runs, _MOST) < level
        if low or high:
            broken[name] = round(held / runs, 3)
    coverage = {name: round(float(hits.mean()), 3) for name, (hits, _) in cells.items()}
    detail = {
        "cells": len(cells),
        "least": min(coverage.items(), key=lambda each: each[1]),
        "most where sampling is larger": max(
            (each for each in coverage.items() if cells[each[0]][1]), key=lambda each: each[1], default=None
        ),
        "broken": broken,
    }
    return Result(float(len(broken)), 0.0, "lower", "cells", detail)


@bench("survival.proportional")
def survival_proportional() -> Result:
    analysis = Cox("time", "event", ["a", "b", "c"], edges=ANALYSIS.edges, proportional=True)
    rejected = {}
    for rows, epsilon in ((3_000, 1.0), (3_000, 3.0), (30_000, 3.0)):
        rng, found = np.random.default_rng([rows, int(epsilon)]), []
        for _ in range(RUNS):
            table = uniform(rows, rng)
            model: Any = simulated(analysis, table, UNIFORM, epsilon, rng).model
            found.append(model.proportional.p < 0.05)
        rejected[f"n={rows} epsilon={epsilon:g}"] = float(np.mean(found))
    # 200 tests of size .05 reject more than 9.5% with a probability below .4%
    return Result(max(rejected.values()), 0.095, "lower", "share", rejected)


@bench("survival.time")
def survival_time() -> Result:
    rng, rows, names = np.random.default_rng(1), 1_000_000, [f"x{place}" for place in range(10)]
    x = rng.uniform(-1, 1, (rows, 10))
    time, censored = rng.exponential(size=rows) * np.exp(-0.3 * x[:, 0]), rng.exponential(3, rows)
    table = dict(zip(names, x.T, strict=True))
    table |= {"time": np.minimum(time, censored), "event": np.where(time <= censored, "yes", "no")}
    two = Category(("no", "yes"), missing=False)
    columns = {**dict.fromkeys(names, Number(-1, 1, missing=False)), "time": Number(0, 3, missing=False)}
    schema, analysis = Schema({**columns, "event": two}), Cox("time", "event", names, bins=20)
    frame = pl.DataFrame(table)
    sites = {str(site): frame[site::5] for site in range(5)}

    def fit() -> None:
        Consortium(sites, schema, budget=Budget(1.0, DELTA), colluding=1).release(analysis, share=1.0)

    return Result(best_seconds(fit, 3), 10.0, "lower", "s", {"rows": rows, "features": 10, "bins": 20})


CHOICES = {
    "cox_baseline": ("_SHAPE", "_DRIFT", "_CURVED", "_SKEWED"),
    "cox_estimate": ("BENT",),
    "cox_query": ("LEAVING", "TOTALS"),
    "cox_steps": ("FAR", "_ROUND", "_APART"),
}


@contextmanager
def _instead(module: str, name: str, times: float) -> Iterator[float]:
    where = importlib.import_module(f"cape.analyses.survival.{module}")
    chosen = getattr(where, name)
    setattr(where, name, chosen * times)
    try:
        yield chosen * times
    finally:
        setattr(where, name, chosen)


def choices(runs: int) -> None:
    """Print squared errors with each choice halved and doubled."""
    settings = ((600, 3.0), (3_000, 1.0), (30_000, 1.0))

    def measured() -> list[float]:
        found = []
        for rows, epsilon in settings:
            errors = []
            for run in range(runs):
                rng = np.random.default_rng([run, rows])
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    told = simulated(ANALYSIS, uniform(rows, rng), UNIFORM, epsilon, rng)
                errors.append(sum((e.value - t) ** 2 for e, t in zip(told.estimates, TRUE, strict=True)))
            found.append(float(np.mean(errors)))
        return found

    print(f"{'rows, epsilon':28}", *(f"{rows}, {epsilon:g}".rjust(12) for rows, epsilon in settings))
    print(f"{'as chosen':28}", *(f"{each:12.5f}" for each in measured()), flush=True)
    for module, names in CHOICES.items():
        for name in names:
            for times in (0.5, 2.0):
                with _instead(module, name, times) as value:
                    try:
                        line = " ".join(f"{each:12.5f}" for each in measured())
                    except CapeError as error:
                        line = str(error)
                print(f"{f'{name} = {value:g}':28}", line, flush=True)


if __name__ == "__main__":
    choices(int(sys.argv[2]) if len(sys.argv) > 2 else 40)
