"""Logistic regression at a small budget: real releases, five sites, one of them colluding.

Rows are uniform on the unit sphere in 20 dimensions and a label is 1 with probability expit(SCALE x·theta),
with SCALE such that scikit-learn, without privacy, predicts 80% of new labels.
"""

from __future__ import annotations

import statistics
import warnings

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression as Reference

from benchmarks.harness import Result, bench
from cape import Budget, Schema
from cape.analyses.regression.logistic import LogisticRegression
from cape.core.errors import TooNoisyWarning
from cape.data import Category, Number
from cape.engine.consortium import Consortium

DIMENSIONS, ROWS, SITES, SCALE = 20, 10_000, 5, 10.3
NAMES = [f"x{i}" for i in range(DIMENSIONS)]
SCHEMA = Schema(
    {name: Number(-1, 1, missing=False) for name in NAMES} | {"y": Category(("no", "yes"), missing=False)}
)
Floats = NDArray[np.float64]


def people(seed: int, rows: int) -> tuple[Floats, NDArray[np.bool_]]:
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=DIMENSIONS)
    theta /= np.linalg.norm(theta)
    x = rng.normal(size=(rows, DIMENSIONS))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x, rng.random(rows) < 1 / (1 + np.exp(-SCALE * x @ theta))


@bench("regression.logistic")
def logistic() -> Result:
    """The median accuracy on new rows over 20 seeds, at a total epsilon of 0.1 and delta of 1e-5."""
    ours, reference = [], []
    for seed in range(20):
        x, y = people(seed, 2 * ROWS)
        frame = pl.DataFrame(x[:ROWS], schema=NAMES).with_columns(
            y=pl.Series(["yes" if label else "no" for label in y[:ROWS]])
        )
        part = ROWS // SITES
        sites = {f"site {i}": frame[i * part : (i + 1) * part] for i in range(SITES)}
        consortium = Consortium(sites, SCHEMA, Budget(0.1, 1e-5), colluding=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TooNoisyWarning)
            released = consortium.release(LogisticRegression("y", NAMES, norm=1.0), 1.0)
        told = released.model.predict(x[ROWS:]) == "yes"
        ours.append(float((told == y[ROWS:]).mean()))
        reference.append(float(Reference().fit(x[:ROWS], y[:ROWS]).score(x[ROWS:], y[ROWS:])))
    detail = {"not private": round(statistics.median(reference), 4), "least": round(min(ours), 4)}
    return Result(statistics.median(ours), 0.765, "higher", unit="accuracy", detail=detail)
