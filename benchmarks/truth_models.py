"""Regressions on populations that no model fits (`truth_data`): coverage, width, size of tests.

The truth is the same model on the whole population without privacy, its cells cut where that very run says
that it capped. A release is made of a table's sums and normal noise by the analysis itself, without sites and
grids: five sites, one of them colluding, have noise sqrt(5/4) times a curator's.

The oracle of a cell knows the population's fit: one step from there with 67% of the budget, at the smallest
bound on scores whose bias is below .3 standard errors in every coefficient, in coordinates in which scores
are uncorrelated.

`python -m benchmarks.truth_models RUNS [PATTERN] --minutes 30` measures cells for half an hour, as
`truth_cells` says.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from benchmarks import truth_choices
from benchmarks.harness import Result, bench
from benchmarks.truth_cells import LEVEL, MEAN, Summary, broken, by_family, main, measured, some_of
from benchmarks.truth_data import PROBLEMS, REPORTED, Floats, Problem, population
from cape import privacy
from cape.analyses.regression.glm import GLM
from cape.blocks import Table
from cape.blocks.families import Family
from cape.data import Category, Number, Schema
from cape.engine.query import Answer

DELTA, SITES, RUNS = 1e-6, 5 / 4, 24
CELLS = ((1_000, 3.0), (3_000, 1.0), (3_000, 3.0), (20_000, 1.0), (20_000, 3.0), (70_000, 1.0))
SOURCES = ("analyses/regression/*.py", "stats/*.py", "blocks/*.py", "truth_[cdm]*.py")
OF_CATEGORIES = ("binomial", "multinomial", "ordinal")


def bounds(x: Floats, wide: float) -> tuple[float, float]:
    """Bounds as people choose them: from 0 where data begin near it, else on both sides."""
    low, high = float(x.min()), float(x.max())
    extent = high - low
    if 0 <= low < 0.2 * extent:
        return 0.0, low + wide * extent
    return low - (wide - 1) / 2 * extent, high + (wide - 1) / 2 * extent


def schema_of(problem: Problem, columns: dict[str, Floats]) -> Schema:
    made: dict[str, Any] = {}
    for name in problem.numbers:
        made[name] = Number(*bounds(columns[name], problem.wide), missing=False)
    for name in problem.categories:
        made[name] = Category((0, 1), missing=False)
    if problem.family in OF_CATEGORIES:
        values = tuple(range(int(columns[problem.target].max()) + 1))
        made[problem.target] = Category(values, missing=False)
    else:
        low, high = bounds(columns[problem.target], problem.wide_target)
        made[problem.target] = Number(1e-3 if problem.family == "gamma" else low, high, missing=False)
    return Schema(made)


def drawn(problem: Problem, columns: dict[str, Floats], rows: int, rng: np.random.Generator) -> pl.DataFrame:
    places = rng.integers(0, len(columns[problem.target]), rows)
    whole = {*problem.categories, *([problem.target] if problem.family in OF_CATEGORIES else [])}
    return pl.DataFrame(
        {
            name: columns[name][places].astype(np.int64) if name in whole else columns[name][places]
            for name in (*problem.features, problem.target)
        }
    )


def conducted(analysis: Any, schema: Schema, frame: pl.DataFrame, mu: float, rng: np.random.Generator) -> Any:
    """What one release at this mu says."""
    table, talk = Table("site", frame, schema), analysis.conduct(schema, "replace-one")
    query = next(talk)
    for share in analysis.stages():
        std = query.sensitivity / mu / math.sqrt(share)
        noise = tuple(tuple(std * scale for scale in scales) for scales in query.scales)
        sums = tuple(
            tuple(
                np.asarray(total, float) * 2.0**-array.bits + s * rng.normal(size=array.shape)
                for total, array, s in zip(totals, block.arrays(schema), stds, strict=True)
            )
            for block, totals, stds in zip(query.blocks, table.sums(list(query.blocks)), noise, strict=True)
        )
        try:
            query = talk.send(Answer(sums, noise, len(frame), schema))
        except StopIteration as stop:
            return stop.value
    raise AssertionError("it asked more often than it has stages")


@dataclass(frozen=True)
class Truth:
    """A model's fit to a population, in the columns' units, with what a sandwich needs."""

    coefficients: Floats
    scores: Floats
    curvature: Floats

    @classmethod
    def of(cls, x: Floats, y: Floats, family: Family) -> Truth:
        """Newton's method with halved steps, on standardised columns."""
        middle, size = x.mean(axis=0), x.std(axis=0) + 1e-12
        z = np.column_stack([np.ones(len(x)), (x - middle) / size])
        mean = float(y.mean())
        w = np.zeros(z.shape[1])
        w[0] = family.link(min(max(mean, 1e-3), 1 - 1e-3) if family.binary else mean)
        g, h = family.at(z @ w, y)
        for _ in range(200):
            gradient = z.T @ g
            step = np.linalg.solve((z * h[:, None]).T @ z + 1e-9 * len(z) * np.eye(len(w)), gradient)
            step *= min(1.0, 1 / max(float((z @ step).std()), 1e-12))
            while True:
                g, h = family.at(z @ (w + step), y)
                if z.T @ g @ step >= -0.9 * abs(gradient @ step) or np.abs(step).max() < 1e-9:
                    break
                step = step / 2
            w = w + step
            if np.abs(step).max() < 1e-10:
                break
        back = np.diag(np.concatenate([[1.0], 1 / size]))
        back[0, 1:] = -middle / size
        inverse = np.linalg.inv(back)
        curvature = (z * h[:, None]).T @ z / len(z)
        return cls(back @ w, (z * g[:, None]) @ inverse, inverse.T @ curvature @ inverse)

    def errors(self, rows: int) -> Floats:
        """The standard errors of a study of so many rows, by the sandwich."""
        inverse = np.linalg.inv(self.curvature)
        spread = self.scores.T @ self.scores / len(self.scores)
        return np.sqrt(np.diag(inverse @ spread @ inverse) / rows)

    def oracle(self, rows: int, mu: float) -> Floats:
        """The standard errors of the oracle."""
        spread = self.scores.T @ self.scores / len(self.scores)
        root = np.linalg.cholesky(spread)
        u = np.linalg.solve(root, self.scores.T).T
        length, width = np.linalg.norm(u, axis=1), u.shape[1]
        to = np.linalg.inv(self.curvature) @ root
        each = (to**2).sum(axis=1)
        total = np.sqrt(each)
        for bound in math.sqrt(width) * 2.0 ** np.arange(-1, 7, 0.25):
            left = to @ (u * np.minimum(1, bound / np.maximum(length, 1e-300))[:, None]).mean(axis=0)
            noise = 2 * bound * math.sqrt(SITES) / mu / math.sqrt(0.67) / rows
            total = np.sqrt(each / rows + noise**2 * each)
            if (np.abs(left) / total).max() < 0.3:
                break
        return total


