from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Generator

import pytest
from hypothesis import is_hypothesis_test, settings

from cape.noise import SecureStream
from tests import slices

settings.register_profile(slices.THOROUGH, deadline=None, derandomize=True, print_blob=True)
settings.register_profile("cape", settings.get_profile(slices.THOROUGH), max_examples=20)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "cape"))

LONG = 10.0  # seconds of a test that starts before others
MEMORY = "/dev/shm"  # where a sync costs nothing; what a killed process has written is still there
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 1 << 30:
    os.environ["TMPDIR"] = tempfile.tempdir = MEMORY


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slice", metavar="K/N", type=slices.read, help="of the slow tests: see tests/slices.py"
    )


@pytest.hookimpl(trylast=True)  # the profile of the command line is known by then
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--slice"):
        settings.load_profile(slices.THOROUGH)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before tests are shuffled, and before -m chooses
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, object, object]:
    mark(config, items)
    if config.getoption("--slice"):
        choose(config, items)
    done = yield
    items.sort(key=lambda item: seconds(item) < LONG)  # one that comes last leaves the other cores idle
    return done


def mark(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark as slow which cases of a test are, in the order in which the files have them."""
    named, places = set(), Counter[str]()
    for item in items:
        for name in ("quick_cases", "slow_cases"):
            marker = item.get_closest_marker(name)
            if marker:
                named |= {f"{item.nodeid.partition('[')[0]}[{case}]" for case in marker.args}
                if (item.callspec.id in marker.args) == (name == "slow_cases"):  # type: ignore[attr-defined]
                    item.add_marker(pytest.mark.slow(**marker.kwargs))
        marker = item.get_closest_marker("one_in")
        if marker:
            test = item.nodeid.partition("[")[0]
            if places[test] % marker.args[0]:
                item.add_marker(pytest.mark.slow(**marker.kwargs))
            places[test] += 1
    unknown = named - {item.nodeid for item in items}
    if unknown and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        raise pytest.UsageError(f"a marker names cases that there are not: {', '.join(sorted(unknown))}")


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests of a slice."""
    turn, count = config.getoption("--slice")
    slow = {item.nodeid: seconds(item) for item in items if seconds(item)}
    taken = set(slices.slices(slow, count)[turn])
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in taken])
    items[:] = [item for item in items if item.nodeid in taken]


def seconds(item: pytest.Item) -> float:
    """Return how long a test takes that does not run every time, or 0."""
    slow = item.get_closest_marker("slow")
    if slow:
        return float((slow.args or (slow.kwargs.get("seconds", 1.0),))[0])
    return 1.0 if is_hypothesis_test(item.obj) else 0.0  # type: ignore[attr-defined]


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> SecureStream:
    """A reproducible stream, another one for every test."""
    return SecureStream(hashlib.sha256(request.node.nodeid.encode()).digest())
