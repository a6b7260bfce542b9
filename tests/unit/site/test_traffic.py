"""What the window of `cape join` shows: only what the link has carried itself."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from cape.core.unix import Client
from cape.secagg import Identity
from cape.site import wire
from cape.site.admin import Desk
from cape.site.daemon import Daemon
from cape.site.endpoint import SiteEndpoint
from tests.world import MEAN, SECRET, World, ask, document


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "w")


def seen(world: World, name: str = "a", after: int = 0) -> list[wire.Seen]:
    """What the daemon tells a link, through bytes."""
    answer = world.members[name].handle(wire.pack(wire.Watch(7, after)))
    told = wire.unpack_from_site(answer)
    assert isinstance(told, wire.Happened)
    assert told.number == 7
    return list(told.events)


def review(world: World, study: dict | None = None) -> None:
    trial = world.request(study or document(), trial=True)
    world.members["a"].handle(wire.pack(wire.Review(1, (trial.pack(),))))


def test_a_study_that_is_answered_is_told_once_for_each_run(world: World):
    submission = world.submission(world.study(MEAN, epsilon=1.0))
    submission.check()
    assert seen(world) == [], "nothing waits, and nothing was answered"
    for entry in submission.study.analyses:
        submission.answer(entry)
    (told,) = seen(world)
    assert (told.kind, told.study) == ("answered", "lungs")
    assert "analysis 1 of study 'lungs'" in told.sentence
    assert str(SECRET) not in told.sentence
    assert seen(world, after=told.event) == []


def test_a_decision_is_told_with_the_answer_that_shows_it_and_not_before(world: World):
    world.edit('approve = "auto"', 'approve = "ask"')
    desk = Desk(world.site, person="ana@clinic.org")
    for _ in range(2):
        review(world)
    assert [each.kind for each in seen(world)] == ["waiting"]
    desk.ask("lungs", "Which vote?")
    assert [each.kind for each in seen(world)] == ["waiting"], "nobody has asked since"
    review(world)
    assert [each.kind for each in seen(world)] == ["waiting", "asked"]
    assert seen(world)[1].sentence.endswith("waits: this site's steward asks: Which vote?")
    desk.approve("lungs", reason="a reason")
    assert len(seen(world)) == 2
    review(world)
    desk.refuse("lungs", reason="a reason")
    assert [each.kind for each in seen(world)] == ["waiting", "asked", "approved"]
    review(world)
    told = seen(world)
    assert [each.kind for each in told] == ["waiting", "asked", "approved", "refused"]
    assert not any("ana" in each.sentence or "reason" in each.sentence for each in told)


def test_changes_that_no_answer_shows_are_not_told(world: World):
    desk = Desk(world.site)
    desk.events()
    key = desk.revoke("c").key
    desk.trust("c", key, "", coordinator=False)
    read = desk.policy()
    desk.save_policy(read.text.replace("min_rows = 100", "min_rows = 150"), read.hash)
    assert [event.kind for event in desk.events()] == ["key", "key", "policy"]
    assert seen(world) == []


def test_what_strangers_send_is_not_told(world: World):
    stranger = ask(document(), world.roster, Identity(), trial=True)
    world.members["a"].handle(wire.pack(wire.Review(1, (stranger.pack(),))))
    assert seen(world) == []


def test_the_next_link_learns_nothing_of_what_others_carried(world: World, tmp_path: Path):
    world.edit('approve = "auto"', 'approve = "ask"')
    place = tmp_path / "run" / "link.sock"
    trial = wire.pack(wire.Review(1, (world.request(trial=True).pack(),)))
    watch = wire.pack(wire.Watch(2, 0))
    with Daemon(world.site, place, link_may_read_rows=True) as daemon:
        with Client(place) as first:
            first.call(trial)
            with Client(place) as beside:
                assert len(wire.unpack_from_site(beside.call(watch)).events) == 1
        until = time.monotonic() + 5
        while daemon.connected and time.monotonic() < until:
            time.sleep(0.01)
        with Client(place) as second:
            assert wire.unpack_from_site(second.call(watch)).events == ()


def test_the_window_says_what_happens(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    window = pytest.importorskip("cape.flare.window")
    monkeypatch.setattr(window, "_OFTEN", 0.02)
    world.edit('approve = "auto"', 'approve = "ask"')
    place = tmp_path / "run" / "link.sock"
    said: list[str] = []
    heard = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        heard.set()

    daemon = Daemon(world.site, place, link_may_read_rows=True)
    with window.watching(place, say), daemon, Client(place) as link:
        link.call(wire.pack(wire.Review(1, (world.request(trial=True).pack(),))))
        assert heard.wait(10)
        heard.clear()
        Desk(world.site).approve("lungs")
        link.call(wire.pack(wire.Review(1, (world.request(trial=True).pack(),))))
        assert heard.wait(10)
    assert ["waits for the steward" in said[0], "was approved" in said[1], len(said)] == [True, True, 2]
    assert said[0][:2] == "20"


def test_a_member_keeps_what_it_saw_apart_from_others(world: World):
    world.edit('approve = "auto"', 'approve = "ask"')
    review(world)
    assert seen(world, "b") == []
    assert SiteEndpoint(world.site).folder.traffic.after(0) == tuple(seen(world)), "one folder, one memory"
