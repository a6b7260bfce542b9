"""Known answers of every primitive and of two full runs; run this file to write vectors.json.

A change of any value is a change of the protocol: sites with the old and the new code cannot talk. Raise
`messages.VERSION` and the labels with it, and only then run this again.
"""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from cape.noise import SecureStream
from cape.secagg import Identity, Parameters, Roster, Session, Wire, masks, shamir, simulate
from cape.secagg import messages as m
from cape.secagg.chain import Chain
from cape.secagg.graph import Graph
from cape.secagg.keys import KeyPair, derive, digest
from cape.secagg.site import commitment
from cape.secagg.surplus import Surplus, SurplusKey

FILE = Path(__file__).with_name("vectors.json")


def raw(number: int) -> bytes:
    return bytes([number]) * 32


def primitives() -> dict[str, Any]:
    one, two = KeyPair(raw(1)), KeyPair(raw(2))
    agreed = one.agree(two.public)
    words64, words32 = np.zeros(3, np.uint64), np.zeros(3, np.uint32)
    masks.apply(words64, [(raw(3), 1), (raw(4), -1)])
    masks.apply(words32, [(raw(3), 1), (raw(4), -1)])
    identities = {name: Identity(raw(10 + number)) for number, name in enumerate("abc")}
    roster = Roster.of({name: identity.public for name, identity in identities.items()})
    parameters = Parameters.agree(b"a known run here", roster, 2, colluding=0)
    consent = m.Consent(version=m.VERSION, run=parameters.run, transcript=raw(5), sender=1, round=4, step=0)
    surplus = Surplus((0, 1, 3), (1000.0, 500.0))
    first = SurplusKey(surplus, raw(2), 7, 3, 0, raw(1))
    noise = np.zeros(3, np.uint64)
    first.apply(noise, 1)
    shares = shamir.share(raw(6), 2, [1, 2, 5], SecureStream(raw(7)))
    return {
        "digest": digest("label", b"one", b"", b"three").hex(),
        "derive": derive(raw(1), raw(2), "label", 3, 4).hex(),
        "x25519 public": one.public.hex(),
        "x25519 agreed": agreed.hex(),
        "ed25519 public": identities["a"].public.hex(),
        "pair key": masks.pair_key(agreed, raw(5), 7, 3).hex(),
        "pair key of step 1": masks.pair_key(agreed, raw(5), 7, 3, step=1).hex(),
        "self key": masks.self_key(raw(6), raw(5), 7).hex(),
        "mask of 64 bits": words64.tolist(),
        "mask of 32 bits": words32.tolist(),
        "self key of step 1": masks.self_key(raw(6), raw(5), 7, step=1).hex(),
        "secrets of steps": [[part.hex() for part in pair] for pair in Chain(raw(1), raw(2)).walk(3)],
        "surplus keys": [first.at(level).secret.hex() for level in range(3)],
        "surplus": noise.view(np.int64).tolist(),
        "surplus in parameters": replace(parameters, surplus=surplus).digest().hex(),
        "commitment": commitment(raw(6), raw(5), 7).hex(),
        "commitment of step 1": commitment(raw(6), raw(5), 7, 1).hex(),
        "shares": [share.hex() for share in shares],
        "combined": shamir.combine([2, 5], shares[1:]).hex(),
        "graph": [Graph(12, 4, raw(8)).neighbours(site) for site in range(12)],
        "roster": roster.digest().hex(),
        "parameters": parameters.digest().hex(),
        "parameters of three steps": replace(parameters, steps=3).digest().hex(),
        "after adverts": m.after_adverts(raw(1), (b"one", b"two")).hex(),
        "after shares": m.after_shares(raw(1), (0, 2)).hex(),
        "at step": m.at_step(raw(1), 3).hex(),
        "after masked": m.after_masked(raw(1), (0, 2), (1,)).hex(),
        "signed consent": m.pack_signed(consent, identities["b"]).hex(),
    }


def full_run() -> dict[str, Any]:
    """Five sites, one drops after sharing; every message, and the sum."""
    wires: list[Wire] = []

    def hook(batch: list[Wire]) -> list[Wire]:
        wires.extend(batch)
        return batch

    vectors = {name: np.array([number, -number, 10**15]) for number, name in enumerate("abcde")}
    outcome = simulate(vectors, colluding=1, hook=hook, drop={"mask": ["c"]}, stream=SecureStream(raw(9)))
    return {
        "run": outcome.parameters.run.hex(),
        "total": outcome.total.tolist(),
        "survivors": list(outcome.survivors),
        "first message": wires[0].data.hex(),
        "masked vector of a": next(w for w in wires if (w.round, w.sender) == ("mask", "a")).data.hex(),
        "messages": [
            [w.round, w.sender, w.receiver, len(w.data), sha256(w.data).hexdigest()[:32]] for w in wires
        ],
    }


def many_steps() -> dict[str, Any]:
    """Three steps with surplus noise; b is away in the first, d drops in the second; messages and sums."""
    wires: list[Wire] = []

    def hook(batch: list[Wire]) -> list[Wire]:
        wires.extend(batch)
        return batch

    surplus = Surplus((0, 1), (1000.0,))
    options = {"colluding": 1, "surplus": surplus, "hook": hook, "stream": SecureStream(raw(9))}
    session = Session(list("abcde"), 2, 3, **options)
    totals = []
    for step, drop in enumerate(({"mask": ["b"]}, {"unmask": ["d"]}, {})):
        vectors = {name: np.array([number, 100 * step]) for number, name in enumerate("abcde")}
        totals.append(session.step(vectors, drop=drop).total.tolist())
    return {
        "totals": totals,
        "messages": [
            [w.round, w.sender, w.receiver, len(w.data), sha256(w.data).hexdigest()[:32]] for w in wires
        ],
    }


def everything() -> dict[str, Any]:
    return {
        "version": m.VERSION,
        "primitives": primitives(),
        "full run": full_run(),
        "many steps": many_steps(),
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(everything(), indent=1) + "\n")
    print(f"wrote {FILE}")
