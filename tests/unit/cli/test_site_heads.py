"""`cape site settle` and `cape site verify`, as a steward and as a third party type them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cape.coordinator.heads import HEADS, Heads
from tests.unit.cli.conftest import Cape
from tests.unit.site.test_heads import copy_of, head_of, put_back
from tests.world import World, document


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "sites")


@pytest.fixture
def restored(world: World, tmp_path: Path) -> Path:
    """A coordinator's heads, of a site whose backup was put back after two releases."""
    site, path = world.site, tmp_path / HEADS
    copy = copy_of(site.ledger)
    heads = Heads(path, {"a": site.identity.public})
    for _ in range(2):
        world.granted(world.request(document(analyses=[{"kind": "mean", "columns": ["age"], "share": 0.1}])))
        heads.take({"a": head_of(site.ledger).pack()}, {"a": heads.shown("a")})
    put_back(site.ledger, copy)
    return path


def card(world: World, tmp_path: Path) -> Path:
    path = tmp_path / "a.card"
    path.write_text(world.site.card.to_text())
    return path


def test_a_gap_is_shown_first_and_charged_with_yes(cape: Cape, world: World, restored: Path):
    where = ("--site", world.site.path)
    assert cape("site", "settle", *where).code == 0
    shown = cape("site", "settle", *where, "--heads", restored)
    assert shown.code == 1
    assert "has signed 2 lines" in shown.out
    assert "--yes charges" in shown.out
    assert not world.site.ledger.entries(), "looking changes nothing"
    assert world.code(world.request()) == "ledger"
    told = cape("site", "settle", *where, "--json")
    assert told.code == 1
    gaps = json.loads(told.out)["gaps"]
    assert [(gap["signed"], gap["common"]) for gap in gaps] == [(2, 0), (1, 0)]
    assert gaps[0]["missing"][0]["adjacency"] == "replace-one"
    done = cape("site", "settle", *where, "--yes")
    assert done.code == 0
    assert "The site answers again" in done.out
    assert "settled 2 gaps" in (world.site.path / "site.log").read_text()
    lines = world.site.ledger.entries()
    assert [line.kind for line in lines] == ["settled", "settled"]
    assert str(world.site.ledger.spent().mu_squared) == gaps[0]["missing"][0]["mu_squared"]
    world.granted(world.request())
    assert cape("site", "ledger", *where).code == 0


def test_a_third_party_verifies(cape: Cape, world: World, restored: Path, tmp_path: Path):
    world.granted(world.request())
    path = world.site.path / "ledger.sqlite"
    arguments = ("site", "verify", path, "--card", card(world, tmp_path))
    done = cape(*arguments)
    assert done.code == 0
    assert "are valid" in done.out
    assert "No heads were compared" in done.out
    found = cape(*arguments, "--heads", restored)
    assert found.code == 1
    assert "was rewritten" in found.err
    told = cape(*arguments, "--heads", restored, "--json")
    assert told.code == 1
    plain = json.loads(told.out)
    assert (plain["lines"], plain["heads"], len(plain["problems"])) == (1, 2, 2)
    assert plain["totals"][0]["unit"] == "row"


def test_what_cannot_be_checked_has_status_2(cape: Cape, world: World, tmp_path: Path):
    own = card(world, tmp_path)
    for ledger, more in ((own, ()), (world.site.path / "ledger.sqlite", ("--heads", own))):
        done = cape("site", "verify", ledger, "--card", own, *more)
        assert (done.code, done.out) == (2, "")
        assert len(done.err.splitlines()) <= 2
