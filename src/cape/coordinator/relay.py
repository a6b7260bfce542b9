"""The aggregator: runs stages with sites over a channel. It has no key and no secret.

It is trusted for availability and for the correctness of the sum, never for privacy: sites check what it says
(docs/secagg.md), and their requests are signed by the coordinator. A site that refuses, is silent or sends an
invalid message is excluded, and the stage continues while enough sites are left. Late, repeated or unrelated
answers change nothing: every message has a number, and secure aggregation accepts one answer of a site in
each protocol round.
Tested in tests/unit/coordinator/test_relay.py.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeGuard

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
    StageOutcome,
    failed,
    pack,
    unpack_call,
)
from cape.coordinator.stage_log import StageLog
from cape.core import documents
from cape.core.errors import BadMessage, CapeError, InvalidInput, ProtocolError, TooFewSites
from cape.engine.schemes import Parties
from cape.noise import SecureStream
from cape.secagg import Aggregator, AggregatorState, Finished, Send
from cape.secagg.events import Event as SecaggEvent
from cape.site import wire
from cape.site.decide.codes import Denied
from cape.site.decide.policy import SCHEMES
from cape.site.decide.request import Request
from cape.study.document import Document, read

__all__ = ["Relay"]

_MOST_SESSIONS = 32
_OVER = (AggregatorState.DONE, AggregatorState.FAILED)

Progress = Callable[[Event], None]


class Relay:
    """An aggregator: `call` takes a coordinator's packed call, and returns the packed reply.

    >>> relay = Relay(channel, progress=print)
    >>> relay.call(data)

    Args:
        channel: reaches the sites.
        progress: called when a site is asked, answers, refuses or is lost.
    """

    def __init__(self, channel: Channel, progress: Progress = lambda event: None) -> None:
        self._channel, self._progress = channel, progress
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        self._lock = threading.Lock()
        self._number = SecureStream().integer(1 << 61)

    def call(self, data: bytes) -> bytes:
        """Do what a coordinator asks, and return the packed reply. Raises no `CapeError`."""
        reply: Reply
        try:
            call = unpack_call(data)
            match call:
                case AskHello():
                    reply = GotHello(self.hello(call.sites))
                case AskReview():
                    reply = GotReview(self.review(call.sites, call.requests))
                case AskStage():
                    reply = self.stage(call.each(), call.size)
                case AskKnown():
                    reply = GotKnown(self.known(call.sites, call.inquiry))
        except CapeError as error:
            reply = failed(error)
        return pack(reply)

    def hello(self, sites: Iterable[str]) -> dict[str, wire.Present | None]:
        """Return each site's name, key and version; None for a site that does not answer."""
        return self._collect("hello", dict.fromkeys(sites, wire.Hello(0)), wire.Present)

    def review(
        self, sites: Iterable[str], requests: tuple[bytes, ...]
    ) -> dict[str, wire.Reviewed | wire.Refused | None]:
        """Return what each site would say to the requests; nothing is paid for."""
        return self._collect(
            "review",
            dict.fromkeys(sites, wire.Review(0, requests)),
            wire.Reviewed | wire.Refused,
            lambda answer: isinstance(answer, wire.Refused) or len(answer.refusals) == len(requests),
        )

    def known(self, sites: Iterable[str], inquiry: wire.Inquiry) -> dict[str, wire.Known | None]:
        """Return what each site's ledger says of a stage of a run, which is closed there."""
        return self._collect("inquiry", dict.fromkeys(sites, inquiry), wire.Known)

    def _collect(
        self,
        round_: str,
        asked: Mapping[str, wire.ToSite],
        kind: Any,
        fits: Callable[[Any], bool] = lambda answer: True,
    ) -> dict[str, Any]:
        """Ask each site; return the first answer of the kind that fits, None for a site without one."""
        log = StageLog()
        found: dict[str, Any] = dict.fromkeys(asked)
        for site, answer in self._exchange(log, round_, asked):
            if isinstance(answer, kind) and fits(answer):
                found[site] = answer
                log.done(site)
        return found

    def stage(self, requests: Mapping[str, bytes], size: int) -> StageOutcome:
        """Run one stage with these sites; their requests may differ in earlier results only."""
        request = _common(requests)
        log = StageLog()
        try:
            if request.study.get("scheme") == "cape" and size:
                total, survivors, late = self._masked(log, requests, request, size)
            else:
                (total, survivors), late = self._plain(log, requests, request, size), ()
        except ProtocolError as error:
            return log.outcome(failure=failed(error).sentence)
        return log.outcome(np.asarray(total, "<i8").tobytes(), survivors, late)

    def _plain(
        self, log: StageLog, requests: Mapping[str, bytes], request: Request, size: int
    ) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """Add up vectors that need no masks."""
        total = np.zeros(size, np.uint64)
        public, took_part = _rows_public(request), []
        log.masking(requests)
        asked = {site: wire.Ask(0, data) for site, data in requests.items()}
        for site, answer in self._exchange(log, "message", asked):
            if isinstance(answer, wire.Refused):
                log.refuse(site, answer, "message")
            elif _offers(answer, public) and len(answer.data) == 8 * size:
                total += np.frombuffer(answer.data, "<u8")
                log.head(site, answer)
                log.offer(site, answer)
                took_part.append(site)
        needed = _parties(request).min_sites
        if len(took_part) < needed:
            raise TooFewSites(f"{len(took_part)} sites answered, and min_sites asks for {needed}")
        order = [site for site, _ in request.roster]
        return total.view(np.int64), tuple(sorted(took_part, key=order.index))

    def _masked(
        self, log: StageLog, requests: Mapping[str, bytes], request: Request, size: int
    ) -> tuple[NDArray[np.int64], tuple[str, ...], tuple[str, ...]]:
        """Run a stage by secure aggregation: a step of its session, after key agreement if it opens one."""
        if request.stage == request.first:
            session = self._open(log, requests, request, size)
        else:
            session = self._find(request, size)
            log.lost.update({site: round_ for site, round_ in session.lost.items() if site in requests})
        with session.lock:
            try:
                return self._step(log, session, requests, request)
            finally:
                if session.machine.state in _OVER:
                    with self._lock:
                        self._sessions.pop(request.session, None)

    def _open(self, log: StageLog, requests: Mapping[str, bytes], request: Request, size: int) -> _Session:
        """Agree on keys with all sites that answer, for all steps of the session."""
        machine = Aggregator(request.parameters(_parties(request), size))
        session = _Session(machine, _rows_public(request))
        with session.lock:
            asked = {site: wire.Ask(0, data) for site, data in requests.items()}
            events = _gone(machine, [name for name, _ in request.roster if name not in requests])
            events += self._round(log, session, "advertise", asked)
            self._round(log, session, "share", _carry(request, events))
            session.lost = dict.fromkeys(log.refusals, "advertise") | log.lost
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
            raise ProtocolError("the aggregator has no such session: it was restarted, or the session failed")
        if session.machine.parameters != request.parameters(_parties(request), size):
            raise BadMessage("the session was opened for another length or number of steps")
        return session

    def _step(
        self, log: StageLog, session: _Session, requests: Mapping[str, bytes], request: Request
    ) -> tuple[NDArray[np.int64], tuple[str, ...], tuple[str, ...]]:
        machine = session.machine
        events = list(machine.begin(request.stage - request.first))
        away = [site for site in machine.sharers if site not in requests]
        openings = {event.to: event.data for event in events if isinstance(event, Send)}
        here, needed = len(openings) - len(away), machine.parameters.threshold
        if here < needed:  # before anybody is asked for a vector
            raise TooFewSites(f"{here} sites of the session are left, and the threshold is {needed}")
        _gone(machine, away)
        opens = request.stage == request.first
        asked: dict[str, wire.ToSite] = {
            site: wire.Carry(0, request.session, data) if opens else wire.Ask(0, requests[site], data)
            for site, data in openings.items()
            if site not in away
        }
        log.masking(asked)
        events = self._round(log, session, "mask", asked)
        events = self._round(log, session, "consistency", _carry(request, events))
        events = self._round(log, session, "unmask", _carry(request, events))
        for event in events:
            if isinstance(event, Finished):
                return event.total, event.survivors, event.late
        raise ProtocolError("secure aggregation ended without a sum")  # pragma: no cover - it raises itself

    def _round(
        self, log: StageLog, session: _Session, round_: str, asked: Mapping[str, wire.ToSite]
    ) -> list[SecaggEvent]:
        """Send a round's messages, and pass the answers to the machine; return its events."""
        machine, events = session.machine, list[SecaggEvent]()
        now = machine.state
        for site, answer in self._exchange(log, round_, asked):
            if isinstance(answer, wire.Refused):
                log.refuse(site, answer, round_)
                if machine.state is now:
                    events += _gone(machine, [site])
                continue
            if not (isinstance(answer, wire.Carried) or _offers(answer, session.public)):
                continue
            try:
                events += machine.handle(answer.data)
            except ProtocolError:
                if machine.state is not now:  # more than an invalid message: the round has failed
                    raise
                continue  # late, forged or unrelated: the right one may still come
            log.head(site, answer)
            if isinstance(answer, wire.Offered):
                log.offer(site, answer)
            else:
                log.done(site)
        if machine.state is now:  # it did not close by itself: sites that have not answered are gone
            events += _gone(machine, machine.waiting)
        return events

    def _exchange(
        self, log: StageLog, round_: str, asked: Mapping[str, wire.ToSite]
    ) -> Iterator[tuple[str, wire.FromSite]]:
        """Send messages, and yield the readable answers to them; count bytes and time.

        The caller calls `log.done`, `offer` or `refuse` for an answer that it accepts; later answers of that
        site are ignored, and a site without an accepted answer is lost.
        """
        with self._lock:
            self._number += 1
            number = self._number
        messages = {
            site: wire.pack(msgspec.structs.replace(message, number=number))
            for site, message in asked.items()
        }
        received: dict[str, int] = {}
        log.waiting = dict.fromkeys(messages)
        began = time.perf_counter()
        for site in messages:
            self._progress(Event(round_, site, "asked"))
        try:
            for site, data in self._channel.exchange(round_, messages) if messages else ():
                if site not in log.waiting:
                    continue
                if data is None:
                    del log.waiting[site]
                    self._lose(log, round_, site)
                    continue
                received[site] = received.get(site, 0) + len(data)
                answer = _read(data, number)
                if answer is None:
                    continue
                yield site, answer
                if site not in log.waiting and isinstance(answer, wire.Refused):
                    self._progress(Event(round_, site, "refused", str(answer)))
                elif site not in log.waiting:
                    self._progress(Event(round_, site, "answered"))
                if not log.waiting:
                    break
            for site in log.waiting:
                self._lose(log, round_, site)
        finally:
            took = time.perf_counter() - began
            log.count(round_, {site: len(data) for site, data in messages.items()}, received, took)

    def _lose(self, log: StageLog, round_: str, site: str) -> None:
        log.lost[site] = round_
        self._progress(Event(round_, site, "lost"))


