"""Coverage of 95% intervals of logistic regressions: few people, skewed columns, Communities and Crime.

The made-up tables are drawn anew each time, and their true coefficients are known. Those of Crime are drawn
with replacement, and the truth is the maximum likelihood of all communities: whether there are more violent
crimes than a public threshold, which is not linear in log-odds. Most releases are made of sums and noise by
the analysis itself, without sites and grids; those of 10,000 rows at epsilon 3 are whole releases of
`Consortium`, in the scheme `pooled`. The rules, and the number of resamples, are those of
`benchmarks.coverage`; the true sampling error is that of the last step's sums without their noise. Widths are
compared without what intervals add for coefficients that noise may have drawn to 0.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks.columns import ODDS, SCHEMA, make
from benchmarks.coverage import DELTA, EPSILONS, RUNS, SIZES, Cell, violations
from benchmarks.coverage_linear import CRIME, WHOLE
from benchmarks.harness import Result, Skip, bench
from benchmarks.logistic_small import SKEWED, SMALL
from benchmarks.regression import communities
from cape import Budget, privacy
from cape.analyses.regression.inference import Reach
from cape.analyses.regression.logistic import LogisticRegression
from cape.blocks import Scores
from cape.blocks.units import Units
from cape.core.errors import TooNoisyWarning
from cape.data import Category, Number, Schema
from cape.engine.consortium import Consortium
from cape.engine.query import Answer
from cape.noise import SecureStream
from cape.stats.estimates import Estimate
from cape.stats.matrices import symmetric

Floats = NDArray[np.float64]
Tables = Callable[[int, int], dict[str, Any]]
"""A table, for a seed and a number of rows."""

THRESHOLD = 0.25  # of the rate of violent crimes, scaled to 0 to 1
_Z = 1.959964


@dataclass(frozen=True)
class Case:
    """A logistic regression, its tables, and its true coefficients, the intercept first."""

    name: str
    target: str
    features: tuple[str, ...]
    schema: Schema
    tables: Tables
    truth: Floats

    @property
    def analysis(self) -> LogisticRegression:
        return LogisticRegression(self.target, self.features)

    def plain(self, table: dict[str, Any]) -> Floats:
        """The columns in their units, with a 1 before them."""
        x = np.column_stack([np.asarray(table[name], np.float64) for name in self.features])
        return np.column_stack([np.ones(len(x)), x])

    def outcome(self, table: dict[str, Any]) -> Floats:
        return np.asarray(table[self.target], np.float64)


def cases() -> Iterator[Case]:
    """Few people, zero-inflated columns of two kinds, and Communities and Crime if it is there."""
    for name, people in (("small", SMALL), ("skewed", SKEWED)):
        features, true = tuple(people.names), np.array(people.true)
        yield Case(name, "y", features, people.schema, people.table, true)
    visits = ("inpatient", "emergency")
    yield Case(
        "readmitted", "readmitted", visits, SCHEMA, lambda seed, rows: make(rows, seed), np.array(ODDS)
    )
    try:
        x, rate = communities()
    except Skip:
        return
    everybody = {name: x[:, place] for name, place in CRIME.items()}
    everybody["violent"] = (rate > THRESHOLD).astype(np.float64)
    schema = Schema(
        {name: Number(0, 1, missing=False) for name in CRIME} | {"violent": Category((0, 1), missing=False)}
    )

    def drawn(seed: int, rows: int) -> dict[str, Any]:
        chosen = np.random.default_rng(seed).integers(len(rate), size=rows)
        return {name: cells[chosen] for name, cells in everybody.items()}

    known = np.column_stack([np.ones(len(rate)), *(everybody[name] for name in CRIME)])
    truth, _ = maximum_likelihood(known, everybody["violent"])
    yield Case("crime", "violent", tuple(CRIME), schema, drawn, truth)


def maximum_likelihood(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Coefficients of rows (1, x), and their robust errors."""
    weights = np.zeros(x.shape[1])
    for _ in range(25):
        p = expit(x @ weights)
        inverse = np.linalg.inv((x * (p * (1 - p))[:, None]).T @ x)
        change = inverse @ (x.T @ (y - p))
        weights = weights + change
        if np.abs(change).max() < 1e-9:
            break
    scores = x * (y - expit(x @ weights))[:, None]
    return weights, np.sqrt(np.diag(inverse @ (scores.T @ scores) @ inverse))


