"""Differences between sites: how often intervals cover and tests reject, and how wide noise makes them.

Rows are drawn in numpy and summed as the blocks do, none cut at its bounds; five sites, of which one
colludes, add noise at epsilon 1 and delta 1e-6, with 5,000 rows in all. A cell is broken if a one-sided
binomial test at .05 over the number of cells says so: coverage below .93, or a test that rejects more often
than .05 where sites agree.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from benchmarks.harness import Result, bench
from cape import privacy
from cape.analyses import (
    Association,
    Difference,
    Heterogeneity,
    LinearRegression,
    Mean,
    Proportion,
)
from cape.blocks import Counts, GroupedProducts, Moments
from cape.core.errors import TooNoisyWarning
from cape.data import Category, Number, Schema
from cape.engine.query import Analysis, Answer, Query

Floats = NDArray[np.float64]
Random = np.random.Generator
Table = dict[str, NDArray[Any]]
RUNS = 400
SITES = ("a", "b", "c", "d", "e")
EQUAL, UNEQUAL = (1000,) * 5, (2500, 1200, 700, 400, 200)
_LEVEL, _COVERED = 0.05, 0.93
STD = math.sqrt(5 / 4) / float(privacy.mu(1.0, 1e-6))

SCHEMA = Schema(
    y=Number(-1, 1, missing=False),
    z=Number(-1, 1),
    x=Number(-1, 1, missing=False),
    g=Category(("no", "yes"), missing=False),
    ill=Category(("no", "yes"), missing=False),
).at(SITES)


def answer(asked: Analysis, tables: Sequence[Table], rng: Random, noise: float) -> Answer:
    """Return the sums of the sites' tables, with `noise` a unit of sensitivity."""
    return answered(asked.query(SCHEMA, "replace-one"), tables, rng, noise)


def answered(query: Query, tables: Sequence[Table], rng: Random, noise: float) -> Answer:
    """Return the answer to a question of one stage."""
    sums, stds = [], []
    for block, scales in zip(query.blocks, query.scales, strict=True):
        exact = _summed(block, tables)
        each = [noise * query.sensitivity * scale for scale in scales]
        sums.append(tuple(a + s * rng.normal(size=a.shape) for a, s in zip(exact, each, strict=True)))
        stds.append(tuple(each))
    return Answer(tuple(sums), tuple(stds), None, SCHEMA)


def _summed(block: Any, tables: Sequence[Table]) -> list[Floats]:
    """Return a block's sums, by site first."""
    if isinstance(block, GroupedProducts):
        length, target = block.design.length(SCHEMA), str(block.design.target)
        rows = []
        for table in tables:
            x = [table[name] / length for name in block.design.features]
            rows.append(np.stack([np.ones(len(x[0])), *x, table[target]]))
        grams = [v @ v.T for v in rows]
        found = []
        for products in block.products(SCHEMA):
            i, j = zip(*products.places, strict=True)
            sums = np.stack(grams)[:, list(i), list(j)]
            found.append(sums)
        return found
    if isinstance(block, Counts):
        names = [axis.column for axis in block.axes[1:]]
        counts = [np.zeros((2,) * len(names)) for _ in tables]
        for table, count in zip(tables, counts, strict=True):
            np.add.at(count, tuple(table[name] for name in names), 1)
        return [np.stack(counts)]
    assert isinstance(block, Moments)
    (name,) = block.columns
    by = () if isinstance(block.by, str) else (block.by or ())[1:]
    powers = []
    for table in tables:
        known = ~np.isnan(table[name])
        t, groups = table[name][known], [table[each][known] for each in by]
        cells = np.zeros((3, *(2,) * len(by)))
        for power in range(3):
            if by:
                np.add.at(cells[power], tuple(groups), t**power)
            else:
                cells[power] = (t**power).sum()
        powers.append(cells)
    return [np.stack([each[power] for each in powers])[..., None] for power in range(3)]


def finished(asked: Analysis, given: Answer) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooNoisyWarning)
        return asked.finish(given)


def broken(hits: Mapping[str, int], runs: int, *, size: bool = False) -> dict[str, float]:
    """Return the cells that a one-sided binomial test at .05 over their number finds broken."""
    level = 0.05 / max(len(hits), 1)
    if size:
        return {name: hit / runs for name, hit in hits.items() if binom.sf(hit - 1, runs, _LEVEL) < level}
    return {name: hit / runs for name, hit in hits.items() if binom.cdf(hit, runs, _COVERED) < level}


Drawn = Callable[[Random, float, Sequence[int]], tuple[list[Table], Callable[[int], float]]]


def _means(rng: Random, tau: float, sizes: Sequence[int]) -> tuple[list[Table], Callable[[int], float]]:
    centres = -0.2 + tau * rng.normal(size=6)
    return [
        {"y": c + 0.25 * rng.normal(size=n)} for c, n in zip(centres, sizes, strict=False)
    ], centres.__getitem__


def _costs(rng: Random, tau: float, sizes: Sequence[int]) -> tuple[list[Table], Callable[[int], float]]:
    """Costs: most at the lower bound, some far above it, a tenth missing."""
    centres = -0.6 + tau * rng.normal(size=6)
    tables = []
    for centre, many in zip(centres, sizes, strict=False):
        z = np.where(rng.random(many) < 0.5, 0.0, rng.exponential(0.24, many)) - 0.12 + centre
        tables.append({"z": np.where(rng.random(many) < 0.1, np.nan, z)})
    return tables, centres.__getitem__


