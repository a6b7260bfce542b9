"""The site decides: a request goes in, an offer or a refusal comes out; an offer that is paid for is a grant.

Claim. Nothing that a coordinator or an aggregator says can lower this site's noise, widen its bounds, shrink
the roster below its policy, read a column that is not allowed, overdraw a budget or be answered twice; and
when a `Grant` exists, the ledger holds it, synced. An `Offer` costs nothing, and holds nothing of the data
but the number of rows, where that is public.
Reason. A request is taken once, and only while it is valid: its nonce is on the disk before it is looked at
(`nonces`). Everything in an offer is computed here, by `review`, from the question alone; `Offer.reserve`
writes the ledger in one transaction with its limits, and makes the grant after that. Only a grant can be
answered, and once: two vectors of one grant would have two noises for one price. A refusal says what the
policy says, and nothing of the data but whether the table can be used.
Why two steps. The first rounds of secure aggregation do not depend on data: a site plays them on an offer,
and pays right before its masked vector leaves. A site that refuses or is lost early costs others nothing.
Tested in tests/steward/test_decide.py, test_member.py and test_kills.py.
"""

from __future__ import annotations

import threading
import traceback
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from typing import NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from cape.blocks.table import Table
from cape.engine.calibration import Calibration
from cape.engine.consortium import MOST_ROWS
from cape.engine.query import Query
from cape.engine.schemes import Parties
from cape.engine.schemes.messages import add_noise
from cape.errors import BadMessage, BudgetExceeded, CapeError, DataError, InvalidInput, Refused
from cape.noise import SecureStream
from cape.secagg.parameters import Parameters
from cape.steward.amount import Basis, Incomparable
from cape.steward.approvals import Approvals
from cape.steward.codes import Code, Denied, Refusal
from cape.steward.gaps import Unsettled
from cape.steward.heads import Head
from cape.steward.ledger import Amount, Entry, Ledger, Limit
from cape.steward.nonces import Nonces
from cape.steward.policy import Policy
from cape.steward.request import MOST_VALID, SKEW, Asked, Request, Talk
from cape.steward.review import (
    basis_of,
    charged,
    check_columns,
    check_question,
    check_roster,
    limits_of,
    price,
    question,
    same_grid,
    whole_price,
)
from cape.steward.wire import MOST_NUMBERS

__all__ = ["Conversations", "Grant", "Log", "Offer", "answer", "consider", "decide", "reconsider"]

Log = Callable[[str], None]
SOMETHING = "something went wrong at this site; its steward can find it in the log"
_MOST_TALKS = 32
_T = TypeVar("_T")


