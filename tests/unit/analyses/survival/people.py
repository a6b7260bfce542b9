"""People with a time to an event, and what a consortium without noise answers about them."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

import cape
from cape.data import Schema

SCHEMA = Schema(
    years=(0, 10),
    died=["no", "yes"],
    cause=["no", "cancer", "other"],
    arm=["old", "new", "none"],
    sex=["f", "m"],
)
EDGES = [0.5, 1, 2, 3, 4, 6, 8, 10]


def people(rows: int = 700, seed: int = 0, ratio: float = 0.6) -> pl.DataFrame:
    """Rows of two arms, with censoring until and at 10 years."""
    rng = np.random.default_rng(seed)
    arm, sex = rng.integers(0, 2, rows), rng.integers(0, 2, rows)
    event = rng.exponential(6 / np.where(arm == 1, ratio, 1.0))
    end = np.minimum(rng.uniform(1, 16, rows), 10)
    had = event <= end
    cause = np.where(had, np.where(rng.random(rows) < 0.3, "other", "cancer"), "no")
    return pl.DataFrame(
        {
            "years": np.minimum(event, end),
            "died": np.where(had, "yes", "no"),
            "cause": cause,
            "arm": np.where(arm == 1, "new", "old"),
            "sex": np.where(sex == 1, "m", "f"),
        }
    )


def at_ends(years: np.ndarray, edges: list[float] = EDGES) -> np.ndarray:
    """Times replaced by the ends of their bins."""
    ends = np.array(edges)
    return ends[np.minimum(np.searchsorted(ends, years), len(ends) - 1)]


def plainly(analysis: Any, frame: pl.DataFrame) -> Any:
    """The release of three sites without noise."""
    sites = {name: frame[i::3] for i, name in enumerate("abc")}
    consortium = cape.Consortium(sites, SCHEMA, cape.Budget(1, 1e-6), colluding=0, scheme="none")
    return consortium.release(analysis, share=0.5)
