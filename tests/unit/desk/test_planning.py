"""Plans at the desk: what takes too long, or too much memory, costs the desk neither."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from cape.core.errors import CapeError, InvalidInput
from cape.desk.coordinator.planning import Planner
from tests.unit.desk.office import TEXT


@pytest.fixture
def planner() -> Iterator[Planner]:
    made = Planner()
    yield made
    made.close()


@pytest.mark.slow(4)
def test_a_plan_that_takes_too_long_is_given_up_and_the_next_one_is_made(planner: Planner):
    assert planner.plan(TEXT).sites == ("a", "b", "c", "d")
    planner._patience = 1.0
    began = time.monotonic()
    with pytest.raises(CapeError, match="takes too long here"):
        planner.plan(TEXT.replace("bins = 6", "bins = 1000000"))
    assert time.monotonic() - began < 10
    with pytest.raises(InvalidInput, match=r"\[\[analysis\]\] 2"):
        planner.plan(TEXT.replace("bins = 6", "bins = -1"))
    assert planner.plan(TEXT).analyses[1].sentence == "histogram of age"


@pytest.mark.slow(3)
def test_a_planner_that_was_killed_is_started_again(planner: Planner):
    planner.start()
    assert planner._process is not None
    os.kill(planner._process.pid, signal.SIGKILL)
    planner._process.wait()
    assert planner.plan(TEXT).name == "lungs & <hearts>"


def test_a_text_that_is_too_long_is_not_planned(planner: Planner):
    with pytest.raises(InvalidInput, match="at most 64 kB"):
        planner.plan(TEXT + "#" * 70_000)
    assert planner._process is None
