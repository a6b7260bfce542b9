"""Tests and intervals that count privacy noise: how often they reject and cover, and the data that they need.

Samples are summed by the blocks' own code and get a curator's Gaussian noise, at delta 1e-6. Every cell of
`compare.size` is one test at one setting; what counts as broken is decided by one-sided binomial tests at .05
over the number of cells.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import binom

from benchmarks.harness import Result, bench
from cape import privacy
from cape.analyses import Association, CorrelationTest, Difference, RankTest, TableOne
from cape.blocks import Table
from cape.core.errors import TooNoisyWarning
from cape.data import Category, Number, Schema
from cape.engine.consortium import Consortium
from cape.engine.query import Analysis, Answer
from cape.noise import SecureStream
from cape.privacy import Budget
from cape.stats.estimates import Estimate

__all__ = ["answer", "finish"]

Floats = NDArray[np.float64]
Random = np.random.Generator
SIZES, EPSILONS, DELTA = (200, 1000, 20_000), (0.5, 1.0, 3.0), 1e-6
RUNS = 2000
_LEVEL, _LEAST = 0.05, 0.03
_OFTEN = 0.95  # how often a test must have an answer for `_LEAST` to be asked of it
_SITES, _COLLUDING = 20, 1
_REAL = 40  # releases by the whole engine
_HEART = 1112  # rows of the reference setting, in 20 sites


def answer(
    analysis: Analysis, schema: Schema, sums: Any, epsilon: float, rng: Random, growth: float = 1.0
) -> Answer:
    """Return sums with `growth` times the noise of a trusted curator."""
    query = analysis.query(schema, "replace-one")
    std = growth * query.sensitivity / float(privacy.mu(epsilon, DELTA))
    noise = tuple(tuple(std * scale for scale in scales) for scales in query.scales)
    noised = tuple(
        tuple(
            array + rng.normal(size=np.shape(array)) * each for array, each in zip(arrays, stds, strict=True)
        )
        for arrays, stds in zip(sums, noise, strict=True)
    )
    return Answer(noised, noise, None, schema)


def summed(analysis: Analysis, schema: Schema, frame: pl.DataFrame) -> list[tuple[Floats, ...]]:
    """Return the exact sums of a table, in units of t, t² and rows."""
    blocks = analysis.query(schema, "replace-one").blocks
    found = Table("a", frame, schema).sums(list(blocks))
    return [
        tuple(
            np.asarray(total * 2.0**-array.bits, np.float64)
            for total, array in zip(sums, block.arrays(schema), strict=True)
        )
        for block, sums in zip(blocks, found, strict=True)
    ]


def finish(analysis: Analysis, given: Answer) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooNoisyWarning)
        return analysis.finish(given)


Drawn = Callable[[Random, int, float], float | None]
"""A P value of one sample under the null hypothesis; None where noise leaves no answer."""


def _association(first: list[float], second: list[float], trend: bool) -> Drawn:
    schema = Schema(
        a=Category(tuple(f"a{i}" for i in range(len(first)))),
        b=Category(tuple(f"b{i}" for i in range(len(second)))),
    )
    analysis, shares = Association("a", "b", trend=trend), np.outer(first, second)

    def drawn(rng: Random, rows: int, epsilon: float) -> float | None:
        counts = rng.multinomial(rows, shares.ravel()).reshape(shares.shape).astype(np.float64)
        model = finish(analysis, answer(analysis, schema, [(counts,)], epsilon, rng)).model
        test = model.trend if trend else model.test
        return None if test is None else float(test.p_value)

    return drawn


_BOUNDS = 4.0  # a column of SD 1 has bounds 8 SDs apart
_GROUPS = "abcdef"


def _schema(groups: int) -> Schema:
    return Schema(x=Number(-_BOUNDS, _BOUNDS), by=Category(tuple(_GROUPS[:groups])))


_TWO = _schema(2)


def _rows(
    rng: Random, rows: int, shares: list[float], shift: float, mean: float = 0.0, wide: float = 1.0
) -> pl.DataFrame:
    """Return a column with SD 1, or `wide` in the second group, where it is `shift` larger."""
    codes = rng.choice(len(shares), rows, p=shares)
    x = rng.normal(size=rows) * np.where(codes == 1, wide, 1.0) + mean + shift * (codes == 1)
    return pl.DataFrame({"x": x, "by": np.array(list(_GROUPS))[codes]})


def _difference(shares: list[float], mean: float, wide: float = 1.0) -> Drawn:
    schema, analysis = _schema(len(shares)), Difference("x", by="by")

    def drawn(rng: Random, rows: int, epsilon: float) -> float | None:
        sums = summed(analysis, schema, _rows(rng, rows, shares, 0.0, mean, wide))
        model = finish(analysis, answer(analysis, schema, sums, epsilon, rng)).model
        return cast("float | None", model.p_value("x"))

    return drawn


def _ranks(shares: list[float]) -> Drawn:
    """Sixteen bins, each with 0.7 times the rows of the one before."""
    schema = Schema(x=Number(0, 16), by=Category(tuple(_GROUPS[: len(shares)])))
    analysis, skewed = RankTest("x", by="by"), 0.7 ** np.arange(16)
    cells = np.outer(shares, skewed / skewed.sum())

    def drawn(rng: Random, rows: int, epsilon: float) -> float | None:
        counts = rng.multinomial(rows, cells.ravel()).reshape(cells.shape).astype(np.float64)
        model = finish(analysis, answer(analysis, schema, [(counts,)], epsilon, rng)).model
        return cast("float | None", model.p_value)

    return drawn


def _moments(rng: Random, rows: int, shares: list[float]) -> tuple[Floats, list[Floats]]:
    """Return the sizes of groups, and t of each group: SD 1/4 of half the bounds, off their middle."""
    sizes = rng.multinomial(rows, shares)
    return sizes.astype(np.float64), [
        np.clip(rng.normal(0.5, 1, size) / _BOUNDS, -1, 1) for size in sizes.tolist()
    ]


def _contrast(shares: list[float], weights: list[float]) -> Drawn:
    """A contrast of groups."""
    named = dict(zip(_GROUPS, weights, strict=False))
    schema, analysis = _schema(len(shares)), Difference("x", by="by", contrasts={"all": named})

    def drawn(rng: Random, rows: int, epsilon: float) -> float | None:
        sizes, cells = _moments(rng, rows, shares)
        first, second = (np.array([(t**k).sum() for t in cells]) for k in (1, 2))
        sums = [tuple(each[:, None] for each in (sizes, first, second))]
        model = finish(analysis, answer(analysis, schema, sums, epsilon, rng)).model
        ((_, test),) = model.comparisons[0].contrasts
        return None if test is None else float(test.p_value)

    return drawn


def _correlation(method: str, skewed: bool) -> Drawn:
    """Two independent columns, normal or lognormal; ranks of the skewed ones in bins of rising width."""
    low, high = (0.0, 30.0) if skewed else (-_BOUNDS, _BOUNDS)
    schema = Schema(x=Number(low, high), y=Number(low, high))
    edges = [0.0, 0.3, 0.6, 1.0, 1.7, 3.0, 5.0, 30.0] if skewed else np.linspace(low, high, 9).tolist()
    given = {"x": edges, "y": edges} if method == "spearman" else None
    analysis = CorrelationTest("x", "y", method=method, edges=given)

    def drawn(rng: Random, rows: int, epsilon: float) -> float | None:
        x = rng.normal(size=(2, rows))
        x = np.clip(np.exp(x) if skewed else x, low, high)
        if method == "spearman":
            sums: list[tuple[Floats, ...]] = [(np.histogram2d(*x, bins=(edges, edges))[0],)]
        else:
            t = (2 * x - low - high) / (high - low)
            sums = [(np.array([float(rows)]), t.sum(axis=1), (t * t).sum(axis=1), np.array([t[0] @ t[1]]))]
        model = finish(analysis, answer(analysis, schema, sums, epsilon, rng)).model
        return cast("float | None", model.p_value)

    return drawn


def _table_one(shares: list[float]) -> Drawn:
    """A number of a Table One by group, whose release is shared with medians."""
    schema, analysis = _schema(len(shares)), TableOne("x", by="by", bins=4)

    def drawn(rng: Random, rows: int, epsilon: float) -> float | None:
        sizes, cells = _moments(rng, rows, shares)
        first, second = (np.array([(t**k).sum() for t in cells]) for k in (1, 2))
        bins = np.array([np.histogram(t, np.linspace(-1, 1, 5))[0] for t in cells], np.float64)
        sums = [(sizes,), tuple(each[:, None] for each in (sizes, first, second)), (bins,)]
        model = finish(analysis, answer(analysis, schema, sums, epsilon, rng)).model
        return cast("float | None", model.balances[0].p_value)

    return drawn


TESTS: dict[str, Drawn] = {
    "Welch's t": _difference([0.5, 0.5], 0.0),
    "Welch's t, unequal groups, off the middle": _difference([0.7, 0.3], 1.0),
    "Welch's t, unequal groups and variances": _difference([0.7, 0.3], 0.0, 1.5),
    "Welch's F, four groups": _difference([0.25, 0.25, 0.25, 0.25], 0.5),
    "Mann-Whitney": _ranks([0.75, 0.25]),
    "Kruskal-Wallis": _ranks([0.3, 0.3, 0.4]),
    "chi-square 2 x 2": _association([0.5, 0.5], [0.65, 0.35], False),
    "chi-square 2 x 2, rare": _association([0.7, 0.3], [0.9, 0.1], False),
    "chi-square 3 x 4": _association([0.3, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25], False),
    "trend": _association([0.2, 0.3, 0.3, 0.2], [0.65, 0.35], True),
    "Welch's F, six groups": _difference([1 / 6] * 6, 0.5),
    "contrast of three groups": _contrast([0.5, 0.3, 0.2], [1.0, -0.5, -0.5]),
    "Table One, two groups": _table_one([0.6, 0.4]),
    "Table One, three groups": _table_one([0.5, 0.3, 0.2]),
    "Pearson": _correlation("pearson", False),
    "Pearson, skewed": _correlation("pearson", True),
    "Spearman": _correlation("spearman", False),
    "Spearman, skewed": _correlation("spearman", True),
}


@bench("compare.size")
def size() -> Result:
    """How many cells reject under the null hypothesis above .05, or below .03 though they have an answer."""
    cells: dict[str, list[float | None]] = {}
    for place, (name, drawn) in enumerate(TESTS.items()):
        for rows in SIZES:
            for epsilon in EPSILONS:
                rng = np.random.default_rng([place, rows, int(10 * epsilon)])
                key = f"{name}, n = {rows}, epsilon = {epsilon:g}"
                cells[key] = [drawn(rng, rows, epsilon) for _ in range(RUNS)]
    broken: dict[str, float] = {}
    for key, found in cells.items():
        hits = sum(p is not None and p < _LEVEL for p in found)
        often = sum(p is not None for p in found) >= _OFTEN * RUNS
        level = 0.05 / len(cells)
        if binom.sf(hits - 1, RUNS, _LEVEL) < level or (often and binom.cdf(hits, RUNS, _LEAST) < level):
            broken[key] = hits / RUNS
    rates = {key: sum(p is not None and p < _LEVEL for p in found) / RUNS for key, found in cells.items()}
    detail = {
        "cells": len(cells),
        "runs": RUNS,
        "highest": max(rates.values()),
        "highest among answers": max(_among(found) for found in cells.values()),
        "median": float(np.median(list(rates.values()))),
        "without an answer": {
            key: round(found.count(None) / RUNS, 3) for key, found in cells.items() if None in found
        },
        "broken": broken,
    }
    return Result(float(len(broken)), 0.0, "lower", unit="cells", detail=detail)


def _among(found: list[float | None]) -> float:
    """Return how often a test rejects among the runs with an answer, where these are 100 or more."""
    known = [p for p in found if p is not None]
    return round(sum(p < _LEVEL for p in known) / len(known), 4) if len(known) >= 100 else 0.0


@bench("compare.odds")
def odds() -> Result:
    """The interval of the log odds ratio over that of the table with known noise, in the median."""
    shares, schema = np.array([[0.35, 0.15], [0.25, 0.25]]), Schema(a=["a0", "a1"], b=["b0", "b1"])
    analysis, true = Association("a", "b"), math.log(0.35 * 0.25 / 0.15 / 0.25)
    ratios: dict[str, float] = {}
    covered: dict[str, float] = {}
    for rows in (_HEART, 20_000):
        for epsilon in EPSILONS[1:]:
            rng, widths, hits = np.random.default_rng([rows, int(epsilon)]), [], 0
            for _ in range(RUNS):
                counts = rng.multinomial(rows, shares.ravel()).reshape(2, 2).astype(np.float64)
                given = answer(analysis, schema, [(counts,)], epsilon, rng)
                low, high = finish(analysis, given).estimates[-1].interval()
                noise = given.noise[0][0]
                known = 2 * 1.959964 * math.sqrt(float((1 / counts + noise**2 / counts**2).sum()))
                widths.append(
                    (math.log(high) - math.log(low)) / known if 0 < low < high < math.inf else math.inf
                )
                hits += low <= math.exp(true) <= high
            key = f"n = {rows}, epsilon = {epsilon:g}"
            ratios[key], covered[key] = round(float(np.median(widths)), 4), hits / RUNS
    detail = {"runs": RUNS, "widths": ratios, "coverage": covered}
    return Result(max(ratios.values()), 1.05, "lower", detail=detail)


@bench("compare.difference")
def difference() -> Result:
    """The error of a difference of means over that of the ideal Gaussian release of group sums and counts.

    About the people in the tables, so that the sampling error, which both have, hides nothing. Blood pressure
    between 80 and 220, in 20 sites of which one colludes; the ideal has a trusted curator, and no squares.
    """
    rng, schema = np.random.default_rng(1), Schema(sbp=Number(80, 220), diabetes=["no", "yes"])
    frame = pl.DataFrame(
        {
            "sbp": np.clip(rng.normal(132, 18, _HEART), 80, 220),
            "diabetes": np.where(rng.random(_HEART) < 0.3, "yes", "no"),
        }
    )
    analysis = Difference("sbp", by="diabetes")
    sums = summed(analysis, schema, frame)
    counts, first, _ = (array[:, 0] for array in sums[0])
    true = 70 * float(first[1] / counts[1] - first[0] / counts[0])
    growth, std = math.sqrt(_SITES / (_SITES - _COLLUDING)), 2 / float(privacy.mu(1.0, DELTA))
    ours, ideal = [], []
    for _ in range(RUNS):
        found = finish(analysis, answer(analysis, schema, sums, 1.0, rng, growth)).estimates[2]
        ours.append(found.value - true)
        means = (first + std * rng.normal(size=2)) / (counts + std * rng.normal(size=2))
        ideal.append(70 * float(means[1] - means[0]) - true)
    released = [_released(frame, schema, analysis, run) for run in range(_REAL)]
    detail = {
        "runs": RUNS,
        "error": round(_rms(ours), 3),
        "ideal": round(_rms(ideal), 3),
        "of the whole engine, over the error that it states": round(
            _rms([(each.value - true) / each.privacy for each in released]), 3
        ),
    }
    return Result(_rms(ours) / _rms(ideal), 1.1, "lower", detail=detail)


def _released(frame: pl.DataFrame, schema: Schema, analysis: Analysis, run: int) -> Estimate:
    """Return the difference as 20 sites release it."""
    parts = np.array_split(np.arange(len(frame)), _SITES)
    sites = {f"site {i}": frame[part.tolist()] for i, part in enumerate(parts)}
    key = SecureStream(f"compare {run}".encode().rjust(32))
    consortium = Consortium(sites, schema, Budget(1.0, DELTA), colluding=_COLLUDING, stream=key)
    return consortium.release(analysis, 1.0).estimates[2]


def _rms(errors: list[float]) -> float:
    return math.sqrt(float(np.mean(np.square(errors))))


@bench("compare.power")
def power() -> Result:
    """How many times 2,000 rows a private t-test needs for the 80% power that they have without noise.

    Epsilon is 1; two equal groups and a column with bounds 8 SDs apart. The number of rows is found by
    interpolating in the power at 1.25 to 2.5 times 2,000 rows.
    """
    rows, wanted = 2000, 0.8
    shift = 2 * (float(ndtri(0.975)) + float(ndtri(wanted))) / math.sqrt(rows)
    analysis, multiples = Difference("x", by="by"), [1.25, 1.5, 1.75, 2.0, 2.5]
    found = []
    for multiple in multiples:
        rng, hits = np.random.default_rng(int(100 * multiple)), 0
        for _ in range(RUNS):
            sums = summed(analysis, _TWO, _rows(rng, int(multiple * rows), [0.5, 0.5], shift))
            p = finish(analysis, answer(analysis, _TWO, sums, 1.0, rng)).model.p_value("x")
            hits += p is not None and p < _LEVEL
        found.append(hits / RUNS)
    value = float(np.interp(wanted, found, multiples)) if found[-1] >= wanted else math.inf
    detail = {
        "runs": RUNS,
        "power": dict(zip(map(str, multiples), found, strict=True)),
        "published": "Test of Tests (Kazan, Shi, Groce and Bray, 2023), at epsilon 1: 5 to 6",
    }
    return Result(value, 2.0, "lower", detail=detail)
