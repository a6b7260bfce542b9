"""A site's process over pipes, killed at any moment: its ledger is never below what has left it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cape.secagg import Identity
from cape.site.keyring import public_text
from tests.checkout import ROOT
from tests.world import THREE, World

# Loads what is heavy once, then forks: site a is a process of its own, with a `SiteEndpoint` over two pipes;
# b and c are endpoints here. A relay plays stage after stage until a is killed, at a random moment. Whatever
# bytes came out of a's pipe in answer to a request for a vector have left it, also a first part of an answer.
_NURSERY = """
import os, random, signal, sys, threading
import numpy as np
from cape.coordinator import Relay
from cape.noise import SecureStream, discrete_gaussian
from cape.engine.calibration import RESOLUTION
from cape.secagg import Identity, Roster
from cape.site import SiteEndpoint, SiteFolder, make_request, read, wire
from tests.world import THREE, document

folder, kills, office = sys.argv[1], int(sys.argv[2]), Identity(bytes.fromhex(sys.argv[3]))


class Rows:
    counted_as_missing = {}

    def of(self, schema):
        return self

    def rows(self):
        return 400

    def sums(self, blocks, stream=None):
        return [(np.array([150, 250]),)]


SiteFolder.table = lambda self, policy=None: Rows()
sites = {name: SiteFolder(folder + "/" + name) for name in THREE}
roster = Roster.of({name: site.identity.public for name, site in sites.items()})
analysis = {"kind": "histogram", "column": "sex", "share": 1.0}
discrete_gaussian(float(RESOLUTION), 2, SecureStream())  # tables of the sampler are made here, once
left = set()  # (run, stage) of which something came out of the pipe


def read_exactly(handle, size):
    data = b""
    while len(data) < size:
        more = os.read(handle, min(size - len(data), 1 << 16))
        if not more:
            raise EOFError(data)
        data += more
    return data


def live(inbox, outbox):
    member = SiteEndpoint(SiteFolder(folder + "/a"))
    while True:
        size = int.from_bytes(read_exactly(inbox, 4), "big")
        answer = member.handle(read_exactly(inbox, size))
        for part in (len(answer).to_bytes(4, "big"), answer[:50], answer[50:]):  # so that a kill may tear it
            os.write(outbox, part)


class Pipes:
    def __init__(self, members, inbox, outbox):
        self.members, self.inbox, self.outbox, self.run = members, inbox, outbox, None

    def exchange(self, round_, messages):
        for site, message in messages.items():
            if site != "a":
                yield site, self.members[site].handle(message)
                continue
            got = 0
            try:
                os.write(self.inbox, len(message).to_bytes(4, "big") + message)
                size = int.from_bytes(read_exactly(self.outbox, 4), "big")
                answer = read_exactly(self.outbox, size)
                got = 1
            except (EOFError, BrokenPipeError) as error:
                if error.args and isinstance(error.args[0], bytes) and error.args[0]:
                    got = 2
                answer = None
            refused = got == 1 and isinstance(wire.unpack_from_site(answer), wire.Refused)
            if round_ in ("mask", "message") and got and not refused:
                left.add((self.run, 0))
            yield site, answer


draw = random.Random(7)
members = {name: SiteEndpoint(sites[name]) for name in THREE if name != "a"}
for kill in range(kills):
    (child_in, inbox), (outbox, child_out) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(inbox), os.close(outbox)
        try:
            live(child_in, child_out)
        finally:
            os._exit(1)
    os.close(child_in), os.close(child_out)
    timer = threading.Timer(draw.uniform(0.0, 0.25), os.kill, (pid, signal.SIGKILL))
    channel = Pipes(members, inbox, outbox)
    relay = Relay(channel)
    timer.start()
    while True:
        channel.run = os.urandom(16)
        scheme = ("cape", "conventional")[draw.randrange(2)]
        study = document(scheme=scheme, description=channel.run.hex(), analyses=[analysis])
        talk = read(study, 1).session()
        request = make_request(study, 1, talk, roster=roster, run=channel.run, identity=office)
        outcome = relay.stage(dict.fromkeys(THREE, request.pack()), 2)
        assert not outcome.refusals, outcome
        if outcome.lost:
            break
        assert outcome.failure is None, outcome
    timer.join()
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), "the child must die by the signal alone"
    os.close(inbox), os.close(outbox)
    lines = {(line.run, line.stage) for line in sites["a"].ledger.entries()}
    assert not left - lines, "something left that the ledger does not know"
print(len(left), len(lines))
"""


def _harness(kills: int, folder: Path) -> tuple[int, int]:
    world = World(folder)
    office = bytes(range(32))
    for name in THREE:
        for key in ("release", "coordinator", "year", "total"):
            text = (world.sites[name].path / "site.toml").read_text()
            line = next(line for line in text.splitlines() if line.startswith(key))
            world.edit(line, f"{key} = {{epsilon = 5000.0, delta = 1e-6}}", name)
        world.edit(public_text(world.office.public), public_text(Identity(office).public), name)
    done = subprocess.run(
        [sys.executable, "-c", _NURSERY, str(folder), str(kills), office.hex()],
        cwd=ROOT,
        env=os.environ | {"POLARS_MAX_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    sent, written = map(int, done.stdout.split())
    return sent, written


def _check(kills: int, folder: Path) -> None:
    sent, written = _harness(kills, folder)
    assert sent, "the children got to send something"
    assert sent <= written <= sent + kills, "and at most one release a kill was paid for nothing"


@pytest.mark.slow(5)
def test_the_ledger_survives_kills_of_a_member(tmp_path):
    _check(20, tmp_path)


@pytest.mark.slow(20)
def test_the_ledger_survives_many_kills_of_a_member(tmp_path):
    _check(200, tmp_path)
