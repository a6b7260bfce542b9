"""All tables from one release: the noise against the least that is possible, coverage, time and memory.

The least total variance of all unbiased Gaussian mechanisms is found by a convex solver that knows nothing of
residuals: over all matrices X >= 0 in place of the inverse covariance of the whole table, tr(W'W X^-1), W the
marginals, with v'Xv <= 1 for every change v that one person can make.
"""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
import time
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.harness import Result, Skip, bench, peak_bytes
from cape import privacy
from cape.analyses import Tables
from cape.blocks import Table
from cape.data import Category, Number, Schema
from cape.engine.calibration import calibrate
from cape.engine.consortium import Consortium
from cape.engine.contribution import contribution
from cape.engine.query import Answer, Neighbours
from cape.noise import SecureStream
from cape.privacy import Budget
from cape.privacy.residuals import total_variance

Floats = NDArray[np.float64]
SITES, COLLUDING, DELTA = 5, 1, 1e-6
RELATIONS: tuple[Neighbours, ...] = ("replace-one", "add-remove")
DOMAINS = ((2, 3, 4), (2, 2, 2, 2), (3, 5), (2, 2, 3, 3))
RUNS = 1000
_MU = float(privacy.mu(1.0, DELTA))
_COLUMNS, _VALUES, _ROWS, _MEMORY = 100, 10, 100_000, 2e9


def schema_of(values: tuple[int, ...]) -> Schema:
    return Schema({f"c{i}": Category(tuple(range(n)), missing=False) for i, n in enumerate(values)})


def rows_of(values: tuple[int, ...], rows: int, seed: int = 1) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return pl.DataFrame({f"c{i}": rng.integers(0, n, rows) for i, n in enumerate(values)})


def released_variance(values: tuple[int, ...], neighbours: Neighbours) -> float:
    """The total variance of all 2-way marginals of a whole release at epsilon 1, times mu²."""
    frame = rows_of(values, 100)
    sites = {f"s{i}": frame[i * 20 : (i + 1) * 20] for i in range(SITES)}
    made = Consortium(
        sites, schema_of(values), Budget(1.0, DELTA), colluding=COLLUDING, neighbours=neighbours
    )
    release = made.release(Tables(frame.columns), share=1.0)
    workload = dict.fromkeys(itertools.combinations(range(len(values)), 2), 1.0)
    return total_variance(values, workload, release.model.measured.noise) * _MU**2


def marginals(values: tuple[int, ...]) -> Floats:
    """The matrix from the counts of all cells to all 2-way marginals."""
    parts = []
    for pair in itertools.combinations(range(len(values)), 2):
        matrix = np.ones((1, 1))
        for i, n in enumerate(values):
            matrix = np.kron(matrix, np.eye(n) if i in pair else np.ones((1, n)))
        parts.append(matrix)
    return np.vstack(parts)


def least_variance(values: tuple[int, ...], neighbours: Neighbours) -> float:
    """The least total variance at mu = 1, of a trusted curator, by a general convex solver."""
    try:
        import cvxpy as cp
    except ImportError:
        raise Skip("pip install cvxpy") from None
    w = marginals(values)
    cells = math.prod(values)
    replaced = neighbours == "replace-one"
    # with a public number of rows only what is orthogonal to 1 is measured
    basis = np.linalg.svd(np.ones((1, cells)))[2][1:].T if replaced else np.eye(cells)
    root = np.linalg.cholesky(_square(w @ basis))
    x = cp.Variable((basis.shape[1], basis.shape[1]), PSD=True)
    changes = basis
    if replaced:
        changes = np.array([basis[i] - basis[j] for i, j in itertools.combinations(range(cells), 2)])
    cost = cp.sum(cp.multiply(changes @ x, changes), axis=1)
    problem = cp.Problem(cp.Minimize(cp.matrix_frac(root, x)), [cost <= 1])
    problem.solve(solver="CLARABEL")
    return float(problem.value)


