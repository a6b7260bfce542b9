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
from dataclasses import dataclass
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
from cape.engine.calibration import Calibration
from cape.engine.consortium import MOST_ROWS
from cape.engine.query import Finding
from cape.engine.result import Promise, Release
from cape.engine.run import Progress
from cape.engine.schemes import Cost
from cape.engine.schemes.cape import MOST_STEPS
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
from cape.steward.codes import Code
from cape.steward.policy import SCHEMES
from cape.steward.request import Asked, Earlier, Talk, document, hash_of, make_request, read
from cape.steward.wire import Inquiry, Known, Present, Refused, Reviewed
from cape.study import Entry, Study

__all__ = ["SiteReport", "Submission"]

_Reply = TypeVar("_Reply", bound=Reply)
Told = Callable[[int, Mapping[str, Refused], Mapping[str, str]], None]


@dataclass(frozen=True)
class SiteReport:
    """What one site says of a study before anything is asked of its rows.

    Attributes:
        present: who answered, None if nobody did.
        key_differs: whether it has another key, or another name, than the one that is pinned.
        refusals: for each analysis why it would be refused; None where it would be answered.
        refused: why it did not look at the study at all, if so.
        rows: how many rows it holds, where public.
    """

    site: str
    present: Present | None
    key_differs: bool
    refusals: tuple[Refused | None, ...]
    refused: Refused | None
    rows: int | None

    @property
    def held(self) -> bool:
        """Whether the study waits for the site's steward."""
        return any(each is not None and each.code == Code.APPROVAL for each in self.refusals)

    @property
    def ready(self) -> bool:
        """Whether every analysis would be answered now."""
        well = self.present is not None and not self.key_differs and self.refused is None
        return well and bool(self.refusals) and all(each is None for each in self.refusals)

    def would_answer(self, number: int) -> bool:
        """Return whether an analysis, counted from 1, would be answered now."""
        well = self.present is not None and not self.key_differs and self.refused is None
        return well and len(self.refusals) >= number and self.refusals[number - 1] is None

    def could_answer(self, number: int) -> bool:
        """Return whether it would, perhaps after the steward's approval."""
        refusal = self.refusals[number - 1] if len(self.refusals) >= number else None
        return self.would_answer(number) or (refusal is not None and refusal.code == Code.APPROVAL)

    def __str__(self) -> str:
        if self.present is not None and self.key_differs:
            return (
                f"{self.site}: answers as {self.present.name!r} with another key than the one that is pinned"
            )
        if self.refused is not None:  # perhaps even to say who it is: its policy may be broken
            return f"{self.site}: refused ({self.refused})"
        if self.present is None:
            return f"{self.site}: is not connected"
        refused: dict[str, list[str]] = {}
        for number, each in enumerate(self.refusals, 1):
            if each is not None:
                refused.setdefault(str(each), []).append(str(number))
        if refused and all(each is None or each.code == Code.APPROVAL for each in self.refusals):
            return f"{self.site}: waits for its steward"
        why = [f"{self._which(them)} ({reason})" for reason, them in refused.items()]
        return f"{self.site}: " + (f"refuses {'; '.join(why)}" if why else "would answer")

    def _which(self, numbers: Sequence[str]) -> str:
        if len(numbers) == len(self.refusals) > 1:
            return f"all {len(numbers)} analyses"
        return f"{'analysis' if len(numbers) == 1 else 'analyses'} {', '.join(numbers)}"


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
        self._asked: Callable[[int], Asked] = cache(lambda number: read(self._document, number))
        self._free = cache(self._is_free)
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
    def promise(self) -> Promise:
        """What all that was asked promises together, failed attempts included."""
        return self.study.promise(self.spent)

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
        asked = self._asked(entry.number)
        whole = self._cost(entry.number, len(asked.stages))
        if whole > self._left_for(entry):
            raise self._exceeded(entry, whole)
        asked.stages.promise(len(asked.stages))  # what cannot be promised fails before it is paid for
        talk = Talk(asked)
        talk.calibrate()
        attempt = self.record.begin(entry.number, SecureStream().bytes(RUN_BYTES))
        return self._run(attempt, asked, talk)

    def _run(self, attempt: Attempt, asked: Asked, talk: Talk) -> Release:
        sessions = _Sessions(len(asked.stages), masked=asked.scheme.name == "cape")
        history: list[Earlier] = []
        last: Sequence[str] = ()  # who took part in the last stage, and knows all answers before it
        while True:
            began = time.perf_counter()
            calibration, local_std = talk.calibrate()
            first, steps = sessions.at(talk.stage, calibration.size)
            requests = self._requests(attempt, talk, history, last, first, steps)
            self.record.asked(attempt)
            shown = {site: self._heads.shown(site) for site in requests}
            outcome = self._call(AskStage.of(requests, calibration.size), StageOutcome)
            self._tell(attempt, outcome)
            took_part = {site: shown[site] for site in outcome.participants if site in shown}
            for problem in self._heads.take(outcome.heads, took_part):
                warnings.warn(problem, LedgerWarning, stacklevel=2)
            if outcome.failure is not None:
                raise self._too_few(attempt, outcome)
            answered = self._answered(asked, calibration, local_std, outcome)
            self.record.answered(attempt, answered)
            history.append(_earlier(answered))
            last, note = answered.participants, talk.query.note
            if self._progress is not None:
                spent = asked.stages.promise(0 if self._free(attempt.number) else talk.stage + 1)
                took = time.perf_counter() - began
                self._progress(Progress(talk.stage + 1, len(asked.stages), spent.epsilon, took, note))
            try:
                talk.tell(history[-1])
            except StopIteration as stop:
                self.record.finished(attempt)
                return self._release(attempt, stop.value)

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
        talk: Talk,
        history: Sequence[Earlier],
        last: Sequence[str],
        first: int,
        steps: int,
    ) -> dict[str, bytes]:
        """Return each site's request: who took part in the last stage needs its answer only."""

        @cache
        def packed(knows: bool) -> bytes:
            return make_request(
                self._document,
                attempt.number,
                talk,
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
            Talk(self._asked(number)),
            roster=self._roster,
            run=SecureStream().bytes(RUN_BYTES),
            identity=self._identity,
            trial=True,
            heads=self._shown(),
        ).pack()

    def _answered(
        self, asked: Asked, calibration: Calibration, local_std: float, outcome: StageOutcome
    ) -> Answered:
        """Return what a stage gave, if it can be right."""
        setting, took_part = asked.setting, outcome.participants
        known = len(set(took_part)) == len(took_part) and set(took_part) <= set(self._roster.names)
        if not known or len(took_part) < setting.parties.min_sites:
            raise BadMessage("the aggregator named participants that cannot be right")
        if len(outcome.total) != 8 * calibration.size:
            raise BadMessage("the aggregator's total does not have as many numbers as the stage releases")
        rows = None
        if setting.neighbours == "replace-one":
            if set(outcome.rows) != set(took_part):
                raise BadMessage("the aggregator did not say how many rows each participant holds")
            rows = sum(outcome.rows.values())
        if calibration.steps:  # each site is sure of its own rows only
            reach = asked.scheme.reach(setting.parties, local_std)
            calibration.ring(MOST_ROWS if rows is None else rows, setting.parties.sites, reach)
        traffic = outcome.traffic
        size = sum(each.sent + each.received for each in traffic)
        cost = Cost(len(traffic), size, outcome.per_site, sum(each.seconds for each in traffic))
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
        talk = Talk(self._asked(attempt.number))
        for answered in attempt.answers:
            try:
                talk.tell(_earlier(answered))
            except StopIteration as stop:
                return self._release(attempt, stop.value)
            except CapeError:  # it fails as it did then
                return None
        return None

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

    def _release(self, attempt: Attempt, finding: Finding | Sequence[Any]) -> Release:
        asked, answers = self._asked(attempt.number), attempt.answers
        found = finding if isinstance(finding, Finding) else Finding(finding)
        took_part = {site for answered in answers for site in answered.participants}
        cost = Cost(0, 0, 0, 0.0)
        for answered in answers:
            cost = cost + answered.cost
        free = self._free(attempt.number)
        return Release(
            self.study.analyses[attempt.number - 1].analysis,
            tuple(found.estimates),
            asked.stages.promise(0 if free else len(answers)),
            float(self._cost(attempt.number, len(answers))),
            asked.scheme.name,
            tuple(site for site in self.study.sites if site in took_part),
            answers[-1].rows,
            cost,
            found.model,
        )

    def _is_free(self, number: int) -> bool:
        """Return whether nothing private is asked."""
        return not Talk(self._asked(number)).query.blocks

    def _cost(self, number: int, stages: int) -> Fraction:
        return Fraction(0) if self._free(number) else self._asked(number).stages.cost(stages)

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


class _Sessions:
    """Which session of secure aggregation carries a stage: as in `cape.engine.run`.

    The second query of the same length opens a session for all stages that are left.
    """

    def __init__(self, stages: int, *, masked: bool) -> None:
        self._stages, self._masked = stages, masked
        self._length = -1
        self._series: tuple[int, int] | None = None

    def at(self, stage: int, length: int) -> tuple[int, int]:
        """Return the session's first stage, and how many it has."""
        if not self._masked or length != self._length:
            self._length, self._series = length, None
            return stage, 1
        if self._series is None or stage >= sum(self._series):
            self._series = stage, max(1, min(self._stages - stage, MOST_STEPS))
        return self._series


def _said(known: Known | None, key: bytes, inquiry: Inquiry) -> bool | None:
    """Return what a site says of its ledger; None if it said nothing that it signed."""
    try:
        if known is not None:
            known.verify(key, inquiry)
            return known.known
    except BadMessage:
        pass
    return None


def _earlier(answered: Answered) -> Earlier:
    return Earlier(answered.total, len(answered.participants), answered.rows)
