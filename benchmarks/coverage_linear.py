"""Coverage of 95% intervals of linear regressions, on columns that normal theory gets wrong.

Rows are drawn with replacement from a population whose own coefficients are the truth. Most releases are
made of exact sums and noise by the analysis itself, without sites and grids, which is many times as fast;
those of 10,000 rows at epsilon 3 are whole releases of `Consortium`, in the scheme `pooled`. The rules, and
the number of resamples, are those of `benchmarks.coverage`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import binom

from benchmarks.columns import SCHEMA, Columns, population
from benchmarks.coverage import RUNS
from benchmarks.harness import Result, Skip, bench
from benchmarks.regression import communities
from cape import Budget, privacy
from cape.analyses.regression.inference import Unsure
from cape.analyses.regression.linear import LinearRegression
from cape.blocks import Sandwich
from cape.blocks.units import Units
from cape.core.errors import TooNoisyWarning
from cape.data import Number, Schema
from cape.engine.consortium import Consortium
from cape.engine.query import AnalysisResult, Answer, Query
from cape.noise import SecureStream

Floats = NDArray[np.float64]
ROWS, EPSILONS, DELTA = (600, 10_000, 100_000), (1.0, 3.0, 10.0), 1e-6
WHOLE = (10_000, 3.0)  # rows and epsilon of whole releases
CRIME = {"two_parents": 44, "white": 3, "young": 6}  # columns of Communities and Crime
LEAST, MOST, WIDTH, AT_ALL = 0.93, 0.985, 1.1, 0.05
CLEAR = 3.0  # times its noise that a squared sampling error must be


@dataclass(frozen=True)
class Case:
    """A regression on a population."""

    name: str
    target: str
    features: tuple[str, ...]
    columns: Columns
    schema: Schema

    @cached_property
    def units(self) -> Units:
        return Units(LinearRegression(self.target, self.features).design, self.schema)

    @cached_property
    def rows(self) -> tuple[Floats, Floats]:
        """(1, x) and y of everybody."""
        x = self.units.rows(self.columns)
        column = self.schema.number(self.target)
        return np.column_stack([np.ones(len(x)), x]), (
            self.columns[self.target] - column.middle
        ) / column.half

    def coefficients(self, weights: Floats) -> Floats:
        column = self.schema.number(self.target)
        found = column.half * self.units.values(weights)
        found[0] += column.middle
        return found

    def errors(self, covariance: Floats) -> Floats:
        return np.asarray(
            self.schema.number(self.target).half * np.sqrt(np.diag(self.units.covariance(covariance)))
        )


def cases() -> Iterator[Case]:
    """Zero-inflated and lognormal columns, and Communities and Crime if it is there."""
    made = population()
    for target, *features in (
        ("days", "inpatient", "charges"),
        ("inpatient", "repeats", "motion"),
        ("emergency", "inpatient"),
        ("outpatient", "inpatient", "emergency"),
    ):
        yield Case(f"{target} ~ {' + '.join(features)}", target, tuple(features), made, SCHEMA)
    try:
        x, y = communities()
    except Skip:
        return
    columns = {name: x[:, place] for name, place in CRIME.items()} | {"crime": y}
    schema = Schema({name: Number(0, 1, missing=False) for name in columns})
    yield Case(f"crime ~ {' + '.join(CRIME)}", "crime", tuple(CRIME), columns, schema)


def least_squares(u: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Coefficients, and their covariance by HC1."""
    inverse = np.linalg.inv(u.T @ u)
    weights = inverse @ (u.T @ y)
    scores = u * (y - u @ weights)[:, None]
    return weights, inverse @ (scores.T @ scores) @ inverse * len(y) / (len(y) - u.shape[1])


def sums(query: Query, u: Floats, y: Floats) -> list[Floats]:
    """What a query asks for, to rounding."""
    (block,) = query.blocks
    if isinstance(block, Sandwich):
        w = (u @ np.array(block.directions).T) * (y - u @ np.array(block.weights))[:, None]
        w /= np.maximum(np.sqrt(np.einsum("ij,ij->i", w, w)), 1.0)[:, None]
        found = w.T @ w
        return [np.diag(found).copy(), found[np.triu_indices(len(found), 1)]]
    moments = u.T @ u
    x, xx = moments[0, 1:], moments[1:, 1:]
    arrays = [
        np.array([len(y)]),
        np.array([y.sum()]),
        np.array([y @ y]),
        x,
        u[:, 1:].T @ y,
        np.diag(xx).copy(),
    ]
    return [*arrays, xx[np.triu_indices(len(xx), 1)]] if len(xx) > 1 else arrays


def conducted(
    analysis: LinearRegression, schema: Schema, u: Floats, y: Floats, mu: float, random: np.random.Generator
) -> AnalysisResult:
    """What one release finds."""
    conversation = analysis.conduct(schema, "replace-one")
    query = next(conversation)
    for share in analysis.stages():
        noise = tuple(query.sensitivity / mu / math.sqrt(share) * scale for scale in query.scales[0])
        found = sums(query, u, y)
        noisy = tuple(a + s * random.normal(size=a.shape) for a, s in zip(found, noise, strict=True))
        try:
            query = conversation.send(Answer((noisy,), (noise,), len(y), schema))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
    raise AssertionError("it asked more often than it has stages")


