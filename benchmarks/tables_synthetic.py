"""Synthetic rows of Adult from real releases: how far their tables are from the data's, and what they teach.

Five sites of which one colludes, epsilon 1 and delta 1e-6. Adult is a folder of CAPE_DATA: adult.csv and
adult-domain.json, coded as integers by the private-pgm project. Numbers are cut at every integer.

What was tried on Adult itself, in simulations: 7, 9 and 12 groups a column, two other divisions of the share
among stages, and limits of 4,000 and 6,000 cells on the model; distances differed by less than 0.002.
`_NOISE` in `cape.analyses.synthetic.choices` gives about 9 groups there; the division stayed as it was set.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import cape
from benchmarks.harness import Result, Skip, bench

_SITES, _COLLUDING, _DELTA = 5, 1, 1e-6
_NUMBERS = ("age", "fnlwgt", "capital-gain", "capital-loss", "hours-per-week")
_TARGET = "income>50K"
_RUNS = 3
_DISTANCE, _CURATOR, _SECONDS, _POINTS = 0.058, 1.04, 120.0, 3.0
_HELD_OUT = 0.2


def _adult() -> tuple[pl.DataFrame, dict[str, int]]:
    folder = Path(os.environ.get("CAPE_DATA", "")) / "adult"
    if "CAPE_DATA" not in os.environ or not (folder / "adult.csv").exists():
        raise Skip("set CAPE_DATA to a folder with adult/adult.csv and adult-domain.json, of private-pgm")
    domain = json.loads((folder / "adult-domain.json").read_text())
    return pl.read_csv(folder / "adult.csv").select(list(domain)), domain


def _schema(domain: dict[str, int]) -> cape.Schema:
    return cape.Schema(
        {
            name: {"low": 0, "high": many, "missing": False}
            if name in _NUMBERS
            else {"categories": list(range(many)), "missing": False}
            for name, many in domain.items()
        }
    )


def _released(rows: pl.DataFrame, domain: dict[str, int], scheme: str) -> tuple[Any, float]:
    """Return synthetic rows from a new release of all of the budget, and the seconds that it took."""
    began = time.perf_counter()
    site = pl.Series(np.arange(rows.height) % _SITES)
    sites = {f"site {i}": rows.filter(site == i) for i in range(_SITES)}
    budget = cape.Budget(1.0, _DELTA)
    consortium = cape.Consortium(sites, _schema(domain), budget, colluding=_COLLUDING)
    bins = {name: domain[name] for name in _NUMBERS}
    release = consortium.release(cape.SyntheticData(list(domain), bins=bins), 1.0, scheme=scheme)
    drawn = release.model.sample()
    return drawn, time.perf_counter() - began


def _codes(rows: pl.DataFrame) -> NDArray[np.int64]:
    return np.asarray(np.floor(rows.to_numpy()), np.int64)


def _distance(one: NDArray[np.int64], other: NDArray[np.int64], sizes: list[int]) -> float:
    """Return the mean total variation distance over all tables of two columns."""
    found = []
    for a, b in itertools.combinations(range(len(sizes)), 2):
        cells = sizes[a] * sizes[b]
        parts = [
            np.bincount(rows[:, a] * sizes[b] + rows[:, b], minlength=cells) / len(rows)
            for rows in (one, other)
        ]
        found.append(np.abs(parts[0] - parts[1]).sum() / 2)
    return float(np.mean(found))


def _distances(scheme: str) -> tuple[list[float], list[float]]:
    rows, domain = _adult()
    found = [_released(rows, domain, scheme) for _ in range(_RUNS)]
    real, sizes = _codes(rows), list(domain.values())
    return [_distance(real, _codes(drawn), sizes) for drawn, _ in found], [took for _, took in found]


@bench("tables.synthetic")
def synthetic() -> Result:
    """Return the mean distance of all tables of two columns, with the time and a trusted curator's."""
    ours, seconds = _distances("cape")
    curator, _ = _distances("pooled")
    ratio, slowest = float(np.mean(ours) / np.mean(curator)), max(seconds)
    detail = {
        "distances": [round(each, 4) for each in ours],
        "curator": [round(each, 4) for each in curator],
        "ratio": round(ratio, 4),
        "ratio holds": ratio <= _CURATOR,
        "seconds": [round(each, 1) for each in seconds],
        "seconds hold": slowest <= _SECONDS,
    }
    # The largest part of its bar that any of the three takes up, on the scale of the distance.
    worst = max(float(np.mean(ours)) / _DISTANCE, ratio / _CURATOR, slowest / _SECONDS)
    value = float(np.mean(ours)) if ratio <= _CURATOR and slowest <= _SECONDS else worst * _DISTANCE
    return Result(value, _DISTANCE, "lower", "total variation", detail)


