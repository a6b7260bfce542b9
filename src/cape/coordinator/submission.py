"""A study sent to its sites: checked, asked stage by stage, paid for, and resumed after a crash.

Claim. The amount that a submission reports as spent includes every stage of which something may have left a
site, failed attempts included, whatever was killed and whenever; its guarantee covers all of it.
Reason. A stage is in the record, synced, before any site is asked. It is given back only if every site of the
study states, signed, that its ledger does not have the stage and that it has closed the run, so that it never
will. A stage whose fate is unknown counts as spent. An analysis that broke off is asked again as a new run,
with fresh noise, and paid again. (A lying aggregator spoils the coordinator's sum, and nobody's privacy: the
sites rely on their own ledgers.)
Tested in tests/unit/coordinator/test_submission.py and test_resume.py.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any, TypeVar

from cape.coordinator.calls import (
    AskHello,
    AskKnown,
    AskReview,
    AskStage,
    Call,
    CallFailed,
    GotHello,
    GotKnown,
    GotReview,
    Link,
    Reply,
    StageOutcome,
    pack,
    unpack_reply,
)
from cape.coordinator.folder import CoordinatorFolder
from cape.coordinator.heads import HEADS, Heads
from cape.coordinator.record import Answered, Attempt, Record
from cape.coordinator.site_report import SiteReport
from cape.core.errors import (
    BadMessage,
    BudgetExceeded,
    CapeError,
    InvalidInput,
    LedgerWarning,
    ProtocolError,
    TooFewSites,
    outside,
)
from cape.engine.execute import Progress
from cape.engine.result import Release, ReleaseGuarantee
from cape.engine.schemes import Cost
from cape.engine.session import AnalysisSession, StageResult
from cape.noise import SecureStream
from cape.privacy import Budget
from cape.secagg.parameters import RUN_BYTES
from cape.site.decide.policy import SCHEMES
from cape.site.decide.request import make_request
from cape.site.wire import Inquiry, Known, Refused, Reviewed
from cape.study import Entry, Study
from cape.study.document import ParsedAnalysis, document, hash_of, read

__all__ = ["Submission"]

_Reply = TypeVar("_Reply", bound=Reply)
Told = Callable[[int, Mapping[str, Refused], Mapping[str, str]], None]


class Submission:
    """One study, its sites behind a link, and the record of what was asked.

    >>> submission = Submission(study, folder, link, record)
    >>> submission.check()
    >>> releases = [submission.answer(entry) for entry in study.analyses]

    With a record that has entries, the study is resumed: finished analyses are not asked again.

    Args:
        study: the study. Its scheme must be "cape" or "conventional".
        folder: the coordinator's key and the sites' pinned keys.
        link: reaches the aggregator.
        record: what was asked before; the submission writes to it.
        progress: called after each stage.
        told: called after each stage, with the number of the analysis, the refusals and the lost sites.
    """

    def __init__(
        self,
        study: Study,
        folder: CoordinatorFolder,
        link: Link,
        record: Record,
        progress: Callable[[Progress], None] | None = None,
        told: Told = lambda number, refusals, lost: None,
    ) -> None:
        if study.scheme not in SCHEMES:
            raise InvalidInput(
                f"scheme {study.scheme!r} cannot be run across machines; use one of {', '.join(SCHEMES)}"
            )
        self.study, self.record = study, record
        self._identity = folder.identity
        self._roster = folder.roster(study.sites)
        self._keys = dict(zip(self._roster.names, self._roster.keys, strict=True))
        self._heads = Heads(folder.path / HEADS, self._keys)
        self._link, self._progress = link, progress
        self._document = document(study)
        self._asked: Callable[[int], ParsedAnalysis] = cache(lambda number: read(self._document, number))
        self._first = cache(lambda number: self._asked(number).session())  # stays at its first stage
        for entry in study.analyses:
            self._asked(entry.number)  # an invalid analysis fails before anything is asked
        record.of(hash_of(self._document), study.name)
        self._told = told

    @property
    def spent(self) -> Fraction:
        """The share of the budget that is spent, failed attempts included."""
        return sum((self._cost(each.number, each.spent) for each in self.record.attempts), Fraction(0))

    @property
    def budget(self) -> Budget:
        """The budget with what is spent of it."""
        return Budget(self.study.budget.epsilon, self.study.budget.delta, self.spent)

    @property
    def guarantee(self) -> ReleaseGuarantee:
        """The guarantee of everything that was asked, failed attempts included."""
        return self.study.guarantee(self.spent)

    def check(self) -> dict[str, SiteReport]:
        """Ask every site for its key, and what it would say to each unfinished analysis. Nothing is spent.

        Analyses that broke off and that the study cannot pay for again are left out.
        """
        sites = self._roster.names
        present = self._call(AskHello(sites), GotHello).sites
        entries = [entry for entry in self.study.analyses if self._can_be_asked(entry)]
        trials = tuple(
            self._request(
                entry.number, self._first(entry.number), SecureStream().bytes(RUN_BYTES), trial=True
            )
            for entry in entries
        )
        reviews = self._call(AskReview(sites, trials), GotReview).sites
        found = {}
        for site in self.study.sites:
            who, said = present.get(site), reviews.get(site)
            reviewed = said if isinstance(said, Reviewed) else None
            found[site] = SiteReport(
                site,
                who,
                who is not None and (who.name, who.key) != (site, self._keys[site]),
                self._spread(entries, reviewed.refusals) if reviewed else (),
                said if isinstance(said, Refused) else None,
                reviewed.rows if reviewed else None,
            )
        return found

    def finished(self, entry: Entry) -> bool:
        """Return whether an analysis has its answer in the record."""
        return any(each.number == entry.number and each.finished for each in self.record.attempts)

    def _spread(
        self, asked: Sequence[Entry], refusals: Sequence[Refused | None]
    ) -> tuple[Refused | None, ...]:
        """Return a refusal or None for every analysis of the study; None for those not asked about."""
        found = {entry.number: refusal for entry, refusal in zip(asked, refusals, strict=True)}
        return tuple(found.get(entry.number) for entry in self.study.analyses)

    def resume(self) -> list[Attempt]:
        """Settle runs that were interrupted, in the record; return them.

        A stage that was asked and not answered costs nothing if every site states that its ledger does not
        have it; each site closes the run, so that this remains true. Otherwise it is spent.
        """
        cut_off = [attempt for attempt in self.record.attempts if attempt.open]
        for attempt in cut_off:
            if attempt.asked == len(attempt.answers):
                if self._replayed(attempt) is not None:
                    self.record.finished(attempt)
                else:
                    self.record.failed(attempt, attempt.asked, "it was interrupted between two stages")
            else:
                self._settle(attempt, "it was interrupted during a stage")
        return cut_off

    def _settle(self, attempt: Attempt, why: str) -> bool:
        """Ask every site whether the last stage was paid for; return whether it counts as spent.

        It does not if every site states, signed, that its ledger does not have it and never will. While a
        site cannot be reached, it counts as spent, and the attempt stays open.
        """
        stage = len(attempt.answers)
        inquiry = Inquiry(0, attempt.run, stage, self._identity.public).signed(self._identity)
        told = self._call(AskKnown(self._roster.names, inquiry), GotKnown).sites
        known = [_said(told.get(site), key, inquiry) for site, key in self._keys.items()]
        if True in known:
            self.record.failed(attempt, attempt.asked, why)
        elif None not in known:
            self.record.failed(attempt, stage, why)
            return False
        return True

    def answer(self, entry: Entry) -> Release:
        """Return the release of an analysis: asked now, or from the record if it was answered before.

        Raises:
            BudgetExceeded: failed attempts leave too little for another. Nothing was asked.
            TooFewSites: too few sites took part; the text says which and why. `error.sent` says whether the
                stage is spent.
        """
        done = self._finished(entry.number)  # needs no site
        if done is None and any(attempt.open for attempt in self.record.attempts):
            self.resume()
            done = self._finished(entry.number)
        if done is not None:
            return done
        session = self._session(entry.number)
        if self._whole(entry) > self._left_for(entry):
            raise self._exceeded(entry)
        entry.analysis.require_extras()
        session.guarantee(len(session.stages))  # fails, if at all, before anything is paid for
        session.calibrate()
        attempt = self.record.begin(entry.number, SecureStream().bytes(RUN_BYTES))
        return self._run(attempt, session)

    def _run(self, attempt: Attempt, session: AnalysisSession) -> Release:
        history: list[StageResult] = []
        last: Sequence[str] = ()  # participants of the last stage: they know all results before it
        while not session.done:
            began, note = time.perf_counter(), session.pending().note
            requests = self._requests(attempt, session, history, last)
            self.record.asked(attempt)
            shown = {site: self._heads.shown(site) for site in requests}
            outcome = self._call(AskStage.of(requests, session.calibrate()[0].size), StageOutcome)
            self._note(attempt, outcome)
            took_part = {site: shown[site] for site in outcome.participants if site in shown}
            for problem in self._heads.take(outcome.heads, took_part):
                warnings.warn(problem, LedgerWarning, stacklevel=outside())
            if outcome.failure is not None:
                raise self._too_few(attempt, outcome)
            answered = self._answered(session, outcome)
            self.record.answered(attempt, answered)
            history.append(_result(session, answered))
            last = answered.participants
            if self._progress is not None:
                done, took = session.stage + 1, time.perf_counter() - began
                epsilon = session.guarantee(done).epsilon
                self._progress(Progress(done, len(session.stages), epsilon, took, note))
            session.tell(history[-1])
        self.record.finished(attempt)
        return self._release(attempt, session)

    def _note(self, attempt: Attempt, outcome: StageOutcome) -> None:
        """Record and report refusals; names that the aggregator made up are ignored."""
        refusals = {site: said for site, said in outcome.refusals.items() if site in self._roster.names}
        for site, said in refusals.items():
            self.record.refused(attempt, site, said.code, said.sentence)
        lost = {site: round_ for site, round_ in outcome.lost.items() if site in self._roster.names}
        self._told(attempt.number, refusals, lost)

    def _requests(
        self,
        attempt: Attempt,
        session: AnalysisSession,
        history: Sequence[StageResult],
        last: Sequence[str],
    ) -> dict[str, bytes]:
        """Return each site's request: a participant of the last stage needs only that stage's result."""
        first, steps = session.keys()

        @cache
        def packed(knows: bool) -> bytes:
            earlier = history[-1:] if knows else history
            return self._request(
                attempt.number, session, attempt.run, earlier=earlier, first=first, steps=steps
            )

        return {site: packed(site in last) for site in self._roster.names}

    def _request(self, number: int, session: AnalysisSession, run: bytes, **options: Any) -> bytes:
        """Return a packed request; it shows every site the longest head of its ledger."""
        heads = [head.pack() for site in self._roster.names if (head := self._heads.shown(site)) is not None]
        owned: dict[str, Any] = {"roster": self._roster, "identity": self._identity, "heads": heads}
        trial = options.get("trial", False)
        owned["model"] = None if trial else self._model(number)
        return make_request(self._document, number, session, run=run, **owned, **options).pack()

    def _answered(self, session: AnalysisSession, outcome: StageOutcome) -> Answered:
        """Return the answer of a stage, or raise if the aggregator contradicts itself."""
        setting, took_part = session.stages.setting, outcome.participants
        size, rows = session.calibrate()[0].size, None
        known = len(set(took_part)) == len(took_part) and set(took_part) <= set(self._roster.names)
        if not known or len(took_part) < setting.parties.min_sites:
            raise BadMessage("the aggregator named invalid participants")
        if not set(outcome.late) <= set(took_part):
            raise BadMessage("the aggregator named sites as late that are not in the sum")
        if len(outcome.total) != 8 * size:
            raise BadMessage("the aggregator's total does not have as many numbers as the stage releases")
        if setting.sizes_public:
            if set(outcome.rows) != set(took_part):
                raise BadMessage("the aggregator did not say how many rows each participant holds")
            rows = sum(outcome.rows.values())
        if size:
            session.ring(rows)  # each site has checked its own rows only
        traffic = outcome.traffic
        sent = sum(each.sent + each.received for each in traffic)
        cost = Cost(len(traffic), sent, outcome.per_site, sum(each.seconds for each in traffic))
        return Answered(outcome.total, took_part, rows, cost, outcome.late)

    def _too_few(self, attempt: Attempt, outcome: StageOutcome) -> TooFewSites:
        """Record that a run failed, and return the error with every site's reason."""
        reasons = [f"{site} refused ({said})" for site, said in outcome.refusals.items()]
        reasons += [f"{site} was lost in the round {round_!r}" for site, round_ in outcome.lost.items()]
        why = "; ".join([str(outcome.failure), *reasons])
        error = TooFewSites(why)
        error.sent = True
        if outcome.sent:
            self.record.failed(attempt, attempt.asked, why)
        else:  # so the aggregator says: ask the sites; the attempt stays open if they cannot be reached
            with contextlib.suppress(CapeError):
                error.sent = self._settle(attempt, why)
        spent = len(attempt.answers) + error.sent
        stages = len(self._asked(attempt.number).stages)
        if stages > 1:
            error.add_note(f"{spent} of {stages} stages had begun; what they cost stays spent")
        return error

    def _replayed(self, attempt: Attempt) -> Release | None:
        """Return the release from the recorded numbers; None if the analysis has further stages."""
        session = self._session(attempt.number)
        for answered in attempt.answers:
            if session.done:
                break
            try:
                session.tell(_result(session, answered))
            except CapeError:  # it fails as it did before
                return None
        return self._release(attempt, session) if session.done else None

    def _session(self, number: int) -> AnalysisSession:
        """Return an analysis at its first stage, with the model of the one that it follows."""
        model = self._model(number)
        return (self._asked(number) if model is None else read(self._document, number, model)).session()

    def _model(self, number: int) -> dict[str, Any] | None:
        """Return the released model that an analysis needs, as plain data; None if it needs none.

        Raises:
            InvalidInput: that is not released yet.
        """
        earlier = self._asked(number).analysis.follows
        if earlier is None:
            return None
        release = self._finished(earlier)
        if release is None:
            raise InvalidInput(
                f"analysis {number} needs the model of analysis {earlier}, which is not released"
            )
        told: dict[str, Any] = release.model.predictor.to_dict()
        return told

    def _finished(self, number: int) -> Release | None:
        for attempt in self.record.attempts:
            if attempt.number == number and attempt.finished:
                release = self._replayed(attempt)
                if release is None:
                    raise InvalidInput(
                        f"{self.record.path}: the record of analysis {number} gives no answer with this "
                        "version of cape"
                    )
                return release
        return None

    def _release(self, attempt: Attempt, session: AnalysisSession) -> Release:
        sites, took_part, lost = list(self.study.sites), set[str](), set[str]()
        for answered in attempt.answers:
            took_part.update(answered.participants)
            lost.update(set(sites) - set(answered.participants), answered.late)
        cost = sum((answered.cost for answered in attempt.answers), Cost(0, 0, 0, 0.0))
        participants = [site for site in sites if site in took_part]
        return session.release(participants, cost, [site for site in sites if site in lost])

    def _cost(self, number: int, stages: int) -> Fraction:
        return self._first(number).price(stages)

    def _whole(self, entry: Entry) -> Fraction:
        """Return what all stages of an analysis cost."""
        return self._cost(entry.number, len(self._asked(entry.number).stages))

    def _can_be_asked(self, entry: Entry) -> bool:
        return not self.finished(entry) and self._whole(entry) <= self._left_for(entry)

    def _left_for(self, entry: Entry) -> Fraction:
        """Return what an analysis may cost now; one that broke off leaves the others what they need."""
        left = 1 - self.spent
        if any(each.number == entry.number and each.spent for each in self.record.attempts):
            others = [each for each in self.study.analyses if each != entry and not self.finished(each)]
            left -= sum(map(self._whole, others))
        return max(left, Fraction(0))

    def _exceeded(self, entry: Entry) -> BudgetExceeded:
        broken = [each for each in self.record.attempts if not each.finished]
        lost = sum((self._cost(each.number, each.spent) for each in broken), Fraction(0))
        return BudgetExceeded(
            f"analysis {entry.number} ({entry.analysis.kind}) needs {float(self._whole(entry)):g} of the "
            f"budget, and {float(self._left_for(entry)):g} is left for it: {float(lost):g} was spent on "
            "attempts that broke off. No site gives a study more than it states: write a new study for what "
            "is missing, and leave some of its budget free"
        )

    def _call(self, call: Call, kind: type[_Reply]) -> _Reply:
        reply = unpack_reply(self._link.call(pack(call)))
        if isinstance(reply, CallFailed):
            raise ProtocolError(f"the aggregator failed: {reply.sentence}")
        if not isinstance(reply, kind):
            raise BadMessage("the aggregator's reply does not fit the call")
        return reply


def _said(known: Known | None, key: bytes, inquiry: Inquiry) -> bool | None:
    """Return what a site says of its ledger; None without a valid signature."""
    if known is None:
        return None
    try:
        known.verify(key, inquiry)
    except BadMessage:
        return None
    return known.known


def _result(session: AnalysisSession, answered: Answered) -> StageResult:
    took_part, late, stages = len(answered.participants), len(answered.late), session.stages
    noise = stages.scheme.noise_in_total(took_part, stages.setting.parties, late)
    return StageResult(answered.total, took_part, answered.rows, noise)