def released(case: Case, chosen: NDArray[np.int64], epsilon: float, key: int) -> Any:
    """What one whole release finds."""
    names = (*case.features, case.target)
    table = pl.DataFrame({name: case.columns[name][chosen] for name in names})
    consortium = Consortium(
        {"all": table},
        Schema({name: case.schema[name] for name in names}),
        Budget(epsilon, DELTA),
        colluding=0,
        stream=SecureStream(key.to_bytes(32, "big")),
    )
    question = LinearRegression(case.target, case.features, method="moments")
    return consortium.release(question, 1.0, scheme="pooled")


@dataclass
class Cell:
    """The intervals of one coefficient at one size and epsilon, in all resamples."""

    hits: list[bool] = field(default_factory=list)
    classical: list[bool] = field(default_factory=list)
    plain: list[bool] = field(default_factory=list)
    reach: list[float] = field(default_factory=list)
    privacy: list[float] = field(default_factory=list)
    doubt: list[float] = field(default_factory=list)
    sampling: list[float] = field(default_factory=list)
    assumed: list[bool] = field(default_factory=list)

    @property
    def known(self) -> bool:
        """Whether most intervals rest on the release alone, and on no assumption about hidden directions."""
        return bool(np.mean(self.assumed) < 0.5)

    @property
    def _error(self) -> float:
        return math.sqrt(float(np.mean(np.square(self.sampling))))

    @property
    def width(self) -> float:
        """The median width, beside that with the true sampling error."""
        true = math.hypot(self._error, float(np.median(self.privacy)))
        return float(np.median(self.reach)) / 1.96 / true

    def faults(self, cells: int) -> list[str]:
        """What does not hold, by one-sided tests at 0.05 over the number of cells."""
        runs, hits, found = len(self.hits), sum(self.hits), []
        plain, level = float(np.mean(self.plain)), AT_ALL / cells
        least = LEAST if plain >= 0.95 else min(LEAST, plain - 0.02)
        if binom.cdf(hits, runs, least) < level:
            found.append(f"covers {hits / runs:.3f}, not {least:.3f}")
        if (
            self.known
            and self._error > float(np.median(self.privacy))
            and binom.sf(hits - 1, runs, MOST) < level
        ):
            found.append(f"covers {hits / runs:.3f}, above {MOST}")
        if self.known and self._error**2 > CLEAR * float(np.median(self.doubt)) and self.width > WIDTH:
            found.append(f"is {self.width:.2f} times as wide as with the true sampling error")
        return found


def measured(case: Case, resamples: int, rows: tuple[int, ...] = ROWS) -> dict[tuple[int, float, int], Cell]:
    """The cells of a regression by rows, epsilon and coefficient."""
    u, y = case.rows
    truth = case.coefficients(least_squares(u, y)[0])
    robust = LinearRegression(case.target, case.features)
    classical = LinearRegression(case.target, case.features, errors="classical")
    found: dict[tuple[int, float, int], Cell] = {}
    for n in rows:
        random = np.random.default_rng(n)
        for run in range(resamples):
            chosen = random.integers(len(y), size=n)
            some, target = u[chosen], y[chosen]
            weights, covariance = least_squares(some, target)
            errors = case.errors(covariance)
            plain = np.abs(case.coefficients(weights) - truth) <= 1.96 * errors
            for epsilon in EPSILONS:
                mu = privacy.mu(epsilon, DELTA)
                if (n, epsilon) == WHOLE:
                    estimates = list(released(case, chosen, epsilon, run).estimates)
                else:
                    estimates = list(conducted(robust, case.schema, some, target, mu, random).estimates)
                others = conducted(classical, case.schema, some, target, mu, random).estimates
                for place, (each, other) in enumerate(zip(estimates, others, strict=True)):
                    cell = found.setdefault((n, epsilon, place), Cell())
                    (low, high), (least, most) = each.interval(), other.interval()
                    cell.hits.append(low <= truth[place] <= high)
                    cell.classical.append(least <= truth[place] <= most)
                    cell.plain.append(bool(plain[place]))
                    cell.reach.append((high - low) / 2)
                    cell.privacy.append(each.privacy)
                    cell.doubt.append(each.at.doubt if isinstance(each.at, Unsure) else 0.0)
                    cell.sampling.append(float(errors[place]))
                    cell.assumed.append(each.within[0] > -math.inf)
    return found


@bench("coverage.linear")
def linear() -> Result:
    """How many of the coefficients' cells fail: coverage below .93 or above .985, or too wide an interval.

    The detail has coverage by regression, rows and epsilon, coefficient by coefficient: ours, with classical
    errors, and that of HC1 on the rows themselves.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooNoisyWarning)
        found = {case.name: measured(case, RUNS) for case in cases()}
    cells = sum(map(len, found.values()))
    detail: dict[str, Any] = {"cells": cells, "resamples": RUNS, "faults": []}
    for name, by_cell in found.items():
        for n in ROWS:
            for epsilon in EPSILONS:
                here = [cell for (rows, eps, _), cell in by_cell.items() if (rows, eps) == (n, epsilon)]
                label = f"{name}, {n} rows, epsilon {epsilon:g}"
                detail[label] = {
                    "robust": [round(float(np.mean(cell.hits)), 3) for cell in here],
                    "classical": [round(float(np.mean(cell.classical)), 3) for cell in here],
                    "without noise": [round(float(np.mean(cell.plain)), 3) for cell in here],
                    "width": [round(cell.width, 2) if cell.known else "by assumption" for cell in here],
                }
                faults = [fault for cell in here for fault in cell.faults(cells)]
                detail["faults"] += [f"{label}: {fault}" for fault in faults]
    return Result(len(detail["faults"]), 0, "lower", unit="cells that fail", detail=detail)
