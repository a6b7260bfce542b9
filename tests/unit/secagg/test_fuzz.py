"""Every decoder and both machines, with 100,000 inputs: nothing but `ProtocolError` comes out."""

from __future__ import annotations

import contextlib
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.core.errors import ProtocolError
from cape.secagg import Surplus
from cape.secagg import messages as m
from tests.slices import examples

INPUTS = 100_000


SURPLUS = Surplus((0, 1, 2), (3000.0, 1000.0))


def corpus(make, **choices) -> list[tuple[object, bytes]]:
    """Return a machine in each state with the message that it waits for."""
    cast, pairs = partial(make, **choices), []
    for round_ in ("advertise", "share", "mask", "consistency", "unmask"):
        drop = {"mask": ("e",)}
        asked, answered = cast().until(round_, drop), cast().until(round_, drop)
        if round_ == "advertise":
            pairs.append((answered.aggregator, answered.begin()["b"]))
        else:
            pairs.append((asked.sites["a"], asked.down["a"]))
            pairs.append((answered.aggregator, answered.answers()["b"]))
    for round_ in m.STEP_ROUNDS:  # and in a later step
        asked, answered = (
            cast(steps=3).until("end").step(2, without="e").rounds(until=round_) for _ in range(2)
        )
        pairs.append((asked.sites["a"], asked.down["a"]))
        pairs.append((answered.aggregator, answered.answers()["b"]))
    return pairs


def mutate(data: bytes, other: bytes, random: np.random.Generator) -> bytes:
    out = bytearray(data)
    for _ in range(int(random.integers(1, 4))):
        kind, at = int(random.integers(7)), int(random.integers(len(out) + 1))
        if kind == 0 and at < len(out):
            out[at] ^= 1 << int(random.integers(8))
        elif kind == 1:
            out[at : at + int(random.integers(1, 9))] = random.bytes(int(random.integers(9)))
        elif kind == 2:
            del out[at:]
        elif kind == 3:
            out[at:at] = out[at : at + 32]
        elif kind == 4 and at < len(out):
            out[at] = (0x00, 0x7F, 0x80, 0x90, 0xC0, 0xC4, 0xC6, 0xDC, 0xDD, 0xFF)[int(random.integers(10))]
        elif kind == 5:
            out[at:] = other[at:]
        else:
            del out[at : at + int(random.integers(1, 9))]
        if not out:
            out = bytearray(random.bytes(1))
    return bytes(out)


@pytest.mark.slow(4.3)
def test_a_hundred_thousand_mutated_messages(cast):
    pairs = corpus(cast) + corpus(cast, surplus=SURPLUS)
    assert len(pairs) == 30
    random = np.random.default_rng(11)
    states = [machine.state for machine, _ in pairs]
    for number in range(INPUTS):
        machine, data = pairs[number % len(pairs)]
        other = pairs[int(random.integers(len(pairs)))][1]
        bad = mutate(data, other, random)
        while bad == data:
            bad = mutate(data, other, random)
        with contextlib.suppress(ProtocolError):
            machine.handle(bad)
            raise AssertionError(f"{machine} accepted a message that was changed")
    assert [machine.state for machine, _ in pairs] == states


@pytest.mark.parametrize("decoder", [m.unpack, m.unpack_signed])
def test_random_bytes(cast, decoder):
    parameters = cast().parameters
    random = np.random.default_rng(12)
    for _ in range(5_000):
        with pytest.raises(ProtocolError):
            decoder(random.bytes(int(random.integers(0, 200))), parameters)


MSGPACK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.binary(max_size=70)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(
    tag=st.sampled_from(["advert", "adverts", "delivery", "begin", "masked", "reveal"]),
    rest=st.lists(MSGPACK, max_size=8),
)
@examples(300)
def test_well_formed_msgpack_of_the_wrong_shape(tag, rest):
    import msgspec

    from cape.secagg import Parameters, Roster

    roster = Roster(("a", "b"), (bytes(32), b"\1" * 32))
    parameters = Parameters.agree(bytes(16), roster, 3, colluding=0)
    data = msgspec.msgpack.encode([tag, *rest])
    for decoder, prefix in ((m.unpack, b""), (m.unpack_signed, bytes(64))):
        with pytest.raises(ProtocolError):
            decoder(prefix + data, parameters)


@pytest.mark.parametrize(
    "head", [b"\x91" * 4000, b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\x81" * 4000]
)
def test_deep_or_huge_claims_are_refused_at_once(cast, head):
    parameters = cast().parameters
    for decoder, prefix in ((m.unpack, b""), (m.unpack_signed, bytes(64))):
        with pytest.raises(ProtocolError):
            decoder(prefix + head, parameters)
