"""SIGKILL at any moment: the ledger is never below what has left the site."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cape.secagg import Identity
from cape.site.keyring import public_text
from tests.checkout import ROOT
from tests.world import World

# Forks, so that what is heavy is loaded once. The child asks, decides, answers and "sends" (appends to a
# plain file, the bytes that left) for ever, until it is killed at a random moment.
_NURSERY = """
import os, random, signal, sys, time
import numpy as np
from cape.secagg import Identity, Roster
from pathlib import Path
from cape.site import Decider, Grant, answer, Policy, Ledger
from cape.site.keyring import load_identity
from cape.site.decide.nonces import Nonces
from tests.world import ask, document

folder, kills, own = sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[3])
office = Identity(bytes.fromhex(sys.argv[4]))
policy = Policy.load(folder + "/site.toml")
roster = Roster.of({**policy.peers, "a": own})
nonces = Nonces(folder + "/nonces.sqlite")


def study():  # another one each time: each states what it costs
    analysis = {"kind": "histogram", "column": "sex", "share": 1.0}
    return document(description=os.urandom(8).hex(), analyses=[analysis])


class Rows:
    def of(self, schema):
        return self

    def rows(self):
        return 400

    def sums(self, blocks, stream=None):
        return [(np.array([150, 250]),)]


def live(begun):
    ledger = Ledger(folder + "/ledger.sqlite", lambda: load_identity(Path(folder + "/identity.key")))
    out = os.open(folder + "/left", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(begun, b".")
    while True:
        data = ask(study(), roster, office).pack()
        grant = Decider(policy, ledger, own, Rows, nonces).decide(data)
        assert isinstance(grant, Grant), grant
        vector = answer(grant, Rows())
        os.write(out, grant.request.run + vector.tobytes())


first = ask(study(), roster, office)
key = lambda: load_identity(Path(folder + "/identity.key"))
ledger = Ledger(folder + "/ledger.sqlite", key)
warm = Decider(policy, ledger, own, Rows, nonces).decide(first.pack())
answer(warm, Rows())  # tables of the sampler are made here, once
draw = random.Random(7)
for _ in range(kills):
    ready, begun = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            live(begun)
        finally:
            os._exit(1)
    os.read(ready, 1)
    os.close(ready), os.close(begun)
    time.sleep(draw.uniform(0.0, max(0.04, 4 / kills)))
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), "the child must die by the signal alone"
    left = open(folder + "/left", "rb").read() if os.path.exists(folder + "/left") else b""
    runs = {left[i : i + 16] for i in range(0, len(left) - len(left) % 32, 32)}
    lines = Ledger(folder + "/ledger.sqlite").entries()
    missing = runs - {line.run for line in lines}
    assert not missing, "something left that the ledger does not know"
print(len(runs), len(lines))
"""


@pytest.mark.parametrize("kills", [6, pytest.param(200, marks=pytest.mark.slow(7))])
def test_the_ledger_survives_every_kill(world: World, kills: int):
    for key in ("release", "coordinator", "year", "total"):
        text = next(
            line for line in (world.site.path / "site.toml").read_text().splitlines() if line.startswith(key)
        )
        world.edit(text, f"{key} = {{epsilon = 2000.0, delta = 1e-6}}")
    office = bytes(range(32))
    world.edit(public_text(world.office.public), public_text(Identity(office).public))
    arguments = [str(world.site.path), str(kills), world.identities["a"].public.hex(), office.hex()]
    done = subprocess.run(
        [sys.executable, "-c", _NURSERY, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    sent, written = map(int, done.stdout.split())
    assert sent, "the children got to send something"
    assert sent <= written <= sent + kills + 1, "and at most one release a kill was paid for nothing"
    assert world.site.ledger.spent().mu_squared == written * world.site.ledger.entries()[0].charged.mu_squared
