"""Mixed models on populations that no model fits: coverage and width, as `truth_models` has them.

Sites are hospitals (heart disease), occupations (Adult) and divisions of the United States (Crime), and for
the generators of `truth_data` six groups with levels and slopes of their own. The truth is restricted maximum
likelihood on the whole population without privacy, its cells cut where that very run says that it capped.
Whether a cell counts, and the width over that without privacy, go by the interval of the same model, of the
same rows and caps, without noise.

The oracle of a fixed effect has the sampling error of that interval, and the noise of one step from the
sample's own coefficients by site with 67% of the budget, at the smallest bound on scores whose bias is below
.3 standard errors. Of variances it is the interval without privacy.

`python -m benchmarks.truth_mixed RUNS [PATTERN] --minutes 30` measures cells for half an hour, as
`truth_cells` says.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.optimize import minimize

from benchmarks.harness import Result, bench
from benchmarks.truth_cells import LEVEL, MEAN, Summary, broken, by_family, main, measured, some_of
from benchmarks.truth_data import GENERATED, REPORTED, Floats, population
from benchmarks.truth_data import _numbers as numbers_of
from benchmarks.truth_data import _read as read
from benchmarks.truth_data import _whole as whole
from benchmarks.truth_models import bounds
from cape import privacy
from cape.analyses import MixedModel
from cape.blocks import Table
from cape.data import Category, Number, Schema
from cape.engine.query import Answer

DELTA, SITES, RUNS = 1e-6, 5 / 4, 24
CELLS = ((1_000, 3.0), (3_000, 1.0), (3_000, 3.0), (20_000, 1.0), (20_000, 3.0), (70_000, 1.0))
SOURCES = (
    "analyses/sites/*.py", "analyses/regression/*.py", "stats/*.py", "blocks/*.py", "truth_[cdm]*.py",
)  # fmt: skip
_DIVISIONS = (
    (9, 23, 25, 33, 44, 50), (34, 36, 42), (17, 18, 26, 39, 55), (19, 20, 27, 29, 31, 38, 46),
    (10, 11, 12, 13, 24, 37, 45, 51, 54), (1, 21, 28, 47), (5, 22, 40, 48), (4, 8, 16, 30, 32, 35, 49, 56),
    (2, 6, 15, 41, 53),
)  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """A mixed model on a population, with bounds `wide` times the range of the data."""

    population: str
    target: str
    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    random: tuple[str, ...] = ("intercept",)
    wide: float = 4.0
    wide_target: float = 3.0

    @property
    def name(self) -> str:
        return f"{self.population} {self.target}, {' and '.join(self.random)}"

    @property
    def features(self) -> tuple[str, ...]:
        return (*self.numbers, *self.categories)


SLOPES = ("intercept", "x1")
PROBLEMS = [
    *(Problem(name, "number", ("x1", "x2", "x3"), ("g",)) for name in GENERATED),
    *(Problem(name, "number", ("x1", "x2", "x3"), ("g",), SLOPES) for name in GENERATED),
    Problem("adult", "hours", ("age", "education", "gain"), ("sex", "married"), wide_target=2.0),
    Problem("adult", "hours", ("age", "education"), ("sex",), ("intercept", "age"), wide_target=2.0),
    Problem("crime", "ViolentCrimesPerPop", ("racepctblack", "medIncome", "PopDens"), (), wide=3.0),
    Problem("heart", "rate", ("age", "bp"), ("sex",), wide=3.0, wide_target=2.0),
]


@cache
def sites(name: str) -> dict[str, Floats] | None:
    """Return the columns of a population, and the site of each row; None for real data that is not there."""
    columns = population(name)
    if columns is None:
        return None
    if name in GENERATED:
        rng = np.random.default_rng([23, GENERATED.index(name)])
        site = rng.choice(6, len(columns["x1"]), p=(0.3, 0.2, 0.15, 0.15, 0.12, 0.08))
        level, slope, case = 0.4 * rng.normal(size=6), 0.15 * rng.normal(size=6), rng.normal(size=6)
        x1, x3 = columns["x1"], columns["x3"] + 0.3 * case[site]
        number = columns["number"] + level[site] + slope[site] * x1 + 0.1 * case[site]
        return {**columns, "x3": x3, "number": number, "site": site.astype(float)}
    folder = Path(os.environ["CAPE_DATA"])
    if name == "adult":
        work = numbers_of(read(folder / "adult" / "adult.csv")["occupation"])
        large = [code for code in np.unique(work) if (work == code).sum() > 900]
        kept = np.isin(work, large)
        site = np.searchsorted(np.array(large), work[kept]).astype(float)
        return {**{key: each[kept] for key, each in columns.items()}, "site": site}
    if name == "crime":
        lines = (folder / "crime" / "communities.names").read_text().splitlines()
        names = [line.split()[1] for line in lines if line.startswith("@attribute")]
        d = read(folder / "crime" / "communities.data", names)
        kept = ("racepctblack", "medIncome", "PopDens", "ViolentCrimesPerPop")
        state = numbers_of(d["state"])
        site = np.array([[one in each for each in _DIVISIONS].index(True) for one in state], float)
        return whole({**{key: numbers_of(d[key]) for key in kept}, "site": site})
    names = ["age", "sex", "cp", "bp", "chol", "fbs", "ecg", "rate", "angina", "peak", "slope", "ca", "thal"]
    found: dict[str, list[Floats]] = {}
    for code, hospital in enumerate(("cleveland", "hungarian", "switzerland", "va")):
        part = read(folder / "heart" / f"processed.{hospital}.data", [*names, "stage"])
        for key in ("age", "sex", "bp", "rate"):
            found.setdefault(key, []).append(numbers_of(part[key]))
        found.setdefault("site", []).append(np.full(len(part["age"]), float(code)))
    return whole({key: np.concatenate(each) for key, each in found.items()})


def schema_of(problem: Problem, columns: dict[str, Floats]) -> Schema:
    made: dict[str, Any] = {}
    for name in problem.numbers:
        made[name] = Number(*bounds(columns[name], problem.wide), missing=False)
    for name in problem.categories:
        made[name] = Category((0, 1), missing=False)
    made[problem.target] = Number(*bounds(columns[problem.target], problem.wide_target), missing=False)
    return Schema(made).at(tuple(f"site {code}" for code in range(int(columns["site"].max()) + 1)))


def drawn(
    problem: Problem, columns: dict[str, Floats], rows: int, rng: np.random.Generator
) -> dict[str, Any]:
    places = rng.integers(0, len(columns["site"]), rows)
    return {name: columns[name][places] for name in (*problem.features, problem.target, "site")}


@dataclass(frozen=True)
class Truth:
    """Restricted maximum likelihood, in the columns' units, with scores by site for the oracle.

    The intercept is where features are 0, its variance between sites where those with slopes are at `at`.
    """

    coefficients: Floats
    tau2: Floats
    residual: float

    @property
    def numbers(self) -> Floats:
        return np.concatenate([self.coefficients, self.tau2, [self.residual]])

    @classmethod
    def of(cls, x: Floats, y: Floats, site: Floats, random: Sequence[int], at: Floats) -> Truth:
        """`random` are places in (1, x), `at` the values of x where the intercept varies."""
        middle, size = x.mean(axis=0), x.std(axis=0) + 1e-12
        spread = float(y.std())
        v = np.column_stack([np.ones(len(x)), (x - middle) / size, (y - y.mean()) / spread])
        grams = np.array([v[site == code].T @ v[site == code] for code in np.unique(site)])
        q, p = len(random), v.shape[1] - 1
        z = np.ix_(range(len(grams)), random, random)
        lower, whole_gram = np.tril_indices(q), grams.sum(axis=0)

        def parts(root: Floats) -> tuple[Floats, float, Floats]:
            d = root @ root.T
            weights = d @ np.linalg.inv(np.eye(q) + grams[z] @ d)
            crossed = grams[:, random, :]
            found = whole_gram - (np.swapaxes(crossed, 1, 2) @ weights @ crossed).sum(axis=0)
            size = np.linalg.slogdet(np.eye(q) + grams[z] @ d)[1].sum()
            return found, float(size), d

        def objective(t: Floats) -> float:
            root = np.zeros((q, q))
            root[lower] = t
            found, size, _ = parts(root)
            b = np.linalg.solve(found[:p, :p], found[:p, p])
            left = found[p, p] - found[:p, p] @ b
            return float((len(v) - p) * math.log(left) + size + np.linalg.slogdet(found[:p, :p])[1])

        best = min(
            (minimize(objective, start * np.eye(q)[lower], method="BFGS", options={"gtol": 1e-4})
             for start in (0.05, 0.3)),
            key=lambda each: float(each.fun),
        )  # fmt: skip
        root = np.zeros((q, q))
        root[lower] = best.x
        found, _, d = parts(root)
        b = np.linalg.solve(found[:p, :p], found[:p, p])
        residual = float(found[p, p] - found[:p, p] @ b) / (len(v) - p)
        # back to the columns' units
        slopes = b[1:] * spread / size
        to = np.zeros((q, q))
        for i, place in enumerate(random):
            to[i, i] = spread / (size[place - 1] if place else 1.0)
            if place and random[0] == 0:
                to[0, i] = spread * (at[place - 1] - middle[place - 1]) / size[place - 1]
        constant = y.mean() + spread * b[0] - slopes @ middle
        tau2 = np.diag(to @ d @ to.T) * residual
        return cls(np.append(constant, slopes), tau2, residual * spread**2)


def oracle_noise(x: Floats, y: Floats, site: Floats, random: Sequence[int], mu: float) -> Floats:
    """Return the errors that the oracle's noise adds to coefficients: intercept, slopes."""
    n, codes = len(y), np.unique(site)
    rest = [place for place in range(x.shape[1] + 1) if place not in random]
    middle, size = x.mean(axis=0), x.std(axis=0) + 1e-12
    v = np.column_stack([np.ones(n), (x - middle) / size])
    z, others = v[:, random], v[:, rest].copy()
    target = y.copy()
    inverses = []
    for code in codes:
        here = site == code
        gram = np.linalg.pinv(z[here].T @ z[here] / here.sum())
        for column in (*others.T, target):
            column[here] -= z[here] @ (gram @ (z[here].T @ column[here]) / here.sum())
        inverses.append(gram)
    b = np.linalg.lstsq(others, target, rcond=None)[0] if rest else np.zeros(0)
    residual = target - others @ b
    root = np.linalg.cholesky(others.T @ others / n) if rest else np.zeros((0, 0))
    own = np.linalg.cholesky(z.T @ z / n)
    u = np.hstack([np.linalg.solve(own, z.T).T, np.linalg.solve(root, others.T).T if rest else others])
    length = np.linalg.norm(u, axis=1) * np.abs(residual)
    error, noise = residual.std() / math.sqrt(n), 0.0
    for bound in np.median(length) * 2.0 ** np.arange(-1, 9, 0.25):
        cut = np.minimum(1, bound / np.maximum(length, 1e-300))
        left = np.abs((u * (residual * cut)[:, None]).mean(axis=0)).max()
        noise = 2 * bound * math.sqrt(SITES) / mu / math.sqrt(0.67) / n
        if left < 0.3 * math.hypot(error, noise):
            break
    found = np.zeros(x.shape[1] + 1)
    if rest:
        found[rest] = noise * np.sqrt((np.linalg.inv(root) ** 2).sum(axis=0))
    shares = np.array([(site == code).mean() for code in codes])
    to = np.linalg.inv(own)
    by_site = np.sqrt((1 / shares**2).sum()) / len(codes)
    found[list(random)] = noise * by_site * np.sqrt((to**2).sum(axis=0))
    found[1:] /= size
    found[0] = math.hypot(found[0], float(np.linalg.norm(found[1:] * middle)))
    return found