def _square(matrix: Floats) -> Floats:
    """W'W, made regular where marginals leave directions of the table open."""
    found = matrix.T @ matrix
    return found + 1e-9 * np.trace(found) / len(found) * np.eye(len(found))


@bench("tables.optimal")
def optimal() -> Result:
    """The total variance of a release of all 2-way marginals, over the optimum times S / (S - C)."""
    ratios = {}
    for neighbours in RELATIONS:
        for values in DOMAINS:
            least = least_variance(values, neighbours) * SITES / (SITES - COLLUDING)
            ratios[f"{neighbours} {'x'.join(map(str, values))}"] = (
                released_variance(values, neighbours) / least
            )
    return Result(
        max(ratios.values()), 1.01, "lower", "times the optimum", {k: round(v, 5) for k, v in ratios.items()}
    )


@bench("tables.separate")
def separate() -> Result:
    """How many times the total variance every marginal has that is released by itself: 14 binary columns."""
    values, pairs = (2,) * 14, math.comb(14, 2)
    found = {}
    for neighbours in RELATIONS:
        square = pairs * (2 if neighbours == "replace-one" else 1)  # a row that differs in all columns
        found[neighbours] = (
            square * 4 * pairs * SITES / (SITES - COLLUDING) / released_variance(values, neighbours)
        )
    return Result(min(found.values()), 2.0, "higher", "times", {k: round(v, 3) for k, v in found.items()})


UGLY = Schema(
    age=Number(18, 90),
    crp=Number(0, 500),
    sex=Category(("f", "m"), missing=False),
    stage=["I", "II", "III", "IV"],
    ill=Category(("no", "yes"), missing=False),
)
ASKED = Tables(
    ["age", "crp", "sex", "stage", "ill"], 3, edges={"age": [18, 40, 65, 90], "crp": [0, 1, 5, 500]}
)


def ugly(rows: int) -> pl.DataFrame:
    """Skewed, zero-inflated and missing cells, a rare value, and columns that go together."""
    rng = np.random.default_rng(2)
    ill = rng.random(rows) < 0.05
    age = np.where(rng.random(rows) < 0.1, np.nan, rng.normal(50 + 12 * ill, 14))
    crp = np.where(rng.random(rows) < 0.5, 0.0, rng.lognormal(1 + ill, 1.5))
    stage = rng.choice(5, rows, p=[0.6, 0.2, 0.1, 0.0, 0.1])
    names = ["I", "II", "III", "IV", None]
    return pl.DataFrame(
        {
            "age": pl.Series(age).fill_nan(None),
            "crp": crp,
            "sex": [("f", "m")[i] for i in rng.integers(0, 2, rows)],
            "stage": [names[i] for i in stage],
            "ill": [("no", "yes")[int(i)] for i in ill],
        }
    )


def noisy(sums: list[Any], neighbours: Neighbours, rows: int, rng: np.random.Generator) -> Answer:
    query = ASKED.query(UGLY, neighbours)
    std = query.sensitivity / _MU * math.sqrt(SITES / (SITES - COLLUDING))
    noise = tuple(tuple(std * scale for scale in scales) for scales in query.scales)
    found = tuple(
        tuple(
            array * 2.0**-20 + rng.normal(size=array.shape) * each
            for array, each in zip(part, stds, strict=True)
        )
        for part, stds in zip(sums, noise, strict=True)
    )
    return Answer(found, noise, rows if neighbours == "replace-one" else None, UGLY)


