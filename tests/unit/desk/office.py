"""A coordinator's desk in this process, over the sites of `tests.world`; its submissions are processes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from cape.desk.access.people import Role
from cape.desk.coordinator import PAGES, state
from cape.desk.coordinator.planning import Planner
from cape.desk.coordinator.study import Planned, make_plan, parse
from tests.checkout import ROOT
from tests.unit.desk.visitor import Visitor, desk
from tests.world import NAMES, World

TEXT = """\
[study]
name = "lungs & <hearts>"
description = "three clinics"
[privacy]
epsilon = 8.0
delta = 1e-6
colluding = 1
min_sites = 3
[schema]
age = [18, 90]
weight = {low = 40, high = 140, missing = false}
sex = ["female", "male"]
[sites]
a = {rows = 400}
b = {rows = 500}
c = {rows = 700}
d = {rows = 600}
[[analysis]]
kind = "mean"
columns = ["age", "weight"]
share = 0.25
[[analysis]]
kind = "histogram"
column = "age"
bins = 6
share = 0.5
"""


class Here(Planner):
    """Plans in this process."""

    def plan(self, text: str) -> Planned:
        return make_plan(parse(text))

    def start(self) -> None:
        pass


class Office:
    """The desk, its workspace, and who visits it."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.kit = world, world.coordinator.path
        (self.kit / "startup").mkdir()
        told = {"admin": {"host": "127.0.0.1", "port": 9}}
        (self.kit / "startup" / "fed_admin.json").write_text(json.dumps(told))
        sites = {name: str(site.path) for name, site in world.sites.items()}
        monkeypatch.setenv("CAPE_TEST_SITES", json.dumps(sites))
        paths = [ROOT / "tests" / "unit" / "desk" / "standin", ROOT / "src", ROOT]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, paths)))
        self.work = world.folder / "work"
        self.open()

    def open(self) -> None:
        """Start the desk."""
        self.state = state(self.kit, self.work)
        self.state.planner = Here()  # for speed: the process is tested in test_planning
        self.app = desk(PAGES, self.world.folder, kit=self.kit)
        self.app.state.coordinator = self.state

    def restart(self) -> None:
        """Stop the desk, and start it again: nothing is left in memory."""
        self.state.close()
        self.open()

    def visitor(self, role: Role | None = "steward") -> Visitor:
        return Visitor(self.app, role)

    def end(self) -> None:
        """End what still runs."""
        for each in self.state.submissions():
            if each.running:
                os.kill(int((each.folder / "running").read_text()), 9)
        self.state.close()


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    made = Office(World(tmp_path, NAMES, epsilon=(20.0, 20.0, 20.0)), monkeypatch)
    yield made
    made.end()


def until(what: Callable[[], Any], seconds: float = 40.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


class Fields(HTMLParser):
    """What a browser would send of the first form of a page that has a field of this name."""

    def __init__(self, page: str, having: str) -> None:
        super().__init__()
        self.forms: list[list[tuple[str, str]]] = []
        self._select: tuple[str, str | None] | None = None
        self._text: tuple[str, list[str]] | None = None
        self._option: tuple[str | None, bool, list[str]] | None = None
        self.feed(page)
        self.sent = next(each for each in self.forms if having in dict(each))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append([])
        elif tag == "input" and self.forms and "name" in told:
            if told.get("type") not in ("checkbox", "radio") or "checked" in told:
                self.forms[-1].append((told["name"], told.get("value", "on")))
        elif tag == "textarea":
            self._text = (told["name"], [])
        elif tag == "select":
            self._select = (told["name"], None)
        elif tag == "option":
            self._option = (told.get("value"), "selected" in told, [])

    def handle_data(self, data: str) -> None:
        if self._text:
            self._text[1].append(data)
        elif self._option:
            self._option[2].append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._text:
            text = "".join(self._text[1])
            self.forms[-1].append((self._text[0], text.removeprefix("\n")))
            self._text = None
        elif tag == "option" and self._option and self._select:
            value = "".join(self._option[2]) if self._option[0] is None else self._option[0]
            name, chosen = self._select
            self._select = (name, value if self._option[1] or chosen is None else chosen)
            self._option = None
        elif tag == "select" and self._select:
            self.forms[-1].append((self._select[0], self._select[1] or ""))
            self._select = None


def sent(page: str, having: str = "base", **changes: str | None) -> list[tuple[str, str]]:
    """Return what a browser would send, with changes; None leaves a field out."""
    keyed = {name.replace("__", "."): value for name, value in changes.items()}
    kept = [(name, value) for name, value in Fields(page, having).sent if name not in keyed]
    return kept + [(name, value) for name, value in keyed.items() if value is not None]
