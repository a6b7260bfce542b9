"""The aggregator killed in the middle: what was released is kept, ledgers hold what was spent, it goes on."""

from __future__ import annotations

import subprocess

import pytest

from tests.deploy.conftest import SITES, World, mean, until
from tests.deploy.jobs import kill_job


def test_resume_goes_on_after_the_last_finished_analysis(world: World) -> None:
    study = world.study("resumed", "".join(mean(0.1) for _ in range(6)))
    before = {site: len(world.here.site(site).ledger.entries()) for site in SITES}
    running = subprocess.Popen(
        world.command(study), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    record = world.folder / "resumed" / "record.jsonl"
    until(lambda: record.is_file() and record.read_text().count('"finished"') >= 2)
    world.here.kill("aggregator")
    said = running.communicate(timeout=90)[1]
    assert running.returncode == 1, said
    assert "--resume" in said
    finished = record.read_text().count('"finished"')
    first = world.results("resumed")["analyses"]
    assert 2 <= len(first) == finished < 6
    world.here.serve()
    world.back()
    refused = world.submit(study, out="resumed")
    assert refused.returncode == 2
    assert "--resume continues it" in refused.stderr
    done = world.submit(study, "--resume")
    assert done.returncode == 0, done.stderr
    found = world.results("resumed")
    assert len(found["analyses"]) == 6
    assert [each["estimates"] for each in found["analyses"][:finished]] == [
        each["estimates"] for each in first
    ]
    # What was cut off is paid for where it was in a ledger, and no ledger is below what was released.
    for site in SITES:
        lines = len(world.here.site(site).ledger.entries()) - before[site]
        assert 6 <= lines <= 7
    assert 0.6 <= found["budget"]["spent"] < 0.71


def test_a_study_without_reserve_is_held_to_what_it_states(world: World) -> None:
    study = world.study("no-reserve", mean(0.5) + mean(0.5))
    running = subprocess.Popen(
        world.command(study), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    crash = world.here.site("d").path / "crash"
    crash.write_text("unmask before silent\n")  # keeps the round open
    until(lambda: not crash.read_text())
    world.here.kill("aggregator")
    said = " ".join(running.communicate(timeout=90)[1].split())
    assert "Its share of 0.5 counts as spent: messages may have left the sites, and their ledgers" in said
    kill_job(world.here, "d")
    down = world.submit(study, "--resume")
    assert down.returncode == 1
    assert "is `cape serve` running there?" in down.stderr
    assert "Nothing was spent on it." in down.stderr  # but 0.5 was before
    assert world.results("no-reserve")["budget"]["spent"] == 0.5
    world.here.serve()
    world.back()
    done = world.submit(study, "--resume")
    assert done.returncode == 1
    told = " ".join(done.stderr.split())
    assert (
        "analysis 1 (mean) needs 0.5 of the budget, and 0 is left for it: 0.5 was spent on attempts" in told
    )
    found = world.results("no-reserve")
    assert [each["number"] for each in found["analyses"]] == [2]
    assert found["budget"]["spent"] == 1
    assert found["guarantee"]["epsilon"] == pytest.approx(1, abs=1e-4)
    # The same study again, as if it were new: every site knows that its budget is gone.
    again = world.submit(study, out="again")
    assert again.returncode == 1
    told = "the budget that the study itself states (earlier submissions count) does not cover this release"
    assert told in " ".join(again.stderr.split())
