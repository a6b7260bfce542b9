"""Linear regression by whole releases: beside a trusted curator, least squares, and a constant."""

from __future__ import annotations

import math
import os
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.harness import Result, Skip, bench, best_seconds, paired_seconds
from cape import Budget, Schema
from cape.analyses.regression.linear import Errors, LinearRegression
from cape.core.errors import TooNoisyWarning
from cape.data import Number
from cape.engine.consortium import Consortium
from cape.noise import SecureStream

Floats = NDArray[np.float64]
SITES, DELTA = 5, 1e-5
TESTED = 20_000


def sphere(rows: int, width: int, seed: int) -> tuple[Floats, Floats]:
    """Rows evenly on the sphere, a target with weights of length 2 and noise of 0.1, cut to [-1, 1]."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, width))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    w = rng.normal(size=width)
    y = x @ (2 * w / np.linalg.norm(w)) + 0.1 * rng.normal(size=rows)
    return x, np.clip(y, -1, 1)


def frames(x: Floats, y: Floats) -> dict[str, pl.DataFrame]:
    """The rows at five sites."""
    columns = {f"x{i}": column for i, column in enumerate(x.T)} | {"y": y}
    table = pl.DataFrame(columns)
    return {f"site {i}": table.gather_every(SITES, i) for i in range(SITES)}


def schema(width: int, low: float = -1.0) -> Schema:
    names = [f"x{i}" for i in range(width)] + ["y"]
    return Schema({name: Number(low, 1.0, missing=False) for name in names})


def question(width: int, norm: float | None, errors: Errors = "robust") -> LinearRegression:
    return LinearRegression("y", [f"x{i}" for i in range(width)], norm=norm, errors=errors)


def fitted(
    tables: Any,
    columns: Schema,
    norm: float | None,
    epsilon: float,
    key: int,
    scheme: str,
    colluding: int = 1,
    errors: Errors = "robust",
) -> Any:
    """The model of one release, whose noise can be made again from the key."""
    stream = SecureStream(key.to_bytes(32, "big"))
    consortium = Consortium(tables, columns, Budget(epsilon, DELTA), colluding=colluding, stream=stream)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooNoisyWarning)
        return consortium.release(question(len(columns) - 1, norm, errors), 1.0, scheme=scheme).model


def squared_error(model: Any, x: Floats, y: Floats) -> float:
    return float(np.mean((model.predict(x) - y) ** 2))


def least_squares(x: Floats, y: Floats, to: Floats) -> Floats:
    """Predictions of ordinary least squares, within the bounds as ours are."""
    weights = np.linalg.lstsq(np.column_stack([np.ones(len(y)), x]), y, rcond=None)[0]
    return np.asarray(np.clip(weights[0] + to @ weights[1:], -1, 1))


@bench("regression.mse")
def mse() -> Result:
    """Test error at 10,000 x 20 and epsilon 1: the median of 20 seeds. Least squares in the detail."""
    ours, best = [], []
    for seed in range(20):
        x, y = sphere(10_000 + TESTED, 20, seed)
        train, test = (x[:10_000], y[:10_000]), (x[10_000:], y[10_000:])
        model = fitted(frames(*train), schema(20), 1.0, 1.0, seed, "cape")
        ours.append(squared_error(model, *test))
        best.append(float(np.mean((least_squares(*train, test[0]) - test[1]) ** 2)))
    detail = {"least squares": round(float(np.median(best)), 5), "worst": round(max(ours), 5)}
    return Result(float(np.median(ours)), 0.0113, "lower", unit="mean squared error", detail=detail)


@bench("regression.curator")
def curator() -> Result:
    """What noise adds to the error of least squares, beside a trusted curator's noise: one site colludes."""
    return beside_a_curator(1, 1.35)


@bench("regression.curator.honest")
def honest_curator() -> Result:
    """The same when no site colludes: then the noise is the curator's own."""
    return beside_a_curator(0, 1.1)


