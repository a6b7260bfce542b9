"""Nothing of a request is decoded before size, key and signature are right; and it is taken once."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import msgspec
import pytest

from cape.engine.session import StageResult
from cape.secagg import Identity
from cape.site import Code, Grant, Refusal, Request, SiteFolder, envelope, wire
from cape.site.decide.codes import Denied
from cape.site.decide.request import LABEL, MOST_STUDY, MOST_VALID, SKEW, VALID
from cape.site.endpoint import SiteEndpoint
from cape.site.envelope import FRONT_BYTES, MOST_INSIDE, Envelope
from tests.world import World, document

MEGABYTE = 1 << 20


def anyone(key: bytes) -> bool:
    return True


def sealed(identity: Identity, body: bytes, label: bytes = LABEL) -> bytes:
    return envelope.pack(identity.public, envelope.sign(identity, label, body), body)


def code(work: Callable[[], object]) -> str:
    with pytest.raises(Denied) as denied:
        work()
    return str(denied.value.code)


def test_size_key_and_signature_are_checked_in_this_order():
    office, asked = Identity(), []

    def trusted(key: bytes) -> bool:
        asked.append(key)
        return key == office.public

    good = sealed(office, b"body")
    assert bytes(Envelope(good).open(LABEL, trusted)) == b"body"
    assert asked == [office.public]
    assert code(lambda: Envelope(good[:FRONT_BYTES])) == "request"
    assert code(lambda: Envelope(bytes(MOST_INSIDE + 1))) == "request"
    assert len(asked) == 1, "nobody is asked about the key of what has no size"
    forged = good[:-1] + b"!"
    assert code(lambda: Envelope(forged).open(LABEL, lambda key: False)) == "coordinator"
    assert code(lambda: Envelope(forged).open(LABEL, trusted)) == "signature"
    assert code(lambda: Envelope(good).open(b"another label\0", trusted)) == "signature"
    stranger = Identity()
    swapped = stranger.public + good[32:]
    assert code(lambda: Envelope(swapped).open(LABEL, anyone)) == "signature"


def test_the_body_has_no_other_way_out(monkeypatch: pytest.MonkeyPatch, world: World):
    decoded: list[int] = []

    class Spy:
        def decode(self, data: Any) -> None:
            decoded.append(len(data))
            raise AssertionError("decoded")

    monkeypatch.setattr("cape.site.decide.request._bodies", Spy())
    good = world.request().pack()
    for bad in (good[:-1], good[:40] + b"\1" + good[41:], Identity().public + good[32:], b"x" * 5000):
        assert isinstance(world.site.decide(bad), Refusal)
    assert not decoded


def test_a_request_comes_back_as_it_was_signed(world: World):
    request = world.request()
    assert Request.open(request.pack(), anyone) == request
    assert Request.open(memoryview(bytearray(request.pack())), anyone) == request
    assert request.nonce != world.request().nonce
    assert request.signed(world.office).nonce != request.nonce, "each signature has a nonce of its own"


def test_a_study_that_is_too_large_deep_or_full_is_refused_though_it_is_signed(world: World):
    deep: Any = []
    for _ in range(40):
        deep = [deep]
    for odd in ("x" * MOST_STUDY, deep, [0] * 200_000):
        request = replace(world.request(), study=document(description=odd)).signed(world.office)
        assert world.code(request) == "request"
    wide = replace(world.request(), roster=tuple((f"{n}", bytes(32)) for n in range(10_001)))
    assert world.code(wide.signed(world.office)) == "request"
    body = bytearray(msgspec.msgpack.encode([b"\x91" * 1000] + [0] * 13))
    assert world.code(sealed(world.office, bytes(body))) == "request"


HOSTILE = {
    "nested lists": lambda size: b"\x91" * size,
    "nested maps": lambda size: b"\x81\x01" * (size // 2),
    "tiny bytes": lambda size: msgspec.msgpack.encode(["review", 1, [b"xy"] * (size // 4)]),
    "tiny bytes in a request": lambda size: msgspec.msgpack.encode(
        ["ask", 1, bytes(96) + msgspec.msgpack.encode([[b"xy"] * (size // 4)])]
    ),
    "nested lists in a request": lambda size: msgspec.msgpack.encode(["ask", 1, bytes(96) + b"\x91" * size]),
    "a long text": lambda size: msgspec.msgpack.encode(["ask", 1, "\U0001f600" * (size // 4)]),
    "a long name": lambda size: msgspec.msgpack.encode(["\U0001f600" * (size // 4), 1]),
    "a huge list that is announced": lambda size: b"\xdd\xff\xff\xff\xff" + bytes(size),
    "a message to a session": lambda size: msgspec.msgpack.encode(["carry", 1, bytes(16), bytes(size)]),
    "an opening": lambda size: msgspec.msgpack.encode(["ask", 1, bytes(200), bytes(size)]),
    "half a message": lambda size: msgspec.msgpack.encode(["carry", 1, bytes(16), bytes(2 * size)])[:size],
}


@pytest.mark.quick_cases(
    "nested lists",
    "a huge list that is announced",
    "tiny bytes in a request",
    "nested lists in a request",
    seconds=0.45,
)
@pytest.mark.parametrize("shape", HOSTILE)
def test_no_message_takes_four_times_its_bytes(world: World, shape: str):
    member = SiteEndpoint(world.site)
    member.handle(wire.pack(wire.Hello(1)))  # what is loaded once
    data = HOSTILE[shape](2 * MEGABYTE)
    gc.collect()
    tracemalloc.start()
    try:
        answer = wire.unpack_from_site(member.handle(data))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(answer, wire.Refused)
    assert peak < 3 * len(data)


@pytest.mark.one_in(3, seconds=0.6)
@pytest.mark.parametrize("by", ["nobody", "a stranger", "the office"])
def test_a_large_request_takes_no_more_before_its_signature_is_checked(world: World, by: str):
    stranger = Identity()
    body = msgspec.msgpack.encode([[b"xy"] * 500_000])
    data = {
        "nobody": world.office.public + bytes(64) + body,
        "a stranger": sealed(stranger, body),
        "the office": sealed(world.office, body),
    }[by]
    member = SiteEndpoint(world.site)
    member.handle(wire.pack(wire.Hello(1)))
    message = wire.pack(wire.Ask(1, data))
    gc.collect()
    tracemalloc.start()
    try:
        answer = wire.unpack_from_site(member.handle(message))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(answer, wire.Refused)
    assert answer.code == {"nobody": "signature", "a stranger": "coordinator", "the office": "request"}[by]
    assert peak < 3 * len(message)


def test_a_vector_that_no_message_could_carry_is_refused_before_it_is_paid_for(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(import_module("cape.site.decide.decide"), "MOST_NUMBERS", 1)
    assert world.code(world.request()) == "request"


def test_messages_of_64_megabytes_pass(world: World):
    """As far as a request's numbers go, which belong to no stage: it was opened, and read whole."""
    large = StageResult(bytes(64 * MEGABYTE), 3, 1200)
    request = replace(world.request(), earlier=(large,)).signed(world.office)
    answer = wire.unpack_from_site(
        SiteEndpoint(world.site).handle(bytearray(wire.pack(wire.Ask(7, request.pack()))))
    )
    assert isinstance(answer, wire.Refused)
    assert (answer.number, answer.code) == (7, "request")
    assert answer.sentence == "earlier must hold stages before this one only"
    vector = wire.Offered(7, None, bytes(64 * MEGABYTE))
    assert wire.unpack_from_site(wire.pack(vector)) == vector


