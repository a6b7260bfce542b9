"""Whether plans are true on real data: noise of releases beside what was planned, for every kind of analysis.

The error of a release is how far it is from what the same analysis says of the same rows without noise (their
cells cut at the caps that this very run states). Its size is the root mean square over releases. It is
planned twice: with `expected` as it is in these rows, and with nothing expected; then the range has to hold
it.

`python -m benchmarks.truth_plan [PATTERN] [RELEASES]` prints every number, and what was planned.
"""

from __future__ import annotations

import csv
import math
import os
import statistics
import sys
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import cape
from benchmarks.harness import Result, Skip, bench
from benchmarks.truth_data import Floats, population
from benchmarks.truth_models import bounds
from cape.core.errors import CapeError
from cape.data import Category, Number, Schema
from cape.data.expected import Expected
from cape.engine.query import Analysis
from cape.learning.kmeans_model import KMeansModel

RELEASES = 24  # which tell the size of errors to 15%
MOST = 1.5  # times what was planned, and 1 / MOST
HELD = 0.9  # of the numbers of which nothing was expected
RANGED = "quantiles"  # of whole numbers: it is chance whether one of them is as good as the next
SAME = 1.05  # the ends of a range that is none
MARGIN = 1.2  # of a range's ends, for so few releases
WIDE = 2.0  # bounds: times the range of the data
SITES = 5

CATEGORIES = {
    "adult": ("sex", "married", "income", "kin"),
    "rotterdam": ("size", "size2", "grade3", "hormon", "event"),
    "crime": (),
    "heart": ("sex", "stage", "pain", "level", "ill"),
}
EPSILON = {"adult": 1.0, "rotterdam": 3.0, "crime": 3.0, "heart": 3.0}
ROWS = {"adult": 20_000}


@cache
def rows_of(name: str) -> dict[str, Floats] | None:
    """Return the columns of a table; None if it is not there."""
    found = population(name)
    if found is None:
        return None
    found = dict(found)
    if name == "rotterdam":
        with open(Path(os.environ["CAPE_DATA"]) / "rotterdam" / "rotterdam.csv", newline="") as file:
            found["time"] = np.array([float(row["time"]) for row in csv.DictReader(file)])
    if name == "heart":
        found["ill"] = (found["stage"] > 0).astype(float)
    many = len(next(iter(found.values())))
    places = np.random.default_rng(4).permutation(many)[: ROWS.get(name, many)]
    return {column: cells[places] for column, cells in found.items()}


@cache
def table_of(name: str) -> pl.DataFrame:
    columns = rows_of(name)
    assert columns is not None
    return pl.DataFrame(
        {c: cells.astype(np.int64) if c in CATEGORIES[name] else cells for c, cells in columns.items()}
    )


def schema_of(name: str, *, expected: bool = True) -> Schema:
    """Return the schema of a table, with what is expected of its columns as it is."""
    columns = rows_of(name)
    assert columns is not None
    made: dict[str, Any] = {}
    for column, cells in columns.items():
        if column in CATEGORIES[name]:
            shares = np.bincount(cells.astype(int)) / len(cells)
            made[column] = Category(
                tuple(range(len(shares))), missing=False, expected=tuple(shares) if expected else None
            )
        else:
            low, high = bounds(cells, WIDE)
            low = 0.01 if name == "crime" and column == "medIncome" else low
            cells = np.clip(cells, low, high)
            whole = bool((cells == np.round(cells)).all())
            low, high = (math.floor(low), math.ceil(high)) if whole else (low, high)
            known = Expected(float(cells.mean()), float(cells.std()))
            made[column] = Number(
                low, high, missing=False, expected=known if expected else None, integer=whole
            )
    return Schema(made)


MODEL = {
    "target": "income", "link": "logit", "intercept": -7.9,
    "coefficients": {"age": 0.044, "education": 0.353, "hours": 0.0345, "sex=1": 1.12},
}  # fmt: skip
LINE = {
    "target": "hours", "link": "identity", "intercept": 28.0,
    "coefficients": {"age": 0.05, "education": 0.72, "sex=1": 5.9},
}  # fmt: skip

