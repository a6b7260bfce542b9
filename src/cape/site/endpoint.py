"""A site's end of the wire: bytes in, bytes out, never an exception.

Claim. Before the first byte that depends on this site's rows leaves, except their number where it is public,
the ledger holds the release, synced. Each line of the ledger is answered by at most one vector, however
messages are repeated, delayed, reordered or sent from several threads at once. An answer is a message of
secure aggregation, a vector with its noise, or a refusal: a code and a sentence, never a value, a path or a
stack trace.
Reason. The rounds that agree on keys do not touch the data. When the machine needs its vector, the current
policy and ledger are checked again and the ledger is written; the vector is computed from the grant, which
answers once, and goes into the machine, which masks it once. A second request for the same stage finds it in
the ledger, and a second request for the same session finds its name there, in this process or in any other.
A request is accepted once: a repetition is refused, whatever became of the first.
Tested in tests/unit/site/test_endpoint.py and test_endpoint_kills.py.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray
from polars.exceptions import PanicException

from cape import __version__, secagg
from cape.core.errors import BadMessage, BudgetExceeded, ProtocolError
from cape.core.errors import Refused as NotAnswered
from cape.noise import SecureStream
from cape.secagg import messages, states
from cape.secagg.keys import KEY_BYTES
from cape.site import wire
from cape.site.decide.codes import Code, Denied, Refusal
from cape.site.decide.grant import SOMETHING, Grant, Offer, story
from cape.site.decide.request import Request
from cape.site.folder import SiteFolder
from cape.site.ledger.gaps import Unsettled
from cape.site.ledger.ledger import Amount

__all__ = ["SiteEndpoint"]

_MOST_SESSIONS = 32  # of each coordinator


class _Session:
    """A session of secure aggregation in which this site takes part."""

    def __init__(self, request: Request, machine: secagg.Site) -> None:
        self.request, self.machine = request, machine
        self.lock = threading.Lock()
        self.last = -1  # the last step paid for

    @property
    def over(self) -> bool:
        return (
            self.machine.state is states.SiteState.DONE
            and self.machine.step + 1 == self.machine.parameters.steps
        )


class SiteEndpoint:
    """A site behind a transport, which calls `handle` with every message.

    It is thread-safe: each session has a lock of its own.

    Args:
        folder: the site's folder.
        stream: the source of noise and keys; the operating system by default. A keyed stream makes a site
            reproducible, for tests only.
    """

    def __init__(self, folder: SiteFolder, stream: SecureStream | None = None) -> None:
        self.folder, self._stream = folder, stream
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        self._lock = threading.Lock()

    def handle(self, data: bytes | bytearray) -> bytes:
        """Return the answer to a message. Never raises; details of a refusal go to the site's log."""
        number = 0
        try:
            message = wire.unpack_to_site(data)
            number = message.number
            return wire.pack(self._handle(message))
        except Denied as denied:
            detail = f" [{denied.detail}]" if denied.detail else ""
            self._log(f"refused a message: {denied.code}: {denied.sentence}{detail}")
            refusal = denied.refusal
        except BadMessage as error:  # its text is about the message alone
            self._log(f"refused a message: {error}")
            refusal = Refusal(Code.REQUEST, str(error))
        except ProtocolError as error:
            self._log(f"refused a message: {error}")
            refusal = Refusal(Code.RUN, str(error))
        except (Exception, PanicException) as error:
            self._log(f"failed: {story(error)}")
            refusal = Refusal(Code.SITE, SOMETHING)
        return wire.pack(wire.refused(number, refusal))

    def _handle(self, message: wire.ToSite) -> wire.FromSite:
        match message:
            case wire.Hello():
                card = self.folder.card
                return wire.Present(message.number, __version__[:40], card.name, card.key)
            case wire.Review():
                return self._review(message)
            case wire.Ask():
                return self._ask(message)
            case wire.Carry():
                return self._carry(message)
            case wire.Inquiry():
                return self._inquire(message)
            case wire.Watch():
                return wire.Happened(message.number, self.folder.traffic.after(message.after))

    def _review(self, message: wire.Review) -> wire.Reviewed:
        """Say which requests would be answered, given the sum of their costs; pay for nothing."""
        told: list[wire.Refused | None] = []
        rows: int | None = None
        planned = Amount()
        if len(set(message.requests)) < len(message.requests):
            raise Denied(Code.REQUEST, "a review must not repeat a request")
        for data in message.requests:
            offer = self.folder.consider(data)
            if isinstance(offer, Refusal) and offer.code in (Code.COORDINATOR, Code.SIGNATURE):
                raise Denied(offer.code, offer.sentence)  # one forgery ends the review
            if isinstance(offer, Offer) and not offer.request.trial:
                offer = Refusal(
                    Code.REQUEST,
                    "the request is not a trial: it was signed to be answered",
                )
            if isinstance(offer, Offer):
                if offer.request.stage == 0:
                    rows = offer.rows
                planned += offer.whole
                offer = self._affordable(offer, planned)
            told.append(None if isinstance(offer, Offer) else wire.refused(message.number, offer))
        return wire.Reviewed(message.number, tuple(told), rows)

    def _affordable(self, offer: Offer, planned: Amount) -> Offer | Refusal:
        try:
            if planned != Amount():
                offer.ledger.check(offer.request.coordinator, planned, offer.limits, offer.entry.basis)
        except BudgetExceeded as error:
            self._log(f"would refuse analysis {offer.request.number} of {offer.request.name!r}: {error}")
            return Refusal(Code.BUDGET, str(error))
        return offer

    def _ask(self, message: wire.Ask) -> wire.FromSite:
        offer = self.folder.consider(message.request)
        if isinstance(offer, Refusal):
            return wire.refused(message.number, offer)
        if offer.request.trial:
            raise Denied(Code.REQUEST, "the request is a trial: it was signed for review only")
        if offer.parameters is None:
            return self._alone(message.number, offer)
        if offer.request.stage == offer.request.first:
            machine = self._open(offer)
            return wire.Offered(message.number, offer.rows, machine.start())
        session = self._session(offer.request.session)
        with session.lock:
            if session.request.plan != offer.request.plan or session.machine.parameters != offer.parameters:
                raise Denied(Code.RUN, "the session was opened for another release")
            _check_opening(session, offer.request, message.opening)
            masked = self._masked(session, offer, message.opening)
        if isinstance(masked, Refusal):
            return wire.refused(message.number, masked)
        return wire.Offered(message.number, offer.rows, masked, self._head())

    def _alone(self, number: int, offer: Offer) -> wire.FromSite:
        """Answer a request whose vector needs no masks: its own noise protects it, or it is empty."""
        vector = self._vector(offer.reserve())
        if isinstance(vector, Refusal):
            return wire.refused(number, vector)
        self.folder.traffic.answered(offer.request)
        return wire.Offered(number, offer.rows, vector.astype("<i8", copy=False).tobytes(), self._head())

    def _open(self, offer: Offer) -> secagg.Site:
        """Open a session: its name is in the ledger from now on, and cannot be used again."""
        assert offer.parameters is not None
        folder = self.folder
        card = folder.card
        machine = secagg.Site(
            offer.parameters, card.name, folder.identity, stream=self._fresh(), claim=offer.ledger.claim
        )
        asked = offer.request
        with self._lock:  # a coordinator's sessions evict only its own
            theirs = {
                name: other.request.run
                for name, other in self._sessions.items()
                if other.request.coordinator == asked.coordinator
            }
            past = [name for name, run in theirs.items() if run == asked.run]  # the run opens another session
            left = [name for name in theirs if name not in past]
            for name in past + left[: max(0, len(left) + 1 - _MOST_SESSIONS)]:
                del self._sessions[name]
            self._sessions[offer.parameters.run] = _Session(asked, machine)
        return machine

    def _session(self, name: bytes) -> _Session:
        with self._lock:
            session = self._sessions.get(name)
            if session is not None:
                self._sessions.move_to_end(name)
        if session is None:
            raise Denied(Code.RUN, "this site has no such session, or it is over")
        return session

    def _carry(self, message: wire.Carry) -> wire.FromSite:
        session = self._session(message.session)
        with session.lock:
            machine = session.machine
            answer: bytes | Refusal
            head = b""
            if session.last < 0 and machine.state is states.SiteState.SHARED:
                _check_opening(session, session.request, message.data)
                offer = self.folder.reconsider(session.request)  # with the current policy and ledger
                answer = offer if isinstance(offer, Refusal) else self._masked(session, offer, message.data)
                head = self._head()
            else:
                answer = machine.handle(message.data)
            over = session.over
        if over:
            with self._lock:
                self._sessions.pop(message.session, None)
        if isinstance(answer, Refusal):
            return wire.refused(message.number, answer)
        return wire.Carried(message.number, answer, head)

    def _masked(self, session: _Session, offer: Offer, opening: bytes) -> bytes | Refusal:
        """Pay, compute and mask, in this order. `opening` asks for the vector."""
        vector = self._vector(offer.reserve())
        if isinstance(vector, Refusal):
            return vector
        session.last = offer.request.stage - offer.request.first
        session.machine.begin(session.last, vector)
        self.folder.traffic.answered(offer.request)
        return session.machine.handle(opening)

    def _head(self) -> bytes:
        """Return the ledger's head, which is part of every paid answer."""
        head = self.folder.ledger.head()
        return b"" if head is None else head.pack()

    def _vector(self, grant: Grant | Refusal) -> NDArray[np.int64] | Refusal:
        return grant if isinstance(grant, Refusal) else self.folder.answer(grant, self._fresh())

    def _fresh(self) -> SecureStream:
        """Return a fresh stream."""
        return SecureStream(None if self._stream is None else self._stream.bytes(KEY_BYTES))

    def _inquire(self, message: wire.Inquiry) -> wire.Known:
        if self.folder.policy.who(message.coordinator) is None:
            raise Denied(Code.COORDINATOR, "this site does not trust this coordinator's key")
        try:
            message.verify()
        except BadMessage:
            raise Denied(Code.SIGNATURE, "the coordinator's signature does not fit the inquiry") from None
        ledger = self.folder.ledger
        if not ledger.settled:
            raise Denied(Code.LEDGER, str(Unsettled()))
        ledger.close(message.run, message.coordinator)
        known = wire.Known(message.number, ledger.may_have(message.run, message.stage, message.coordinator))
        return known.signed(self.folder.identity, message)

    def _log(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a full disk must not change the answer
            self.folder.log(line)


def _check_opening(session: _Session, request: Request, opening: bytes) -> None:
    """Before paying, raise unless the message asks for this stage's vector for the first time."""
    step = request.stage - request.first
    asks = messages.unpack(opening, session.machine.parameters)
    if not isinstance(asks, messages.Delivery | messages.Begin) or asks.step != step:
        raise NotAnswered(f"the aggregator must ask for the vector of step {step} now")
    if step <= session.last:
        raise NotAnswered(f"step {step} is over")
