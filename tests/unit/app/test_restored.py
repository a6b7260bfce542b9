"""The story of a restored backup, with the commands that people type: noticed, settled, and paid for."""

from __future__ import annotations

import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import pytest

from cape.app.results import Results
from cape.coordinator.heads import HEADS
from cape.study import Study
from tests.unit.cli.conftest import Cape
from tests.unit.cli.test_submit import numbers, submit
from tests.unit.cli.test_submit import world as world
from tests.world import HISTOGRAM, MEAN, World, document

pytestmark = pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")


def study(world: World, name: str) -> Study:
    return world.study(f"{MEAN if name == 'first' else HISTOGRAM}\nshare = 0.5", name=name, epsilon=2.0)


def asked(world: World, name: str) -> tuple[Results, list[int]]:
    """Submit a study in a folder of its own; return its results and what site a took part in."""
    results = submit(world, study(world, name))
    assert results.failure is None
    assert numbers(results) == [1]
    (a,) = [site for site in results.sites if site.name == "a"]
    shutil.rmtree(world.folder / "out")
    return results, list(a.took_part)


@pytest.mark.slow(2)
def test_a_site_whose_backup_was_put_back_answers_once_what_is_missing_is_charged(
    cape: Cape, world: World, tmp_path: Path
):
    site, where = world.site.path, ("--site", world.site.path)
    assert asked(world, "first")[1] == [1]
    done = cape("site", "backup", tmp_path / "a.tar", *where)
    assert done.code == 0, done.err
    assert asked(world, "second")[1] == [1]
    spent = world.site.ledger.spent()

    # The disk is lost; the folder comes back from the backup, and rows from where they come from.
    rows = (site / "rows.csv").read_bytes()
    shutil.rmtree(site)
    site.mkdir(mode=0o700)
    subprocess.run(["tar", "-xpf", tmp_path / "a.tar", "-C", site], check=True)
    (site / "rows.csv").write_bytes(rows)
    world.restart("a")
    assert world.lines() == 1, "the second release is forgotten"

    results, took_part = asked(world, "third")
    assert took_part == [], "the coordinator shows it the head that it has signed"
    (a,) = [each for each in results.sites if each.name == "a"]
    assert "cape site settle" in a.refusals[1].sentence
    assert world.lines() == 1

    shown = cape("site", "settle", *where)
    assert (shown.code, "has signed 2 lines" in shown.out) == (1, True)
    settled = cape("site", "settle", "--yes", *where)
    assert (settled.code, "The site answers again" in settled.out) == (0, True)
    assert world.site.ledger.spent() == spent, "no less than before the disk was lost, and no more"
    results, took_part = asked(world, "fourth")
    assert took_part == [1]
    assert results.answered[0].warnings[0].startswith("a: its ledger was rewritten")
    assert world.site.ledger.spent().mu_squared > spent.mu_squared > Fraction(0)
    card = tmp_path / "a.card"
    card.write_text(cape("site", "export-key", *where).out)
    heads = world.coordinator.path / HEADS
    verified = cape("site", "verify", site / "ledger.sqlite", "--card", card, "--heads", heads)
    assert (verified.code, "rewritten" in verified.err + verified.out) == (1, True), (
        "third parties see it, too"
    )
    assert cape("site", "verify", site / "ledger.sqlite", "--card", card).code == 0


def test_heads_of_a_coordinator_settle_a_backup_before_anything_is_asked(
    cape: Cape, world: World, tmp_path: Path
):
    """What docs/deployment.md tells a steward to do first."""
    site, where = world.site.path, ("--site", world.site.path)
    assert cape("site", "backup", tmp_path / "a.tar", *where).code == 0
    assert asked(world, "first")[1] == [1]
    spent = world.site.ledger.spent()
    (site / "ledger.sqlite").unlink()
    for beside in site.glob("ledger.sqlite-*"):
        beside.unlink()
    subprocess.run(["tar", "-xpf", tmp_path / "a.tar", "-C", site, "ledger.sqlite"], check=True)
    world.restart("a")
    heads = world.coordinator.path / HEADS
    assert cape("site", "settle", "--heads", heads, "--yes", *where).code == 0
    assert world.site.ledger.spent() == spent
    assert asked(world, "second")[1] == [1]


@pytest.mark.parametrize("whole", [True, False])
def test_no_approval_counts_after_a_gap_was_settled(cape: Cape, tmp_path: Path, whole: bool):
    """One was used since the backup, another was taken back: a folder that was put back knows neither."""
    world = World(tmp_path / "w")
    site, where = world.site.path, ("--site", world.site.path)
    world.edit('approve = "auto"', 'approve = "ask"')
    other = document(epsilon=0.9)
    for asked_for in (world.request(), world.request(other)):
        assert world.code(asked_for) == "approval"
    hashes = [held.study_hash for held in world.site.approvals.studies("waiting")]
    once, later = sorted(hashes, key=lambda each: each != world.request().study_hash)
    assert cape("site", "approve", once, "--once", *where).code == 0
    assert cape("site", "approve", later, *where).code == 0
    assert cape("site", "backup", tmp_path / "a.tar", *where).code == 0
    world.granted(world.request())
    head = world.site.ledger.head()
    assert cape("site", "refuse", later, *where).code == 0
    for beside in site.glob("ledger.sqlite*"):
        beside.unlink()
    if whole:
        shutil.rmtree(site / "refused")
    files = [] if whole else ["ledger.sqlite"]
    subprocess.run(["tar", "-xpf", tmp_path / "a.tar", "-C", site, *files], check=True)
    world.restart("a")
    assert not world.site.ledger.show(head, world.site.identity.public)
    assert world.code(world.request()) == "ledger"

    settled = cape("site", "settle", "--yes", *where)
    assert f"wait for approval again: {2 if whole else 1}" in settled.out
    assert "refuse such studies again" in settled.out
    assert world.code(world.request()) == "approval"
    assert world.code(world.request(other)) == ("approval" if whole else "steward")
    assert cape("site", "approve", once, "--once", *where).code == 0
    world.granted(world.request())
    assert world.code(world.request()) == "approval"