ASKED: list[tuple[str, Analysis]] = [
    ("adult", cape.Count(income=1)),
    ("adult", cape.Sum("gain", "hours")),
    ("rotterdam", cape.Sum("progesterone", "nodes")),
    ("adult", cape.Mean("gain", "hours", "age")),
    ("rotterdam", cape.Mean("progesterone", "nodes", "age")),
    ("crime", cape.Variance("medIncome", "PctIlleg", "population")),
    ("rotterdam", cape.Variance("nodes", "age")),
    ("adult", cape.StandardDeviation("hours", "age", "gain")),
    ("rotterdam", cape.StandardDeviation("nodes", "age")),
    ("adult", cape.Covariance("hours", "age", "education")),
    ("crime", cape.Covariance("medIncome", "PctIlleg")),
    ("adult", cape.Correlation("hours", "age", "education")),
    ("crime", cape.Correlation("medIncome", "PctIlleg", "racepctblack")),
    ("adult", cape.Histogram("age", bins=16)),
    ("adult", cape.ContingencyTable("sex", "income")),
    ("adult", cape.Tables(["sex", "income", "kin", "married"])),
    ("adult", cape.Proportion("income", by="sex")),
    ("heart", cape.Proportion("ill", by="sex")),
    ("adult", cape.Association("sex", "income")),
    ("rotterdam", cape.Association("hormon", "event")),
    ("adult", cape.Difference("hours", "age", by="income")),
    ("rotterdam", cape.Difference("nodes", "age", by="hormon")),
    ("adult", cape.RankTest("age", by="income")),
    ("rotterdam", cape.RankTest("nodes", by="hormon")),
    ("adult", cape.CorrelationTest("age", "hours")),
    ("adult", cape.CorrelationTest("age", "hours", method="spearman")),
    ("adult", cape.ECDF("age", bins=16)),
    ("adult", cape.Quantiles("age", "hours")),
    ("rotterdam", cape.Quantiles("nodes", "age", "progesterone")),
    ("adult", cape.TableOne("age", "hours", "sex", by="income")),
    ("rotterdam", cape.TableOne("age", "nodes", "grade3", by="hormon")),
    ("rotterdam", cape.KaplanMeier("time", "event", bins=8)),
    ("rotterdam", cape.LogRank("time", "event", by="hormon", bins=8)),
    ("rotterdam", cape.Cox("time", "event", ["age", "nodes", "grade3"])),
    ("rotterdam", cape.SurvivalRegression("time", "event", ["age", "nodes", "grade3"])),
    ("adult", cape.LinearRegression("hours", ["age", "education", "sex"])),
    ("crime", cape.LinearRegression("ViolentCrimesPerPop", ["medIncome", "PctIlleg", "racepctblack"])),
    ("rotterdam", cape.LinearRegression("nodes", ["age", "progesterone", "hormon"])),
    ("adult", cape.LogisticRegression("income", ["age", "education", "hours", "sex"])),
    ("rotterdam", cape.LogisticRegression("event", ["age", "nodes", "grade3"])),
    ("adult", cape.GLM("hours", ["age", "education", "sex"], "gaussian")),
    ("crime", cape.GLM("ViolentCrimesPerPop", ["medIncome", "PctIlleg"], "gaussian")),
    ("rotterdam", cape.GLM("nodes", ["age", "grade3", "hormon"], "poisson")),
    ("adult", cape.GLM("kin", ["age", "hours"], "multinomial")),
    ("rotterdam", cape.GLM("size", ["age", "nodes", "hormon"], "ordinal")),
    ("crime", cape.GLM("medIncome", ["PctIlleg", "racepctblack"], "gamma")),
    ("rotterdam", cape.GLM("nodes", ["age", "hormon"], "negative-binomial")),
    ("adult", cape.PolynomialLoss("hours", ["age", "education"], {1: [0, -2], 2: [1]})),
    ("crime", cape.PolynomialLoss("ViolentCrimesPerPop", ["medIncome", "PctIlleg"], {1: [0, -2], 2: [1]})),
    ("adult", cape.Heterogeneity(cape.Mean("hours"), by="kin")),
    ("heart", cape.Heterogeneity(cape.Difference("age", by="ill"))),
    ("adult", cape.MixedModel("hours", ["age"], by="kin")),
    ("adult", cape.Evaluate(MODEL)),
    ("adult", cape.Evaluate(LINE)),
    ("adult", cape.SyntheticData(["age", "sex", "income"], bins=8)),
    ("adult", cape.PCA("age", "hours", "education")),
    ("crime", cape.PCA("medIncome", "PctIlleg", "racepctblack")),
    ("adult", cape.KMeans(["age", "hours"], 3)),
]  # fmt: skip
"""Every kind of analysis but neural networks, of whose steps a plan says the noise and not the error."""