class _Session:
    """A session of secure aggregation: its machine, and the sites lost during key agreement."""

    def __init__(self, machine: Aggregator, public: bool) -> None:
        self.machine, self.public = machine, public
        self.lost: dict[str, str] = {}
        self.plan = b""
        self.lock = threading.Lock()


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
    try:  # the signature is checked; the sites decide whether to trust the key
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
        raise InvalidInput(f"the aggregator cannot run scheme {str(request.study.get('scheme'))[:40]!r}")
    return request


def _parties(request: Request) -> Parties:
    study = documents.decode(request.study, Document)
    return study.parties(len(study.sites))


def _rows_public(request: Request) -> bool:
    return read(request.study, request.number).setting.sizes_public


def _offers(answer: wire.FromSite, public: bool) -> TypeGuard[wire.Offered]:
    """Return whether it is an offer that states the number of rows if, and only if, that is public."""
    return isinstance(answer, wire.Offered) and (answer.rows is not None) == public


def _carry(request: Request, events: Iterable[SecaggEvent]) -> dict[str, wire.ToSite]:
    return {
        event.to: wire.Carry(0, request.session, event.data) for event in events if isinstance(event, Send)
    }


def _gone(machine: Aggregator, sites: Iterable[str]) -> list[SecaggEvent]:
    sites = list(sites)
    return list(machine.gone(sites)) if sites else []