def beside_a_curator(colluding: int, bar: float) -> Result:
    """The worst ratio over both sizes and three epsilons.

    Measured as the mean squared distance from least squares' predictions at rows not seen. The difference of
    the two test errors has the same mean, since noise has mean 0, but at large epsilon it is lost among the
    residuals of the test; its ratio is in the detail.
    """
    ratios, plain = {}, {}
    for rows, width, runs in ((10_000, 20, 120), (100_000, 50, 60)):
        x, y = sphere(rows + TESTED, width, 1)
        tables, test, targets = frames(x[:rows], y[:rows]), x[rows:], y[rows:]
        best = least_squares(x[:rows], y[:rows], test)
        for place, epsilon in enumerate((0.1, 1.0, 10.0)):
            distance, excess = {}, {}
            for scheme in ("cape", "pooled"):
                predicted = [
                    fitted(tables, schema(width), 1.0, epsilon, key, scheme, colluding).predict(test)
                    for key in range(place * runs, (place + 1) * runs)
                ]
                distance[scheme] = np.mean([np.mean((each - best) ** 2) for each in predicted])
                excess[scheme] = np.mean(
                    [np.mean((each - targets) ** 2 - (best - targets) ** 2) for each in predicted]
                )
            name = f"{rows} x {width}, epsilon {epsilon:g}"
            ratios[name] = round(float(distance["cape"] / distance["pooled"]), 3)
            plain[name] = round(float(excess["cape"] / excess["pooled"]), 3)
    return Result(max(ratios.values()), bar, "lower", detail=ratios | {"difference of test errors": plain})


@cache
def communities() -> tuple[Floats, Floats]:
    """Communities and Crime (UCI): the 99 features that are never missing, and the rate of violent crime."""
    folder = Path(os.environ.get("CAPE_DATA", "")) / "crime"
    data, described = folder / "communities.data", folder / "communities.names"
    if "CAPE_DATA" not in os.environ or not data.exists() or not described.exists():
        raise Skip("set CAPE_DATA to a folder with crime/communities.data and .names, from UCI's archive")
    lines = described.read_text(errors="replace").splitlines()
    names = [line.split()[1] for line in lines if line.startswith("@attribute")]
    table = pl.read_csv(data, has_header=False, new_columns=names, null_values="?", infer_schema_length=None)
    table = table.drop("state", "county", "community", "communityname", "fold")
    table = table.select(column for column in table.columns if not table[column].null_count())
    y = table["ViolentCrimesPerPop"].to_numpy().astype(float)
    return table.drop("ViolentCrimesPerPop").to_numpy().astype(float), y


@bench("regression.crime")
def crime() -> Result:
    """Loss beside that of predicting 0, at epsilon 1 with the default norm, on training or held-out rows.

    The worse of the two, the median of ten splits of 80 to 20; infinite if a loss at epsilon 0.1 is above
    1.05. Medians and largest values, also of a constant and of least squares, are in the detail.
    """
    x, y = communities()
    found: dict[str, list[float]] = {}
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(len(y))
        train, held = order[: int(0.8 * len(y))], order[int(0.8 * len(y)) :]
        tables = frames(x[train], y[train])
        zero = {"training": np.mean(y[train] ** 2), "held out": np.mean(y[held] ** 2)}
        for epsilon in (1.0, 0.1):
            model = fitted(tables, schema(x.shape[1], 0.0), None, epsilon, seed, "cape")
            for name, part in (("training", train), ("held out", held)):
                ratio = squared_error(model, x[part], y[part]) / zero[name]
                found.setdefault(f"{name}, epsilon {epsilon:g}", []).append(float(ratio))
        best = np.mean((least_squares(x[train], y[train], x[held]) - y[held]) ** 2) / zero["held out"]
        found.setdefault("held out, least squares", []).append(float(best))
        constant = np.mean((np.mean(y[train]) - y[held]) ** 2) / zero["held out"]
        found.setdefault("held out, constant", []).append(float(constant))
    detail = {name: [round(float(np.median(v)), 3), round(max(v), 3)] for name, v in found.items()}
    detail["features"] = [x.shape[1]]
    worst = max(float(np.median(found[f"{name}, epsilon 1"])) for name in ("training", "held out"))
    if max(max(found[f"{name}, epsilon 0.1"]) for name in ("training", "held out")) > 1.05:
        worst = math.inf
    return Result(worst, 0.45, "lower", detail=detail)


@bench("regression.time")
def seconds() -> Result:
    """A fit at 100,000 x 50 over five sites, everything included, against scikit-learn's on pooled rows.

    With classical errors: scikit-learn's fit has none. What robust errors take is in the detail.
    """
    from sklearn.linear_model import LinearRegression as Pooled

    x, y = sphere(100_000, 50, 3)
    tables = frames(x, y)

    def fit(errors: Errors) -> Any:
        return fitted(tables, schema(50), 1.0, 1.0, 1, "cape", errors=errors)

    fit("robust")  # the table of the sampler is made once
    mine, reference = paired_seconds(lambda: fit("classical"), lambda: Pooled().fit(x, y))
    robust = best_seconds(lambda: fit("robust"))
    detail = {
        "seconds": round(mine, 3),
        "scikit-learn": round(reference, 3),
        "robust errors": round(robust, 3),
    }
    return Result(mine / reference, 1.0, "lower", detail=detail)
