"""The site decides: a request goes in, an offer or a refusal comes out.

Claim. No message of a coordinator or an aggregator can lower this site's noise, widen its bounds, shrink the
roster below its policy, read a column that is not allowed, overdraw a budget or be answered twice. An `Offer`
costs nothing, and depends on the data only through the number of rows, where that is public.
Reason. A request is accepted once, and only while it is valid: its nonce is on the disk before it is examined
(`nonces`). Everything in an offer is computed here, by `review`, from the question alone; `grant` turns an
offer into a grant. A refusal repeats the policy, and says nothing of the data except whether the table can be
used.

Claim. Until it is approved or paid for, a request takes at most about a second of CPU and 256 MB, whatever it
holds, and never while another request waits for a lock.
Reason. Its size, and the values in it, are limited before it is decoded. What a question asks for first is
computed from arguments with limits; what may take longer, to the stage that is asked, has a bound that is
known beforehand (`Analysis.effort`), and is not computed above it (`takes_long`).
Tested in tests/unit/site/test_decide.py, test_effort.py, test_endpoint.py and test_kills.py; measured over
hostile studies in benchmarks/edge.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cape.blocks.table import Table
from cape.core.errors import BadMessage, DataError, InvalidInput
from cape.engine.session import AnalysisSession
from cape.privacy.accounting import Basis
from cape.secagg.parameters import Parameters
from cape.site.decide.approvals import Approvals
from cape.site.decide.codes import ASKS, Code, Denied, Refusal
from cape.site.decide.grant import Grant, Log, Offer, denying, guarded
from cape.site.decide.nonces import Nonces
from cape.site.decide.policy import Policy
from cape.site.decide.replay import Sessions
from cape.site.decide.request import MOST_VALID, SKEW, Request
from cape.site.decide.review import (
    basis_of,
    charged,
    check_columns,
    check_question,
    check_roster,
    check_terms,
    is_large,
    limits_of,
    price,
    question,
    same_grid,
    takes_long,
    whole_price,
)
from cape.site.keyring import fingerprint
from cape.site.ledger.gaps import Unsettled
from cape.site.ledger.heads import Head
from cape.site.ledger.ledger import Amount, Answers, Entry, Ledger
from cape.site.wire import MOST_NUMBERS
from cape.study.document import ParsedAnalysis

__all__ = ["Decider"]

_MOST_HELD = 100  # analyses of a study that waits: the desk computes what each would cost


@dataclass(frozen=True)
class Decider:
    """A site at the time of a request.

    Attributes:
        policy: what the site allows.
        ledger: what it has released.
        own: the site's public key.
        table: opens its rows; called only after every other check has passed.
        nonces: the requests that were accepted before.
        approvals: studies that are held, approved or refused; needed where the policy says "ask".
        sessions: kept over the stages of an analysis, so that a request need not repeat all earlier results.
        log: takes the details, one line each, which never leave the site.
        told: takes each request with the refusal that answers it, None if there is none.
        unchanged: whether the site still has this policy.
        clock: the time.
    """

    policy: Policy
    ledger: Ledger
    own: bytes
    table: Callable[[], Table]
    nonces: Nonces
    approvals: Approvals | None = None
    sessions: Sessions = field(default_factory=Sessions)
    log: Log = lambda line: None
    told: Callable[[Request, Refusal | None], None] = lambda request, refusal: None
    unchanged: Callable[[], bool] = lambda: True
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def consider(self, data: bytes) -> Offer | Refusal:
        """Return an offer, or a refusal that may be sent. Nothing is paid for.

        The request is accepted once, unless it is a trial. Never raises.
        """
        request = guarded(lambda: Request.open(data, self._trusts), "an unknown sender", self.log)
        if isinstance(request, Refusal):
            return request
        taken = guarded(lambda: self._take(request), self._who(request), self.log)
        return taken if isinstance(taken, Refusal) else self.reconsider(request)

    def reconsider(self, request: Request) -> Offer | Refusal:
        """Consider a request that was opened before, with the current policy, ledger and clock."""
        found = guarded(lambda: self._consider(request), self._who(request), self.log)
        self.told(request, found if isinstance(found, Refusal) else None)
        return found

    def decide(self, data: bytes) -> Grant | Refusal:
        """Return a grant, already in the ledger, or a refusal: `consider` and `reserve` in one."""
        offer = self.consider(data)
        return offer if isinstance(offer, Refusal) else offer.reserve()

    def _trusts(self, key: bytes) -> bool:
        return self.policy.who(key) is not None

    def _now(self) -> datetime:
        return self.clock().astimezone(UTC)

    def _who(self, request: Request) -> str:
        """Return who asks for what, for the log."""
        name, key = self.policy.who(request.coordinator) or "a stranger", fingerprint(request.coordinator)
        return f"{name} (key {key}) for {request.name!r} run {request.run.hex()} stage {request.stage}"

    def _take(self, request: Request) -> None:
        """Accept a request, once. Its coordinator is trusted: others were denied before this."""
        now = self._now()
        try:
            request.check()
        except InvalidInput as error:
            raise Denied(Code.REQUEST, str(error)) from None
        _valid(request, now)
        if request.trial:
            return
        with denying():
            self.nonces.take(request.coordinator, request.nonce, request.expires, int(now.timestamp()))

    def _consider(self, request: Request) -> Offer:
        policy, ledger, now = self.policy, self.ledger, self._now()
        if not self._trusts(request.coordinator):  # it was trusted when the request came
            raise Denied(
                Code.COORDINATOR,
                "this site does not trust this coordinator's key; its steward can run `cape site trust "
                "--coordinator` with the card that `cape deploy export-key` prints",
            )
        _valid(request, now)
        _settled(ledger, request.heads, self.own)
        if now.date() > policy.expires:
            raise Denied(
                Code.EXPIRED,
                "this site's policy has expired; its steward can write a later day for expires under [site] "
                "in site.toml",
            )
        asked = question(request.study, request.number, request.model)
        check_roster(policy, asked, request.roster, self.own)
        check_terms(policy, asked)
        if request.stage >= len(asked.stages):
            raise Denied(Code.REQUEST, f"the analysis has only {len(asked.stages)} stages")
        if ledger.has(request.run, request.stage, request.coordinator):
            raise Denied(
                Code.RUN, "this stage of the run was asked before; a retry is a new release with a new run"
            )
        limits, basis = limits_of(policy, asked, request.study_hash), basis_of(policy, asked)
        begun = ledger.begun(request.run, request.coordinator)
        approved = None
        unpaid = request.trial or not begun
        if unpaid and takes_long(asked, self.sessions.sizes(request)):
            approved = self._check_approval(request, long=True)
            with denying():
                ledger.check(request.coordinator, whole_price(policy, asked), limits, basis)
        check_question(policy, asked)
        if unpaid and approved is None and is_large(asked):
            approved = self._check_approval(request, long=True)
        session = self.sessions.at(request, asked)
        query, (calibration, local_std) = session.pending(), session.calibrate()
        check_columns(policy, asked, query)
        if calibration.size > MOST_NUMBERS:  # it would be paid for and could not be sent
            raise Denied(Code.REQUEST, f"a stage releases at most {MOST_NUMBERS} numbers")
        same_grid(calibration, request.grid)
        cost, once = (charged(policy, asked, each) for each in price(asked, request.stage, query, local_std))
        parameters = _secagg_parameters(request, asked, calibration.size)
        approved = approved or self._check_approval(request)
        due = cost if begun else cost + once
        if due != Amount():  # `reserve` checks again in the transaction that writes
            with denying():
                ledger.check(request.coordinator, due, limits, basis)
        rows = self._rows(session, request.bits)
        return Offer(
            request,
            query,
            calibration,
            local_std,
            asked.setting.parties,
            asked.setting.schema,
            rows if asked.setting.sizes_public else None,
            parameters,
            whole_price(policy, asked) if query.private else Amount(),
            _entry(request, asked, cost, once, basis),
            ledger,
            limits,
            lambda answers: self.unchanged() and approved(answers),
            self._who(request),
            self.log,
        )

    def _check_approval(self, request: Request, *, long: bool = False) -> Callable[[Answers], bool]:
        """Deny a study that the steward refused, or has not approved yet where the policy says "ask".

        One that takes `long` to judge needs an approval whatever the policy says.

        Return what says the same again when the answer is paid for: a decision may have come meanwhile.
        """
        approvals = self.approvals
        if approvals is not None and approvals.refused(request):
            raise Denied(
                Code.STEWARD,
                "this site's steward has refused the study; `cape site approve` at the site reverses that",
            )
        if self.policy.approve == "auto" and not long:
            return lambda answers: approvals is None or not approvals.refused(request)
        needed = self.policy.approvals
        answers = self.ledger.answers(request.study_hash, request.coordinator, request.number, request.run)
        approved = None if approvals is None else approvals.approved(request, needed, answers)
        if approvals is not None and approved is not None:
            return lambda answers: (
                not approvals.refused(request) and approvals.approved(request, needed, answers) is not None
            )
        if len(request.study.get("analyses", ())) > _MOST_HELD:
            raise Denied(
                Code.REQUEST,
                f"a study that this site's steward has to look at may have {_MOST_HELD} analyses; split it",
            )
        held = None if approvals is None else approvals.hold(request, needed, answers)
        if approvals is not None and held is None:
            raise Denied(Code.STEWARD, "too many studies wait for this site's steward; ask again later")
        if held is not None and held.question is not None:
            raise Denied(Code.APPROVAL, ASKS + held.question.text)
        sentence = "the study is held until this site's steward approves it (`cape site approve`)"
        if long:
            sentence += f": analysis {request.number} may take more than a second, or much memory, to judge"
        raise Denied(Code.APPROVAL, f"{sentence}; ask again later")

    def _rows(self, session: AnalysisSession, bits: int) -> int:
        """Return the number of rows, or deny without saying how many there are.

        Where it is private, the public `expected_rows` is compared and returned instead; no row is read.
        """
        sentence, policy = "this site's table cannot be used for this study", self.policy
        try:
            schema = session.stages.setting.schema
            public = policy.sizes_public and (schema.person is None or schema.person.sites == 1)
            if not public and policy.expected_rows is None:
                raise Denied(
                    Code.DATA,
                    "persons of this study may be at several sites, so their number here is private; this "
                    "site's steward can write expected_rows under [site] in site.toml",
                )
            rows = self.table().of(schema).rows() if public else policy.expected_rows or 0
            if rows < policy.min_rows:
                raise Denied(Code.DATA, sentence, "there are fewer rows than min_rows in the policy")
            if session.calibrate()[0].steps:
                ring = session.ring(rows)
                if ring.bits > bits:  # otherwise an overflow at this site would show as a failure
                    raise Denied(Code.REQUEST, f"{bits} bits may not hold this site's sums; use {ring.bits}")
        except (DataError, OverflowError) as error:
            raise Denied(Code.DATA, sentence, str(error)) from None
        return rows


def _entry(request: Request, asked: ParsedAnalysis, cost: Amount, once: Amount, basis: Basis) -> Entry:
    return Entry(
        request.coordinator,
        request.name,
        request.study_hash,
        request.number,
        asked.analysis.kind,
        asked.analysis.sentence,
        asked.scheme.name,
        request.run,
        request.stage,
        request.plan,
        cost,
        once,
        basis,
        asked.setting.neighbours,
    )


def _valid(request: Request, now: datetime) -> None:
    """Deny a request outside its period of validity."""
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
    """Deny everything while the ledger lacks lines that this site signed, as shown now or before."""
    try:
        for data in heads:
            ledger.show(Head.read(data), own)
    except BadMessage:
        raise Denied(Code.REQUEST, "the request holds an invalid ledger head; see heads.jsonl") from None
    if not ledger.settled:
        raise Denied(Code.LEDGER, str(Unsettled()))


def _secagg_parameters(request: Request, asked: ParsedAnalysis, size: int) -> Parameters | None:
    if not asked.scheme.masked or not size:
        return None
    try:
        return request.parameters(asked.setting.parties, size)
    except InvalidInput as error:
        raise Denied(Code.REQUEST, f"invalid secure-aggregation parameters: {error}") from None
