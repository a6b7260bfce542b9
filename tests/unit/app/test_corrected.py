"""A study that was corrected before anything was spent keeps its folder; one that spent something does not.

Processes are killed at every step of the writing in between.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cape.app.folder import RECORD, ResultsFolder
from cape.app.results import Results
from cape.cli.output import finish
from cape.cli.submit_action import Terms, run_study
from cape.coordinator import Record
from cape.core.errors import InvalidInput, TooFewSites
from cape.study import Study
from cape.study.document import document, hash_of
from tests.unit.cli.conftest import Cape
from tests.unit.cli.test_submit import Net, numbers
from tests.unit.cli.test_submit import world as world
from tests.world import HISTOGRAM, MEAN, NAMES, World

pytestmark = pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")


class Killed(BaseException):
    """In place of SIGKILL: nobody catches it, and nothing is written after it."""


def submit(world: World, study: Study, *, resume: bool = False) -> Results:
    """Submit a study and write its results, as the command does."""
    with ResultsFolder.find(world.folder / "out", study, study.scheme, "submit") as kept:
        results = run_study(study, world.coordinator, kept, Terms(resume))
        try:
            finish(results, kept, True)
        except BaseException as left:
            if isinstance(left, Killed):
                raise
        return results


def folders(world: World) -> list[str]:
    return sorted(path.name for path in world.folder.iterdir() if path.name.startswith("out"))


def test_a_study_that_sites_refused_is_corrected_in_its_folder(world: World, capsys):
    for name in NAMES:
        world.edit('"mean", ', "", name)
    assert isinstance(submit(world, world.study(MEAN)).error, TooFewSites)
    corrected = world.study(HISTOGRAM)
    results = submit(world, corrected)
    assert (results.failure, numbers(results)) == (None, [1])
    assert folders(world) == ["out"]
    assert sorted(path.name for path in (world.folder / "out").iterdir()) == [
        "progress.json",
        "record.jsonl",
        "report.html",
        "results.json",
    ]
    told = json.loads((world.folder / "out" / "results.json").read_text())
    assert [each["analysis"]["kind"] for each in told["analyses"]] == ["histogram"]
    with Record(world.folder / "out" / RECORD) as record:
        assert [attempt.finished for attempt in record.attempts] == [True]


def test_a_stage_that_every_site_denies_leaves_the_folder_to_a_corrected_study(world: World):
    Net.rounds = 1  # asked, and cut off before any site has paid
    assert submit(world, world.study(MEAN)).interrupted
    Net.rounds = None
    for name in NAMES:
        world.edit('"mean", ', "", name)  # so that resuming settles the stage, and asks no other
    assert isinstance(submit(world, world.study(MEAN), resume=True).error, TooFewSites)
    with pytest.raises(InvalidInput, match="holds no record to resume"):
        submit(world, world.study(HISTOGRAM), resume=True)
    results = submit(world, world.study(HISTOGRAM))
    assert (results.failure, numbers(results), folders(world)) == (None, [1], ["out"])
    assert world.lines() == 1


def test_a_study_that_may_have_spent_something_keeps_its_folder(world: World):
    study = world.study(MEAN)
    Net.rounds = 3  # vectors were masked: sites have paid
    assert submit(world, study).lost
    (world.folder / "out" / "results.json").unlink()  # as after a kill: only the record knows
    before = (world.folder / "out" / RECORD).read_bytes()
    Net.rounds = None
    with pytest.raises(InvalidInput, match="sites may have answered it"):
        submit(world, world.study(HISTOGRAM))
    assert (world.folder / "out" / RECORD).read_bytes() == before
    assert submit(world, study, resume=True).budget.spent == 1


def test_results_of_another_study_are_never_replaced(world: World):
    assert submit(world, world.study(MEAN)).failure is None
    before = (world.folder / "out" / "results.json").read_bytes()
    assert submit(world, world.study(HISTOGRAM)).failure is None
    assert folders(world) == ["out", "out-2"]
    assert (world.folder / "out" / "results.json").read_bytes() == before


def killing(monkeypatch: pytest.MonkeyPatch, left: int) -> list[int]:
    """Kill at a step of the writing, before or after a call; return how many are left.

    The thread that writes the progress down beside it is not counted: it ends with the submission.
    """
    count = [left]

    def step() -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        count[0] -= 1
        if count[0] < 0:
            raise Killed

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            step()
            told = call(*arguments, **options)
            step()
            return told

        return called

    for name in ("write", "fsync", "replace"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    return count


def killed_and_resumed(world: World, monkeypatch: pytest.MonkeyPatch, left: int) -> bool:
    """Correct a study, kill that at some step, and run it to its end; return whether the step was reached."""
    out = world.folder / "out"
    old = world.study(MEAN, name=f"old {left}", epsilon=0.1)
    new = world.study(f"{HISTOGRAM}\nshare = 0.25", name=f"new {left}", epsilon=0.1)
    assert isinstance(submit(world, old).error, TooFewSites)
    paid = world.lines()
    with monkeypatch.context() as patch:
        count = killing(patch, left)
        with contextlib.suppress(Killed):
            submit(world, new)
    with Record(out / RECORD) as record:
        begun = record.begun
        assert record.study_hash in {hash_of(document(each)) for each in (old, new)}
        assert record.unspent <= (world.lines() == paid), "what sites have paid for is in the record"
    results = submit(world, new, resume=begun)
    assert (results.failure, numbers(results), folders(world)) == (None, [1], ["out"])
    assert results.budget.spent * 4 >= world.lines() - paid >= 1
    shutil.rmtree(out)
    return count[0] < 0


@pytest.fixture
def refusing(world: World) -> World:
    for name in NAMES:
        world.edit('"mean", ', "", name)
    return world


@pytest.mark.one_in(6, seconds=0.5)
@pytest.mark.parametrize("left", [0, 1, 2, 3, 6, 11])
def test_a_corrected_study_that_is_killed_goes_on_in_its_folder(
    refusing: World, monkeypatch: pytest.MonkeyPatch, left: int
):
    assert killed_and_resumed(refusing, monkeypatch, left)


@pytest.mark.slow(15)
def test_a_corrected_study_that_is_killed_at_any_step_goes_on(
    refusing: World, monkeypatch: pytest.MonkeyPatch
):
    left = 0
    while killed_and_resumed(refusing, monkeypatch, left):
        left += 1
    assert left > 20, "two calls a line of the record, and the files of results"


def test_a_run_that_failed_is_corrected_in_its_folder(cape: Cape, study: Path, change):
    out = study.parent / "out"
    change("low = 40", "low = 50")
    rows = study.parent / "data" / "a.csv"
    kept = rows.read_text()
    rows.write_text(kept.replace("age,", "years,"))
    assert cape("run", study, "--out", out).code != 0
    first = json.loads((out / "results.json").read_text())
    assert (first["analyses"], first["budget"]["exact"]) == ([], "0")
    rows.write_text(kept)
    change("low = 50", "low = 40")
    done = cape("run", study, "--out", out)
    assert done.code == 0, done.err
    assert "Nothing was spent on it; this one takes its place." in done.err
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "results.json"]
    analyses = json.loads((out / "results.json").read_text())["analyses"]
    assert [each["number"] for each in analyses] == [1, 2, 3, 4]
    change("epsilon = 2.0", "epsilon = 1.5")
    other = cape("run", study, "--only", "mean", "--out", out)
    assert f"{out} holds other results; these go to {out}-2." in other.err


def test_a_run_that_lost_its_messages_keeps_its_folder(cape: Cape, study: Path, change):
    """Nothing was released, and its share is spent."""
    out = study.parent / "out"
    lost = ["--drop", "b@unmask", "--drop", "c@unmask"]
    assert cape("run", study, "--only", "table-one", "--out", out, *lost).code == 1
    before = (out / "results.json").read_bytes()
    change("epsilon = 2.0", "epsilon = 1.5")
    done = cape("run", study, "--only", "mean", "--out", out)
    assert f"{out} holds other results; these go to {out}-2." in done.err
    assert (out / "results.json").read_bytes() == before


def test_a_rehearsals_folder_is_not_a_runs(cape: Cape, study: Path):
    """Which process made a folder stays apart, even if it spent nothing."""
    out = study.parent / "out"
    (study.parent / "data" / "a.csv").unlink()
    assert cape("run", study, "--out", out).code != 0
    assert cape("run", "--rehearse", study, "--only", "mean", "--out", out).code == 0
    assert json.loads((out / "results.json").read_text())["owner"]["by"] == "run"
    assert Path(f"{out}-2").is_dir()