@dataclass(frozen=True)
class Cell:
    """One problem, size and budget; `cap` as `MixedModel` takes it."""

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
        return "mixed"

    @property
    def reported(self) -> bool:
        return self.problem.population in REPORTED

    @property
    def sources(self) -> tuple[str, ...]:
        return SOURCES

    @property
    def common(self) -> list[int]:
        """The places of effects that all sites have in common."""
        features = self.problem.features
        return [1 + place for place, name in enumerate(features) if name not in self.problem.random]

    def run(self, seeds: Sequence[int]) -> Summary:
        """Return what runs say of every fixed effect, of variances between sites, and of that within."""
        warnings.simplefilter("ignore")
        problem, columns = self.problem, sites(self.problem.population)
        assert columns is not None
        schema = schema_of(problem, columns)
        mu = float(privacy.mu(self.epsilon, DELTA))
        places = [0 if name == "intercept" else 1 + problem.features.index(name) for name in problem.random]
        found: tuple[list[Floats], ...] = ([], [], [], [])
        for seed in seeds:
            rng = np.random.default_rng([seed, self.rows, int(10 * self.epsilon)])
            cells = drawn(problem, columns, self.rows, rng)
            tables = self._tables(cells, schema)
            model = self._released(schema, tables, mu / math.sqrt(SITES), rng, self.cap)
            caps = {each.column: (each.low, each.high) for each in model.limited.capped}
            cut = {name: _ends(schema.number(name), caps.get(name)) for name in self._numbers}
            bare = self._released(schema, tables, math.inf, rng, cut)
            at = np.array([_middle(schema[name]) for name in problem.features])
            x, y = self._cut(columns, cut)
            truth = Truth.of(x, y, columns["site"], places, at).numbers
            private, plain = (np.array([e.interval() for e in each.estimates]) for each in (model, bare))
            half, narrow = ((each[:, 1] - each[:, 0]) / 2 for each in (private, plain))
            x, y = self._cut(cells, cut)
            noise = LEVEL * oracle_noise(x, y, cells["site"], places, mu)
            oracle = narrow.copy()
            oracle[: len(noise)] = np.hypot(oracle[: len(noise)], noise)
            z, without = (
                LEVEL * (each.mean(axis=1) - truth) / np.maximum(size, 1e-300)
                for each, size in ((private, half), (plain, narrow))
            )
            for kept, values in zip(found, (z, half / narrow, half / oracle, without), strict=True):
                kept.append(values)
        return Summary.of(*map(np.array, found))

    @property
    def _numbers(self) -> tuple[str, ...]:
        return (*self.problem.numbers, self.problem.target)

    def _tables(self, cells: dict[str, Any], schema: Schema) -> list[Table]:
        found = []
        for code, name in enumerate(schema.category("site").values):
            here = cells["site"] == code
            held = {
                key: each[here].astype(np.int64) if key in self.problem.categories else each[here]
                for key, each in cells.items()
                if key != "site"
            }
            found.append(Table(str(name), pl.DataFrame(held), schema))
        return found

    def _released(
        self, schema: Schema, tables: Sequence[Table], mu: float, rng: np.random.Generator, cap: Any
    ) -> Any:
        """What one release at this mu says, without secure aggregation and grids."""
        problem = self.problem
        analysis = MixedModel(problem.target, problem.features, random=problem.random, cap=cap)
        talk = analysis.conduct(schema, "replace-one")
        query = next(talk)
        for share in analysis.stages():
            std = query.sensitivity / mu / math.sqrt(share)
            noise = tuple(tuple(std * scale for scale in scales) for scales in query.scales)
            totals = [table.sums(list(query.blocks)) for table in tables]
            sums = tuple(
                tuple(
                    sum(np.asarray(each[place][i], float) for each in totals) * 2.0**-array.bits
                    + s * rng.normal(size=array.shape)
                    for i, (array, s) in enumerate(zip(block.arrays(schema), stds, strict=True))
                )
                for place, (block, stds) in enumerate(zip(query.blocks, noise, strict=True))
            )
            try:
                query = talk.send(Answer(sums, noise, self.rows, schema))
            except StopIteration as stop:
                return stop.value.model
        raise AssertionError("it asked more often than it has stages")

    def _cut(self, cells: dict[str, Floats], ends: dict[str, tuple[float, float]]) -> tuple[Floats, Floats]:
        held = {name: np.clip(cells[name], *ends[name]) for name in ends}
        x = np.column_stack([held.get(name, cells[name]) for name in self.problem.features])
        return x, held[self.problem.target]


