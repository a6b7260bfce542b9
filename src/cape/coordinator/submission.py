"""A study sent to its sites: checked, asked stage after stage, paid for, and gone on with after a crash.

Claim. What a submission says is spent covers every stage of which something may have left a site, failed
attempts included, whatever was killed and whenever; and its promise is about all of it.
Reason. A stage is in the record, synced, before anybody is asked. It is given back only if the aggregator
says that no vector can have left a site, or, after a crash, if every site of the study says that its ledger
does not have the stage, and has closed the run: then it never will. What is not known counts as spent. An
analysis that broke off is asked again as a new run, with fresh noise, and paid again.
(An aggregator that lies about it spoils the coordinator's sum, and nobody's privacy: what counts for the
sites is their own ledgers.)
Tested in tests/coordinator/test_submission.py and test_resume.py.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import TypeVar

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
from cape.engine.execute import Progress
from cape.engine.result import Release, ReleaseGuarantee
from cape.engine.schemes import Cost
from cape.engine.session import AnalysisSession, StageResult
from cape.errors import (
    BadMessage,
    BudgetExceeded,
    CapeError,
    InvalidInput,
    LedgerWarning,
    ProtocolError,
    TooFewSites,
)
from cape.noise import SecureStream
from cape.privacy import Budget
from cape.secagg.parameters import RUN_BYTES
from cape.steward.policy import SCHEMES
from cape.steward.request import make_request
from cape.steward.wire import Inquiry, Known, Refused, Reviewed
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

    With a record that has something in it, the study goes on: what is finished is not asked again.

    Args:
        study: what is asked of whom. Its scheme must be "cape" or "conventional".
        folder: the coordinator's key and the sites' pinned keys.
        link: reaches the aggregator.
        record: what was asked before; it is written as things happen.
        progress: called after each stage.
        told: called after each stage, with the number of the analysis, who refused and why, and who was lost.
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
                f"scheme {study.scheme!r} cannot be run across machines; take one of {', '.join(SCHEMES)}"
            )
        self.study, self.record = study, record
        self._identity = folder.identity
        self._roster = folder.roster(study.sites)
        self._heads = Heads(
            folder.path / HEADS, dict(zip(self._roster.names, self._roster.keys, strict=True))
        )
        self._link, self._progress = link, progress
        self._document = document(study)
        self._asked: Callable[[int], ParsedAnalysis] = cache(lambda number: read(self._document, number))
        self._first = cache(lambda number: self._asked(number).session())  # never told anything
        for entry in study.analyses:
            self._asked(entry.number)  # what cannot be asked fails before anything is
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
        """What all that was asked promises together, failed attempts included."""
        return self.study.guarantee(self.spent)

    def check(self) -> dict[str, SiteReport]:
        """Ask every site who it is and what it would say to each analysis that is left. Nothing is spent.

        Analyses that broke off and that the study cannot pay for again are not asked about.
        """
        sites = self._roster.names
        present = self._call(AskHello(sites), GotHello).sites
        entries = [entry for entry in self.study.analyses if self._can_be_asked(entry)]
        trials = tuple(self._trial(entry.number) for entry in entries)
        reviews = self._call(AskReview(sites, trials), GotReview).sites
        keys = dict(zip(self._roster.names, self._roster.keys, strict=True))
        found = {}
        for site in self.study.sites:
            who, said = present.get(site), reviews.get(site)
            reviewed = said if isinstance(said, Reviewed) else None
            found[site] = SiteReport(
                site,
                who,
                who is not None and (who.name, who.key) != (site, keys[site]),
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
        """Return one refusal or None for every analysis of the study; what is finished is not refused."""
        found = {entry.number: refusal for entry, refusal in zip(asked, refusals, strict=True)}
        return tuple(found.get(entry.number) for entry in self.study.analyses)

    def resume(self) -> list[Attempt]:
        """Find out what became of runs that were cut off, and write it down; return them.

        A stage that was asked and not answered costs nothing if every site says that its ledger does not have
        it; each site closes the run, so that it stays so. Otherwise it is spent.
        """
        cut_off = [attempt for attempt in self.record.attempts if attempt.open]
        for attempt in cut_off:
            if attempt.asked == len(attempt.answers):
                if self._replayed(attempt) is not None:
                    self.record.finished(attempt)
                else:
                    self.record.failed(attempt, attempt.asked, "it was cut off between two stages")
            else:
                self._settle(attempt, "it was cut off in the middle of a stage")
        return cut_off

    def _settle(self, attempt: Attempt, why: str) -> bool:
        """Ask every site whether the last stage was paid for; return whether it counts as spent.

        It does not if every site says, signed, that its ledger does not have it and never will. If one cannot
        be asked, it counts as spent, and the attempt stays open until it can be.
        """
        stage = len(attempt.answers)
        inquiry = Inquiry(0, attempt.run, stage, self._identity.public).signed(self._identity)
        told = self._call(AskKnown(self._roster.names, inquiry), GotKnown).sites
        keys = dict(zip(self._roster.names, self._roster.keys, strict=True))
        known = {site: _said(told.get(site), key, inquiry) for site, key in keys.items()}
        if True in known.values():
            self.record.failed(attempt, attempt.asked, why)
        elif None not in known.values():
            self.record.failed(attempt, stage, why)
            return False
        return True

    def _settled(self, attempt: Attempt, why: str) -> bool:
        """Return what `_settle` does; True, and the attempt stays open, if nobody can be asked now."""
        try:
            return self._settle(attempt, why)
        except CapeError:
            return True

    def answer(self, entry: Entry) -> Release:
        """Return the release of an analysis: asked now, or out of the record if it was answered before.

        Raises:
            BudgetExceeded: attempts that failed leave too little for another. Nothing was asked.
            TooFewSites: too few sites took part; the text says which and why. `error.sent` says whether the
                stage is spent.
        """
        done = self._finished(entry.number)  # nobody has to be there for that
        if done is None and any(attempt.open for attempt in self.record.attempts):
            self.resume()
            done = self._finished(entry.number)
        if done is not None:
            return done
        session = self._asked(entry.number).session()
        whole = session.price(len(session.stages))
        if whole > self._left_for(entry):
            raise self._exceeded(entry, whole)
        session.guarantee(len(session.stages))  # what cannot be guaranteed fails before it is paid for
        session.calibrate()
        attempt = self.record.begin(entry.number, SecureStream().bytes(RUN_BYTES))
        return self._run(attempt, session)

    def _run(self, attempt: Attempt, session: AnalysisSession) -> Release:
        history: list[StageResult] = []
        last: Sequence[str] = ()  # who took part in the last stage, and knows all results before it
        while not session.done:
            began, note = time.perf_counter(), session.pending().note
            requests = self._requests(attempt, session, history, last)
            self.record.asked(attempt)
            shown = {site: self._heads.shown(site) for site in requests}
            outcome = self._call(AskStage.of(requests, session.calibrate()[0].size), StageOutcome)
            self._tell(attempt, outcome)
            took_part = {site: shown[site] for site in outcome.participants if site in shown}
            for problem in self._heads.take(outcome.heads, took_part):
                warnings.warn(problem, LedgerWarning, stacklevel=2)
            if outcome.failure is not None:
                raise self._too_few(attempt, outcome)
            answered = self._answered(session, outcome)
            self.record.answered(attempt, answered)
            history.append(_result(answered))
            last = answered.participants
            if self._progress is not None:
                done, took = session.stage + 1, time.perf_counter() - began
                epsilon = session.guarantee(done).epsilon
                self._progress(Progress(done, len(session.stages), epsilon, took, note))
            session.tell(history[-1])
        self.record.finished(attempt)
        return self._release(attempt, session)

    def _tell(self, attempt: Attempt, outcome: StageOutcome) -> None:
        """Write down who refused, and say it; the aggregator may have named anybody."""
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
        """Return each site's request: who took part in the last stage needs its result only."""
        first, steps = session.keys()

        @cache
        def packed(knows: bool) -> bytes:
            return make_request(
                self._document,
                attempt.number,
                session,
                roster=self._roster,
                run=attempt.run,
                identity=self._identity,
                earlier=history[-1:] if knows else history,
                first=first,
                steps=steps,
                heads=self._shown(),
            ).pack()

        return {site: packed(site in last) for site in self._roster.names}

    def _shown(self) -> list[bytes]:
        """Return the longest head of each site's ledger: a request shows them all, and each finds its own."""
        heads = [self._heads.shown(site) for site in self._roster.names]
        return [head.pack() for head in heads if head is not None]

    def _trial(self, number: int) -> bytes:
        """Return a request to look at: it is signed as such, and no site answers it."""
        return make_request(
            self._document,
            number,
            self._asked(number).session(),
            roster=self._roster,
            run=SecureStream().bytes(RUN_BYTES),
            identity=self._identity,
            trial=True,
            heads=self._shown(),
        ).pack()

    def _answered(self, session: AnalysisSession, outcome: StageOutcome) -> Answered:
        """Return what a stage gave, if it can be right."""
        setting, took_part = session.stages.setting, outcome.participants
        size, rows = session.calibrate()[0].size, None
        known = len(set(took_part)) == len(took_part) and set(took_part) <= set(self._roster.names)
        if not known or len(took_part) < setting.parties.min_sites:
            raise BadMessage("the aggregator named participants that cannot be right")
        if len(outcome.total) != 8 * size:
            raise BadMessage("the aggregator's total does not have as many numbers as the stage releases")
        if setting.neighbours == "replace-one":
            if set(outcome.rows) != set(took_part):
                raise BadMessage("the aggregator did not say how many rows each participant holds")
            rows = sum(outcome.rows.values())
        if size:
            session.ring(rows)  # each site is sure of its own rows only
        traffic = outcome.traffic
        sent = sum(each.sent + each.received for each in traffic)
        cost = Cost(len(traffic), sent, outcome.per_site, sum(each.seconds for each in traffic))
        return Answered(outcome.total, took_part, rows, cost)

    def _too_few(self, attempt: Attempt, outcome: StageOutcome) -> TooFewSites:
        """Write down that a run failed, and return the error with everybody's reasons."""
        reasons = [f"{site} refused ({said})" for site, said in outcome.refusals.items()]
        reasons += [f"{site} was lost in the round {round_!r}" for site, round_ in outcome.lost.items()]
        why = "; ".join([str(outcome.failure), *reasons])
        error = TooFewSites(why)
        if outcome.sent:
            self.record.failed(attempt, attempt.asked, why)
            error.sent = True
        else:  # the aggregator says so: the sites know
            error.sent = self._settled(attempt, why)
        spent = len(attempt.answers) + error.sent
        stages = len(self._asked(attempt.number).stages)
        if stages > 1:
            error.add_note(f"{spent} of {stages} stages had begun; what they cost stays spent")
        return error

    def _replayed(self, attempt: Attempt) -> Release | None:
        """Return the release that the recorded numbers give; None if the analysis would ask for more."""
        session = self._asked(attempt.number).session()
        for answered in attempt.answers:
            if session.done:
                break
            try:
                session.tell(_result(answered))
            except CapeError:  # it fails as it did then
                return None
        return self._release(attempt, session) if session.done else None

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
        took_part = {site for answered in attempt.answers for site in answered.participants}
        cost = sum((answered.cost for answered in attempt.answers), Cost(0, 0, 0, 0.0))
        return session.release([site for site in self.study.sites if site in took_part], cost)

    def _cost(self, number: int, stages: int) -> Fraction:
        return self._first(number).price(stages)

    def _can_be_asked(self, entry: Entry) -> bool:
        whole = self._cost(entry.number, len(self._asked(entry.number).stages))
        return not self.finished(entry) and whole <= self._left_for(entry)

    def _left_for(self, entry: Entry) -> Fraction:
        """Return what an analysis may cost now."""
        return max(1 - self.spent - self._kept_for_others(entry), Fraction(0))

    def _kept_for_others(self, entry: Entry) -> Fraction:
        """Return what other analyses still need, if this one broke off before: it does not take it."""
        if not any(each.number == entry.number and each.spent for each in self.record.attempts):
            return Fraction(0)
        others = [each for each in self.study.analyses if each != entry and not self.finished(each)]
        needed = [self._cost(each.number, len(self._asked(each.number).stages)) for each in others]
        return sum(needed, Fraction(0))

    def _exceeded(self, entry: Entry, whole: Fraction) -> BudgetExceeded:
        broken = [each for each in self.record.attempts if not each.finished]
        lost = sum((self._cost(each.number, each.spent) for each in broken), Fraction(0))
        left = self._left_for(entry)
        return BudgetExceeded(
            f"analysis {entry.number} ({entry.analysis.kind}) needs {float(whole):g} of the budget, and "
            f"{float(left):g} is left for it: {float(lost):g} was spent on attempts that broke off. No site "
            "gives a study more than it states: write a new study for what is missing, and leave some of its "
            "budget free"
        )

    def _call(self, call: Call, kind: type[_Reply]) -> _Reply:
        reply = unpack_reply(self._link.call(pack(call)))
        if isinstance(reply, CallFailed):
            raise ProtocolError(f"the aggregator could not do it: {reply.sentence}")
        if not isinstance(reply, kind):
            raise BadMessage("the aggregator answered something else than it was asked")
        return reply


def _said(known: Known | None, key: bytes, inquiry: Inquiry) -> bool | None:
    """Return what a site says of its ledger; None if it said nothing that it signed."""
    try:
        if known is not None:
            known.verify(key, inquiry)
            return known.known
    except BadMessage:
        pass
    return None


def _result(answered: Answered) -> StageResult:
    return StageResult(answered.total, len(answered.participants), answered.rows)
