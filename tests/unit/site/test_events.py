"""What happens at a site, as events: whoever did it, and nothing of the data."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from cape.site import SiteFolder
from cape.site.admin import Desk
from cape.site.keyring import public_text
from tests.world import SECRET, World, document


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path / "w")
    world.edit('approve = "auto"', 'approve = "ask"')
    return world


@pytest.fixture
def desk(world: World) -> Desk:
    desk = Desk(world.site)
    assert desk.events() == ()
    return desk


def kinds(desk: Desk, after: int = 0) -> list[str]:
    return [event.kind for event in desk.events(after)]


def test_a_study_waits_is_approved_answered_and_refused(world: World, desk: Desk):
    assert world.code(world.request()) == "approval"
    desk.ask("lungs", "why?")
    desk.approve("lungs")
    world.granted(world.request())
    desk.refuse("lungs")
    desk.approve("lungs", once=True)
    told = desk.events()
    assert [each.kind for each in told] == ["waiting", "asked", "approved", "answered", "refused", "approved"]
    assert {(each.study, each.hash, each.coordinator) for each in told} == {
        ("lungs", world.request().study_hash, "office")
    }
    assert [each.number for each in told] == sorted({each.number for each in told})
    assert kinds(desk, told[2].number) == ["answered", "refused", "approved"]
    assert desk.status().last_event == told[-1].number


def test_decisions_of_another_process_are_events_too(world: World, desk: Desk):
    assert world.code(world.request()) == "approval"
    other = Desk(SiteFolder(world.site.path))
    other.approve("lungs")
    assert kinds(desk) == ["approved"], "it was not looked at in between"
    other.refuse("lungs")
    assert kinds(desk) == ["approved", "refused"]


def test_four_eyes_and_an_end_of_an_approval(world: World, desk: Desk):
    world.edit('approve = "ask"', 'approve = "ask"\napprovals = 2')
    assert world.code(world.request()) == "approval"
    first = desk.events()[-1].number
    Desk(world.site, person="ana").approve("lungs", once=True)
    assert "waits for another person" in desk.events(first)[-1].sentence
    Desk(world.site, person="ben").approve("lungs")
    assert kinds(desk, first) == ["waiting", "approved"]
    world.granted(world.request())
    assert world.code(world.request()) == "approval"
    assert kinds(desk, first) == ["waiting", "approved", "waiting", "answered"]


def test_a_study_that_waits_again_is_told_even_if_nobody_looked_meanwhile(world: World, desk: Desk):
    world.edit('approve = "ask"', 'approve = "ask"\napprovals = 2')
    assert world.code(world.request()) == "approval"
    Desk(world.site, person="ana").approve("lungs", once=True)
    first = desk.events()[-1].number
    Desk(world.site, person="ben").approve("lungs")
    world.granted(world.request())
    assert world.code(world.request()) == "approval"
    assert kinds(desk, first) == ["waiting", "answered"]


def test_keys_and_policy(world: World, desk: Desk):
    key = world.identities["b"].public
    desk.revoke("b")
    desk.trust("b", public_text(key), "", coordinator=False)
    world.edit("min_rows = 100", "min_rows = 150")
    assert kinds(desk) == ["key", "key", "policy"]
    (world.site.path / "site.toml").write_text("[site")
    assert "invalid" in desk.events()[-1].sentence


def test_most_of_a_budget_is_spent(world: World, desk: Desk):
    world.edit('approve = "ask"', 'approve = "auto"')
    whole = [{"kind": "mean", "columns": ["age", "weight"], "share": 1.0}]
    said: list[str] = []
    for number in range(3):
        assert not said
        world.granted(world.request(document(description=str(number), analyses=whole)))
        said = [event.sentence for event in desk.events() if event.kind == "spent-80"]
        shares = {limit.name: limit.spent / limit.epsilon for limit in desk.ledger().limits}
        above = {name for name, share in shares.items() if share >= 0.8}
        assert {each.removeprefix("80% of a budget is spent: ") for each in said} == above
    (year,) = {line.at.year for line in world.site.ledger.entries()}
    assert said == [f"80% of a budget is spent: office in {year}"]
    assert len([event for event in desk.events() if event.kind == "spent-80"]) == 1, "once"


def test_what_the_policy_refuses_is_told_once(world: World, desk: Desk):
    for _ in range(3):
        assert world.code(world.request(document(scheme="none"))) == "scheme"
    (event,) = desk.events()
    assert (event.kind, event.study) == ("refused", "lungs")
    assert "scheme" in event.sentence


def test_who_waits_is_woken(world: World, desk: Desk):
    found: list[float] = []

    def wait() -> None:
        began = time.monotonic()
        desk.events(0, 10.0)
        found.append(time.monotonic() - began)

    thread = threading.Thread(target=wait)
    thread.start()
    assert world.code(world.request()) == "approval"
    thread.join(10)
    assert found
    assert found[0] < 5
    began = time.monotonic()
    assert desk.events(desk.status().last_event, 0.05) == ()
    assert time.monotonic() - began < 2


def test_no_event_holds_a_cell_a_person_or_a_question(world: World, desk: Desk):
    assert world.code(world.request()) == "approval"
    anna = Desk(world.site, person="anna@clinic.org")
    anna.ask("lungs", "is bed 12 in it?")
    anna.approve("lungs", reason="bed 12")
    world.granted(world.request())
    told = [(event.kind, event.study, event.coordinator, event.sentence) for event in desk.events()]
    for secret in (str(SECRET), "anna", "bed 12", "400"):
        assert secret not in str(told)
