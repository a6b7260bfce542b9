"""SIGKILL at any moment while stewards decide: no decision is lost, and none is made."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from cape.core.errors import InvalidInput
from cape.site import SiteFolder
from cape.site.admin import Desk
from cape.site.decide.approvals import FOLDERS
from tests.world import World, document

STUDIES, PERSONS = ("s0", "s1", "s2"), ("ana", "ben", "cleo")
VERBS = ("approve", "approve", "approve", "refuse", "ask")
Known = dict[str, tuple[str, list[str], str | None, str | None]]  # state, who approved, question, reason


def look(folder: Path) -> Known:
    """What a new process finds."""
    approvals = SiteFolder(folder).approvals
    found: Known = {}
    for state in FOLDERS:
        for held in approvals.studies(state):
            assert held.name not in found, "in one state only"
            said = [None if each is None else each.text for each in (held.question, held.refusal)]
            found[held.name] = (state, sorted(each.person for each in held.approvals), said[0], said[1])
    assert approvals.unreadable() == []
    return found


def play(known: Known, name: str, verb: str, person: str, text: str) -> Known:
    """What a decision makes of what is known."""
    state, approved, _, why = known[name]
    if verb == "approve" and state != "approved":
        approved = sorted({*(approved if state == "waiting" else ()), person})
        return {**known, name: ("approved" if len(approved) > 1 else "waiting", approved, None, None)}
    if verb == "refuse" and state != "refused":
        return {**known, name: ("refused", [], None, text)}
    if verb == "ask" and state == "waiting":
        return {**known, name: (state, approved, text, why)}
    return known  # an error, and nothing happens


def decide(folder: Path, out: int, seed: int) -> None:
    """Decide for ever; write each decision down before it begins, and when it is acknowledged."""
    draw, number = random.Random(seed), 0
    desks = {person: Desk(SiteFolder(folder), person=person) for person in PERSONS}
    for desk in desks.values():
        desk.events()
    while True:
        number += 1
        name, verb, person = draw.choice(STUDIES), draw.choice(VERBS), draw.choice(PERSONS)
        told = [name, verb, person, f"text {seed} {number}"]
        os.write(out, f"{json.dumps(['begin', *told])}\n".encode())
        with suppress(InvalidInput):
            if verb == "ask":
                desks[person].ask(name, told[3])
            else:
                getattr(desks[person], verb)(name, None, told[3])
        os.write(out, f"{json.dumps(['done', *told])}\n".encode())


def killed(folder: Path, seed: int, lines: int, after: float) -> list[list[str]]:
    """What a process wrote that was killed so many seconds after it wrote so many lines."""
    ready, out = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            decide(folder, out, seed)
        finally:
            os._exit(1)
    os.close(out)
    first = part = os.read(ready, 1 << 12)
    while part and first.count(b"\n") < lines:
        first += (part := os.read(ready, 1 << 12))
    time.sleep(after)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), "the child must die by the signal alone"
    with os.fdopen(ready, "rb") as rest:
        return [json.loads(line) for line in (first + rest.read()).splitlines()]


@pytest.mark.parametrize("kills", [8, pytest.param(200, marks=pytest.mark.slow(20))])
def test_decisions_survive_every_kill_and_none_is_made(tmp_path: Path, kills: int):
    world = World(tmp_path / "w")
    world.edit('approve = "auto"', 'approve = "ask"\napprovals = 2')
    for name in STUDIES:
        assert world.code(world.request(document(name=name))) == "approval"
    folder, draw = world.site.path, random.Random(11)
    known, done, between = look(folder), 0, 0
    for kill in range(kills):
        begun = None
        for what, *told in killed(folder, kill, draw.randrange(1, 20), draw.uniform(0.0, 0.02)):
            begun = told if what == "begin" else None
            if what == "done":
                known, done = play(known, *told), done + 1
        found = look(folder)
        assert found in (known, known if begun is None else play(known, *begun)), (known, begun)
        between += begun is not None
        known = found
    assert done >= kills // 4, "the children got to decide something"
    assert between >= kills // 4, "and were killed while they did"