@dataclass(frozen=True)
class Planned:
    """One number: its real error, what was planned with `expected` and the range of that, and the range with
    nothing expected."""

    label: str
    real: float
    planned: float
    told: tuple[float, float]
    bare: tuple[float, float]

    @property
    def ratio(self) -> float:
        """How many times what was planned it is."""
        return self.real / self.planned

    @property
    def outside(self) -> float:
        """How many times the nearer end of the range it is, with `expected`; 1 within."""
        low, high = self.told
        return self.real / min(max(self.real, low), high)

    @property
    def held(self) -> bool:
        """Whether the range with nothing expected holds it, as far as so many releases tell."""
        low, high = self.bare
        margin = MOST if high < SAME * low else MARGIN
        return low / margin <= self.real <= high * margin


def _sites(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    return {f"site {i}": frame[i::SITES] for i in range(SITES)}


def _together(name: str, sites: Any, scheme: str, expected: bool = True) -> cape.Consortium:
    schema = schema_of(name, expected=expected)
    budget = cape.Budget(EPSILON[name], 1e-6)
    return cape.Consortium(sites, schema, budget, colluding=0, scheme=scheme)


class Exact:
    """What an analysis says of a table without noise."""

    def __init__(self, name: str, analysis: Analysis) -> None:
        self.name, self.analysis, self.sites = name, analysis, _sites(table_of(name))
        self._known: dict[str, dict[str, float]] = {}

    def beside(self, model: Any) -> dict[str, float]:
        """Return it as it is to be compared with a release that gave this model."""
        if isinstance(model, KMeansModel):
            return self._centres(model)
        analysis, limited = self.analysis, getattr(model, "limited", None)
        if getattr(model, "found_by", "") == "scores":  # which a linear regression has chosen
            analysis = analysis.changed(method="scores")
        if limited is not None and getattr(analysis, "cap", None) == "auto":
            schema = schema_of(self.name)
            caps = {each.column: (each.low, each.high) for each in limited.capped}
            ends = {name: schema.number(name) for name in caps}
            caps = {
                name: (ends[name].low if low is None else low, ends[name].high if high is None else high)
                for name, (low, high) in caps.items()
            }
            analysis = analysis.changed(cap=tuple(caps.items()) or "none")
        key = repr(analysis)
        if key not in self._known:
            found = _together(self.name, self.sites, "none").release(analysis, 1.0).estimates
            self._known[key] = {each.label: each.value for each in found}
        return self._known[key]

    def _centres(self, model: KMeansModel) -> dict[str, float]:
        """Return the means of the rows that are nearest to the centres of a release.

        Its shares are those of the step before, which it does not say.
        """
        schema, table = schema_of(self.name), table_of(self.name)
        names = list(model.names)
        x, middle, half = table.select(names).to_numpy().astype(float), [], []
        for name in names:
            middle.append(schema.number(name).middle)
            half.append(schema.number(name).half)
        centres = (np.asarray(model.centres) - middle) / half
        t = (x - middle) / half
        of = ((t[:, None, :] - centres) ** 2).sum(axis=2).argmin(axis=1)
        found: dict[str, float] = {}
        for i in range(len(centres)):
            here = x[of == i]
            found |= {
                f"cluster {i + 1}: {c}": float(each) for c, each in zip(names, here.mean(axis=0), strict=True)
            }
        return found


def measured(asked: tuple[str, Analysis], releases: int = RELEASES) -> list[Planned]:
    """Return every number of an analysis of a table."""
    warnings.simplefilter("ignore")
    name, analysis = asked
    exact, errors = Exact(name, analysis), dict[str, list[float]]()
    for _ in range(releases):
        found = _together(name, exact.sites, "pooled").release(analysis, 1.0)
        there = exact.beside(found.model)
        for each in found.estimates:
            errors.setdefault(each.label, []).append(each.value - there.get(each.label, math.nan))
    told, bare = (
        _together(name, exact.sites, "pooled", known).plan(analysis, 1.0) for known in (True, False)
    )
    numbers = []
    for label, by in told.noise.items():
        if label in told.answers.hidden:  # of which it says that there will be no answer
            continue
        square = np.square(errors.get(label, [math.nan]))
        if by["pooled"] == 0 or not np.isfinite(square).any() or not square.any():  # public
            continue
        ranges = [plan.shapes.ranges.get(label, (plan.noise[label]["pooled"],) * 2) for plan in (told, bare)]
        numbers.append(Planned(label, math.sqrt(float(np.nanmean(square))), by["pooled"], *ranges))
    return numbers


def here(pattern: str = "") -> list[tuple[str, Analysis]]:
    """Return what is asked of tables that are here."""
    return [
        (name, analysis)
        for name, analysis in ASKED
        if population(name) is not None and pattern in name_of((name, analysis))
    ]


def name_of(asked: tuple[str, Analysis]) -> str:
    name, analysis = asked
    return f"{name} {analysis.kind} {getattr(analysis, 'family', '')}".rstrip()


def typical(numbers: Sequence[Planned], *, ranged: bool = False) -> float:
    """Return how many times what was planned the errors of an analysis are: the geometric mean.

    With `ranged`, how far outside of their ranges they are.
    """
    return math.exp(statistics.fmean(math.log(each.outside if ranged else each.ratio) for each in numbers))


@bench("truth.plan")
def plan() -> Result:
    """How far off the worst plan of an analysis is, 1 being a factor of 1.5; and what ranges hold."""
    asked = here()
    if not asked:
        raise Skip("set CAPE_DATA to the folder of the data")
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        each = dict(zip(map(name_of, asked), pool.map(_measured, asked), strict=True))
    failed = [name for name, numbers in each.items() if not numbers]
    found = {name: numbers for name, numbers in each.items() if numbers}
    times = {name: typical(numbers, ranged=RANGED in name) for name, numbers in found.items()}
    numbers = [each for of in found.values() for each in of]
    held = statistics.fmean(number.held for number in numbers)
    close = statistics.fmean(1 / MOST <= each.ratio <= MOST for each in numbers)
    worst = max(abs(math.log(each)) for each in times.values()) / math.log(MOST) if not failed else math.inf
    detail = {
        "held by ranges with nothing expected": round(held, 3),
        "single numbers within 1.5": round(close, 3),
        "numbers": len(numbers),
        "failed": failed,
        **{name: round(each, 2) for name, each in sorted(times.items(), key=lambda e: -abs(math.log(e[1])))},
    }
    return Result(max(worst, HELD / held), 1.0, "lower", detail=detail)


def _measured(asked: tuple[str, Analysis]) -> list[Planned]:
    try:
        return measured(asked)
    except CapeError:
        return []


def main() -> None:
    pattern, releases = (*sys.argv[1:], "", "")[:2] if len(sys.argv) > 1 else ("", "")
    for asked in here(pattern):
        try:
            found = measured(asked, int(releases or RELEASES))
        except CapeError as error:
            print(f"{name_of(asked)}: {error!r}")
            continue
        ratios, held = [each.ratio for each in found], sum(each.held for each in found)
        ends = f"({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"{name_of(asked)}: {typical(found):.2f} {ends}, {held} of {len(found)} held", flush=True)
        for each in found:
            ranges = [" to ".join(f"{end:.3g}" for end in ends) for ends in (each.told, each.bare)]
            print(
                f"   {each.label}: {each.real:.4g} for {each.planned:.4g}, {each.ratio:.2f}; {ranges[0]}; "
                f"nothing expected {ranges[1]}{'' if each.held else ' (not held)'}"
            )


if __name__ == "__main__":
    main()