class Rows:
    """The rows of a table as sites make them for scores, and the sums that a query asks for, to rounding."""

    def __init__(self, case: Case, table: dict[str, Any]) -> None:
        self._case, self._y = case, case.outcome(table)
        (block,) = case.analysis.query(case.schema, "replace-one").blocks
        assert isinstance(block, Scores)
        self._units = Units(replace(block.design, intercept=0.0), case.schema)
        x, first = self._units.rows(table), block.design.intercept
        self._scale = np.array([first] + [1.0] * x.shape[1]) / math.hypot(1.0, first)
        self._x = np.column_stack([np.ones(len(x)), x]) * self._scale
        self._known: dict[Scores, list[Floats]] = {}

    def sums(self, block: Scores) -> list[Floats]:
        if block in self._known:
            return self._known[block]
        p = expit(self._x @ np.array(block.weights))
        u = self._x @ np.array(block.turn).T
        squares, bent = np.einsum("ij,ij->i", u, u), p * (1 - p)
        longest = np.maximum(np.maximum(p, 1 - p) * np.sqrt(squares), 1e-300)
        v = np.minimum(
            np.minimum(1.0, block.bound / longest), block.curve / np.maximum(bent * squares, 1e-300)
        )
        s = u * (v * (p - self._y) / block.bound)[:, None]
        found = [np.array([float(len(p))]), s.sum(axis=0)]
        above = np.triu_indices(u.shape[1], 1)
        for square in ((u * (v * bent / block.curve)[:, None]).T @ u, s.T @ s):
            found += [np.diag(square).copy(), square[above]]
        if not any(block.weights):  # the first question, the same for all budgets
            self._known[block] = found
        return found

    def sampling(self, block: Scores, noise: Sequence[float]) -> tuple[Floats, Floats]:
        """The sampling error of each coefficient, and how many times its noise its square is."""
        _, _, square, cross, spread, beside = self.sums(block)
        curvature, outer = (
            size * symmetric(*each)
            for size, each in ((block.curve, (square, cross)), (block.bound**2, (spread, beside)))
        )
        bread = (self._units.matrix * self._scale) @ np.array(block.turn).T @ np.linalg.inv(curvature)
        squares = np.einsum("ij,jk,ik->i", bread, outer, bread)
        return np.sqrt(squares), squares / (noise[4] * block.bound**2 * (bread**2).sum(axis=1))


def conducted(
    case: Case, rows: Rows, count: int, mu: float, random: np.random.Generator
) -> tuple[Sequence[Estimate], Floats, Floats]:
    """The estimates of one release, the true sampling error of each, and how clear its square is."""
    conversation = case.analysis.conduct(case.schema, "replace-one")
    query = next(conversation)
    for share in case.analysis.stages():
        (block,) = query.blocks
        assert isinstance(block, Scores)
        noise = tuple(query.sensitivity / mu / math.sqrt(share) * scale for scale in query.scales[0])
        noisy = tuple(
            a + s * random.normal(size=a.shape) for a, s in zip(rows.sums(block), noise, strict=True)
        )
        try:
            query = conversation.send(Answer((noisy,), (noise,), count, case.schema))
        except StopIteration as stop:
            return stop.value.estimates, *rows.sampling(block, noise)
    raise AssertionError("it asked more often than it has stages")


def released(case: Case, table: dict[str, Any], epsilon: float, key: int) -> Sequence[Estimate]:
    """The estimates of one whole release."""
    names = (*case.features, case.target)
    schema = Schema({name: case.schema[name] for name in names})
    cells = {
        name: np.asarray(table[name]).astype(int) if isinstance(schema[name], Category) else table[name]
        for name in names
    }
    consortium = Consortium(
        {"all": pl.DataFrame(cells)},
        schema,
        Budget(epsilon, DELTA),
        colluding=0,
        stream=SecureStream(key.to_bytes(32, "big")),
    )
    return consortium.release(case.analysis, 1.0, scheme="pooled").estimates


def measured(case: Case, runs: int = RUNS) -> dict[str, Cell]:
    """The cells of a regression."""
    cells: dict[str, Cell] = {}
    true: dict[str, list[float]] = {}
    for size in SIZES:
        for run in range(runs):
            table = case.tables(run, size)
            weights, errors = maximum_likelihood(case.plain(table), case.outcome(table))
            usual = np.abs(weights - case.truth) <= _Z * errors
            rows, random = Rows(case, table), np.random.default_rng([size, run])
            for epsilon in EPSILONS:
                mu = float(privacy.mu(epsilon, DELTA))
                estimates, sampling, clear = conducted(case, rows, size, mu, random)
                if (size, epsilon) == WHOLE:
                    estimates = released(case, table, epsilon, run)
                for place, each in enumerate(estimates):
                    name = f"{case.name} {each.label}, n = {size}, epsilon = {epsilon:g}"
                    cell = cells.setdefault(name, Cell())
                    low, high = each.interval(0.95)
                    assert isinstance(each.at, Reach)
                    true.setdefault(name, []).append(float(sampling[place]))
                    cell.hits.append(bool(low <= case.truth[place] <= high))
                    cell.usual.append(bool(usual[place]))
                    cell.widths.append(high - low - 2 * each.at.bias)
                    cell.privacy.append(math.sqrt(max(each.at.error**2 - each.sampling**2, 0.0)))
                    cell.clear.append(float(clear[place]))
    for name, cell in cells.items():
        cell.true_sampling = float(np.median(true[name]))
    return cells


@bench("coverage.logistic")
def logistic() -> Result:
    """How many cells break a rule."""
    cells: dict[str, Cell] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooNoisyWarning)
        for case in cases():
            cells |= measured(case)
    return violations(cells)


if __name__ == "__main__":
    warnings.simplefilter("ignore", TooNoisyWarning)
    for case in cases():
        if case.name in sys.argv[2:] or len(sys.argv) < 3:
            for name, cell in measured(case, int(sys.argv[1])).items():
                noise = float(np.median(cell.privacy))
                ideal = 2 * _Z * math.hypot(cell.true_sampling, noise)
                print(
                    f"{name}: covers {np.mean(cell.hits):.3f}, without noise {np.mean(cell.usual):.3f}, "
                    f"{np.median(cell.widths) / ideal:.2f} times as wide, "
                    f"sampling {cell.true_sampling / noise:.2f} times noise, "
                    f"clear {np.median(cell.clear):.1f}",
                    flush=True,
                )