@bench("tables.coverage")
def coverage() -> Result:
    """How often 95% intervals of 2- and 3-way cells hold the count: the furthest from .95."""
    frame, rng, rows = ugly(1500), np.random.default_rng(3), 1500
    names = ASKED.columns
    tables = [t for many in (2, 3) for t in itertools.combinations(names, many)]
    found: dict[str, float] = {}
    by_table: dict[str, list[float]] = {}
    for neighbours in RELATIONS:
        sums = Table("a", frame, UGLY).sums(ASKED.query(UGLY, neighbours).blocks)
        exact = ASKED.finish(_exact(sums, neighbours, rows)).model
        truth = {t: np.rint(exact.table(*t, missing=True).values) for t in tables}
        held = dict.fromkeys(tables, 0.0)
        for _ in range(RUNS):
            model = ASKED.finish(noisy(sums, neighbours, rows, rng)).model
            for table in tables:
                low, high = model.table(*table, missing=True).interval(0.95)
                held[table] += float(((low <= truth[table]) & (truth[table] <= high)).mean()) / RUNS
        for ways in (2, 3):
            each = [held[t] for t in tables if len(t) == ways]
            found[f"{neighbours}, {ways}-way"] = float(np.mean(each))
            by_table[f"{neighbours}, {ways}-way, by table"] = [round(min(each), 4), round(max(each), 4)]
    furthest = max(found.values(), key=lambda share: abs(share - 0.95))
    detail: dict[str, Any] = {name: round(share, 4) for name, share in found.items()}
    detail |= by_table | {"whole releases": _whole(frame)}
    return Result(abs(furthest - 0.95), 0.01, "lower", "distance from .95", detail)


def _exact(sums: list[Any], neighbours: Neighbours, rows: int) -> Answer:
    query = ASKED.query(UGLY, neighbours)
    found = tuple(tuple(array * 2.0**-20 for array in part) for part in sums)
    nothing = tuple((0.0,) * len(scales) for scales in query.scales)
    return Answer(found, nothing, rows if neighbours == "replace-one" else None, UGLY)


def _whole(frame: pl.DataFrame, releases: int = 20) -> float:
    """The coverage of 3-way cells over some whole releases, masks and all."""
    sums = Table("a", frame, UGLY).sums(ASKED.query(UGLY, "replace-one").blocks)
    exact = ASKED.finish(_exact(sums, "replace-one", frame.height)).model
    held = []
    for _ in range(releases):
        sites = {f"s{i}": frame[i * 300 : (i + 1) * 300] for i in range(SITES)}
        made = Consortium(sites, UGLY, Budget(1.0, DELTA), colluding=COLLUDING)
        model = made.release(ASKED, share=1.0).model
        for table in itertools.combinations(ASKED.columns, 3):
            low, high = model.table(*table, missing=True).interval(0.95)
            true = np.rint(exact.table(*table, missing=True).values)
            held.append(float(((low <= true) & (true <= high)).mean()))
    return round(float(np.mean(held)), 4)


@bench("tables.scale")
def scale() -> Result:
    """Seconds at a site for all 2-way tables of 100 columns of 10 values, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.tables"], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    seconds = found["seconds"] if found["bytes"] <= _MEMORY else math.inf
    return Result(seconds, 60.0, "lower", "s", found)


def one_site() -> dict[str, Any]:
    values = (_VALUES,) * _COLUMNS
    schema, frame = schema_of(values), rows_of(values, _ROWS)
    asked = Tables(frame.columns)
    start = time.perf_counter()
    query = asked.query(schema, "replace-one")
    calibration = calibrate(query, schema, 1 / _MU)
    vector = contribution(
        Table("a", frame, schema), query, calibration, sample=SecureStream(), noise=SecureStream()
    )
    seconds = time.perf_counter() - start
    return {"seconds": round(seconds, 2), "numbers": vector.size, "tables": 4950, "bytes": peak_bytes()}


@bench("tables.plan")
def plan() -> Result:
    """Seconds to plan the same question."""
    values = (_VALUES,) * _COLUMNS
    sites = {f"s{i}": rows_of(values, 10) for i in range(SITES)}
    made = Consortium(sites, schema_of(values), Budget(1.0, DELTA), sizes=dict.fromkeys(sites, 20_000))
    start = time.perf_counter()
    made.plan(Tables(list(schema_of(values))), share=1.0)
    return Result(time.perf_counter() - start, 60.0, "lower", "s")


if __name__ == "__main__":
    print(json.dumps(one_site()))
