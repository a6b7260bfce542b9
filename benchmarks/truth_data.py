"""Populations that no model fits: generators, and real tables where `CAPE_DATA` says where they are.

A population is a table of rows; studies are drawn from it with replacement, and the truth is what the same
model gives on the whole of it. Constants of the score engine were chosen on the populations that are
`CHOSEN_ON`; the others report.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Floats = NDArray[np.float64]
ROWS = 60_000
CHOSEN_ON = ("concave", "contaminated", "skewed", "longtail", "rotterdam", "actg320")
REPORTED = ("hetero", "inflated", "threshold", "clustered", "adult", "crime", "heart")
GENERATED = ("concave", "contaminated", "skewed", "longtail", "hetero", "inflated", "threshold", "clustered")


@cache
def population(name: str) -> dict[str, Floats] | None:
    """Return the columns of a population; None for real data that is not there."""
    if name in GENERATED:
        return _generated(name)
    folder = os.environ.get("CAPE_DATA")
    return None if folder is None else READERS[name](Path(folder))


def _generated(name: str) -> dict[str, Floats]:
    rng = np.random.default_rng([17, GENERATED.index(name)])
    x1, x2 = rng.normal(size=ROWS), rng.exponential(size=ROWS)
    g = (rng.random(ROWS) < 0.3).astype(float)
    x3 = 0.6 * rng.normal(size=ROWS) + 0.5 * x1
    error, extra = rng.normal(size=ROWS), np.full(ROWS, 0.5)
    if name == "concave":  # effects bend
        eta = 0.8 * np.log1p(x2) + 0.3 * np.tanh(x1) + 0.2 * g
    elif name == "hetero":  # variance depends on x
        eta = 0.3 * x1 + 0.2 * x2 + 0.2 * g - 0.1 * x1 * g
        error, extra = error * (0.3 + 0.7 * x2), 0.3 + x2
    elif name == "contaminated":  # a tenth of the rows has other errors
        eta, bad = 0.3 * x1 + 0.2 * np.minimum(x2, 3) + 0.2 * g, rng.random(ROWS) < 0.1
        error, extra = np.where(bad, 6 * error + 3, error), np.where(bad, 4.0, 0.3)
    elif name == "inflated":  # most cells of a feature are 0
        x2 = np.where(rng.random(ROWS) < 0.7, 0.0, rng.gamma(0.8, 3.0, ROWS))
        eta, extra = 0.25 * np.sqrt(x2) + 0.3 * x1 + 0.1 * g, np.full(ROWS, 1.0)
    elif name == "skewed":  # a feature and the errors are skewed
        x2 = rng.lognormal(size=ROWS)
        eta = 0.4 * np.log1p(x2) + 0.2 * x1 + 0.1 * g
        error, extra = 1.5 * rng.exponential(size=ROWS) - 1.5, np.full(ROWS, 0.8)
    elif name == "threshold":  # effects are steps
        eta = 0.6 * (x1 > 0.5) + 0.3 * (x2 > 1.5) + 0.3 * g * (x3 > 0)
        error = rng.standard_t(4, size=ROWS)
    elif name == "clustered":  # 40 groups of their own
        group, level = rng.integers(0, 40, ROWS), 0.5 * rng.normal(size=40)
        eta = 0.2 * x1 + 0.2 * x2 + 0.2 * g + level[group] * (1 + 0.3 * x1)
    else:  # tails are long
        x2 = np.minimum(1.5 * rng.pareto(2.2, ROWS), 80.0)
        eta = 0.3 * np.log1p(x2) + 0.2 * x1 + 0.2 * g
        error, extra = rng.standard_t(3, size=ROWS), np.full(ROWS, 1.5)
    rate = np.exp(np.clip(eta, -6, 4))
    counts = rng.poisson(rate * rng.gamma(1 / extra, extra))
    amounts = rate * rng.gamma(1 / (0.3 + extra), 0.3 + extra)
    number, binary = eta + error, rng.random(ROWS) < expit(1.2 * eta - 0.8)
    time, event = _times(name, eta, error)
    return {
        "x1": x1, "x2": x2, "x3": x3, "g": g,
        "number": number,
        "count": np.minimum(counts, 200).astype(float),
        "amount": np.clip(amounts, 1e-3, 500.0),
        "binary": binary.astype(float),
        "sort": np.where(binary, 1.0 + (amounts > np.median(amounts)), 0.0),
        "grade": np.digitize(number, np.quantile(number, (0.5, 0.8))).astype(float),
        "time": time, "event": event,
    }  # fmt: skip


def _times(name: str, eta: Floats, error: Floats) -> tuple[Floats, Floats]:
    """Times to an event in years, to the day, and which rows have it: their logarithms have the errors of the
    other targets, so that hazards are not proportional and follow no law; people leave when they like."""
    rng = np.random.default_rng([18, GENERATED.index(name)])
    time = np.exp(np.clip(1.2 - 0.7 * eta + 0.6 * error, -6, 6))
    censored = np.minimum(rng.uniform(0.5, 12.0, ROWS), 10.0)
    days = np.maximum(np.ceil(np.minimum(time, censored) * 365), 1.0)
    return days / 365, (time <= censored).astype(float)


def _read(path: Path, names: list[str] | None = None, delimiter: str = ",") -> dict[str, list[str]]:
    with open(path, newline="") as file:
        rows = list(csv.reader(file, delimiter=delimiter))
    header = names or rows.pop(0)
    return {name: [row[i] for row in rows if row] for i, name in enumerate(header)}


def _numbers(cells: list[str]) -> Floats:
    return np.array([float(cell) if cell not in ("", "?") else np.nan for cell in cells])


def _is(cells: list[str], value: str) -> Floats:
    return np.array([float(cell == value) for cell in cells])


def _codes(cells: list[str], values: tuple[str, ...]) -> Floats:
    return np.array([values.index(cell) if cell in values else np.nan for cell in cells], dtype=float)


def _whole(columns: dict[str, Floats]) -> dict[str, Floats]:
    complete = ~np.isnan(np.stack(list(columns.values()))).any(axis=0)
    return {name: each[complete] for name, each in columns.items()}


def _rotterdam(folder: Path) -> dict[str, Floats]:
    d = _read(folder / "rotterdam" / "rotterdam.csv")
    return {
        **{name: _numbers(d[f"num_{name}"]) for name in ("age", "nodes", "progesterone", "estrogen")},
        "size": _codes(d["fac_tsize"], ("<=20mm", ">20-50mmm", ">50mm")),
        "size2": _is(d["fac_tsize"], ">20-50mmm"),
        "grade3": _is(d["fac_grade"], "3"),
        "hormon": _is(d["fac_hormon"], "yes"),
        "event": _numbers(d["event"]),
        "time": _numbers(d["time"]),
    }


def _actg320(folder: Path) -> dict[str, Floats]:
    d = _read(folder / "aids" / "actg320.csv")
    names = ("age", "cd4", "priorzdv", "karnof", "tx")
    found = {name: _numbers(d[name]) for name in (*names, "time")}
    return {**found, "male": _is(d["sex"], "1"), "event": _is(d["censor"], "True")}


def _adult(folder: Path) -> dict[str, Floats]:
    d = _read(folder / "adult" / "adult.csv")
    names = ("age", "education-num", "hours-per-week", "capital-gain", "sex")
    found = {name.split("-")[0] if name != "capital-gain" else "gain": _numbers(d[name]) for name in names}
    kin = np.minimum(_numbers(d["relationship"]), 2.0)
    return {
        **found,
        "married": _is(d["marital-status"], "0"),
        "income": _numbers(d["income>50K"]),
        "kin": kin,
    }


def _crime(folder: Path) -> dict[str, Floats]:
    lines = (folder / "crime" / "communities.names").read_text().splitlines()
    names = [line.split()[1] for line in lines if line.startswith("@attribute")]
    d = _read(folder / "crime" / "communities.data", names)
    kept = ("population", "racepctblack", "medIncome", "PctIlleg", "PopDens", "ViolentCrimesPerPop")
    return _whole({name: _numbers(d[name]) for name in kept})


def _heart(folder: Path) -> dict[str, Floats]:
    names = ["age", "sex", "cp", "bp", "chol", "fbs", "ecg", "rate", "angina", "peak", "slope", "ca", "thal"]
    parts = [
        _read(folder / "heart" / f"processed.{site}.data", [*names, "stage"])
        for site in ("cleveland", "hungarian", "switzerland", "va")
    ]
    kept = ("age", "sex", "bp", "chol", "rate", "stage", "cp")
    found = _whole({name: np.concatenate([_numbers(part[name]) for part in parts]) for name in kept})
    pain = np.maximum(found.pop("cp") - 2, 0.0)  # angina of either kind, other pain, none
    return {**found, "pain": pain, "level": np.minimum(found["stage"], 2.0)}


READERS: dict[str, Callable[[Path], dict[str, Floats]]] = {
    "rotterdam": _rotterdam,
    "actg320": _actg320,
    "adult": _adult,
    "crime": _crime,
    "heart": _heart,
}


@dataclass(frozen=True)
class Problem:
    """A regression on a population, with bounds `wide` times the range of the data."""

    population: str
    family: str
    target: str
    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    wide: float = 4.0
    wide_target: float = 3.0

    @property
    def name(self) -> str:
        return f"{self.population} {self.family} {self.target}"

    @property
    def features(self) -> tuple[str, ...]:
        return (*self.numbers, *self.categories)


OF_FAMILY = {
    "gaussian": "number",
    "binomial": "binary",
    "poisson": "count",
    "negative-binomial": "count",
    "gamma": "amount",
    "multinomial": "sort",
    "ordinal": "grade",
}
PROBLEMS = [
    *(
        Problem(name, family, target, ("x1", "x2", "x3"), ("g",))
        for name in GENERATED
        for family, target in OF_FAMILY.items()
    ),
    Problem("rotterdam", "poisson", "nodes", ("age", "progesterone"), ("size2", "grade3", "hormon")),
    Problem("rotterdam", "poisson", "progesterone", ("age", "nodes"), ("grade3", "hormon")),
    Problem("actg320", "poisson", "priorzdv", ("age", "cd4"), ("male", "tx")),
    Problem("rotterdam", "gaussian", "progesterone", ("age", "nodes", "estrogen"), ("size2", "hormon")),
    Problem("rotterdam", "binomial", "event", ("age", "nodes", "progesterone", "estrogen"), ("grade3",)),
    Problem("actg320", "gaussian", "cd4", ("age", "priorzdv", "karnof"), ("male", "tx")),
    Problem("adult", "gaussian", "hours", ("age", "education", "gain"), ("sex", "married"), 4.0, 2.0),
    Problem("adult", "binomial", "income", ("age", "education", "hours"), ("sex", "married")),
    Problem("adult", "poisson", "gain", ("age", "education", "hours"), ("sex",)),
    Problem(
        "crime",
        "gaussian",
        "ViolentCrimesPerPop",
        ("population", "racepctblack", "medIncome", "PctIlleg", "PopDens"),
        (),
        3.0,
        2.0,
    ),
    Problem("heart", "poisson", "stage", ("age", "bp", "chol", "rate"), ("sex",), 3.0, 2.0),
    Problem("rotterdam", "ordinal", "size", ("age", "nodes", "progesterone"), ("hormon", "grade3")),
    Problem("adult", "multinomial", "kin", ("age", "hours"), ("sex", "income")),
    Problem("heart", "multinomial", "pain", ("age", "bp", "rate"), ("sex",), 3.0),
    Problem("heart", "ordinal", "level", ("age", "bp", "chol", "rate"), ("sex",), 3.0),
]