class _Once:
    """What can be used once, by one thread of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used = False

    def use(self) -> None:
        """Use it, or raise."""
        with self._lock:
            if self._used:
                raise Refused(
                    "a grant answers once; a second vector is a new release, asked for and paid again"
                )
            self._used = True

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Grant cannot be copied or pickled: the copy would answer again")


@dataclass(frozen=True, eq=False)
class Grant:
    """What a site has agreed to and paid for: all it needs to compute its vector, by its own code.

    Attributes:
        number: the line of the ledger.
        query: the sums; calibration: their grid and noise; local_std: noise per unit of sensitivity.
        mu_squared: what the ledger was charged for this stage, or for its run.
        parties: who may collude or be lost.
        rows: how many rows the site holds, where that is public, else None.
        parameters: the session of secure aggregation as this site agrees to it; None where it needs none.
    """

    number: int
    request: Request
    query: Query
    calibration: Calibration
    local_std: float
    mu_squared: Fraction
    parties: Parties
    rows: int | None
    parameters: Parameters | None
    once: _Once = field(default_factory=_Once, repr=False)

    @property
    def size(self) -> int:
        """How many numbers the vector has."""
        return self.calibration.size


@dataclass(frozen=True, eq=False)
class Offer:
    """What a site would agree to: checked whole, and neither paid for nor written down.

    Attributes are those of `Grant`, and `whole`: what all stages of the run together cost.
    """

    request: Request
    query: Query
    calibration: Calibration
    local_std: float
    parties: Parties
    rows: int | None
    parameters: Parameters | None
    whole: Amount
    entry: Entry = field(repr=False)
    ledger: Ledger = field(repr=False)
    limits: tuple[Limit, ...] = field(repr=False)
    who: str = field(repr=False)
    log: Log = field(repr=False)

    @property
    def size(self) -> int:
        """How many numbers the vector has."""
        return self.calibration.size

    def reserve(self) -> Grant | Refusal:
        """Write the ledger, synced, and return the grant after that; or return why not. Never raises."""
        return _guarded(self._reserve, self.who, self.log)

    def _reserve(self) -> Grant:
        if self.request.trial:
            raise Denied(Code.REQUEST, "the request was signed to be looked at, not to be answered")
        try:
            number = self.ledger.reserve(self.entry, self.limits)
        except BudgetExceeded as error:
            raise Denied(Code.BUDGET, str(error)) from None
        except (Incomparable, Unsettled) as error:
            raise Denied(Code.LEDGER, str(error)) from None
        except Refused as error:
            raise Denied(Code.RUN, str(error)) from None
        self.log(f"granted {self.who}: line {number} of the ledger, {self.request.study_hash[:16]}")
        return Grant(
            number,
            self.request,
            self.query,
            self.calibration,
            self.local_std,
            self.entry.cost.mu_squared + self.entry.once.mu_squared,
            self.parties,
            self.rows,
            self.parameters,
        )


class Conversations:
    """The questions of analyses in several stages, kept so that a stage needs the last answer only."""

    def __init__(self) -> None:
        self._talks: OrderedDict[bytes, Talk] = OrderedDict()
        self._lock = threading.Lock()

    def at(self, request: Request, asked: Asked) -> tuple[Query, Calibration, float]:
        """Return query, calibration and noise of the request's stage, from released numbers."""
        with self._lock:
            talk = self._talks.pop(request.plan, None)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of answers that say little: not this site's concern
                    talk = self._forward(talk, request, asked)
                    calibration, local_std = talk.calibrate()
            except (Denied, CapeError):
                raise
            except StopIteration:
                raise Denied(Code.HISTORY, "the analysis is over before this stage") from None
            except Exception as error:
                kind = type(error).__name__
            else:
                if not request.trial and len(asked.stages) > 1:
                    self._talks[request.plan] = talk
                while len(self._talks) > _MOST_TALKS:
                    self._talks.popitem(last=False)
                return talk.query, calibration, local_std
        raise Denied(Code.REQUEST, "the answers of earlier stages lead to no question", kind)

    def _forward(self, talk: Talk | None, request: Request, asked: Asked) -> Talk:
        start = request.stage - len(request.earlier)
        if talk is None or not start <= talk.stage <= request.stage:
            if start > 0:
                raise Denied(
                    Code.HISTORY,
                    "this site has no answers of earlier stages; send all of them with the request",
                )
            talk = Talk(asked)
        for earlier in request.earlier[talk.stage - start :]:
            talk.tell(earlier)
        return talk


def consider(
    policy: Policy,
    ledger: Ledger,
    data: bytes,
    *,
    own: bytes,
    table: Callable[[], Table],
    nonces: Nonces,
    approvals: Approvals | None = None,
    conversations: Conversations | None = None,
    log: Log | None = None,
    now: datetime | None = None,
) -> Offer | Refusal:
    """Return what this site would agree to, or a refusal that may be sent. Nothing is paid for. Never raises.

    Args:
        policy: what the site allows.
        ledger: what it has given.
        data: the request as it came. It is taken once, unless it is a trial.
        own: the site's public key.
        table: opens its rows; called only once everything else is in order.
        nonces: the requests that were taken before.
        approvals: studies that are held, approved or refused; needed where the policy says "ask".
        conversations: kept over the stages of an analysis, to spare the answers of all earlier stages.
        log: takes the full story, one line each, for the site's own eyes.
        now: the time, for tests.
    """
    told = log or (lambda line: None)
    trusted = lambda key: policy.who(key) is not None  # noqa: E731
    request = _guarded(lambda: Request.open(data, trusted), "somebody", told)
    if isinstance(request, Refusal):
        return request
    taken = _guarded(lambda: _take(nonces, request, _time(now)), _who(policy, request), told)
    if isinstance(taken, Refusal):
        return taken
    return reconsider(
        policy,
        ledger,
        request,
        own=own,
        table=table,
        approvals=approvals,
        conversations=conversations,
        log=log,
        now=now,
    )


def reconsider(
    policy: Policy,
    ledger: Ledger,
    request: Request,
    *,
    own: bytes,
    table: Callable[[], Table],
    approvals: Approvals | None = None,
    conversations: Conversations | None = None,
    log: Log | None = None,
    now: datetime | None = None,
) -> Offer | Refusal:
    """Return the same of a request that `consider` has opened before, as policy, ledger and clock are now."""
    told, talks, who = log or (lambda line: None), conversations or Conversations(), _who(policy, request)
    return _guarded(
        lambda: _consider(policy, ledger, request, own, table, approvals, talks, who, told, _time(now)),
        who,
        told,
    )