def _shares(middle: float) -> Drawn:
    def drawn(rng: Random, tau: float, sizes: Sequence[int]) -> tuple[list[Table], Callable[[int], float]]:
        shares = np.clip(middle + tau * rng.normal(size=6), 0.0, 1.0)
        tables = [{"ill": (rng.random(n) < p).astype(int)} for p, n in zip(shares, sizes, strict=False)]
        return tables, shares.__getitem__

    return drawn


def _differences(rng: Random, tau: float, sizes: Sequence[int]) -> tuple[list[Table], Callable[[int], float]]:
    effects = 0.1 + tau * rng.normal(size=6)
    tables = []
    for effect, many in zip(effects, sizes, strict=False):
        g = (rng.random(many) < 0.4).astype(int)
        y = rng.normal(0, 0.2) + effect * g + (0.2 + 0.1 * g) * rng.normal(size=many)
        tables.append({"y": y, "g": g})
    return tables, effects.__getitem__


def _risks(rng: Random, tau: float, sizes: Sequence[int]) -> tuple[list[Table], Callable[[int], float]]:
    effects = 0.1 + tau * rng.normal(size=6)
    tables = []
    for effect, many in zip(effects, sizes, strict=False):
        g = (rng.random(many) < 0.4).astype(int)
        tables.append({"g": g, "ill": (rng.random(many) < rng.uniform(0.15, 0.4) + effect * g).astype(int)})
    return tables, effects.__getitem__


def _slopes(rng: Random, tau: float, sizes: Sequence[int]) -> tuple[list[Table], Callable[[int], float]]:
    effects = 0.2 + tau * rng.normal(size=6)
    tables = []
    for effect, many in zip(effects, sizes, strict=False):
        x = rng.uniform(-1, 1, many)
        tables.append({"x": x, "y": 0.1 * rng.normal() + effect * x + 0.25 * rng.normal(size=many)})
    return tables, effects.__getitem__


COMPARED: dict[str, tuple[Analysis, Drawn, float, float]] = {
    "mean": (Heterogeneity(Mean("y")), _means, -0.2, 0.05),
    "mean of costs": (Heterogeneity(Mean("z")), _costs, -0.6, 0.05),
    "share": (Heterogeneity(Proportion("ill")), _shares(0.3), 0.3, 0.05),
    "rare share": (Heterogeneity(Proportion("ill")), _shares(0.03), 0.03, 0.0),
    "difference": (Heterogeneity(Difference("y", by="g")), _differences, 0.1, 0.05),
    "risk difference": (Heterogeneity(Association("g", "ill")), _risks, 0.1, 0.04),
    "slope": (Heterogeneity(LinearRegression("y", ["x"])), _slopes, 0.2, 0.1),
}


@bench("compare.sites")
def sites() -> Result:
    """How many cells cover less than .93, or reject more than .05 where sites agree.

    Of each quantity: the mean of random effects, tau², the effect at a site that is drawn anew, and the
    effect of the first site; where sites agree also the fixed effect, and the test.
    """
    hits: dict[str, int] = {}
    rejected: dict[str, int] = {}
    for place, (name, (asked, drawn, middle, spread)) in enumerate(COMPARED.items()):
        for tau in sorted({0.0, spread}):
            for shape, sizes in (("equal", EQUAL), ("unequal", UNEQUAL)):
                rng = np.random.default_rng([place, int(1000 * tau), len(shape)])
                key = f"{name}, tau = {tau:g}, {shape}"
                labels = ["random effects", "tau²", "new site", "first site"] + (
                    ["fixed effect"] if not tau else []
                )
                hits |= {f"{key}: {label}": 0 for label in labels}
                for _ in range(RUNS):
                    tables, effect = drawn(rng, tau, sizes)
                    found = finished(asked, answer(asked, tables, rng, STD)).model.quantities[0]
                    truths = {
                        "random effects": (found.random, middle),
                        "tau²": (found.tau2, tau**2),
                        "new site": (found.prediction, effect(5)),
                        "first site": (found.sites[0], effect(0)),
                        "fixed effect": (found.fixed, middle),
                    }
                    for label in labels:
                        estimate, true = truths[label]
                        low, high = estimate.interval()
                        hits[f"{key}: {label}"] += low <= true <= high
                    if not tau:
                        p = 1.0 if found.synthesis is None else found.synthesis.test.p_value
                        rejected[key] = rejected.get(key, 0) + (p < _LEVEL)
    wrong = broken(hits, RUNS) | {
        f"{key}: Q": rate for key, rate in broken(rejected, RUNS, size=True).items()
    }
    detail = {
        "runs": RUNS,
        "cells": len(hits) + len(rejected),
        "lowest coverage": dict(
            sorted(((k, round(h / RUNS, 4)) for k, h in hits.items()), key=lambda e: e[1])[:8]
        ),
        "rejected": {key: round(hit / RUNS, 4) for key, hit in rejected.items()},
        "broken": wrong,
    }
    return Result(float(len(wrong)), 0.0, "lower", unit="cells", detail=detail)
