"""Laplace noise against trusted curators' on one mean, a histogram and a quantile; searches for quantiles.

Many numbers come from one release, so that a run takes seconds: the sums of k columns with k epsilon have
the noise that one column has with epsilon, because their L1 sensitivities add up. The peers get epsilon for
each column.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import cape
from benchmarks.harness import Result, Skip, bench
from cape import privacy
from cape.engine.query import Answer

PEERS = Path(__file__).resolve().parents[1] / ".venv-peers" / "bin" / "python"
SITES, COLLUDING = (5, 20), 1
EPSILON = 1.0

PEER = """
import json, sys, warnings
import numpy as np
from diffprivlib import tools
warnings.simplefilter("ignore")
asked = json.loads(sys.argv[1])
table, bounds = np.load(asked["table"]), tuple(asked["bounds"])
rng = np.random.RandomState(7)
if asked["what"] == "mean":
    found = [[tools.mean(c, epsilon=1.0, bounds=bounds, random_state=rng) for c in table.T] for _ in
    range(40)]
elif asked["what"] == "histogram":
    found = [tools.histogram(table[:, 0], epsilon=1.0, bins=asked["bins"], range=bounds,
    random_state=rng)[0].tolist()
             for _ in range(50)]
else:
    found = [[tools.quantile(c, asked["prob"], epsilon=1.0, bounds=bounds, random_state=rng) for c in table.T]
    for _ in range(asked["runs"])]
print(json.dumps([[float(v) for v in f] if isinstance(f, list) else float(f) for f in found]))
"""

OPENDP = """
import json, sys
import numpy as np
import opendp.prelude as dp
dp.enable_features("contrib", "idealized-numerics")
asked = json.loads(sys.argv[1])
table, bounds = np.load(asked["table"]), tuple(asked["bounds"])
if asked["what"] == "mean":
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=len(table)), dp.symmetric_distance()
    made = space >> dp.t.then_clamp(bounds) >> dp.t.then_mean()
    found = dp.binary_search_chain(lambda scale: made >> dp.m.then_laplace(scale), d_in=2, d_out=1.0)
    print(json.dumps([[found(c.tolist()) for c in table.T] for _ in range(40)]))
else:
    bins = asked["bins"]
    cells = np.minimum((table[:, 0] * bins).astype(int), bins - 1).tolist()
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    counts = space >> dp.t.then_count_by_categories(list(range(bins)), null_category=False)
    found = dp.binary_search_chain(lambda scale: counts >> dp.m.then_laplace(scale), d_in=1, d_out=1.0)
    print(json.dumps([[float(v) for v in found(cells)] for _ in range(20)]))
"""


def peer(
    what: str, table: np.ndarray, bounds: tuple[float, float], program: str = PEER, **more: Any
) -> np.ndarray:
    """Return what diffprivlib 0.6.6, or OpenDP 0.16, releases with epsilon 1 of each column, often."""
    if not PEERS.exists():
        raise Skip("diffprivlib is not installed: make .venv-peers/.bench")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "table.npy"))
        np.save(path, table)
        asked = {"what": what, "table": path, "bounds": bounds, **more}
        told = subprocess.run(
            [str(PEERS), "-c", program, json.dumps(asked)],
            capture_output=True, check=True, text=True, env={"PATH": os.environ.get("PATH", "")},
        )  # fmt: skip
    return np.array(json.loads(told.stdout))


def released(
    table: np.ndarray,
    bounds: tuple[float, float],
    sites: int,
    analysis: cape.Analysis,
    epsilon: float,
    **more: Any,
) -> np.ndarray:
    """Return what a release of columns c0, c1... over sites says."""
    names = [f"c{i}" for i in range(table.shape[1])]
    schema = cape.Schema({name: cape.Number(*bounds, missing=False) for name in names})
    parts = {
        f"site {i}": pl.DataFrame({name: table[i::sites, j] for j, name in enumerate(names)})
        for i in range(sites)
    }
    budget = cape.Budget(epsilon=epsilon)
    consortium = cape.Consortium(parts, schema=schema, budget=budget, colluding=COLLUDING, **more)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.array([estimate.value for estimate in consortium.release(analysis, share=1.0).estimates])


def rms(errors: np.ndarray) -> float:
    """Return the root of the mean square."""
    return float(np.sqrt(np.mean(np.square(errors))))


def against(ours: dict[int, float], theirs: dict[str, float]) -> tuple[float, dict[str, Any]]:
    """Return the worst ratio over its bar's sqrt(S / (S - C)), and what it was made from."""
    detail: dict[str, Any] = {f"{name}'s error": round(error, 5) for name, error in theirs.items()}
    worst = 0.0
    for name, error in theirs.items():
        for sites, found in ours.items():
            detail[f"{sites} sites over {name}"] = round(found / error, 4)
            worst = max(worst, found / error / math.sqrt(sites / (sites - COLLUDING)))
    return worst, detail