def decide(
    policy: Policy,
    ledger: Ledger,
    data: bytes,
    *,
    own: bytes,
    table: Callable[[], Table],
    nonces: Nonces,
    approvals: Approvals | None = None,
    conversations: Conversations | None = None,
    log: Log | None = None,
    now: datetime | None = None,
) -> Grant | Refusal:
    """Return a grant, written to the ledger already, or a refusal: `consider` and `reserve` in one."""
    offer = consider(
        policy,
        ledger,
        data,
        own=own,
        table=table,
        nonces=nonces,
        approvals=approvals,
        conversations=conversations,
        log=log,
        now=now,
    )
    return offer if isinstance(offer, Refusal) else offer.reserve()


def _guarded(work: Callable[[], _T], who: str, told: Log) -> _T | Refusal:
    """Return what comes of it, or a refusal; the full story goes to the log."""
    try:
        return work()
    except Denied as denied:
        verb = "held" if denied.code is Code.APPROVAL else "refused"
        detail = f" [{denied.detail}]" if denied.detail else ""
        told(f"{verb} {who}: {denied.code}: {denied.sentence}{detail}")
        return denied.refusal
    except Exception as error:  # never a stack trace to others; and no text of others' errors in the log
        told(f"failed {who}: {story(error)}")
        return Refusal(Code.SITE, SOMETHING)


def _time(now: datetime | None) -> datetime:
    return (now or datetime.now(UTC)).astimezone(UTC)


def _who(policy: Policy, request: Request) -> str:
    """Return who asks for what, as the log has it."""
    name, key = policy.who(request.coordinator) or "a stranger", request.coordinator.hex()[:16]
    return f"{name} (key {key}) for {request.name!r} run {request.run.hex()} stage {request.stage}"


def _consider(
    policy: Policy,
    ledger: Ledger,
    request: Request,
    own: bytes,
    table: Callable[[], Table],
    approvals: Approvals | None,
    conversations: Conversations,
    who: str,
    log: Log,
    now: datetime,
) -> Offer:
    if policy.who(request.coordinator) is None:  # it was trusted when the request came
        raise Denied(
            Code.COORDINATOR,
            "this site does not trust this coordinator's key; its steward can run `cape site trust "
            "--coordinator` with the card that `cape deploy export-key` prints",
        )
    _valid(request, now)
    _settled(ledger, request.heads, own)
    if now.date() > policy.expires:
        raise Denied(
            Code.EXPIRED,
            "this site's policy has expired; its steward can write a later day for expires under [site] in "
            "site.toml",
        )
    asked = question(request.study, request.number)
    check_roster(policy, asked, request.roster, own)
    check_question(policy, asked)
    if request.stage >= len(asked.stages):
        raise Denied(Code.REQUEST, "the analysis has fewer stages")
    if ledger.has(request.run, request.stage, request.coordinator):
        raise Denied(
            Code.RUN, "this stage of the run was asked before; a retry is a new release with a new run"
        )
    query, calibration, local_std = _measure(conversations, request, asked)
    check_columns(policy, asked, query)
    if calibration.size > MOST_NUMBERS:  # it could not be sent once it was paid for
        raise Denied(Code.REQUEST, f"a stage releases at most {MOST_NUMBERS} numbers")
    same_grid(calibration, request.grid)
    cost, once = (charged(policy, asked, each) for each in price(asked, request.stage, query, local_std))
    parameters = _parameters(request, asked, calibration)
    if approvals is not None and approvals.refused(request):
        raise Denied(
            Code.STEWARD,
            "this site's steward has refused the study; `cape site approve` there takes it back",
        )
    if policy.approve == "ask" and (approvals is None or not approvals.approved(request)):
        if approvals is not None and not approvals.hold(request):
            raise Denied(Code.STEWARD, "too many studies wait for this site's steward; ask again later")
        raise Denied(
            Code.APPROVAL,
            "the study is held until this site's steward approves it (`cape site approve`); ask again later",
        )
    limits, basis = limits_of(policy, asked, request.study_hash), basis_of(policy, asked)
    begun = ledger.begun(request.run, request.coordinator)
    _afford(ledger, request, limits, cost if begun else cost + once, basis)
    rows = _rows(policy, asked, table, calibration, local_std, request.bits)
    entry = Entry(
        request.coordinator,
        request.name,
        request.study_hash,
        request.number,
        asked.analysis.kind,
        asked.analysis.describe(),
        asked.scheme.name,
        request.run,
        request.stage,
        request.plan,
        cost,
        once,
        basis,
        asked.setting.neighbours,
    )
    return Offer(
        request,
        query,
        calibration,
        local_std,
        asked.setting.parties,
        rows if asked.setting.neighbours == "replace-one" else None,
        parameters,
        whole_price(policy, asked) if query.blocks else Amount(),
        entry,
        ledger,
        limits,
        who,
        log,
    )


