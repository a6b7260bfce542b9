"""Time: what one row adds to a pass over all of them, where its cell or its id is not like the others'."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import numpy as np
import polars as pl

from benchmarks.harness import Result, bench

ROWS = 1_000_000
REPEAT = 21
BAR = 1.1

ODD_IDS = {"1.5": 1.5, "2^53 + 2": 2.0**53 + 2, "2^62": 2.0**62, "1e300": 1e300, "NaN": np.nan, "inf": np.inf}


@bench("edge.id-time")
def one_odd_id() -> Result:
    """The time that ids become texts in, with one odd float among 10^6, over that without: the worst."""
    from cape.blocks.persons import as_texts

    ids = np.random.default_rng(0).integers(0, ROWS, ROWS).astype(np.float64)
    tables = {"even": pl.Series(ids), **{name: _with(ids, odd) for name, odd in ODD_IDS.items()}}
    return _worst(tables, as_texts)


def _with(ids: Any, odd: float) -> pl.Series:
    changed = ids.copy()
    changed[ROWS // 2] = odd
    return pl.Series(changed)


def _worst(tables: Mapping[str, Any], work: Callable[[Any], Any]) -> Result:
    """Return the largest ratio of a table's time to that of "even", and all of them."""
    seconds = _interleaved(tables, work)
    ratios = {name: each / seconds["even"] for name, each in seconds.items() if name != "even"}
    detail = {"milliseconds": round(1000 * seconds["even"], 1)} | {
        name: round(ratio, 3) for name, ratio in ratios.items()
    }
    return Result(max(ratios.values()), BAR, "lower", detail=detail)


def _interleaved(tables: Mapping[str, Any], work: Callable[[Any], Any]) -> dict[str, float]:
    """Return the median time of each table's turns: all have one in every round, in another order each."""
    order = np.random.default_rng(1)
    names, taken = list(tables), {name: list[float]() for name in tables}
    for _ in range(REPEAT):
        for place in order.permutation(len(names)):
            start = time.process_time()  # of this process alone, on a machine that is shared
            work(tables[names[place]])
            taken[names[place]].append(time.process_time() - start)
    return {name: median(each) for name, each in taken.items()}
