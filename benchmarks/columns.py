"""Columns as hospitals have them: counts that are mostly 0, and quantities with a long right tail.

Made up, seeded, and shaped after two public data sets (hospital stays; head motion in scanners): what normal
theory and plans that assume the middle of the bounds get wrong.

| column | bounds | mean | SD | kurtosis | what it is |
|---|---|---|---|---|---|
| inpatient | 0 to 10 | 0.62 | 1.2 | 19 | visits; 65% are 0 |
| emergency | 0 to 40 | 0.22 | 0.96 | 410 | visits; 87% are 0; correlated .27 with inpatient |
| outpatient | 0 to 40 | 0.38 | 1.8 | 220 | visits; 84% are 0 |
| repeats | 0 to 10 | 0.20 | 0.61 | 55 | visits; 86% are 0 |
| motion | 0 to 1 | 0.093 | 0.080 | 19 | seconds of head motion: lognormal |
| charges | 0 to 200 | 12.5 | 14.7 | 32 | lognormal, cut at 200 |
| days | 0 to 60 | 5.8 | 4.7 | 17 | lognormal; grows with the visits, and so does its spread |
| readmitted | 0, 1 | .21 | | | log odds rise by 0.34 per inpatient visit, 0.15 per emergency visit |

`population` holds many rows: draw samples from it with replacement, and its own moments are the truth.
Tested in tests/unit/test_columns.py.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from cape.data import Category, Number, Schema

__all__ = ["NUMBERS", "ODDS", "SCHEMA", "VISITS", "Columns", "make", "population", "sample"]

Columns = dict[str, NDArray[np.float64]]
"""Name -> cells, within the bounds; `readmitted` is 0 or 1."""

_BOUNDS = {
    "inpatient": (0, 10),
    "emergency": (0, 40),
    "outpatient": (0, 40),
    "repeats": (0, 10),
    "motion": (0, 1),
    "charges": (0, 200),
    "days": (0, 60),
}
NUMBERS = tuple(_BOUNDS)
VISITS = NUMBERS[:4]
SCHEMA = Schema(
    {name: Number(*bounds, missing=False) for name, bounds in _BOUNDS.items()}
    | {"readmitted": Category((0, 1), missing=False)}
)
"""The columns with their bounds; no cell is missing."""

ODDS = (-1.6, 0.34, 0.15)
"""The log odds of being readmitted: at first, per inpatient and per emergency visit."""


def make(rows: int, seed: int) -> Columns:
    """Return fresh rows."""
    random = np.random.default_rng(seed)
    frail, *own = random.normal(size=(8, rows))

    def mixed(part: float, other: NDArray[np.float64]) -> NDArray[np.float64]:
        return part * frail + np.sqrt(1 - part**2) * other

    def visits(name: str, mean: float, spread: float, of: NDArray[np.float64]) -> NDArray[np.float64]:
        rate = mean * np.exp(spread * of - spread**2 / 2)
        return np.minimum(random.poisson(rate), _BOUNDS[name][1]).astype(np.float64)

    found = {
        "inpatient": visits("inpatient", 0.63, 1.15, frail),
        "emergency": visits("emergency", 0.22, 1.75, mixed(0.65, own[0])),
        "outpatient": visits("outpatient", 0.40, 2.0, mixed(0.2, own[1])),
        "repeats": visits("repeats", 0.20, 1.35, mixed(0.4, own[2])),
        "motion": np.minimum(0.07 * np.exp(0.75 * own[3]), 1.0),
        "charges": np.minimum(8 * np.exp(0.3 * frail + 0.9 * own[4]), 200.0),
    }
    grows = 1 + 0.12 * found["inpatient"] + 0.05 * found["emergency"]
    found["days"] = np.minimum(4.2 * grows * np.exp(0.7 * own[5]), 60.0)
    odds = ODDS[0] + ODDS[1] * found["inpatient"] + ODDS[2] * found["emergency"]
    found["readmitted"] = (random.random(rows) < 1 / (1 + np.exp(-odds))).astype(np.float64)
    return found


@cache
def population(rows: int = 1_000_000, seed: int = 18) -> Columns:
    """Return the rows that samples are drawn from, the same ones at every call: not to be changed."""
    found = make(rows, seed)
    for cells in found.values():
        cells.setflags(write=False)
    return found


def sample(rows: int, random: np.random.Generator, of: Columns | None = None) -> Columns:
    """Return rows drawn from the population, with replacement."""
    known = population() if of is None else of
    chosen = random.integers(len(next(iter(known.values()))), size=rows)
    return {name: cells[chosen] for name, cells in known.items()}