def _ends(column: Number, cap: tuple[float | None, float | None] | None) -> tuple[float, float]:
    low, high = (None, None) if cap is None else cap
    return column.low if low is None else low, column.high if high is None else high


def _middle(column: Any) -> float:
    return float(column.middle) if isinstance(column, Number) else 0.0


def problems() -> list[Problem]:
    """All problems whose data are here."""
    return [problem for problem in PROBLEMS if population(problem.population) is not None]


def sample(many: int, cap: str = "auto") -> list[Cell]:
    """So many cells, of all populations and sizes, the same every time."""
    sizes = [size for size in CELLS if size[0] <= 20_000]
    return some_of([Cell(problem, *size, cap) for problem in problems() for size in sizes], many)


@bench("truth.mixed.coverage")
def coverage() -> Result:
    """The mean coverage of 95% intervals over a sample of cells; 0 if a cell is broken."""
    found = measured([*sample(12), *sample(6, "none")], RUNS)
    failing = broken(found)
    detail = {
        "broken": failing,
        "numbers": sum(int(each.counts.sum()) for each in found.values()),
        "not counted": sum(int((~each.counts).sum()) for each in found.values()),
        "runs": RUNS,
    }
    return Result(by_family(found)["mixed"] if not failing else 0.0, MEAN, "higher", detail=detail)


