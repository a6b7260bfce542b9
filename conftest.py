"""Of every suite: a run leaves no file in the checkout, and examples in docstrings run elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import checkout

BEFORE = pytest.StashKey[frozenset[str]]()
FOUND = pytest.StashKey[list[str]]()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Write down what is there; once, also where tests run in several processes."""
    if not hasattr(session.config, "workerinput"):
        session.config.stash[BEFORE] = checkout.listing(session.config.rootpath)


@pytest.hookimpl(trylast=True)  # other processes have ended by then
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if there is more than before."""
    before = session.config.stash.get(BEFORE, None)
    if before is None:
        return
    session.config.stash[FOUND] = checkout.new(before, session.config.rootpath)
    if session.config.stash[FOUND] and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = checkout.LEFT


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """Name what was left."""
    found = config.stash.get(FOUND, [])
    if found:
        terminalreporter.section("files left in the checkout", red=True, bold=True)
        terminalreporter.line("New since the run began; a test writes into tmp_path, and nowhere else:")
        for name in found:
            terminalreporter.line(f"  {name}")


@pytest.fixture(autouse=True)
def _examples_run_elsewhere(request: pytest.FixtureRequest) -> None:
    """Let `pytest --doctest-modules` write into a temporary folder."""
    if isinstance(request.node, pytest.DoctestItem):
        folder: Path = request.getfixturevalue("tmp_path")
        request.getfixturevalue("monkeypatch").chdir(folder)
