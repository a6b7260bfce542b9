"""Who decides for a site: what is one person, and who may state a name."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from cape.core import unix
from cape.core.errors import CapeError, InvalidInput
from cape.site import persons
from cape.site.admin import Client, Desk, serve
from tests.world import World

INVISIBLE = (
    "\u00ad\u034f\u115f\u1160\u17b4\u180b\u180e\u2060\u2800\u3164\ufe0f\uffa0\u200b\u00a0\ufffc\U0001d159 "
)
OWN = pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path / "w")
    world.edit('approve = "auto"', 'approve = "ask"')
    assert world.code(world.request()) == "approval"
    return world


@pytest.mark.parametrize(
    ("names", "many"),
    [
        (["ana", "ana"], 1),
        (["ana", "Ana "], 1),
        (["ana", "ana@clinic.org"], 1),
        (["ana@clinic.org", "ANA@other.org"], 1),
        (["ａna", "ana"], 1),
        (["ana", "ben"], 2),
        (["ana@clinic.org", "ben@clinic.org"], 2),
        ([OWN, "root"], 1),
        ([f"{OWN}@clinic.org", "root"], 1),
        (["root", "ben", OWN], 2),
        (["root@x", "root"], 1),
        (["ROOT@clinic.org", OWN], 1),
        (["root@x", f"{OWN}@y", "ben"], 2),
        (["ana", "Ana Weiß <ana@clinic.org>"], 1),
        (["ana", "CLINIC\\ana", "clinic\\Ana@clinic.org"], 1),
        (["ana", "Ana Weiß <ben@clinic.org>"], 2),
        (["José", "jose\u0301", "jose"], 1),
        (["Müller, Eva", "müller,  eva"], 1),
        *((["ana", f"a{sign}na"], 1) for sign in INVISIBLE),
        (["ana@clinic.org", "ana\u0345@clinic.org", "\u0345ana"], 1),
        (["ana@clinic.org", '"ana"@clinic.org', "'ana'", "“ana”@clinic.org"], 1),
        (["ana@clinic.org", "ana+2@clinic.org", "ana+ben"], 1),
        (["+ana@x", "+ben@x"], 2),
        (["aweiss", "ana.weiss@clinic.org"], 2),  # nobody could know: docs/stewards.md says so
        (["\u3164", "\u2800"], 2),
        (["@x", "@y"], 2),
        ([], 0),
    ],
)
def test_names_of_one_person_count_once(names: list[str], many: int):
    assert persons.count(names) == many


def test_root_and_the_sites_own_user_are_one_person(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(persons, "_user", lambda uid: "cape" if uid else "root")
    monkeypatch.setattr(os, "geteuid", lambda: 70_000)
    assert persons.count(["root", "cape"]) == 1
    assert persons.count(["Root", "cape@clinic.org", "ana"]) == 2


def test_the_desks_user_states_who_decides(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, desk = tmp_path / "a.sock", 70_005
    monkeypatch.setattr("cape.core.unix.peer_of", lambda connection: unix.Peer(1, desk, 1))
    with serve(path, world.site, desk=desk), Client(path, person="Ana Weiß <ana@clinic.org>") as client:
        (one,) = client.approve("lungs").study.approvals
        assert (one.person, one.desk) == ("Ana Weiß <ana@clinic.org>", True)
        assert "of 'office' by 'Ana Weiß <ana@clinic.org>' (desk)" in client.log(1).lines[0]
        for name in ("", "x" * 201, "a\nb"):
            with Client(path, person=name) as bad, pytest.raises(InvalidInput):
                bad.status()


def test_nobody_else_states_a_name(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, steward, desk = tmp_path / "a.sock", 70_001, 70_005
    for uid in (steward, os.geteuid(), 0):
        monkeypatch.setattr("cape.core.unix.peer_of", lambda connection, uid=uid: unix.Peer(1, uid, 1))
        for of_desk in (None, desk):
            with (
                serve(path, world.site, frozenset({steward}), desk=of_desk),
                Client(path, person="ben") as client,
                pytest.raises(InvalidInput, match="only the user of the desk may"),
            ):
                client.approve("lungs")
    assert world.site.approvals.studies("waiting")[0].approvals == ()
    monkeypatch.setattr("cape.core.unix.peer_of", lambda connection: unix.Peer(1, steward, 1))
    with serve(path, world.site, frozenset({steward})), Client(path) as client:
        assert client.approve("lungs").study.approvals[0].person == f"user {steward}"


def test_the_desks_user_is_not_admitted_unless_named(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("cape.core.unix.peer_of", lambda connection: unix.Peer(1, 70_005, 1))
    path = tmp_path / "a.sock"
    with (
        serve(path, world.site, frozenset({70_001})),
        Client(path) as client,
        pytest.raises(CapeError, match="its stewards"),
    ):
        client.status()


def test_without_a_daemon_the_user_of_the_process_decides(world: World):
    told = Desk(world.site).refuse("lungs", reason="no consent").study
    assert (told.decided_by, told.reason) == (OWN, "no consent")


def test_changes_of_the_policy_and_of_keys_say_by_whom(world: World):
    desk = Desk(world.site, person="ana@clinic.org")
    read = desk.policy()
    desk.save_policy(read.text.replace("min_rows = 100", "min_rows = 150"), read.hash)
    desk.revoke("b")
    desk.trust("b", "ed25519:" + "07" * 32, "", coordinator=False)
    said = desk.log(3).lines
    assert all("by 'ana@clinic.org' (desk)" in line for line in said), said