@bench("truth.mixed.width")
def width() -> Result:
    """The median width over the oracle's of effects that sites share, over its bar: 1.8, or 2.2 bare."""
    figures = {}
    for cap, bar in (("auto", 1.8), ("none", 2.2)):
        found = measured(sample(12 if cap == "auto" else 6, cap), RUNS)
        wide = [np.array(each.oracle)[cell.common] for cell, each in found.items()]
        figures[cap] = float(np.median(np.concatenate(wide))) / bar
    detail = {cap: round(value, 2) for cap, value in figures.items()}
    return Result(max(figures.values()), 1.0, "lower", detail=detail)


GRID_ROWS, GRID_EPSILONS = (1_000, 4_000, 16_000, 64_000), (0.5, 1.0, 2.0, 4.0)


@bench("truth.mixed.monotone")
def monotone() -> Result:
    """The largest width over that with a quarter of the rows, or half of epsilon: it should fall."""
    (problem,) = (each for each in problems() if each.name == "hetero number, intercept")
    cells = [Cell(problem, n, e) for n in GRID_ROWS for e in GRID_EPSILONS]
    found = measured(cells, RUNS)
    grid = np.array([np.median(np.array(found[c].plain)[c.common]) / math.sqrt(c.rows) for c in cells])
    grid = grid.reshape(len(GRID_ROWS), len(GRID_EPSILONS))
    ratio = max(float((grid[1:] / grid[:-1]).max()), float((grid[:, 1:] / grid[:, :-1]).max()))
    return Result(ratio, 1.0, "lower", detail={"worst": round(ratio, 3)})


def every() -> list[Cell]:
    """All cells, with caps and a third of them without."""
    both = [Cell(problem, *size, cap) for cap in ("auto", "none") for problem in problems() for size in CELLS]
    return [cell for i, cell in enumerate(both) if cell.cap == "auto" or i % 3 == 0]


if __name__ == "__main__":
    main("mixed", every(), __doc__)