@bench("tables.synthetic-learning")
def learning() -> Result:
    """Return how many points of accuracy boosting loses by learning from synthetic rows."""
    from sklearn.ensemble import GradientBoostingClassifier

    rows, domain = _adult()
    held = np.random.default_rng(0).random(rows.height) < _HELD_OUT
    train, test = rows.filter(pl.Series(~held)), _codes(rows.filter(pl.Series(held)))
    drawn, _ = _released(train, domain, "cape")
    target = list(domain).index(_TARGET)
    features = [i for i in range(len(domain)) if i != target]
    accuracy = []
    for learnt in (_codes(train), _codes(drawn)):
        model = GradientBoostingClassifier(random_state=0).fit(learnt[:, features], learnt[:, target])
        accuracy.append(100 * float((model.predict(test[:, features]) == test[:, target]).mean()))
    lost = accuracy[0] - accuracy[1]
    detail = {"real": round(accuracy[0], 2), "synthetic": round(accuracy[1], 2)}
    return Result(lost, _POINTS, "lower", "points of accuracy", detail)


_PEOPLE, _STUDIES, _REPEATED = 6000, 200, 20
_COVERED = 0.92  # a one-sided test of 95% at 200 runs rejects below it once in 30 times
_PLACES = cape.Schema(
    sex=cape.Category(("female", "male"), missing=False),
    stage=cape.Category(("I", "II", "III"), missing=False),
    ill=cape.Category(("no", "yes"), missing=False),
    score=cape.Number(0, 8, missing=False),
)


def _people(random: np.random.Generator) -> pl.DataFrame:
    """Return people of a population whose shares and means are known: `_TRUTH`."""
    sex = random.random(_PEOPLE) < 0.4
    stage = np.where(
        sex, random.choice(3, _PEOPLE, p=[0.2, 0.3, 0.5]), random.choice(3, _PEOPLE, p=[0.5, 0.3, 0.2])
    )
    ill = random.random(_PEOPLE) < np.array([0.1, 0.3, 0.6])[stage]
    score = np.minimum(random.poisson(np.array([0.3, 1.0])[ill.astype(int)]), 7) + 0.5  # skewed, mostly 0
    return pl.DataFrame(
        {
            "sex": np.where(sex, "male", "female"),
            "stage": np.array(["I", "II", "III"])[stage],
            "ill": np.where(ill, "yes", "no"),
            "score": score,
        }
    )


def _computed(rows: pl.DataFrame) -> dict[str, float]:
    ill, late = (rows["ill"] == "yes").to_numpy(), (rows["stage"] == "III").to_numpy()
    return {
        "ill": float(ill.mean()),
        "late": float(late.mean()),
        "ill if late": float(ill[late].mean()),
        "risk difference": float(ill[late].mean() - ill[~late].mean()),
        "score": float(np.floor(rows["score"].to_numpy()).mean()),
    }


def _truth() -> dict[str, float]:
    """Return the population's values, by a draw of ten million people."""
    random = np.random.default_rng(99)
    found = [_computed(_people(random)) for _ in range(1700)]
    return {name: float(np.mean([each[name] for each in found])) for name in found[0]}


@bench("tables.synthetic-coverage")
def coverage() -> Result:
    """Return the least coverage of 95% intervals for what is computed from synthetic rows."""
    truth, random = _truth(), np.random.default_rng(5)
    covered: dict[str, int] = dict.fromkeys(truth, 0)
    for run in range(_STUDIES):
        rows = _people(random)
        site = pl.Series(np.arange(rows.height) % _SITES)
        sites = {f"site {i}": rows.filter(site == i) for i in range(_SITES)}
        consortium = cape.Consortium(sites, _PLACES, cape.Budget(1.0, _DELTA), colluding=_COLLUDING)
        release = consortium.release(cape.SyntheticData(list(_PLACES), bins=8), 1.0)
        found = cape.synthetic.combine(_computed, release, _REPEATED, seed=run)
        for name in covered:
            low, high = found[name].interval()  # type: ignore[index]
            covered[name] += low <= truth[name] <= high
    shares = {name: many / _STUDIES for name, many in covered.items()}
    return Result(min(shares.values()), _COVERED, "higher", "coverage", {"covered": shares})
