"""Whatever happens to messages of runs with surplus noise: the exact sum with what must stay, or an error.

What must stay is computed from the sites' first keys, by HKDF's definition, and from who is missing.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.core.errors import CapeError
from cape.noise import SecureStream
from cape.secagg import Aggregator, Session, Site, Wire
from cape.secagg import messages as m
from cape.secagg.surplus import SurplusKey
from tests.slices import examples
from tests.unit.secagg.test_chaos import NAMES, VECTORS, change, flipped, on
from tests.unit.secagg.test_surplus import drawn, surplus

STEPS = 2
REVEALED = 1 + m.Reveal.__struct_fields__.index("surplus")  # after the kind of message
PLAIN = ({}, {})
LOSING = ({"unmask": ["b"]}, {"mask": ["a"]})


@contextmanager
def noted():
    """Note every part of each site's surplus, by site and step, when it masks its vector."""
    parts: dict[tuple[str, int], list[np.ndarray]] = {}
    real = Site._surplus_key

    def key_of(site: Site) -> SurplusKey:
        key = real(site)
        parts[site.name, site.step] = drawn(key.secret, site)
        return key

    with mock.patch.object(Site, "_surplus_key", key_of):
        yield parts


def right_or_in_the_tree(hook=None, drops=PLAIN, seed: int = 1) -> list[bool]:
    """Play a session of four sites, of which one may be lost; return in which steps there was a sum."""
    done = []
    with noted() as parts:
        stream = SecureStream(seed.to_bytes(32, "big"))
        try:
            session = Session(NAMES, 3, STEPS, colluding=0, surplus=surplus(1), stream=stream, hook=hook)
        except CapeError:
            return []
        for step, drop in enumerate(drops):
            try:
                outcome = session.step(VECTORS, drop=drop)
            except CapeError:
                done.append(False)
                continue
            missing = len(NAMES) - len(outcome.survivors)
            expected = sum(VECTORS[name] for name in outcome.survivors)
            for name in outcome.survivors:
                if missing or name in outcome.late:
                    expected = expected + parts[name, step][0]
            assert np.array_equal(outcome.total, expected)
            assert missing <= 1
            assert not (missing and outcome.late)
            done.append(True)
    return done


def record(drops) -> list[list[Wire]]:
    batches: list[list[Wire]] = []
    assert right_or_in_the_tree(lambda batch: batches.append(batch) or batch, drops) == [True] * STEPS
    return batches


WHOLE = record(PLAIN)
LOST = record(LOSING)
CASES = [(number, index) for number, batch in enumerate(WHOLE) for index in range(len(batch))]


@pytest.mark.slow_cases("0.0", "0.6", "0.9", seconds=1)
@pytest.mark.parametrize("where", [0.0, 0.5, 0.6, 0.75, 0.9, 1.0])
def test_one_message_changed(where):
    for number, index in CASES[::2]:
        right_or_in_the_tree(on(number, change(index, lambda wire: [flipped(wire, where)])))


def test_one_message_lost_or_repeated_ends_no_step():
    for number, index in CASES[::2]:
        for new in (lambda wire: [], lambda wire: [wire, wire]):
            assert right_or_in_the_tree(on(number, change(index, new))) == [True] * STEPS


@pytest.mark.slow(10)
def test_one_message_replaced_by_any_other_of_this_or_another_session():
    for number, index in CASES[::4]:
        for other in (wire for batches in (WHOLE, LOST) for batch in batches for wire in batch[:1]):
            tamper = change(index, lambda wire, o=other: [replace(wire, data=o.data)])
            right_or_in_the_tree(on(number, tamper))


@given(data=st.data())
@examples(60)
def test_any_mischief_in_any_step(data):
    """Many messages at once: lost, repeated, changed, replaced by others, in another order."""
    drops = data.draw(st.sampled_from([PLAIN, LOSING, LOSING[::-1]]))

    def hook(batch):
        out = []
        for wire in batch:
            kind = data.draw(st.sampled_from(["keep"] * 20 + ["drop", "twice", "flip", "other"]))
            if kind == "flip":
                wire = flipped(wire, data.draw(st.floats(0, 1)), data.draw(st.integers(0, 7)))
            elif kind == "other":
                batches = data.draw(st.sampled_from([WHOLE, LOST]))
                wire = replace(
                    wire, data=data.draw(st.sampled_from(data.draw(st.sampled_from(batches)))).data
                )
            out += {"drop": 0, "twice": 2}.get(kind, 1) * [wire]
        return data.draw(st.permutations(out))

    right_or_in_the_tree(hook, drops)


# --- these checks can fail -------------------------------------------------------------------------


def test_the_check_notices_a_level_too_many_or_too_few(monkeypatch):
    for level in (0, 1):
        monkeypatch.setattr("cape.secagg.surplus.Surplus.kept", lambda self, lost, level=level: level)
        with pytest.raises(AssertionError):
            right_or_in_the_tree(drops=LOSING if not level else PLAIN)


def test_the_check_notices_a_key_that_is_not_the_vectors(monkeypatch):
    """Without tips, and where nobody checks signatures, a key that was changed gives a wrong sum."""
    monkeypatch.setattr("cape.secagg.keys.Verifier.check", lambda *_: None)
    monkeypatch.setattr(Aggregator, "_accept_surplus", taken)
    number = next(i for i, batch in enumerate(WHOLE) if batch[0].round == "unmask" and batch[0].sender)

    def other_key(batch: list[Wire]) -> list[Wire]:
        own = batch[0].data
        place = own.index(msgspec.msgpack.decode(own[m.SIGNATURE_BYTES :])[REVEALED])
        return [replace(batch[0], data=own[:place] + bytes(32) + own[place + 32 :]), *batch[1:]]

    with pytest.raises(AssertionError):
        right_or_in_the_tree(on(number, other_key))


def taken(self: Aggregator, message, name: str) -> None:
    said = self.parameters
    self._revealed[message.sender] = SurplusKey(
        said.surplus, said.digest(), message.sender, self._step, 0, message.surplus
    )
