"""Rows with times and events, single rows on an axis of time, and the ways to follow them."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import strategies as st

from cape.blocks import Design, FollowUp, Times
from cape.data import Schema

SCHEMA = Schema(
    {"x": [-1, 1], "z": [0, 4], "years": [0, 10], "died": ["no", "yes", "other"], "from": [0, 10]}
    | {"arm": ["a", "b"]}
)
EDGES = (1.0, 3.0, 4.0, 8.0)
DESIGN = Design(("x", "z"))


def follow_up(entry: str | None = None, strata: str | None = None) -> FollowUp:
    return FollowUp(Times.of(SCHEMA, "years", "died", edges=EDGES, entry=entry), (strata,) if strata else ())


def stretch(row: dict[str, Any], block: Any) -> tuple[float, float, bool, int] | None:
    """Where a row is at risk, whether it leaves by the event, and its stratum; None if it misses a cell."""
    needed = (*DESIGN.features, *block.follow_up.reads)
    if any(row[name] is None for name in needed):
        return None
    entry = min(max(row["from"], 0.0), 10.0) if block.follow_up.times.entry else 0.0
    leaves = min(max(row["years"], 0.0), 10.0)
    stop, event = min(leaves, 8.0), row["died"] == "yes" and leaves <= 8.0
    if block.follow_up.times.entry and (entry >= leaves or entry >= 8.0):
        entry, event = stop, False
    return entry, stop, event, ("a", "b").index(row["arm"]) if block.follow_up.strata else 0


rows_of = st.fixed_dictionaries(
    {
        "x": st.none() | st.floats(-1.2, 1.2),
        "z": st.floats(0, 4),
        "years": st.none() | st.floats(0, 11) | st.sampled_from([0.0, 1.0, 3.0, 8.0, 10.0]),
        "died": st.sampled_from(["no", "yes", "yes", "other", None]),
        "from": st.floats(-1, 10) | st.sampled_from([0.0, 1.0, 3.0, 8.0, None]),
        "arm": st.sampled_from(["a", "b", None]),
    }
)
KINDS = {"x": pl.Float64, "z": pl.Float64, "years": pl.Float64, "died": pl.String} | {
    "from": pl.Float64,
    "arm": pl.String,
}
WAYS = pytest.mark.parametrize(
    ("entry", "strata"), [(None, None), ("from", None), (None, "arm"), ("from", "arm")]
)