def _take(nonces: Nonces, request: Request, now: datetime) -> None:
    """Let a request come in, once. Who is not trusted has been denied by now, and learns nothing more."""
    try:
        request.check()
    except InvalidInput as error:
        raise Denied(Code.REQUEST, str(error)) from None
    _valid(request, now)
    if request.trial:
        return
    try:
        nonces.take(request.coordinator, request.nonce, request.expires, int(now.timestamp()))
    except Refused as error:
        raise Denied(Code.RUN, str(error)) from None


def _valid(request: Request, now: datetime) -> None:
    """Deny a request outside its time."""
    seconds = now.timestamp()
    if request.issued > seconds + SKEW:
        raise Denied(
            Code.VALIDITY,
            f"the request is not valid yet: it was issued more than {SKEW // 60} minutes from now by this "
            "site's clock; compare the clocks",
        )
    if request.expires < seconds:
        raise Denied(Code.VALIDITY, "the request has expired by this site's clock; sign a new one")
    if request.expires - request.issued > MOST_VALID:
        raise Denied(
            Code.VALIDITY, f"a request may be valid for at most {MOST_VALID // 3600} hours; sign a new one"
        )


def _settled(ledger: Ledger, heads: Sequence[bytes], own: bytes) -> None:
    """Deny everything while the ledger lacks lines that this site signed: what the request shows, too."""
    try:
        for data in heads:
            ledger.show(Head.read(data), own)
    except BadMessage:
        raise Denied(
            Code.REQUEST, "a ledger's head that came with the request is none; see heads.jsonl"
        ) from None
    if not ledger.settled:
        raise Denied(Code.LEDGER, str(Unsettled()))


def _measure(
    conversations: Conversations, request: Request, asked: Asked
) -> tuple[Query, Calibration, float]:
    try:
        return conversations.at(request, asked)
    except InvalidInput as error:  # about the request's own numbers
        raise Denied(Code.REQUEST, f"the study is not in order: {error}") from None


def _parameters(request: Request, asked: Asked, calibration: Calibration) -> Parameters | None:
    if asked.scheme.name != "cape" or not calibration.size:
        return None
    try:
        return request.parameters(asked.setting.parties, calibration.size)
    except InvalidInput as error:
        raise Denied(Code.REQUEST, f"invalid secure-aggregation parameters: {error}") from None


def _rows(
    policy: Policy,
    asked: Asked,
    table: Callable[[], Table],
    calibration: Calibration,
    local_std: float,
    bits: int,
) -> int:
    """Return the number of rows, or deny without a word about how many there are.

    Where it is private, what is compared and returned is the number that everyone may know; no row is read.
    """
    sentence = "this site's table cannot be used for this study"
    parties = asked.setting.parties
    try:
        rows = table().rows() if policy.sizes_public else policy.expected_rows or 0
        if rows < policy.min_rows:
            raise Denied(Code.DATA, sentence, "there are fewer rows than min_rows in the policy")
        most = rows if asked.setting.neighbours == "replace-one" else MOST_ROWS
        if calibration.steps:
            ring = calibration.ring(most, parties.sites, asked.scheme.reach(parties, local_std))
            if ring.bits > bits:  # else a vector that does not fit would be told by a failure
                raise Denied(Code.REQUEST, f"{bits} bits may not hold this site's sums; use {ring.bits}")
    except DataError as error:
        raise Denied(Code.DATA, sentence, str(error)) from None
    except OverflowError as error:
        raise Denied(Code.DATA, sentence, str(error)) from None
    return rows


def _afford(ledger: Ledger, request: Request, limits: Sequence[Limit], cost: Amount, basis: Basis) -> None:
    """Deny what the ledger cannot cover now. What counts is `reserve`, which looks again as it writes."""
    if cost == Amount():
        return
    try:
        ledger.check(request.coordinator, cost, limits, basis)
    except BudgetExceeded as error:
        raise Denied(Code.BUDGET, str(error)) from None
    except Incomparable as error:
        raise Denied(Code.LEDGER, str(error)) from None


def answer(grant: Grant, table: Table, stream: SecureStream | None = None) -> NDArray[np.int64]:
    """Return what a site contributes: its exact sums on the grid, plus its own noise. Once for each grant.

    With scheme "cape" this vector goes into secure aggregation (`grant.parameters`); with "conventional" it
    is protected by itself.
    """
    grant.once.use()
    own = (stream or SecureStream()).fork(f"release {grant.number}")
    sums = tuple(part for parts in table.sums(grant.query.blocks, own.fork("sample")) for part in parts)
    if not sums:
        return np.zeros(0, np.int64)
    return add_noise(grant.calibration.encode(sums), own.fork("noise"))


def story(error: BaseException) -> str:
    """Return what kind of error and where, without its text: other libraries quote cells and keys."""
    text = str(error) if isinstance(error, CapeError) else ""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    where = " < ".join(f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in reversed(frames))
    return f"{type(error).__name__} {text} at {where}"
