from __future__ import annotations

import math

import numpy as np
import pytest

from cape.analyses.survival.parametric_start import TimesSeen, blocks_of
from cape.blocks import Times
from cape.data import Category, Number, Schema

SCHEMA = Schema(
    t=Number(0, 10, missing=False),
    e=Category(("no", "yes"), missing=False),
    s=Number(0, 10, missing=False),
)


def seen(
    shape: float, noise: float = 0.0, rows: int = 40_000, *, late: bool = False, seed: int = 1
) -> tuple[TimesSeen, float]:
    """Counts of rows that follow a law with a level of -.5 at the end of the span, a third censored."""
    rng = np.random.default_rng(seed)
    start = rng.uniform(0, 3, rows) * late
    u = (((start / 10) ** shape + rng.exponential(size=rows) * math.exp(0.5)) ** (1 / shape)) * 10
    until = np.minimum(rng.uniform(2, 14, rows), 10.0)
    left, event = np.minimum(u, until), u <= until
    times = Times("t", "e", (0.0, 10.0), "s" if late else None)
    blocks = blocks_of(times, SCHEMA)
    edges = blocks[0].axes[1].edges
    counts = [np.histogram(left[event == had], edges)[0] for had in (False, True)]
    sums = [(np.array(counts) + rng.normal(0, noise, (2, len(edges) - 1)),)]
    if late:
        sums.append((np.histogram(start, edges)[0] + rng.normal(0, noise, len(edges) - 1),))
    return TimesSeen.of(blocks, tuple(sums), noise, SCHEMA), float(event.sum())


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("shape", [0.6, 1.0, 3.0])
def test_it_begins_near_the_law_that_rows_follow(shape: float, late: bool) -> None:
    times, events = seen(shape, late=late)
    begun = times.begun(40_000, shaped=True)
    assert begun.shape == pytest.approx(shape, rel=0.1)
    assert begun.level == pytest.approx(-0.5, abs=0.15)
    assert begun.events == pytest.approx(events)
    assert times.begun(40_000, shaped=False).shape == 1.0


def test_noise_leaves_the_shape_where_it_is_expected() -> None:
    times, _ = seen(3.0, 1e7, seed=2)
    begun = times.begun(40_000, shaped=True)
    assert begun.shape == pytest.approx(1.0, abs=0.4)
    assert 1 <= begun.events <= 40_000
    assert math.isfinite(begun.level)


def test_some_noise_moves_it_little() -> None:
    shapes = [seen(2.0, 60.0, 4000, seed=seed)[0].begun(4000, shaped=True).shape for seed in range(20)]
    assert np.mean(shapes) == pytest.approx(2.0, rel=0.15)
    assert np.std(shapes) < 0.3


def test_made_up_rows_leave_as_those_do_that_were_seen() -> None:
    times, events = seen(1.5)
    rows = times.made_up(4096, np.full(4096, -0.5), 1.5)
    assert rows.event.mean() == pytest.approx(events / 40_000, abs=0.03)
    assert (rows.left <= 0).all()
    assert np.isneginf(rows.entered).all()


def test_times_are_cut_where_rows_lie_at_the_beginning_and_nowhere_else() -> None:
    times, _ = seen(1.5)
    assert not times.marginal(SCHEMA, "t", True).capped[0]
    assert not times.crowded
    events = times.events.copy()
    events[0] += 400
    crowded = TimesSeen(times.edges, events, times.censored, None, 5.0)
    assert crowded.crowded
    found = crowded.marginal(SCHEMA, "t", True)
    assert found.capped == (True, False)
    after = np.flatnonzero(events[1:] + times.censored[1:] > 3.3 * 5 * math.sqrt(2))[0] + 1
    assert found.low == pytest.approx(10 * times.edges[after])
    assert found.below == pytest.approx(400 / 40_400, rel=0.2)
    assert not crowded.marginal(SCHEMA, "t", False).capped[0]
    assert crowded.marginal(SCHEMA, "t", (1.0, 9.0)).capped == (True, True)
