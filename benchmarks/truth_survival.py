"""Cox and Weibull regressions on populations that no model fits (`truth_data`): coverage and width.

The truth is the same model on the whole population without privacy, its cells cut where that very run says
that it capped; that of Cox is the partial likelihood, whatever bins the analysis cuts times into. Releases
are made, and the oracle is found, as in `truth_models`.

`python -m benchmarks.truth_survival RUNS [PATTERN] --minutes 30` measures cells for half an hour, as
`truth_cells` says.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from benchmarks import truth_hazards
from benchmarks.harness import Result, bench
from benchmarks.truth_cells import LEVEL, MEAN, Summary, broken, by_family, main, measured, some_of
from benchmarks.truth_data import GENERATED, REPORTED, Floats, population
from benchmarks.truth_models import DELTA, RUNS, SITES, Truth, bounds, conducted
from cape import Cox, SurvivalRegression, privacy
from cape.data import Category, Number, Schema

SIZES = ((1_000, 3.0), (3_000, 1.0), (3_000, 3.0), (10_000, 1.0), (10_000, 3.0))
SOURCES = ("analyses/regression/*.py", "analyses/survival/*.py", "stats/*.py", "blocks/*.py", "truth_*.py")
FAMILIES = ("cox", "weibull")


@dataclass(frozen=True)
class Followed:
    """Columns of a population whose hazards are modelled, with bounds `wide` times the range of the data."""

    population: str
    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    wide: float = 4.0
    wide_time: float = 3.0

    @property
    def features(self) -> tuple[str, ...]:
        return (*self.numbers, *self.categories)

    def schema(self, columns: dict[str, Floats]) -> Schema:
        made: dict[str, Any] = {
            name: Number(*bounds(columns[name], self.wide), missing=False) for name in self.numbers
        }
        for name in (*self.categories, "event"):
            made[name] = Category((0, 1), missing=False)
        longest = self.wide_time * float(columns["time"].max())
        return Schema({**made, "time": Number(0.0, longest, missing=False)})

    def drawn(self, columns: dict[str, Floats], rows: int, rng: np.random.Generator) -> pl.DataFrame:
        places = rng.integers(0, len(columns["time"]), rows)
        return pl.DataFrame(
            {name: columns[name][places] for name in (*self.numbers, "time")}
            | {name: columns[name][places].astype(np.int64) for name in (*self.categories, "event")}
        )


FOLLOWED = [
    *(Followed(name, ("x1", "x2", "x3"), ("g",)) for name in GENERATED),
    Followed("rotterdam", ("age", "nodes", "progesterone"), ("hormon", "grade3")),
    Followed("rotterdam", ("nodes", "estrogen"), ("size2",)),
    Followed("actg320", ("age", "cd4"), ("tx",)),
]


@dataclass(frozen=True)
class Cell:
    """One family, population, size and budget; `cap` as the analyses take it."""

    family: str
    followed: Followed
    rows: int
    epsilon: float
    cap: str = "auto"

    @property
    def name(self) -> str:
        bare = "" if self.cap == "auto" else ", no caps"
        of = f"{self.followed.population} {self.family} {' '.join(self.followed.features)}"
        return f"{of}, n = {self.rows:,}, epsilon = {self.epsilon:g}{bare}"

    @property
    def reported(self) -> bool:
        chosen_after = self.family == "cox" and self.followed.population == "hetero"  # tails of Cox scores
        return self.followed.population in REPORTED and not chosen_after

    @property
    def sources(self) -> tuple[str, ...]:
        return SOURCES

    def run(self, seeds: Sequence[int]) -> Summary:
        """Return what runs say of every coefficient, and of the shape."""
        warnings.simplefilter("ignore")
        columns = population(self.followed.population)
        assert columns is not None
        schema = self.followed.schema(columns)
        kind = Cox if self.family == "cox" else SurvivalRegression
        analysis = kind("time", "event", self.followed.features, cap=self.cap)
        mu = float(privacy.mu(self.epsilon, DELTA))
        found: tuple[list[Floats], ...] = ([], [], [], [])
        for seed in seeds:
            rng = np.random.default_rng([seed, self.rows, int(10 * self.epsilon)])
            frame = self.followed.drawn(columns, self.rows, rng)
            told = conducted(analysis, schema, frame, mu / math.sqrt(SITES), rng)
            truth = self.fit(told.model, columns, schema)
            sample = {name: frame[name].to_numpy().astype(float) for name in frame.columns}
            sampled = self.fit(told.model, sample, schema)
            half = np.array([(e.interval()[1] - e.interval()[0]) / 2 for e in told.estimates])
            kept = slice(len(truth.coefficients) - len(half), None)  # without the level
            z = LEVEL * (np.array([e.value for e in told.estimates]) - truth.coefficients[kept]) / half
            plain, oracle = truth.errors(self.rows)[kept], truth.oracle(self.rows, mu)[kept]
            without = (sampled.coefficients - truth.coefficients) / sampled.errors(self.rows)
            each = (z, half / LEVEL / plain, half / LEVEL / oracle, without[kept])
            for list_, values in zip(found, each, strict=True):
                list_.append(values)
        return Summary.of(*map(np.array, found))

    def fit(self, model: Any, columns: dict[str, Floats], schema: Schema) -> Truth:
        """Return the model without privacy, cells cut at what this run says that it capped."""
        caps = {each.column: each for each in model.limited.capped}

        def cut(name: str) -> Floats:
            column, cap = schema[name], caps.get(name)
            if not isinstance(column, Number):
                return columns[name]
            low = column.low if cap is None or cap.low is None else cap.low
            high = column.high if cap is None or cap.high is None else cap.high
            return np.clip(columns[name], low, high)

        x = np.column_stack([cut(name) for name in self.followed.features])
        return Truth(*getattr(truth_hazards, self.family)(x, cut("time"), columns["event"]))


def cells(cap: str = "auto") -> list[Cell]:
    """All cells whose data are here."""
    return [
        Cell(family, each, *size, cap)
        for family in FAMILIES
        for each in FOLLOWED
        if population(each.population) is not None
        for size in SIZES
    ]


@bench("truth.survival")
def survival() -> Result:
    """The least mean coverage of a family's 95% intervals over a sample of cells; 0 if a cell is broken."""
    found = measured([*some_of(cells(), 6), *some_of(cells("none"), 3)], RUNS)
    families, failing = by_family(found), broken(found)
    detail = {"broken": failing, "families": families, "runs": RUNS}
    return Result(min(families.values()) if not failing else 0.0, MEAN, "higher", unit="share", detail=detail)


@bench("truth.survival.width")
def survival_width() -> Result:
    """The median width of intervals over the oracle's, over its bar: 1.8 with caps and 2.2 without."""
    worst, detail = 0.0, {}
    for cap, bar in (("auto", 1.8), ("none", 2.2)):
        found = measured(some_of(cells(cap), 6 if cap == "auto" else 3), RUNS)
        for family in FAMILIES:
            wide = [np.array(each.oracle) for cell, each in found.items() if cell.family == family]
            middle = float(np.median(np.concatenate(wide)))
            worst, detail[f"{family}, cap {cap}"] = max(worst, middle / bar), round(middle, 2)
    return Result(worst, 1.0, "lower", detail=detail)


def every() -> list[Cell]:
    """All cells, with caps and a third of them without."""
    return [cell for i, cell in enumerate([*cells(), *cells("none")]) if cell.cap == "auto" or i % 3 == 0]


if __name__ == "__main__":
    main("truth_survival", every(), __doc__)