@bench("pure.mean")
def mean() -> Result:
    """The root mean square error of a mean at epsilon 1 over diffprivlib's and OpenDP's, over
    sqrt(S / (S - C)); replace-one."""
    rng, columns = np.random.default_rng(1), 200
    table, bounds = np.clip(rng.normal(55, 15, (500, columns)), 18, 90), (18.0, 90.0)
    truth = table.mean(axis=0)
    asked = cape.Mean(*(f"c{i}" for i in range(columns)))
    ours = {
        sites: rms(
            np.concatenate(
                [released(table, bounds, sites, asked, EPSILON * columns) - truth for _ in range(40)]
            )
        )
        for sites in SITES
    }
    programs = {"diffprivlib": PEER, "OpenDP": OPENDP}
    theirs = {name: rms(peer("mean", table, bounds, text) - truth) for name, text in programs.items()}
    value, detail = against(ours, theirs)
    return Result(value, 1.05, "lower", detail=detail)


@bench("pure.histogram")
def histogram() -> Result:
    """The same of the counts of a histogram; add-remove, as diffprivlib counts, and far from its cut at 0."""
    rng, bins = np.random.default_rng(2), 4000
    table, bounds = rng.uniform(0, 1, (200_000, 1)), (0.0, 1.0)
    truth = np.histogram(table[:, 0], bins, bounds)[0]
    asked = cape.Histogram("c0", bins=bins)
    ours = {
        sites: rms(
            np.concatenate(
                [
                    released(table, bounds, sites, asked, EPSILON, neighbours="add-remove") - truth
                    for _ in range(20)
                ]
            )
        )
        for sites in SITES
    }
    programs = {"diffprivlib": PEER, "OpenDP": OPENDP}
    theirs = {
        name: rms(peer("histogram", table, bounds, text, bins=bins) - truth)
        for name, text in programs.items()
    }
    value, detail = against(ours, theirs)
    return Result(value, 1.05, "lower", detail=detail)


def age_like(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Ages of adults."""
    return np.clip(rng.normal(55, 15, (rows, columns)), 18, 90)


def zero_inflated(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Two in five are 0, the others have a long tail."""
    found = np.where(rng.random((rows, columns)) < 0.4, 0.0, rng.lognormal(3, 1, (rows, columns)))
    return np.clip(found, 0, 1000)


COLUMNS = {"age-like": (age_like, (18.0, 90.0)), "zero-inflated": (zero_inflated, (0.0, 1000.0))}


@bench("pure.quantile")
def quantile() -> Result:
    """The worst ratio of the error of a median at epsilon 1 over that of diffprivlib's exponential
    mechanism; each of 400 columns with 1,000 rows, or 240 with 100,000, counting repetitions."""
    detail: dict[str, Any] = {}
    for rows, columns, runs in ((1_000, 200, 2), (100_000, 40, 6)):
        for name, (made, bounds) in COLUMNS.items():
            table = made(np.random.default_rng(rows), rows, columns)
            truth = np.quantile(table, 0.5, axis=0)
            theirs = rms(peer("quantile", table, bounds, prob=0.5, runs=runs) - truth)
            asked = cape.Quantiles(*(f"c{i}" for i in range(columns)), probs=[0.5])
            for sites in SITES:
                spent = EPSILON * columns
                errors = [released(table, bounds, sites, asked, spent) - truth for _ in range(runs)]
                ours = rms(np.concatenate(errors))
                detail[f"{name}, {rows:,} rows, {sites} sites"] = round(ours / theirs, 3)
    return Result(max(detail.values()), 2.5, "lower", detail=detail)


def searched(
    asked: cape.Quantiles, values: np.ndarray, schema: cape.Schema, mu: float, rng: np.random.Generator
) -> float:
    """Return the first quantile of one column, from exact counts and Gaussian noise of 5 sites, 1
    colluding."""
    parts, talk = asked.stages(), asked.conduct(schema, "replace-one")
    query = next(talk)
    for part in parts:
        std = math.sqrt(5 / 4) * query.sensitivity / (mu * math.sqrt(part / sum(parts)))
        sums, noise = [], []
        for block in query.blocks:
            inner = block.axes[0].edges[1:-1]
            counts = np.diff([0, *np.searchsorted(values, inner), len(values)]).astype(float)
            counts = counts[0] if block.cell is not None else counts
            sums.append((counts + rng.normal(0, std, np.shape(counts)),))
            noise.append((std,))
        try:
            query = talk.send(Answer(tuple(sums), tuple(noise), len(values), schema))
        except StopIteration as stop:
            return float(stop.value[0].value)
    raise AssertionError("the last stage returns")


@bench("gaussian.quantile")
def gaussian() -> Result:
    """How many times less error a search has than counts in 256 bins, one column, epsilon 1 and delta
    1e-6."""
    detail: dict[str, Any] = {}
    mu = float(privacy.mu(EPSILON, 1e-6))
    for rows, runs in ((1_000, 150), (100_000, 40)):
        for name, (made, bounds) in COLUMNS.items():
            rng = np.random.default_rng(rows)
            schema = cape.Schema(c0=cape.Number(*bounds, missing=False))
            errors: dict[str, list[float]] = {"search": [], "bins": []}
            for _ in range(runs):
                values = np.sort(made(rng, rows, 1)[:, 0])
                truth = float(np.quantile(values, 0.5))
                for label, asked in (
                    ("search", cape.Quantiles("c0", probs=[0.5])),
                    ("bins", cape.Quantiles("c0", probs=[0.5], bins=256)),
                ):
                    errors[label].append(searched(asked, values, schema, mu, rng) - truth)
            better = rms(np.array(errors["bins"])) / rms(np.array(errors["search"]))
            detail[f"{name}, {rows:,} rows"] = round(better, 3)
    return Result(min(detail.values()), 1.3, "higher", detail=detail)
