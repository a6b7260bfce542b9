"""Events at the desk: what happens at the site reaches every open page, and no page keeps a session alive."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from cape.core.errors import CapeError
from cape.desk.site import PAGES, events
from cape.desk.site.events import Watch
from cape.site.admin import Desk
from tests.unit.desk.visitor import Visitor, desk
from tests.world import World, document


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path / "w")
    world.edit('approve = "auto"', 'approve = "ask"')
    return world


def soon(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + 10
    while time.monotonic() < until and not holds():
        time.sleep(0.01)
    return holds()


def test_what_happens_reaches_every_reader(world: World):
    at = Desk(world.site)
    watch = Watch(lambda: nullcontext(at))
    start = watch.last
    found: list[list[str]] = [[], []]

    def read(into: list[str]) -> None:
        into += [each.kind for each in watch.after(start, 10.0)]

    readers = [threading.Thread(target=read, args=(each,)) for each in found]
    for reader in readers:
        reader.start()
    assert world.code(world.request()) == "approval"
    for reader in readers:
        reader.join()
    assert found == [["waiting"], ["waiting"]]
    assert watch.after(watch.last, 0.0) == []


def test_a_daemon_that_is_gone_is_asked_again(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(events, "_PAUSE", 0.01)
    at, failed = Desk(world.site), []

    def reach() -> nullcontext[Desk]:
        if len(failed) < 3:
            failed.append(1)
            raise CapeError("no daemon")
        return nullcontext(at)

    watch = Watch(reach)
    assert soon(lambda: watch.last > 0)
    assert len(failed) == 3


def test_a_stream_ends_and_says_what_was_missed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(events, "_LONGEST", 0.2)
    monkeypatch.setattr(events, "_BEAT", 0.05)
    viewer = Visitor(desk(PAGES, tmp_path, world.site), "viewer")
    first = viewer.get("/events")
    assert first.headers["content-type"].startswith("text/event-stream")
    assert ": nothing new" in first.text
    assert "event: site" not in first.text
    last = viewer.app.state.watch.last
    assert world.code(world.request(document(name="<b>lungs"))) == "approval"
    assert soon(lambda: viewer.app.state.watch.last > last)
    text = viewer.get("/events", headers={"last-event-id": str(last)}).text
    (told,) = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    assert told["kind"] == "waiting"
    assert "<b>lungs" in told["sentence"]
    assert "event: site" not in viewer.get("/events").text, "a new page hears what happens from now on"


def test_pages_name_where_events_come_from(world: World, tmp_path: Path):
    viewer = Visitor(desk(PAGES, tmp_path, world.site), "viewer")
    for path in ("/inbox", "/ledger", "/policy", "/peers", "/log"):
        assert 'data-live="/events"' in viewer.get(path).text


def test_nobody_is_asked_while_no_page_is_open(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(events, "_IDLE", 0.05)
    asked = []

    def listen(after: int, wait: float) -> tuple[()]:
        asked.append(after)
        time.sleep(0.01)
        return ()

    at = SimpleNamespace(status=lambda: SimpleNamespace(last_event=7), events=listen)
    watch = Watch(lambda: nullcontext(at))
    assert watch.last == 7
    assert soon(lambda: not watch._thread.is_alive())
    count = len(asked)
    time.sleep(0.05)
    assert len(asked) == count
    assert watch.last == 7
