"""The aggregator killed in the middle: what was released is kept, ledgers hold what was spent, it goes on."""

from __future__ import annotations

import subprocess

from tests_deploy.conftest import SITES, World, mean, until


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
    assert "--resume goes on with it" in refused.stderr
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


def test_a_study_without_reserve_says_what_a_retry_would_cost(world: World) -> None:
    study = world.study("no-reserve", mean(0.5) + mean(0.5))
    (world.here.site("a").path / "crash").write_text("")
    running = subprocess.Popen(
        world.command(study), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    record = world.folder / "no-reserve" / "record.jsonl"
    (world.here.site("d").path / "crash").write_text("unmask before silent\n")  # keeps the round open
    until(lambda: record.is_file() and '"asked"' in record.read_text())
    until(lambda: not (world.here.site("d").path / "crash").read_text())
    world.here.kill("aggregator")
    running.communicate(timeout=90)
    world.here.kill_job("d")
    world.here.serve()
    world.back()
    done = world.submit(study, "--resume")
    assert done.returncode == 1
    told = " ".join(done.stderr.split())
    assert "`--retry`" in told
    assert "above its stated 1" in told
    found = world.results("no-reserve")
    assert [each["number"] for each in found["analyses"]] == [2]
    assert found["budget"]["spent"] == 1
    paid = world.submit(study, "--resume", "--retry")
    assert paid.returncode == 0, paid.stderr
    found = world.results("no-reserve")
    assert [each["number"] for each in found["analyses"]] == [1, 2]
    assert found["guarantee"]["epsilon"] > 1.2  # the truth, not what the study says
