"""How often 95% intervals hold the truth, on columns as hospitals have them and on Communities and Crime.

A cell is one estimate at one number of rows and one epsilon, over many resamples of a fixed population whose
own moments are the truth. The figure is how many cells break a rule, each tested at .05 over their number:

- coverage is at least .93; or, where the usual robust interval without noise on the same rows covers less
  than .95 (few rows of a heavy tail), at least its coverage less .02;
- coverage is at most .985 where the sampling error is larger than that of noise;
- where the sum of squared influences is three times its noise, the interval is at most 1.1 times as wide as
  one with the true sampling error.

`python -m benchmarks coverage` takes 400 resamples; with the variable CAPE_BENCH_FULL set, 2,000.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import binom

from benchmarks import columns
from benchmarks.harness import Result, Skip, bench
from benchmarks.regression import communities
from cape import PCA, Budget, Correlation, Covariance, StandardDeviation, Variance
from cape.blocks import Squares, Table
from cape.core.errors import TooNoisyWarning
from cape.data import Number, Schema
from cape.engine.calibration import RESOLUTION
from cape.engine.contribution import contribution
from cape.engine.query import Analysis
from cape.engine.schemes import SCHEMES, Cost, Parties
from cape.engine.session import AnalysisSession, StageResult
from cape.engine.stages import Setting, Stages
from cape.noise import SecureStream
from cape.stats.estimates import Estimate

__all__ = ["Cell", "Known", "Population", "measure", "release", "violations"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Known:
    """What is true of rows: each estimate, the SD of a row's influence on it, and the mean of its square.

    The mean square is of the influence as the last stage asks for it.
    """

    values: Floats
    spreads: Floats
    squares: Floats


Truth = Callable[[Floats], Known]

SIZES, EPSILONS, DELTA = (600, 10_000, 100_000), (1.0, 3.0, 10.0), 1e-6
RUNS = 2000 if os.environ.get("CAPE_BENCH_FULL") else 400
_LEAST, _MOST, _WIDEST, _CLEAR = 0.93, 0.985, 1.1, 3.0
_Z = 1.959964


@dataclass(frozen=True)
class Population:
    """All rows of which samples are drawn, scaled to -1 to 1 between the columns' bounds."""

    name: str
    names: tuple[str, ...]
    rows: Floats

    @property
    def schema(self) -> Schema:
        return Schema({name: Number(-1, 1, missing=False) for name in self.names})


@dataclass
class Cell:
    """One estimate at one setting: what was counted, run by run."""

    hits: list[bool] = field(default_factory=list)
    usual: list[bool] = field(default_factory=list)  # of the robust interval without noise
    widths: list[float] = field(default_factory=list)
    privacy: list[float] = field(default_factory=list)
    clear: list[float] = field(default_factory=list)  # the true sum of squares over its noise
    true_sampling: float = 0.0

    def rules(self, cells: int) -> dict[str, bool]:
        """Return which rules are broken, each at .05 over the number of cells."""
        runs, hits, level = len(self.hits), sum(self.hits), 0.05 / cells
        usual = float(np.mean(self.usual))
        floor = _LEAST if usual >= 0.95 else min(_LEAST, usual - 0.02)
        privacy = float(np.median(self.privacy))
        ideal = 2 * _Z * math.hypot(self.true_sampling, privacy)
        return {
            "too low": bool(binom.cdf(hits, runs, floor) < level),
            "too high": self.true_sampling > privacy and bool(binom.sf(hits - 1, runs, _MOST) < level),
            "too wide": float(np.median(self.clear)) >= _CLEAR
            and float(np.median(self.widths)) > _WIDEST * ideal,
        }


def violations(cells: Mapping[str, Cell]) -> Result:
    """Return how many cells break a rule, with the worst ones."""
    broken = {
        name: [rule for rule, is_broken in cell.rules(len(cells)).items() if is_broken]
        for name, cell in cells.items()
    }
    found = {
        f"{name}: {', '.join(rules)}": round(float(np.mean(cells[name].hits)), 3)
        for name, rules in broken.items()
        if rules
    }
    coverage = [float(np.mean(cell.hits)) for cell in cells.values()]
    detail = {
        "cells": len(cells),
        "runs": len(next(iter(cells.values())).hits),
        "lowest": round(min(coverage), 3),
        "median": round(float(np.median(coverage)), 3),
        "broken": found,
    }
    return Result(float(len(found)), 0.0, "lower", unit="cells", detail=detail)


def release(session: AnalysisSession, table: Table, noise: SecureStream) -> tuple[Sequence[Estimate], Floats]:
    """Return the estimates of a release with a curator's noise, and the noise in each sum of squares.

    The engine's own code, without parties: the same queries, grids, sums and noise.
    """
    blurred: list[float] = []
    while not session.done:
        query, (calibration, _) = session.pending(), session.calibrate()
        drawn = noise.fork(f"stage {session.stage}")
        total = contribution(
            table, query, calibration, sample=drawn.fork("sample"), noise=drawn.fork("noise")
        )
        stds = iter(calibration.noise(float(RESOLUTION)))
        for block in query.blocks:
            for std in [next(stds) for _ in block.arrays(table.schema)]:
                if isinstance(block, Squares):
                    blurred += [std * form.bound**2 for form in block.forms]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TooNoisyWarning)
            session.tell(StageResult.of(total, 2, table.rows(), float(RESOLUTION)))
    return session.release(("a", "b"), Cost(0, 0, 0, 0.0)).estimates, np.array(blurred)


