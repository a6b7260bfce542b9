from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

from cape.blocks import Table
from cape.blocks.parts import Part
from cape.blocks.times import Times, exit_counts
from cape.core.errors import InvalidInput
from cape.data import Database, Schema

SCHEMA = Schema({"years": [0, 10], "died": ["no", "yes"], "from": [0, 10], "arm": ["a", "b"]})


def exits(times: Times, years: list[float]) -> list[int]:
    part = Part(SCHEMA, {"years": np.array(years)}, len(years), None)  # type: ignore[arg-type]
    return times.exits(part).tolist()


def test_a_row_that_leaves_at_an_edge_has_left_by_then() -> None:
    times = Times.of(SCHEMA, "years", "died", edges=[2, 5])
    assert times.edges == (0, 2, 5)
    above = [float(np.nextafter(edge, 99)) for edge in (2.0, 5.0)]
    assert exits(times, [-1, 0, 2, above[0], 5, above[1], 10, 99, np.nan]) == [0, 0, 0, 1, 1, 2, 2, 2, -1]


def test_nobody_stays_beyond_the_upper_bound() -> None:
    times = Times.of(SCHEMA, "years", "died", bins=5)
    assert times.edges == (0, 2, 4, 6, 8, 10)
    assert not times.beyond(SCHEMA)
    assert exits(times, [10, 99, 8, 8.1]) == [4, 4, 3, 4]


def test_one_edge_makes_two_bins_and_the_upper_bound_one() -> None:
    assert exits(Times.of(SCHEMA, "years", "died", edges=[5]), [5, 6]) == [0, 1]
    assert exits(Times.of(SCHEMA, "years", "died", edges=[0, 10]), [0, 5, 10]) == [0, 0, 0]


def test_an_edge_next_to_the_upper_bound_is_told_from_it() -> None:
    edge = float(np.nextafter(10.0, 0))
    assert exits(Times.of(SCHEMA, "years", "died", edges=[5, edge]), [5, edge, 10]) == [0, 1, 2]


def test_a_row_is_at_risk_from_the_start_of_the_bin_in_which_it_enters() -> None:
    times = Times.of(SCHEMA, "years", "died", edges=[2, 5], entry="from")
    part = Part(SCHEMA, {"from": np.array([0, 1.9, 2, 4.9, 5, 10, np.nan])}, 7, None)  # type: ignore[arg-type]
    assert times.entries(part).tolist() == [0, 0, 1, 1, 2, 2, -1]


def test_counts_are_by_group_event_and_bin_and_leave_out_rows_that_miss_a_cell() -> None:
    times = Times.of(SCHEMA, "years", "died", edges=[2, 5])
    frame = pl.DataFrame(
        {
            "years": [1.0, 2.0, 3.0, 7.0, None, 4.0, 4.0],
            "died": ["yes", "no", "yes", "no", "yes", None, "yes"],
            "from": [0.0] * 7,
            "arm": ["a", "a", "b", "b", "a", "a", None],
        }
    )
    connection = duckdb.connect()
    connection.register("rows", frame)
    for source in (frame, Database("SELECT * FROM rows", connection)):
        table = Table("a", source, SCHEMA)
        ((counts,),) = table.sums([exit_counts(times, SCHEMA, ["arm"])])
        assert counts.tolist() == [[[1, 0, 0], [1, 0, 0]], [[0, 0, 1], [0, 1, 0]]]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"edges": [-1, 5]}, "must lie within its bounds, 0 to 10, and -1 does not"),
        ({"edges": [5, 11]}, "must lie within its bounds, 0 to 10, and 11 does not"),
        ({"edges": [5, 5]}, "two or more numbers that rise"),
        ({"edges": []}, "one time or more"),
        ({"edges": [0]}, "a time above its lower bound"),
        ({"edges": "abc"}, "times that rise"),
        ({"edges": [1], "bins": 3}, "not both"),
        ({"bins": 0}, "bins must be an integer"),
    ],
)
def test_edges_that_cut_nothing_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Times.of(SCHEMA, "years", "died", **keys)


def test_a_time_below_0_and_an_event_of_one_value_are_refused() -> None:
    schema = Schema({"t": [-1, 5], "years": [0, 5], "one": ["yes"], "died": ["no", "yes"]})
    with pytest.raises(InvalidInput, match="a time must be 0 or more"):
        Times.of(schema, "t", "died")
    with pytest.raises(InvalidInput, match="an event needs two"):
        Times.of(schema, "years", "one")