@dataclass(frozen=True)
class Cell:
    """One problem, size and budget; `cap` as `GLM` takes it."""

    problem: Problem
    rows: int
    epsilon: float
    cap: str = "auto"

    @property
    def name(self) -> str:
        bare = "" if self.cap == "auto" else ", no caps"
        return f"{self.problem.name}, n = {self.rows:,}, epsilon = {self.epsilon:g}{bare}"

    @property
    def family(self) -> str:
        return self.problem.family

    @property
    def reported(self) -> bool:
        return self.problem.population in REPORTED

    @property
    def sources(self) -> tuple[str, ...]:
        return SOURCES

    def run(self, seeds: Sequence[int]) -> Summary:
        """Return what runs say of every slope."""
        warnings.simplefilter("ignore")
        problem, columns = self.problem, population(self.problem.population)
        assert columns is not None
        schema = schema_of(problem, columns)
        analysis = GLM(problem.target, problem.features, problem.family, cap=self.cap)
        mu = float(privacy.mu(self.epsilon, DELTA))
        found: tuple[list[Floats], ...] = ([], [], [], [])
        for seed in seeds:
            rng = np.random.default_rng([seed, self.rows, int(10 * self.epsilon)])
            frame = drawn(problem, columns, self.rows, rng)
            model = conducted(analysis, schema, frame, mu / math.sqrt(SITES), rng).model
            truth = self.fit(model, columns, schema)
            sample = {name: frame[name].to_numpy().astype(float) for name in frame.columns}
            sampled = self.fit(model, sample, schema)
            each = model.estimates
            half = np.array([(e.interval()[1] - e.interval()[0]) / 2 for e in each])
            z = LEVEL * (np.array([e.value for e in each]) - truth.coefficients) / half
            plain, oracle = truth.errors(self.rows), truth.oracle(self.rows, mu)
            slopes = [i for i, one in enumerate(each) if not one.label.startswith(("intercept", "threshold"))]
            without = (sampled.coefficients - truth.coefficients) / sampled.errors(self.rows)
            each_kept = (z, half / LEVEL / plain, half / LEVEL / oracle, without)
            for kept, values in zip(found, each_kept, strict=True):
                kept.append(values[slopes])
        return Summary.of(*map(np.array, found))

    def fit(self, model: Any, columns: dict[str, Floats], schema: Schema) -> Truth:
        """Return the model without privacy, cells cut at bounds and at what this run says that it capped."""
        caps = {each.column: each for each in model.limited.capped}

        def cut(name: str) -> Floats:
            column, cap = schema[name], caps.get(name)
            if not isinstance(column, Number):
                return columns[name]
            low = column.low if cap is None or cap.low is None else cap.low
            high = column.high if cap is None or cap.high is None else cap.high
            return np.clip(columns[name], low, high)

        x = np.column_stack([cut(name) for name in self.problem.features])
        if self.problem.family in ("multinomial", "ordinal"):
            fit = getattr(truth_choices, self.problem.family)
            return Truth(*fit(x, columns[self.problem.target]))
        likelihood = analysis_family(model)
        return Truth.of(x, cut(self.problem.target), likelihood)


def analysis_family(model: Any) -> Family:
    """The family of a model, with the dispersion that it says it held."""
    from cape.analyses.regression.likelihoods import LIKELIHOODS

    value = 1.0 if model.dispersion is None else model.dispersion.value
    return LIKELIHOODS[model.family, model.link].made(value)