def measure(
    analysis: Callable[..., Analysis], truth: Truth, populations: Sequence[Population], runs: int = RUNS
) -> dict[str, Cell]:
    """Return the cells of an analysis of all columns of each population."""
    cells: dict[str, Cell] = {}
    for population in populations:
        schema, asked, known = population.schema, analysis(*population.names), truth(population.rows)
        for rows in SIZES:
            for run in range(runs):
                random = np.random.default_rng([rows, run])
                drawn = population.rows[random.integers(len(population.rows), size=rows)]
                found = truth(drawn)
                usual = np.abs(found.values - known.values) <= _Z * found.spreads / math.sqrt(rows)
                table = Table("a", pl.DataFrame(drawn, schema=list(population.names)), schema)
                for epsilon in EPSILONS:
                    key = SecureStream(f"{rows} {run} {epsilon}".encode().rjust(32, b"\0"))
                    estimates, blurred = release(_session(asked, schema, epsilon), table, key)
                    clear = np.zeros(len(estimates))
                    if len(blurred) == len(estimates):
                        clear = rows * known.squares / blurred
                    for place, estimate in enumerate(estimates):
                        name = f"{population.name} {estimate.label}, n = {rows}, epsilon = {epsilon:g}"
                        cell = cells.setdefault(name, Cell())
                        low, high = estimate.interval(0.95)
                        cell.true_sampling = float(known.spreads[place]) / math.sqrt(rows)
                        cell.hits.append(bool(low <= known.values[place] <= high))
                        cell.usual.append(bool(usual[place]))
                        cell.widths.append(high - low)
                        cell.privacy.append(estimate.privacy)
                        cell.clear.append(float(clear[place]))
    return cells


def _session(analysis: Analysis, schema: Schema, epsilon: float) -> AnalysisSession:
    setting = Setting(schema, Budget(epsilon, DELTA), Parties(2, 0, 2), "replace-one")
    return AnalysisSession(analysis, Stages.of(analysis, setting, SCHEMES["pooled"](), 1.0))


def _populations(names: Sequence[str] = ("inpatient", "emergency", "motion")) -> list[Population]:
    rows = columns.population()
    bounds = {name: columns.SCHEMA.number(name) for name in names}
    scaled = [(rows[name] - each.middle) / each.half for name, each in bounds.items()]
    found = [Population("hospital", tuple(names), np.stack(scaled, axis=1))]
    try:
        features, target = communities()
    except Skip:
        return found
    skewed = np.argsort(_kurtosis(features))[-2:]  # the two features with the heaviest tails
    crime = np.column_stack([features[:, skewed], target])
    return [*found, Population("crime", ("feature", "other", "crimes"), 2 * crime - 1)]


def _kurtosis(rows: Floats) -> Floats:
    apart = rows - rows.mean(axis=0)
    return np.asarray((apart**4).mean(axis=0) / (apart**2).mean(axis=0) ** 2)


def _variances(rows: Floats) -> Known:
    apart = rows - rows.mean(axis=0)
    values, fourth = (apart**2).mean(axis=0), (apart**4).mean(axis=0)
    return Known(values, np.sqrt(np.maximum(fourth - values**2, 0.0)), fourth)


def _deviations(rows: Floats) -> Known:
    found = _variances(rows)
    root = np.sqrt(found.values)
    return Known(root, found.spreads / (2 * root), found.squares)


def _of_forms(influences: Floats, values: Floats) -> Known:
    """Return what is known of estimates from a row's influences on them, (rows, estimates)."""
    return Known(values, influences.std(axis=0), (influences**2).mean(axis=0))


def _covariances(rows: Floats) -> Known:
    apart = rows - rows.mean(axis=0)
    first, second = np.triu_indices(rows.shape[1])
    products = apart[:, first] * apart[:, second]
    return _of_forms(products, products.mean(axis=0))


def _correlations(rows: Floats) -> Known:
    z = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    first, second = np.triu_indices(rows.shape[1], 1)
    products = z[:, first] * z[:, second]
    values = products.mean(axis=0)
    return _of_forms(products - values / 2 * (z[:, first] ** 2 + z[:, second] ** 2), values)


def _components(rows: Floats) -> Known:
    apart = rows - rows.mean(axis=0)
    values, vectors = np.linalg.eigh(apart.T @ apart / len(rows))
    values, vectors = values[::-1], vectors[:, ::-1]
    total, along = values.sum(), (apart @ vectors) ** 2
    shares = (along - values / total * (apart**2).sum(axis=1)[:, None]) / total
    both = np.stack([along, shares], axis=2).reshape(len(rows), -1)
    known = _of_forms(both, np.stack([values, values / total], axis=1).reshape(-1))
    # The analysis scales rows of k columns to length 1: its variances are k times smaller.
    unit = np.tile([rows.shape[1] ** 2, 1.0], len(values))
    return Known(known.values, known.spreads, known.squares / unit)


@bench("coverage.variance")
def variance() -> Result:
    """Variances."""
    return violations(measure(Variance, _variances, _populations(columns.NUMBERS)))


@bench("coverage.sd")
def deviation() -> Result:
    """Standard deviations."""
    return violations(measure(StandardDeviation, _deviations, _populations(columns.NUMBERS)))


@bench("coverage.covariance")
def covariance() -> Result:
    """Variances and covariances."""
    return violations(measure(Covariance, _covariances, _populations()))


@bench("coverage.correlation")
def correlation() -> Result:
    """Correlations."""
    return violations(measure(Correlation, _correlations, _populations()))


@bench("coverage.pca")
def components() -> Result:
    """The variances of principal components, and their shares."""
    return violations(measure(PCA, _components, _populations()))
