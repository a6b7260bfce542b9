"""The aggregator's end: right with sites that are late, repeat themselves, talk nonsense or lie."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from cape.coordinator import Event, Relay, StageOutcome
from cape.coordinator.calls import (
    AskHello,
    AskKnown,
    AskReview,
    AskStage,
    CallFailed,
    GotHello,
    GotKnown,
    GotReview,
    pack,
    unpack_call,
    unpack_reply,
)
from cape.core.errors import BadMessage, InvalidInput
from cape.engine.calibration import RESOLUTION
from cape.secagg import Identity
from cape.site import Request, document, make_request, read, wire
from tests.world import HISTOGRAM, MEAN, NAMES, ROWS, World


class Asking:
    """A coordinator that a test can bend."""

    def __init__(self, world: World, **study: Any) -> None:
        self.world = world
        self.document = document(world.study(f"{HISTOGRAM}\nshare = 0.25", **study))  # room for four runs
        self.talk = read(self.document, 1).session()
        self.size = self.talk.calibrate()[0].size

    def request(self, identity: Identity | None = None, **changes: Any) -> Request:
        office = identity or self.world.office
        run = changes.pop("run", None) or os.urandom(16)
        roster = self.world.coordinator.roster(NAMES)
        request = make_request(self.document, 1, self.talk, roster=roster, run=run, identity=office)
        return replace(request, **changes).signed(office) if changes else request

    def stage(self, request: Request | None = None, names: tuple[str, ...] = NAMES) -> StageOutcome:
        data = (request or self.request()).pack()
        return self.world.relay.stage(dict.fromkeys(names, data), self.size)

    def right(self, outcome: StageOutcome) -> None:
        """The total is that of the participants, but for noise."""
        assert outcome.failure is None, outcome
        bins, beside = self.talk.calibrate()[0].steps
        size, own = bins.size, bins.array.size
        assert own + beside.array.size == self.size, "and cells below, within and above the bounds"
        people = np.frombuffer(outcome.total, "<i8")[:own].sum() * size
        noise = RESOLUTION * size * np.sqrt(own * len(outcome.participants))
        assert abs(people - sum(ROWS[name] for name in outcome.participants)) < 6 * noise


@pytest.fixture(params=["cape", "conventional"])
def asking(world: World, request: pytest.FixtureRequest) -> Asking:
    return Asking(world, scheme=request.param)


def test_a_stage(asking: Asking, world: World):
    outcome = asking.stage()
    asking.right(outcome)
    assert outcome.participants == NAMES
    assert outcome.rows == ROWS
    assert outcome.sent
    assert not outcome.refusals
    assert not outcome.lost
    rounds = [each.round for each in outcome.traffic]
    assert rounds in (["message"], ["advertise", "share", "mask", "consistency", "unmask"])
    assert all(each.sent > 0 < each.received and each.most < each.received for each in outcome.traffic)
    assert outcome.per_site >= max(each.most for each in outcome.traffic)
    assert {event.what for event in world.events} == {"asked", "answered"}
    assert len(world.events) == 2 * len(NAMES) * len(rounds)


def test_rows_where_they_are_private(world: World):
    world.hide_sizes()
    asking = Asking(world, neighbours="add-remove")
    outcome = asking.stage()
    asking.right(outcome)
    assert outcome.rows == {}


def test_answers_that_come_twice_count_once(asking: Asking, world: World):
    world.channel.bend = lambda round_, site, answer: [answer, answer]
    asking.right(asking.stage())


def test_answers_that_come_late_count_for_nothing(asking: Asking, world: World):
    """Every answer comes with all that the site said before."""
    said: dict[str, list[bytes | None]] = {}

    def bend(round_: str, site: str, answer: bytes) -> list[bytes | None]:
        before = list(said.get(site, []))
        said.setdefault(site, []).append(answer)
        return [*before, answer, *before]

    world.channel.bend = bend
    for _ in range(2):
        outcome = asking.stage()
        asking.right(outcome)
        assert outcome.participants == NAMES


def test_refusals_that_come_late_count_for_nothing(asking: Asking, world: World):
    late = wire.pack(wire.Refused(12345, "budget", "none"))
    world.channel.bend = lambda round_, site, answer: [late, answer]
    outcome = asking.stage()
    asking.right(outcome)
    assert not outcome.refusals


def test_garbage_before_the_answer_is_left_aside(asking: Asking, world: World):
    number = len(NAMES)
    wrong = [b"", b"\xff" * 100, wire.pack(wire.Known(0, True)), wire.pack(wire.Carried(number, b"x"))]
    world.channel.bend = lambda round_, site, answer: [*wrong, answer]
    asking.right(asking.stage())


@pytest.mark.one_in(2, seconds=0.2)
@pytest.mark.parametrize("garbage", [b"", b"\xff" * 64, "other", "short", "rows"])
def test_a_site_that_talks_nonsense_is_lost(asking: Asking, world: World, garbage: Any):
    def bend(round_: str, site: str, answer: bytes) -> list[bytes | None]:
        if site != "d":
            return [answer]
        if isinstance(garbage, bytes):
            return [garbage]
        read = wire.unpack_from_site(answer)
        if garbage == "other":
            return [wire.pack(wire.Known(read.number, True))]
        if garbage == "short" and isinstance(read, wire.Offered | wire.Carried):
            return [wire.pack(msgspec.structs.replace(read, data=read.data[:-8]))]
        if garbage == "rows" and isinstance(read, wire.Offered):
            return [wire.pack(msgspec.structs.replace(read, rows=None))]
        return [answer]

    world.channel.bend = bend
    outcome = asking.stage()
    asking.right(outcome)
    assert outcome.participants == NAMES[:3]
    assert list(outcome.lost) == ["d"]
    assert [event for event in world.events if event.what == "lost"] == [
        Event(outcome.traffic[0].round, "d", "lost")
    ]


def test_answers_of_another_session_are_left_aside(world: World):
    asking = Asking(world)
    first, second = asking.request(), asking.request()
    other: dict[tuple[str, str], bytes] = {}

    def keep(round_: str, site: str, answer: bytes) -> list[bytes | None]:
        other[round_, site] = answer
        return [answer]

    world.channel.bend = keep
    asking.right(asking.stage(first))

    def swap(round_: str, site: str, answer: bytes) -> list[bytes | None]:
        number = wire.unpack_from_site(answer).number
        old = msgspec.structs.replace(wire.unpack_from_site(other[round_, site]), number=number)
        return [wire.pack(old), answer]

    world.channel.bend = swap
    outcome = asking.stage(second)
    asking.right(outcome)
    assert outcome.participants == NAMES


def test_a_channel_that_forgets_a_site_has_lost_it(asking: Asking, world: World):
    world.channel.bend = lambda round_, site, answer: [] if site == "b" else [answer]
    outcome = asking.stage()
    asking.right(outcome)
    assert outcome.participants == ("a", "c", "d")
    assert list(outcome.lost) == ["b"]


def test_sites_may_be_left_out(asking: Asking):
    outcome = asking.stage(names=NAMES[1:])
    asking.right(outcome)
    assert outcome.participants == NAMES[1:]
    few = asking.stage(names=NAMES[:2])
    assert few.failure is not None
    assert few.total == b""
    assert few.sent == ("message" in {each.round for each in few.traffic})


def test_who_refuses_sends_nothing(asking: Asking, world: World):
    for name in ("c", "d"):
        world.edit("2999-12-31", "2020-01-31", name)
    outcome = asking.stage()
    assert outcome.failure is not None
    assert {site: each.code for site, each in outcome.refusals.items()} == {"c": "expired", "d": "expired"}
    conventional = "message" in {each.round for each in outcome.traffic}
    assert outcome.sent == conventional, "a and b had answered already there"
    world.edit("2999-12-31", "2020-01-31", "a", "b")
    assert not asking.stage().sent, "when all refuse nothing has left"


def test_who_refuses_after_its_vector_has_sent_something(world: World):
    def bend(round_: str, site: str, answer: bytes) -> list[bytes | None]:
        number = wire.unpack_from_site(answer).number
        return [wire.pack(wire.Refused(number, "budget", "none"))] if round_ == "consistency" else [answer]

    world.channel.bend = bend
    outcome = Asking(world).stage()
    assert outcome.failure is not None
    assert len(outcome.refusals) == 4
    assert outcome.sent


def test_a_coordinator_cannot_ask_for_less_noise(asking: Asking, world: World):
    good = asking.request()
    finer = tuple((bits, max(1, factor // 2)) for bits, factor in good.grid)
    outcome = asking.stage(asking.request(grid=finer))
    assert {each.code for each in outcome.refusals.values()} == {"noise"}
    assert not outcome.sent
    # an epsilon that the sites do not pay for: the grid of 8 under the price of 1
    cheap = dict(good.study, epsilon=1.0)
    outcome = asking.stage(asking.request(study=cheap))
    assert {each.code for each in outcome.refusals.values()} == {"noise"}
    # and one that nobody signed
    with pytest.raises(BadMessage, match="signature does not fit"):
        asking.stage(replace(good, study=cheap))
    stranger = Identity()
    outcome = asking.stage(asking.request(stranger, coordinator=stranger.public))
    assert {each.code for each in outcome.refusals.values()} == {"coordinator"}
    assert [world.lines(name) for name in NAMES] == [0, 0, 0, 0]


def test_the_same_request_twice(asking: Asking, world: World):
    request = asking.request()
    asking.right(asking.stage(request))
    again = asking.stage(request)
    assert {each.code for each in again.refusals.values()} == {"run"}
    assert [world.lines(name) for name in NAMES] == [1, 1, 1, 1]
    fresh = Relay(world.channel)  # an aggregator that was started anew
    outcome = fresh.stage(dict.fromkeys(NAMES, request.pack()), asking.size)
    assert outcome.failure is not None
    assert [world.lines(name) for name in NAMES] == [1, 1, 1, 1]


@pytest.mark.one_in(2, seconds=0.7)
def test_a_study_gets_what_it_states_whatever_relay_asks(asking: Asking, world: World):
    for _ in range(4):
        asking.right(asking.stage())
    for relay in (world.relay, Relay(world.channel)):
        outcome = relay.stage(dict.fromkeys(NAMES, asking.request().pack()), asking.size)
        assert not outcome.sent
        assert {str(each) for each in outcome.refusals.values()} == {
            "budget: the budget that the study itself states (earlier submissions count) does not cover this "
            "release"
        }
    assert [world.lines(name) for name in NAMES] == [4, 4, 4, 4]


def test_a_stage_of_a_session_that_the_aggregator_does_not_have(world: World):
    asking = Asking(world)
    request = replace(asking.request(), stage=1, steps=2).signed(world.office)
    outcome = asking.stage(request)
    assert "no such session" in str(outcome.failure)
    assert not outcome.sent
    assert not world.events


def test_requests_of_a_stage_must_be_alike(world: World):
    asking = Asking(world)
    for requests in (
        {"a": asking.request().pack(), "b": asking.request().pack()},
        {"a": asking.request().pack(), "e": b"x"},
        {"e": asking.request().pack()},
        {"a": replace(asking.request(), study={}).pack()},
        {},
    ):
        with pytest.raises((InvalidInput, BadMessage)):
            world.relay.stage(requests, asking.size)
    assert not world.events


def test_everything_can_be_called_through_bytes(world: World):
    asking = Asking(world)

    def call(message: Any) -> Any:
        assert unpack_call(pack(message)) == message
        return unpack_reply(world.relay.call(pack(message)))

    world.channel.deaf = {"d": "request"}
    hello = call(AskHello(NAMES))
    assert isinstance(hello, GotHello)
    assert [bool(hello.sites[name]) for name in NAMES] == [True, True, True, False]
    trial = asking.request(trial=True).pack()
    review = call(AskReview(NAMES, (trial, asking.request().pack())))
    assert isinstance(review, GotReview)
    said = review.sites["a"]
    assert isinstance(said, wire.Reviewed)
    assert [each and each.code for each in said.refusals] == [None, "request"]
    assert review.sites["d"] is None
    forged = call(AskReview(NAMES, (trial, b"nonsense" * 20)))
    assert isinstance(forged, GotReview)
    assert isinstance(forged.sites["a"], wire.Refused), "what nobody has signed is not looked at"
    assert forged.sites["a"].code == "coordinator"
    world.channel.deaf = {}
    request = asking.request()
    outcome = call(AskStage.of(dict.fromkeys(NAMES, request.pack()), asking.size))
    assert isinstance(outcome, StageOutcome)
    asking.right(outcome)
    office = world.office
    inquiry = wire.Inquiry(0, request.run, 0, office.public).signed(office)
    known = call(AskKnown(NAMES, inquiry))
    assert isinstance(known, GotKnown)
    for name, key in zip(NAMES, world.coordinator.roster(NAMES).keys, strict=True):
        said = known.sites[name]
        assert isinstance(said, wire.Known)
        assert said.known is True
        said.verify(key, inquiry)
    world.channel.deaf = {"b": "inquiry"}
    known = call(AskKnown(NAMES, inquiry))
    assert [known.sites[name] is None for name in NAMES] == [False, True, False, False]
    assert isinstance(call(AskStage.of({"a": b"nonsense" * 20}, 1)), CallFailed)
    assert isinstance(unpack_reply(world.relay.call(b"nonsense")), CallFailed)
    with pytest.raises(BadMessage):
        unpack_reply(b"nonsense")


def test_a_relay_that_lies_about_survivors_gets_nothing_more(world: World):
    """It tells a and b that c dropped, and c and d that a did: no two lists can both be signed."""
    asking = Asking(world)
    exchange = world.channel.exchange

    def lying(round_: str, messages: Any) -> Any:
        if round_ == "consistency":
            bent = {}
            for site, data in messages.items():
                carry = wire.unpack_to_site(data)
                assert isinstance(carry, wire.Carry)
                told = msgspec.msgpack.decode(carry.data)
                told[-2:] = [[0, 1, 3], [2]] if site in "ab" else [[1, 2, 3], [0]]
                bent[site] = wire.pack(msgspec.structs.replace(carry, data=msgspec.msgpack.encode(told)))
            messages = bent
        yield from exchange(round_, messages)

    world.channel.exchange = lying  # type: ignore[method-assign]
    outcome = asking.stage()
    assert outcome.failure is not None
    assert outcome.total == b""
    assert outcome.sent


def test_traffic_is_counted_for_a_round_that_fails(world: World):
    asking = Asking(world, min_sites=4)
    world.channel.deaf["d"] = "mask"
    outcome = asking.stage()
    assert outcome.failure is not None
    assert [each.round for each in outcome.traffic] == ["advertise", "share", "mask"]
    assert outcome.traffic[-1].received > 0


def test_other_analyses_are_not_in_the_way(world: World):
    """Two sessions of two runs, one inside the other."""
    outer, inner = Asking(world), Asking(world)
    exchange = world.channel.exchange
    found: list[StageOutcome] = []

    def nested(round_: str, messages: Any) -> Any:
        if round_ == "share" and not found:
            found.append(None)  # type: ignore[arg-type]
            found.append(inner.stage())
        yield from exchange(round_, messages)

    world.channel.exchange = nested  # type: ignore[method-assign]
    outcome = outer.stage()
    outer.right(outcome)
    inner.right(found[1])
    assert outcome.participants == found[1].participants == NAMES


def test_a_mean_has_more_than_one_array(world: World):
    asking = Asking(world)
    asking.document = document(world.study(MEAN, name="means"))
    asking.talk = read(asking.document, 1).session()
    asking.size = asking.talk.calibrate()[0].size
    outcome = asking.stage()
    assert len(outcome.total) == 8 * asking.size
