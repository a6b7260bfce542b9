"""The aggregator's end: plays stages with sites over a channel. It has no key and no secret.

What it is trusted with is that an answer comes at all, and is the right one; never privacy: sites check what
it says (docs/secagg.md), and their requests are signed by the coordinator. A site that refuses, is silent or
sends what does not fit is counted out, and the stage goes on while enough are left. Answers that are late,
come twice or belong to something else change nothing: every message has a number, and secure aggregation
takes one answer of a site in a round.
Tested in tests/coordinator/test_relay.py.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeGuard

import msgspec
import numpy as np
from numpy.typing import NDArray

from cape.coordinator.calls import (
    AskHello,
    AskKnown,
    AskReview,
    AskStage,
    Channel,
    Event,
    GotHello,
    GotKnown,
    GotReview,
    Reply,
    RoundTraffic,
    StageOutcome,
    failed,
    pack,
    unpack_call,
)
from cape.engine.schemes import Parties
from cape.errors import BadMessage, CapeError, InvalidInput, ProtocolError, TooFewSites
from cape.noise import SecureStream
from cape.secagg import Aggregator, AggregatorState, Finished, Send
from cape.secagg.events import Event as SecaggEvent
from cape.steward import wire
from cape.steward.codes import Denied
from cape.steward.policy import SCHEMES
from cape.steward.request import Request
from cape.study import places
from cape.study.document import Document

__all__ = ["Relay"]

_MOST_SESSIONS = 32
_VECTOR_ROUNDS = ("mask", "message")
_UNSURE = ("run", "site")  # refused again, perhaps, after an answer that is still under way
_OVER = (AggregatorState.DONE, AggregatorState.FAILED)

Progress = Callable[[Event], None]


class Relay:
    """An aggregator: `call` takes what a coordinator packed, and returns what it may read.

    >>> relay = Relay(channel, progress=print)
    >>> relay.call(data)

    Args:
        channel: reaches the sites.
        progress: told who was asked, answered, refused or was lost, as it happens.
    """

    def __init__(self, channel: Channel, progress: Progress = lambda event: None) -> None:
        self._channel, self._progress = channel, progress
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        self._lock = threading.Lock()
        self._number = SecureStream().integer(1 << 61)

    def call(self, data: bytes) -> bytes:
        """Do what a coordinator asks, and return the packed reply. Raises nothing of cape's own."""
        reply: Reply
        try:
            call = unpack_call(data)
            match call:
                case AskHello():
                    reply = GotHello(self.hello(call.sites))
                case AskReview():
                    reply = GotReview(self.review(dict.fromkeys(call.sites, call.requests)))
                case AskStage():
                    reply = self.stage(call.each(), call.size)
                case AskKnown():
                    reply = GotKnown(self.known(call.sites, call.inquiry))
        except CapeError as error:
            reply = failed(error)
        return pack(reply)

    def hello(self, sites: Iterable[str]) -> dict[str, wire.Present | None]:
        """Return who answers."""
        book = StageLog()
        found: dict[str, wire.Present | None] = dict.fromkeys(sites)
        for site, answer in self._exchange(book, "hello", {site: wire.Hello(0) for site in found}):
            if isinstance(answer, wire.Present) and found[site] is None:
                found[site] = answer
                book.done(site)
        return found

    def review(
        self, requests: Mapping[str, tuple[bytes, ...]]
    ) -> dict[str, wire.Reviewed | wire.Refused | None]:
        """Return what each site would say to its requests; nothing is paid for."""
        book = StageLog()
        found: dict[str, wire.Reviewed | wire.Refused | None] = dict.fromkeys(requests)
        asked = {site: wire.Review(0, each) for site, each in requests.items()}
        for site, answer in self._exchange(book, "review", asked):
            fits = isinstance(answer, wire.Reviewed) and len(answer.refusals) == len(requests[site])
            if found[site] is None and (fits or isinstance(answer, wire.Refused)):
                assert isinstance(answer, wire.Reviewed | wire.Refused)
                found[site] = answer
                book.done(site)
        return found

    def known(self, sites: Iterable[str], inquiry: wire.Inquiry) -> dict[str, wire.Known | None]:
        """Return what each site's ledger says of a stage of a run, which is closed there."""
        book = StageLog()
        found: dict[str, wire.Known | None] = dict.fromkeys(sites)
        for site, answer in self._exchange(book, "inquiry", dict.fromkeys(found, inquiry)):
            if isinstance(answer, wire.Known) and found[site] is None:
                found[site] = answer
                book.done(site)
        return found

    def stage(self, requests: Mapping[str, bytes], size: int) -> StageOutcome:
        """Play one stage with the sites named: each has its own request, alike but for earlier answers."""
        request = _common(requests)
        book = StageLog()
        try:
            if request.study.get("scheme") == "cape" and size:
                total, survivors = self._masked(book, requests, request, size)
            else:
                total, survivors = self._plain(book, requests, request, size)
        except ProtocolError as error:
            return book.outcome(failure=failed(error).sentence)
        return book.outcome(np.asarray(total, "<i8").tobytes(), survivors)

    def _plain(
        self, book: StageLog, requests: Mapping[str, bytes], request: Request, size: int
    ) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """Add up vectors that need no masks."""
        total = np.zeros(size, np.uint64)
        public, took_part = _rows_public(request), []
        book.masking(requests)
        asked = {site: wire.Ask(0, data) for site, data in requests.items()}
        for site, answer in self._exchange(book, "message", asked):
            if isinstance(answer, wire.Refused):
                book.refuse(site, answer, "message")
            elif _offers(answer, public) and len(answer.data) == 8 * size:
                total += np.frombuffer(answer.data, "<u8")
                book.head(site, answer)
                book.offer(site, answer)
                took_part.append(site)
        needed = _parties(request).min_sites
        if len(took_part) < needed:
            raise TooFewSites(f"{len(took_part)} sites answered, and min_sites asks for {needed}")
        order = [site for site, _ in request.roster]
        return total.view(np.int64), tuple(sorted(took_part, key=order.index))

    def _masked(
        self, book: StageLog, requests: Mapping[str, bytes], request: Request, size: int
    ) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """Play a stage by secure aggregation: a step of its session, after the setup if it opens one."""
        if request.stage == request.first:
            session = self._open(book, requests, request, size)
        else:
            session = self._find(request, size)
            book.lost.update({site: round_ for site, round_ in session.lost.items() if site in requests})
        with session.lock:
            try:
                return self._step(book, session, requests, request)
            finally:
                if session.machine.state in _OVER:
                    with self._lock:
                        self._sessions.pop(request.session, None)

    def _open(self, book: StageLog, requests: Mapping[str, bytes], request: Request, size: int) -> _Session:
        """Agree on keys with all who are there, for all steps of the session."""
        machine = Aggregator(request.parameters(_parties(request), size))
        session = _Session(machine, _rows_public(request))
        with session.lock:
            asked = {site: wire.Ask(0, data) for site, data in requests.items()}
            events = _gone(machine, [name for name, _ in request.roster if name not in requests])
            events += self._round(book, session, "advertise", asked)
            self._round(book, session, "share", _carry(request, events))
            session.lost = dict.fromkeys(book.refusals, "advertise") | book.lost
        with self._lock:
            for name in [name for name, other in self._sessions.items() if other.plan == request.plan]:
                del self._sessions[name]
            session.plan = request.plan
            self._sessions[request.session] = session
            while len(self._sessions) > _MOST_SESSIONS:
                self._sessions.popitem(last=False)
        return session

    def _find(self, request: Request, size: int) -> _Session:
        with self._lock:
            session = self._sessions.get(request.session)
        if session is None:
            raise ProtocolError("the aggregator has no such session: it was started anew, or it has failed")
        if session.machine.parameters != request.parameters(_parties(request), size):
            raise BadMessage("the session was opened for another length or number of steps")
        return session

    def _step(
        self, book: StageLog, session: _Session, requests: Mapping[str, bytes], request: Request
    ) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        machine = session.machine
        events = list(machine.begin(request.stage - request.first))
        away = [site for site in machine.sharers if site not in requests]
        openings = {event.to: event.data for event in events if isinstance(event, Send)}
        here, needed = len(openings) - len(away), machine.parameters.threshold
        if here < needed:  # before anybody is asked for a vector
            raise TooFewSites(f"{here} sites of the session are left, and the threshold is {needed}")
        _gone(machine, away)
        asked: dict[str, wire.ToSite] = {}
        for site, opening in openings.items():
            if site not in away and request.stage == request.first:
                asked[site] = wire.Carry(0, request.session, opening)
            elif site not in away:
                asked[site] = wire.Ask(0, requests[site], opening)
        book.masking(asked)
        events = self._round(book, session, "mask", asked)
        events = self._round(book, session, "consistency", _carry(request, events))
        events = self._round(book, session, "unmask", _carry(request, events))
        for event in events:
            if isinstance(event, Finished):
                return event.total, event.survivors
        raise ProtocolError("secure aggregation ended without a sum")  # pragma: no cover - it raises itself

    def _round(
        self, book: StageLog, session: _Session, round_: str, asked: Mapping[str, wire.ToSite]
    ) -> list[SecaggEvent]:
        """Carry a round's messages, and what comes back to the machine; return what it says then."""
        machine, events = session.machine, list[SecaggEvent]()
        now = machine.state
        for site, answer in self._exchange(book, round_, asked):
            if isinstance(answer, wire.Refused):
                book.refuse(site, answer, round_)
                if machine.state is now:
                    events += _gone(machine, [site])
                continue
            if not (isinstance(answer, wire.Carried) or _offers(answer, session.public)):
                continue
            try:
                events += machine.handle(answer.data)
            except ProtocolError:
                if machine.state is not now:  # more than a message that does not fit: the round has failed
                    raise
                continue  # late, forged, or of something else: the right one may still come
            book.head(site, answer)
            if isinstance(answer, wire.Offered):
                book.offer(site, answer)
            else:
                book.done(site)
        if machine.state is now:  # it did not close by itself: whoever has not answered is gone
            events += _gone(machine, machine.waiting)
        return events

    def _exchange(
        self, book: StageLog, round_: str, asked: Mapping[str, wire.ToSite]
    ) -> Iterator[tuple[str, wire.FromSite]]:
        """Send what is asked, and yield what can be read and belongs to it; count bytes and time.

        The caller calls `book.done`, `offer` or `refuse` for a site whose answer it took; what comes after
        that is left aside, and whoever is left at the end is lost.
        """
        with self._lock:
            self._number += 1
            number = self._number
        messages = {
            site: wire.pack(msgspec.structs.replace(message, number=number))
            for site, message in asked.items()
        }
        received: dict[str, int] = {}
        book.waiting = dict.fromkeys(messages)
        began = time.perf_counter()
        for site in messages:
            self._progress(Event(round_, site, "asked"))
        try:
            for site, data in self._channel.exchange(round_, messages) if messages else ():
                if site not in book.waiting:
                    continue
                if data is None:
                    del book.waiting[site]
                    self._lose(book, round_, site)
                    continue
                received[site] = received.get(site, 0) + len(data)
                answer = _read(data, number)
                if answer is None:
                    continue
                yield site, answer
                if site not in book.waiting:
                    refusal = answer if isinstance(answer, wire.Refused) else None
                    self._progress(
                        Event(round_, site, "answered")
                        if refusal is None
                        else Event(round_, site, "refused", str(refusal))
                    )
                if not book.waiting:
                    break
            for site in book.waiting:
                self._lose(book, round_, site)
        finally:
            took = time.perf_counter() - began
            book.count(round_, {site: len(data) for site, data in messages.items()}, received, took)

    def _lose(self, book: StageLog, round_: str, site: str) -> None:
        book.lost[site] = round_
        self._progress(Event(round_, site, "lost"))