def test_a_request_is_valid_for_its_time(world: World):
    now = int(time.time())

    def at(issued: int, expires: int) -> str:
        return world.code(world.request(issued=issued, expires=expires))

    assert at(now - 100, now - 10) == "validity"
    assert at(now + SKEW + 60, now + SKEW + 120) == "validity"
    assert at(now - 10, now - 10 + MOST_VALID + 1) == "validity"
    assert at(-(2**63), 2**63 - 1) == "validity"
    world.granted(world.request(issued=now + SKEW - 60, expires=now + SKEW - 60 + MOST_VALID))
    request = world.request()
    assert request.expires - request.issued == VALID <= MOST_VALID
    trial = world.request(trial=True, issued=now - 100, expires=now - 10)
    assert world.code(trial) == "validity", "a trial has its time, too"


def test_a_request_that_expires_while_it_waits_is_not_answered(world: World):
    site, request = world.site, world.request()
    later = datetime.now(UTC) + timedelta(seconds=VALID + 60)
    first = site.consider(request.pack())
    assert not isinstance(first, Refusal)
    assert not isinstance(site.reconsider(first.request), Refusal)
    found = replace(site.decider(), clock=lambda: later).reconsider(first.request)
    assert isinstance(found, Refusal)
    assert found.code is Code.VALIDITY


def test_a_request_that_was_refused_is_not_taken_later(world: World):
    world.edit('"mean"', '"count"')
    request = world.request()
    assert world.code(request) == "analysis"
    world.edit('"count", "count"', '"count", "mean"')
    assert world.code(request) == "run", "the same bytes"
    assert SiteEndpoint(SiteFolder(world.site.path)).folder.decide(request.pack()).code is Code.RUN  # type: ignore[union-attr]
    assert isinstance(world.decide(request.signed(world.office)), Grant), "signed anew it is another request"


def test_a_nonce_that_comes_under_another_request_is_refused(world: World):
    first = world.request()
    world.granted(first)
    other = replace(world.request(), nonce=first.nonce)
    forged = replace(other, signature=envelope.sign(world.office, LABEL, other._body()))
    assert world.code(forged) == "run"


def test_a_trial_may_come_again(world: World):
    trial = world.request(trial=True).pack()
    member = SiteEndpoint(world.site)
    for _ in range(2):
        found = wire.unpack_from_site(member.handle(wire.pack(wire.Review(1, (trial,)))))
        assert isinstance(found, wire.Reviewed)
        assert found.refusals == (None,)
    refused = wire.unpack_from_site(member.handle(wire.pack(wire.Review(1, (trial, trial)))))
    assert isinstance(refused, wire.Refused)  # nobody has ten thousand copies of one looked at
    assert len(world.site.nonces) == 0
    assert not world.site.ledger.entries()


def test_without_its_memory_a_site_takes_nothing(world: World):
    (world.site.path / "nonces.sqlite").write_bytes(b"no database" * 1000)
    assert world.code(world.request()) == "site"
    assert "nonces.sqlite" in (world.site.path / "site.log").read_text()
