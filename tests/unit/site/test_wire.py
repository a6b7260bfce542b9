"""Messages are read strictly, or not at all."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.core.errors import BadMessage
from cape.secagg import Identity
from cape.site import Code, Refusal, wire
from tests.slices import examples

TO_SITE = [
    wire.Hello(1),
    wire.Review(2, (b"x" * 97, b"y" * 200)),
    wire.Ask(3, b"request" * 20, b"opening"),
    wire.Carry(4, bytes(16), b"data"),
    wire.Inquiry(5, bytes(16), 3, bytes(32), bytes(64)),
    wire.Watch(6, 7),
]
FROM_SITE = [
    wire.Present(1, "1.0", "a", bytes(32)),
    wire.Reviewed(2, (None, wire.Refused(2, "budget", "none left")), 400),
    wire.Reviewed(2, (), None),
    wire.Offered(3, None, b"vector"),
    wire.Offered(3, None, b"vector", b"head"),
    wire.Carried(4, b"data"),
    wire.Carried(4, b"data", b"head"),
    wire.Known(5, True),
    wire.Known(5, False, bytes(64)),
    wire.Refused(6, "run", "used before"),
    wire.Happened(7, ()),
    wire.Happened(7, (wire.Seen(8, "2026-01-01", "waiting", "lungs", "ab" * 32, "study 'lungs' waits"),)),
]


@pytest.mark.parametrize("message", TO_SITE, ids=lambda m: type(m).__name__)
def test_what_goes_to_a_site_comes_back(message: wire.ToSite):
    assert wire.unpack_to_site(wire.pack(message)) == message
    with pytest.raises(BadMessage):
        wire.unpack_from_site(wire.pack(message))


@pytest.mark.parametrize("message", FROM_SITE, ids=lambda m: type(m).__name__)
def test_what_comes_from_a_site_comes_back(message: wire.FromSite):
    assert wire.unpack_from_site(wire.pack(message)) == message
    with pytest.raises(BadMessage):
        wire.unpack_to_site(wire.pack(message))


@pytest.mark.parametrize(
    "bad",
    [
        ["hello", -1],
        ["hello", 1 << 62],
        ["hello", "1"],
        ["hello", 1, 2],
        ["nobody", 1],
        ["carry", 1, bytes(15), b""],
        ["carry", 1, bytes(17), b""],
        ["inquiry", 1, bytes(16), -1, bytes(32), b""],
        ["inquiry", 1, bytes(16), 0, bytes(31), b""],
        ["ask", 1, "text", b""],
        [],
        {},
        None,
    ],
)
def test_what_cannot_be_right_is_not_read(bad: object):
    with pytest.raises(BadMessage):
        wire.unpack_to_site(msgspec.msgpack.encode(bad))


@examples(300)
@given(st.binary(max_size=200))
def test_garbage_is_never_more_than_a_bad_message(data: bytes):
    for read in (wire.unpack_to_site, wire.unpack_from_site):
        with contextlib.suppress(BadMessage):
            read(data)


@examples(200)
@given(st.sampled_from(TO_SITE + FROM_SITE), st.data())
def test_a_message_with_a_changed_byte_is_another_message_or_none(message, data: st.DataObject):
    packed = bytearray(wire.pack(message))
    place = data.draw(st.integers(0, len(packed) - 1))
    packed[place] ^= data.draw(st.integers(1, 255))
    for read in (wire.unpack_to_site, wire.unpack_from_site):
        with contextlib.suppress(BadMessage):
            found = read(bytes(packed))
            assert read(wire.pack(found)) == found


def test_a_message_must_be_bytes():
    for bad in ("text", None, 7):
        with pytest.raises(BadMessage):
            wire.unpack_to_site(bad)  # type: ignore[arg-type]


def test_an_inquiry_is_signed_whatever_its_number():
    identity = Identity()
    inquiry = wire.Inquiry(0, bytes(16), 3, identity.public).signed(identity)
    msgspec.structs.replace(inquiry, number=9).verify()
    for bent in (
        msgspec.structs.replace(inquiry, stage=4),
        msgspec.structs.replace(inquiry, run=bytes(range(16))),
        msgspec.structs.replace(inquiry, signature=bytes(64)),
        msgspec.structs.replace(inquiry, coordinator=Identity().public),
    ):
        with pytest.raises(BadMessage):
            bent.verify()


def test_what_a_site_knows_is_signed_for_one_run_and_stage():
    office, site = Identity(), Identity()
    inquiry = wire.Inquiry(0, bytes(16), 3, office.public).signed(office)
    known = wire.Known(7, False).signed(site, inquiry)
    carried = wire.unpack_from_site(wire.pack(known))
    assert isinstance(carried, wire.Known)
    msgspec.structs.replace(carried, number=9).verify(site.public, inquiry)
    for bent in (
        msgspec.structs.replace(known, known=True),
        msgspec.structs.replace(known, signature=bytes(64)),
        msgspec.structs.replace(known, signature=b""),
        msgspec.structs.replace(known, signature=known.signature + b"x"),
        known.signed(office, inquiry),
    ):
        with pytest.raises(BadMessage):
            bent.verify(site.public, inquiry)
    for other in (
        msgspec.structs.replace(inquiry, run=bytes(range(16))),
        msgspec.structs.replace(inquiry, stage=4),
        msgspec.structs.replace(inquiry, coordinator=site.public),
    ):
        with pytest.raises(BadMessage):
            known.verify(site.public, other)


def test_a_refusal_travels_with_its_code():
    refused = wire.refused(7, Refusal(Code.BUDGET, "x" * 5000))
    assert (refused.number, refused.code, len(refused.sentence)) == (7, "budget", 2000)
    assert wire.unpack_from_site(wire.pack(refused)) == refused