class _Session:
    """A session of secure aggregation: its machine, and who was lost when keys were agreed."""

    def __init__(self, machine: Aggregator, public: bool) -> None:
        self.machine, self.public = machine, public
        self.lost: dict[str, str] = {}
        self.plan = b""
        self.lock = threading.Lock()


class StageLog:
    """What happens in a stage, written down as it happens."""

    def __init__(self) -> None:
        self.waiting: dict[str, None] = {}
        self.rows: dict[str, int] = {}
        self.refusals: dict[str, wire.Refused] = {}
        self.lost: dict[str, str] = {}
        self._traffic: list[RoundTraffic] = []
        self._sent: dict[str, int] = {}
        self._masking: set[str] = set()
        self._heads: dict[str, bytes] = {}

    def head(self, site: str, answer: wire.Offered | wire.Carried) -> None:
        """Keep the head of the site's ledger, for the coordinator."""
        if answer.head:
            self._heads[site] = answer.head

    def done(self, site: str) -> None:
        self.waiting.pop(site, None)

    def offer(self, site: str, offered: wire.Offered) -> None:
        if offered.rows is not None:
            self.rows[site] = offered.rows
        self.done(site)

    def refuse(self, site: str, refused: wire.Refused, round_: str) -> None:
        self.refusals[site] = refused
        if round_ in _VECTOR_ROUNDS and refused.code not in _UNSURE:
            self._masking.discard(site)
        self.done(site)

    def masking(self, sites: Iterable[str]) -> None:
        """Vectors are asked for now: whoever does not refuse may have sent one."""
        self._masking = set(sites)

    def count(self, round_: str, sent: Mapping[str, int], received: Mapping[str, int], took: float) -> None:
        most = max(received.values(), default=0)
        down, up = sum(sent.values()), sum(received.values())
        self._traffic.append(RoundTraffic(round_, down, up, most, took))
        for site, size in received.items():
            self._sent[site] = self._sent.get(site, 0) + size

    def outcome(
        self, total: bytes = b"", participants: tuple[str, ...] = (), failure: str | None = None
    ) -> StageOutcome:
        return StageOutcome(
            total,
            participants,
            {site: rows for site, rows in self.rows.items() if site in participants},
            self.refusals,
            {site: round_ for site, round_ in self.lost.items() if site not in self.refusals},
            tuple(self._traffic),
            max(self._sent.values(), default=0),
            failure,
            bool(self._masking),
            self._heads,
        )


