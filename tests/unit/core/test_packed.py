"""The walk over packed bytes agrees with the decoder, and stops before anything large is built."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.core import packed
from cape.core.errors import BadMessage
from tests.slices import examples

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
    | st.binary(max_size=300),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=4), inner, max_size=20),
    max_leaves=60,
)


def count(value: object) -> int:
    if isinstance(value, list):
        return 1 + sum(count(each) for each in value)
    if isinstance(value, dict):
        return 1 + sum(1 + count(each) for each in value.values())
    return 1


def depth(value: object) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inside is None else 1 + max((depth(each) for each in inside), default=0)


def longest(value: object) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, dict):
        return max((longest(each) for pair in value.items() for each in pair), default=0)
    return max((longest(each) for each in value), default=0) if isinstance(value, list) else 0


@examples(300)
@given(VALUES)
def test_what_is_said_is_exactly_what_is_allowed(value: object):
    data = msgspec.msgpack.encode(value)
    exact = {"values": count(value), "depth": depth(value), "text": longest(value)}
    packed.require(data, **exact)
    for name, most in exact.items():
        if most:
            with pytest.raises(BadMessage):
                packed.require(data, **exact | {name: most - 1})


@examples(300)
@given(VALUES, st.data())
def test_what_the_decoder_does_not_read_whole_is_refused(value: object, data: st.DataObject):
    whole = msgspec.msgpack.encode(value)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    for bad in (cut, whole + b"\xc0"):
        with pytest.raises(BadMessage):
            packed.require(bad, values=1000, depth=100, text=1000)


@examples(500)
@given(st.binary(max_size=100))
def test_garbage_is_refused_wherever_the_decoder_would(data: bytes):
    try:
        packed.require(data, values=1000, depth=100, text=1000)
    except BadMessage:
        return
    try:
        msgspec.msgpack.decode(data, type=msgspec.Raw)
    except msgspec.MsgspecError:
        pytest.fail("the walk let through what is no message")


@pytest.mark.parametrize(
    "data",
    [
        b"\x91" * 1_000_000,
        b"\x81\x01" * 500_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\x7f\xff\xff\xff" + bytes(1_000_000),
        b"\xdc\xff\xff" + b"\xc4\x01x" * 65535,
        msgspec.msgpack.encode("\U0001f600" * 250_000),
        b"\xc6\xff\xff\xff\xff" + bytes(1_000_000),
        b"\xc8\xff\xff\x01" + bytes(65535),
    ],
    ids=["lists", "maps", "announced", "announced map", "tiny bytes", "a text", "cut off", "an extension"],
)
def test_nothing_is_built_of_what_is_refused(data: bytes):
    tracemalloc.start()
    try:
        with pytest.raises(BadMessage):
            packed.require(data, values=1000, depth=8, text=1000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000