def problems(pattern: str = "") -> Iterator[Problem]:
    """All problems whose data are here."""
    for problem in PROBLEMS:
        if pattern in problem.name and population(problem.population) is not None:
            yield problem


FAMILIES = ("gaussian", "binomial", "poisson", "negative-binomial", "gamma", "multinomial", "ordinal")


def sample(many: int, cap: str = "auto") -> list[Cell]:
    """So many cells of every family, of all populations and sizes, the same every time."""
    sizes = [size for size in CELLS if size[0] <= 20_000]
    return some_of([Cell(problem, *size, cap) for problem in problems() for size in sizes], many)


@bench("truth.coverage")
def coverage() -> Result:
    """The least mean coverage of a family's 95% intervals over a sample of cells; 0 if a cell is broken."""
    found = measured([*sample(6), *sample(3, "none")], RUNS)
    families, failing = by_family(found), broken(found)
    detail = {
        "broken": failing,
        "families": families,
        "coefficients": sum(int(each.counts.sum()) for each in found.values()),
        "not counted": sum(int((~each.counts).sum()) for each in found.values()),
        "runs": RUNS,
    }
    return Result(min(families.values()) if not failing else 0.0, MEAN, "higher", unit="share", detail=detail)


@bench("truth.width")
def width() -> Result:
    """The median width of intervals over the oracle's, over its bar: 1.8 with caps and 2.2 without."""
    figures = {}
    for cap, bar in (("auto", 1.8), ("none", 2.2)):
        found = measured(sample(6 if cap == "auto" else 3, cap), RUNS)
        wide: dict[str, list[Floats]] = {}
        for cell, each in found.items():
            wide.setdefault(cell.family, []).append(np.array(each.oracle))
        figures[cap] = {family: float(np.median(np.concatenate(each))) for family, each in wide.items()}
        figures[cap]["worst over bar"] = max(figures[cap].values()) / bar
    worst = max(each["worst over bar"] for each in figures.values())
    detail = {cap: {name: round(value, 2) for name, value in each.items()} for cap, each in figures.items()}
    return Result(worst, 1.0, "lower", detail=detail)


GRID_ROWS, GRID_EPSILONS = (1_000, 4_000, 16_000, 64_000), (0.5, 1.0, 2.0, 4.0)


@bench("truth.monotone")
def monotone() -> Result:
    """The largest median width over that with a quarter of the rows, or half of epsilon: it should fall."""
    worst, detail = 0.0, {}
    for family in FAMILIES:
        (problem,) = problems(f"hetero {family} ")
        cells = [Cell(problem, n, e) for n in GRID_ROWS for e in GRID_EPSILONS]
        found = measured(cells, RUNS)
        grid = np.array([np.median(found[cell].plain) / math.sqrt(cell.rows) for cell in cells])
        grid = grid.reshape(len(GRID_ROWS), len(GRID_EPSILONS))
        ratio = max(float((grid[1:] / grid[:-1]).max()), float((grid[:, 1:] / grid[:, :-1]).max()))
        worst, detail[family] = max(worst, ratio), round(ratio, 3)
    return Result(worst, 1.0, "lower", detail=detail)


@bench("truth.size")
def size(runs: int = 150) -> Result:
    """How often tests of true nulls reject at .05: a feature is permuted in the population."""
    cells = sample(2)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        rejected = np.concatenate(list(pool.map(partial(_null, runs=runs), cells)))
    share = float(rejected.mean())
    off = max(share - 0.065, 0.03 - share, 0.0)
    return Result(
        off, 0.0, "lower", unit="share", detail={"rejected": round(share, 4), "tests": len(rejected)}
    )


def _null(cell: Cell, runs: int) -> Floats:
    """Return in which runs a test says that a permuted column matters more than in the population."""
    warnings.simplefilter("ignore")
    problem, columns = cell.problem, population(cell.problem.population)
    assert columns is not None
    name = problem.numbers[0]
    columns = {**columns, name: np.random.default_rng(3).permutation(columns[name])}
    schema = schema_of(problem, columns)
    analysis = GLM(problem.target, problem.features, problem.family)
    mu = float(privacy.mu(cell.epsilon, DELTA)) / math.sqrt(SITES)
    found = []
    for seed in range(runs):
        rng = np.random.default_rng([seed, cell.rows, 5])
        model = conducted(analysis, schema, drawn(problem, columns, cell.rows, rng), mu, rng).model
        truth = cell.fit(model, columns, schema).coefficients
        for i, one in enumerate(model.estimates):
            if one.label == name or one.label.startswith(f"{name} ["):
                low, high = one.interval()
                found.append(float(not low <= truth[i] <= high))
    return np.array(found)


def every() -> list[Cell]:
    """All cells, with caps and a third of them without."""
    both = [Cell(problem, *size, cap) for cap in ("auto", "none") for problem in problems() for size in CELLS]
    return [cell for i, cell in enumerate(both) if cell.cap == "auto" or i % 3 == 0]


if __name__ == "__main__":
    main("truth", every(), __doc__)