def _read(data: bytes, number: int) -> wire.FromSite | None:
    """Return an answer to the messages of this number; None for anything else."""
    try:
        answer = wire.unpack_from_site(data)
    except BadMessage:
        return None
    unread = isinstance(answer, wire.Refused) and answer.number == 0  # the site could not read the message
    return answer if answer.number == number or unread else None


def _common(requests: Mapping[str, bytes]) -> Request:
    """Return one of the requests, if all ask for the same stage of the same run."""
    if not requests:
        raise InvalidInput("a stage needs at least one request")
    try:  # signed by whoever it names; whether to answer it is for the sites
        read = [Request.open(data, trusted=lambda key: True) for data in dict.fromkeys(requests.values())]
    except Denied as denied:
        raise BadMessage(denied.sentence) from None
    request = read[0]
    for other in read[1:]:
        same = (other.plan, other.stage, other.first, other.steps, other.bits, other.grid)
        if same != (request.plan, request.stage, request.first, request.steps, request.bits, request.grid):
            raise InvalidInput("requests of one stage may differ in earlier answers only")
    unknown = set(requests) - {name for name, _ in request.roster}
    if unknown:
        raise InvalidInput(f"there are requests for sites that are not on the roster: {sorted(unknown)}")
    request.check()
    _parties(request)
    if request.study.get("scheme") not in SCHEMES:
        raise InvalidInput(f"the aggregator plays no scheme {str(request.study.get('scheme'))[:40]!r}")
    return request


def _parties(request: Request) -> Parties:
    study = places.decode(request.study, Document)
    return study.parties(len(study.sites))


def _rows_public(request: Request) -> bool:
    return bool(request.study.get("neighbours") == "replace-one")


def _offers(answer: wire.FromSite, public: bool) -> TypeGuard[wire.Offered]:
    """Return whether it is an offer that says how many rows there are exactly where that is public."""
    return isinstance(answer, wire.Offered) and (answer.rows is not None) == public


def _carry(request: Request, events: Iterable[SecaggEvent]) -> dict[str, wire.ToSite]:
    return {
        event.to: wire.Carry(0, request.session, event.data) for event in events if isinstance(event, Send)
    }


def _gone(machine: Aggregator, sites: Iterable[str]) -> list[SecaggEvent]:
    sites = list(sites)
    return list(machine.gone(sites)) if sites else []
