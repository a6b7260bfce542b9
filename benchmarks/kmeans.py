"""Private k-means across sites: the within-cluster sum of squares of all rows, beside scikit-learn's.

`python -m benchmarks.kmeans` prints the same for other choices, which docs/kmeans.md shows.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import warnings
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.cluster import KMeans as Plain

from benchmarks.harness import Result, bench
from cape import Budget, Number, Schema
from cape.core.errors import TooNoisyWarning
from cape.engine.consortium import Consortium
from cape.learning import kmeans as ours

Floats = NDArray[np.float64]

ROWS = 20_000
BOUND = 10.0
SITES = (0.05, 0.4, 0.1, 0.25, 0.2)  # of the rows


def layout(
    generator: np.random.Generator,
    clusters: int,
    width: int,
    sd: float,
    *,
    apart: float,
    equal: bool,
) -> Floats:
    """Return rows of normal clusters anywhere within the bounds, whose middles are `apart` SDs or more."""
    while True:
        middles = generator.uniform(-BOUND + sd, BOUND - sd, (clusters, width))
        gaps = np.linalg.norm(middles[:, None] - middles, axis=2) + np.diag(np.full(clusters, np.inf))
        if gaps.min() >= apart * sd:
            break
    weights = np.ones(clusters) if equal else 1 / (1 + np.arange(clusters))
    chosen = generator.choice(clusters, ROWS, p=weights / weights.sum())
    return np.clip(middles[chosen] + generator.normal(0, sd, (ROWS, width)), -BOUND, BOUND)


def within(rows: Floats, centres: Floats) -> float:
    """Return the sum over rows of the squared distance to the nearest centre."""
    return float(((rows[:, None] - centres) ** 2).sum(axis=2).min(axis=1).sum())


def release(rows: Floats, clusters: int, epsilon: float, seed: int, delta: float = 1e-5) -> Any:
    """Return the release of five sites, one of which may collude, for the whole budget."""
    names = [f"x{i}" for i in range(rows.shape[1])]
    ends = np.round(np.cumsum(SITES) * len(rows)).astype(int)[:-1]
    tables = {
        f"site {i}": pl.DataFrame(part, schema=names, orient="row")
        for i, part in enumerate(np.split(rows, ends))
    }
    schema = Schema({name: Number(-BOUND, BOUND, missing=False) for name in names})
    consortium = Consortium(tables, schema, Budget(epsilon, delta), colluding=1, scheme="cape")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooNoisyWarning)
        return consortium.release(ours.KMeans(names, clusters, seed=seed), 1.0)


@functools.cache
def reference(
    place: int, clusters: int, width: int, sd: float, apart: float, equal: bool
) -> tuple[Floats, float]:
    """Return the rows of one layout, and what scikit-learn makes of them."""
    rows = layout(np.random.default_rng(place), clusters, width, sd, apart=apart, equal=equal)
    return rows, float(Plain(clusters, n_init=10, random_state=place).fit(rows).inertia_)


def ratios(
    layouts: int,
    repeats: int,
    clusters: int,
    width: int,
    sd: float,
    epsilon: float,
    *,
    apart: float = 7.5,
    equal: bool = True,
    delta: float = 1e-5,
) -> Floats:
    """Return the ratio of each release, over layouts and, for each of them, fresh noise and public seeds."""
    found = []
    for i in range(layouts):
        rows, plain = reference(i, clusters, width, sd, apart, equal)
        for seed in range(repeats):
            made = release(rows, clusters, epsilon, 10 * i + seed, delta).model
            found.append(within(rows, made.centres) / plain)
    return np.sort(found)


def told(found: Floats) -> dict[str, float]:
    """Return the middle, the 90% quantile and the worst."""
    return {
        "median": round(float(np.median(found)), 4),
        "90%": round(float(found[math.ceil(0.9 * len(found)) - 1]), 4),
        "worst": round(float(found[-1]), 4),
    }


@bench("learning.kmeans")
def kmeans() -> Result:
    """The worst ratio for 4 clusters of 20,000 rows in the plane at epsilon 1, over layouts and noise."""
    found = ratios(20, 3, clusters=4, width=2, sd=1.0, epsilon=1.0)
    detail: dict[str, Any] = {"runs": len(found), **told(found)}
    detail["harder"] = {
        "unequal sizes": told(ratios(8, 1, 4, 2, 1.0, 1.0, equal=False)),
        "10 clusters": told(ratios(8, 1, 10, 2, 0.5, 1.0)),
        "10 clusters, 5 columns": told(ratios(8, 1, 10, 5, 1.0, 1.0, apart=5.0)),
        "10 clusters, 10 columns": told(ratios(8, 1, 10, 10, 1.0, 1.0, apart=5.0)),
        "epsilon 0.1": told(ratios(8, 1, 4, 2, 1.0, 0.1)),
        "epsilon 0.1, 5 columns": told(ratios(8, 1, 4, 5, 1.0, 0.1, apart=5.0)),
        "overlapping": told(ratios(8, 1, 4, 2, 3.0, 1.0, apart=0.5)),
    }
    detail["no delta"] = {
        "4 clusters": told(ratios(8, 1, 4, 2, 1.0, 1.0, delta=0.0)),
        "4 clusters, 8 columns": told(ratios(8, 1, 4, 8, 1.0, 1.0, apart=5.0, delta=0.0)),
        "10 clusters, 5 columns": told(ratios(8, 1, 10, 5, 1.0, 1.0, apart=5.0, delta=0.0)),
        "10 clusters, 10 columns": told(ratios(8, 1, 10, 10, 1.0, 1.0, apart=5.0, delta=0.0)),
        "epsilon 0.1": told(ratios(8, 1, 4, 2, 1.0, 0.1, delta=0.0)),
    }
    return Result(float(found[-1]), 1.1, "lower", detail=detail)


def choices() -> dict[str, dict[str, dict[str, float]]]:
    """Return the same for other divisions of the budget, numbers of steps, and for what is left out."""
    ways: dict[str, dict[str, Any]] = {
        "as it is: 1, 1, 2": {},
        "seeds get half: 0.5, 1, 2": {"_PARTS": (0.5, 1.0, 1.0, 2.0)},
        "seeds get twice: 2, 1, 2": {"_PARTS": (2.0, 1.0, 1.0, 2.0)},
        "all alike: 1, 1, 1": {"_PARTS": (1.0, 1.0, 1.0, 1.0)},
        "no halves": {"_HALVED_FROM": 10**6},
        "no average over steps": {"Clusters": _Last},
    }
    settings: dict[str, dict[str, Any]] = {
        "4 clusters, 2 columns, epsilon 0.1": {"clusters": 4, "width": 2, "epsilon": 0.1},
        "10 clusters, 5 columns, epsilon 0.3": {"clusters": 10, "width": 5, "epsilon": 0.3, "apart": 5.0},
        "10 clusters, 10 columns, epsilon 1": {"clusters": 10, "width": 10, "epsilon": 1.0, "apart": 5.0},
    }
    pure: dict[str, dict[str, Any]] = {
        "as it is: 1, 0.75, 0.5, 2": {},
        "as for Gaussian noise: 1, 1, 1, 2": {"_PARTS_L1": (1.0, 1.0, 1.0, 2.0)},
        "seeds get twice: 2, 0.75, 0.5, 2": {"_PARTS_L1": (2.0, 0.75, 0.5, 2.0)},
        "counts of seeds weigh a quarter": {"_SEED_WEIGHT": 0.5},
        "counts of seeds weigh twice": {"_SEED_WEIGHT": 4.0},
    }
    found: dict[str, dict[str, dict[str, float]]] = {}
    for setting, how in settings.items():
        for delta, tried in ((1e-5, ways), (0.0, pure)):
            here = found.setdefault(setting + ("" if delta else ", no delta"), {})
            for way, changed in tried.items():
                with mock.patch.multiple(ours, **changed) if changed else contextlib.nullcontext():
                    here[way] = told(ratios(16, 1, sd=1.0, delta=delta, **how))
    return found


class _Last(ours.Clusters):
    """Centres that forget: each step's mean replaces the one before."""

    def step(self, *answer: Any) -> ours.Clusters:
        forgot = _Last(self.centres, np.full_like(self.variance, 1e9))
        return super(_Last, forgot).step(*answer)


if __name__ == "__main__":
    print(json.dumps(choices(), indent=1))
