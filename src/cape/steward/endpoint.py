"""A site's end of the wire: bytes in, bytes out, never an exception.

Claim. Before the first byte that depends on this site's rows leaves, but for their number where it is public,
the ledger holds the release, synced. Each line of the ledger is answered by at most one vector, whatever is
sent, again, late, out of order or at once from several threads. What goes out is a message of secure
aggregation, a vector with its noise, or a refusal: a code and a sentence, never a value, a path or a trace.
Reason. The rounds that agree on keys do not touch the data. Where the machine needs its vector, policy and
ledger are asked again, as they are now, and the ledger is written; the vector is computed from the grant,
which answers once, and goes into the machine, which masks it once. A second request for the same stage finds
it in the ledger, a second one for the same session finds its name there, in this process or in any other.
A request is taken once: the second time that it comes it is refused, whatever came of the first.
Tested in tests/steward/test_endpoint.py and test_endpoint_kills.py.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from cape import __version__, secagg
from cape.errors import BadMessage, BudgetExceeded, ProtocolError
from cape.errors import Refused as NotAnswered
from cape.noise import SecureStream
from cape.secagg import messages, states
from cape.secagg.keys import KEY_BYTES
from cape.steward import wire
from cape.steward.codes import Code, Denied, Refusal
from cape.steward.folder import SiteFolder
from cape.steward.gaps import Unsettled
from cape.steward.grant import SOMETHING, Grant, Offer, story
from cape.steward.ledger import Amount
from cape.steward.request import Request

__all__ = ["SiteEndpoint"]

_MOST_SESSIONS = 32  # of each coordinator


class _Session:
    """A session of secure aggregation that this site is in."""

    def __init__(self, request: Request, machine: secagg.Site) -> None:
        self.request, self.machine = request, machine
        self.lock = threading.Lock()
        self.last = -1  # the last step that was paid for

    @property
    def over(self) -> bool:
        return (
            self.machine.state is states.SiteState.DONE
            and self.machine.step + 1 == self.machine.parameters.steps
        )


class SiteEndpoint:
    """A site that takes part: `handle` is all that a transport needs.

    Threads may call it at once: each session has a lock of its own.

    Args:
        folder: the site's folder.
        stream: where noise and keys come from; the operating system by default. A stream with a key makes a
            site that can be repeated, for tests only.
    """

    def __init__(self, folder: SiteFolder, stream: SecureStream | None = None) -> None:
        self.folder, self._stream = folder, stream
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        self._lock = threading.Lock()

    def handle(self, data: bytes | bytearray) -> bytes:
        """Return the answer to a message. Never raises; the full story of a refusal is in the site's log."""
        number = 0
        try:
            message = wire.unpack_to_site(data)
            number = message.number
            return wire.pack(self._handle(message))
        except Denied as denied:
            detail = f" [{denied.detail}]" if denied.detail else ""
            self._log(f"refused a message: {denied.code}: {denied.sentence}{detail}")
            refusal = denied.refusal
        except BadMessage as error:  # about what came, not about what is here
            self._log(f"refused a message: {error}")
            refusal = Refusal(Code.REQUEST, str(error))
        except ProtocolError as error:
            self._log(f"refused a message: {error}")
            refusal = Refusal(Code.RUN, str(error))
        except Exception as error:
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

    def _review(self, message: wire.Review) -> wire.Reviewed:
        """Say what would be answered, the costs of all of them added up; pay for nothing."""
        told: list[wire.Refused | None] = []
        rows: int | None = None
        planned = Amount()
        if len(set(message.requests)) < len(message.requests):
            raise Denied(Code.REQUEST, "a review holds each request once")
        for data in message.requests:
            offer = self.folder.consider(data)
            if isinstance(offer, Refusal) and offer.code in (Code.COORDINATOR, Code.SIGNATURE):
                raise Denied(offer.code, offer.sentence)  # nobody has ten thousand forgeries looked at
            if isinstance(offer, Offer) and not offer.request.trial:
                offer = Refusal(Code.REQUEST, "the request was signed to be answered, not to be looked at")
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
            raise Denied(Code.REQUEST, "the request was signed to be looked at, not to be answered")
        if offer.parameters is None:
            return self._alone(message.number, offer)
        if offer.request.stage == offer.request.first:
            machine = self._open(offer)
            return wire.Offered(message.number, offer.rows, machine.start())
        session = self._session(offer.request.session)
        with session.lock:
            if session.request.plan != offer.request.plan or session.machine.parameters != offer.parameters:
                raise Denied(Code.RUN, "the session was opened for something else")
            _check_opening(session, offer.request, message.opening)
            masked = self._masked(session, offer, message.opening)
        if isinstance(masked, Refusal):
            return wire.refused(message.number, masked)
        return wire.Offered(message.number, offer.rows, masked, self._head())

    def _alone(self, number: int, offer: Offer) -> wire.FromSite:
        """Answer a request whose vector needs no masks: its noise protects it, or it is empty."""
        vector = self._vector(offer.reserve())
        if isinstance(vector, Refusal):
            return wire.refused(number, vector)
        return wire.Offered(number, offer.rows, vector.astype("<i8", copy=False).tobytes(), self._head())

    def _open(self, offer: Offer) -> secagg.Site:
        """Begin a session: its name is in the ledger from now on, and serves no other."""
        assert offer.parameters is not None
        folder = self.folder
        card = folder.card
        machine = secagg.Site(
            offer.parameters, card.name, folder.identity, stream=self._fresh(), seen=offer.ledger.runs
        )
        asked = offer.request
        with self._lock:  # nobody's sessions make room for those of another coordinator
            theirs = {
                name: other.request.run
                for name, other in self._sessions.items()
                if other.request.coordinator == asked.coordinator
            }
            past = [name for name, run in theirs.items() if run == asked.run]  # it opens another session
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
            raise Denied(Code.RUN, "this site is not in this session, or not any more")
        return session

    def _carry(self, message: wire.Carry) -> wire.FromSite:
        session = self._session(message.session)
        with session.lock:
            machine = session.machine
            answer: bytes | Refusal
            head = b""
            if session.last < 0 and machine.state is states.SiteState.SHARED:
                _check_opening(session, session.request, message.data)
                offer = self.folder.reconsider(session.request)  # policy and ledger as they are now
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
        """Pay, compute and mask: in this order. `opening` is the aggregator's message that asks for it."""
        vector = self._vector(offer.reserve())
        if isinstance(vector, Refusal):
            return vector
        session.last = offer.request.stage - offer.request.first
        session.machine.begin(session.last, vector)
        return session.machine.handle(opening)

    def _head(self) -> bytes:
        """Return the ledger's head, which leaves with every answer that was paid for."""
        head = self.folder.ledger.head()
        return b"" if head is None else head.pack()

    def _vector(self, grant: Grant | Refusal) -> NDArray[np.int64] | Refusal:
        return grant if isinstance(grant, Refusal) else self.folder.answer(grant, self._fresh())

    def _fresh(self) -> SecureStream:
        """Return randomness that nothing else has."""
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
        with contextlib.suppress(OSError):  # a full disk must not turn into a trace for others
            self.folder.log(line)


def _check_opening(session: _Session, request: Request, opening: bytes) -> None:
    """Raise unless the message asks for this stage's vector, and it was not given: before it is paid for."""
    step = request.stage - request.first
    asks = messages.unpack(opening, session.machine.parameters)
    if not isinstance(asks, messages.Delivery | messages.Begin) or asks.step != step:
        raise NotAnswered(f"the aggregator must ask for the vector of step {step} now")
    if step <= session.last:
        raise NotAnswered(f"step {step} is past")
