"""Linear regression beside the literature: the same rows, the same budget, the same question.

The literature has no intercept, so there is none here. Of the methods, all but cape, conventional and local
need a curator who is trusted with every row.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from benchmarks.harness import Result, bench
from benchmarks.regression import DELTA, TESTED, frames, schema, sphere, squared_error
from cape import Budget
from cape.analyses.regression.linear import LinearRegression
from cape.core.errors import PrivacyLeakWarning, TooNoisyWarning
from cape.engine import schemes
from cape.engine.consortium import Consortium
from cape.engine.result import Release
from cape.noise import SecureStream
from reproduction.literature import Curator

ROWS, WIDTH, SEEDS = 10_000, 20, 5
SCHEMES = (
    "none",
    "pooled",
    "cape",
    "conventional",
    "local",
    "dp-fm",
    "dp-fm-tight",
    "dp-fm-pairs",
    "objective-perturbation",
    "output-perturbation",
    "output-perturbation-published",
)
BESIDE = SCHEMES[3:]


@bench("regression.baselines")
def baselines() -> Result:
    """Cape's test error at 10,000 x 20 and epsilon 1 beside the least of all others but a trusted curator's.

    The medians of five seeds are in the detail, with that of predicting 0.
    """
    question = LinearRegression(
        "y", [f"x{i}" for i in range(WIDTH)], intercept=False, norm=1.0, errors="classical"
    )
    found: dict[str, list[float]] = {}
    for seed in range(SEEDS):
        x, y = sphere(ROWS + TESTED, WIDTH, seed)
        tables, test = frames(x[:ROWS], y[:ROWS]), (x[ROWS:], y[ROWS:])
        found.setdefault("0 for everyone", []).append(float(np.mean(test[1] ** 2)))
        for place, scheme in enumerate(SCHEMES):
            stream = SecureStream((SEEDS * place + seed).to_bytes(32, "big"))
            release = _released(scheme, question, tables, stream)
            found.setdefault(scheme, []).append(squared_error(release.model, *test))
    medians = {name: float(np.median(errors)) for name, errors in found.items()}
    least = min(medians[name] for name in BESIDE)
    detail = {name: round(median, 5) for name, median in medians.items()}
    return Result(medians["cape"] / least, 1.0, "lower", detail=detail)


def _released(
    scheme: str, question: LinearRegression, tables: dict[str, Any], stream: SecureStream
) -> Release:
    """Return what the sites release by a scheme, or a trusted curator by a method of the literature."""
    budget = Budget(1.0, DELTA)
    if scheme not in schemes.SCHEMES:
        return Curator(tables, schema(WIDTH), budget, stream=stream).release(question, 1.0, method=scheme)
    consortium = Consortium(tables, schema(WIDTH), budget, colluding=1, stream=stream)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooNoisyWarning)
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return consortium.release(question, 1.0, scheme=scheme)
