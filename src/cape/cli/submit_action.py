"""What `cape submit` does: imported when it is run, and not where options are listed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from pathlib import Path

from cape.app.folder import RECORD, ResultsFolder
from cape.app.progress import PROGRESS
from cape.app.results import Results, answered
from cape.app.sites import Heard
from cape.cli import screen
from cape.cli.live import Live
from cape.cli.output import finish
from cape.coordinator import CoordinatorFolder, Record, SiteReport, Submission
from cape.core.errors import BudgetExceeded, CapeError, InvalidInput, Refused, TooFewSites
from cape.flare.kits import require_coordinator
from cape.site.wire import Refused as Refusal
from cape.study import Entry, Study
from cape.study.document import document, hash_of

__all__ = ["Terms", "run_study", "submit"]

_SCOPE = (
    "This counts what was asked from this folder. Each site's ledger also counts what was asked from "
    "elsewhere, and limits all of it to the study's budget."
)

_AGAIN = 3.0  # seconds between two checks of a study that awaits approval


@dataclass(frozen=True)
class Terms:
    """How a study is submitted: whether it resumes an earlier one, how long it waits for stewards."""

    resume: bool = False
    wait: float = 0.0


def submit(study_file: Path, *, kit: Path, out: Path, resume: bool, wait: float, as_json: bool) -> None:
    """Carry out `cape submit`."""
    study = Study.load(study_file)
    require_coordinator(kit)
    folder = CoordinatorFolder(kit)
    folder.roster(study.sites)  # a site without a key is found before any site is asked
    with ResultsFolder.find(out, study, study.scheme, "submit") as kept:
        screen.say(kept.announcements(out))
        finish(run_study(study, folder, kept, Terms(resume, wait)), kept, as_json)


def run_study(study: Study, folder: CoordinatorFolder, kept: ResultsFolder, terms: Terms) -> Results:
    """Submit a study, and return its results, including what was released before a failure."""
    out = kept.path
    shown = Live(study.name, list(study.sites), len(study.analyses), out / PROGRESS)
    with Record(out / RECORD) as record, shown as live:
        _require_record(record, study, terms)
        desk = _Desk(study, folder, record, live, terms, kept)
        try:
            desk.work()
        except CapeError as error:
            desk.results.error = error
        except KeyboardInterrupt:
            desk.results.interrupted = True
        results = desk.close()
        if record.begun and results.failure and not isinstance(results.error, BudgetExceeded):
            results.next = "To continue with the rest, run the same command with --resume."
        return results


def _require_record(record: Record, study: Study, terms: Terms) -> None:
    """Make the record that of the study; raise unless it is resumed if it was begun, and only then."""
    called, out = hash_of(document(study)), record.path.parent
    if terms.resume and (not record.begun or (record.study_hash != called and record.unspent)):
        raise InvalidInput(
            f"{out} holds no record to resume: give the folder of the earlier submission of this study with "
            "--out, or leave out --resume to start a new one"
        )
    record.of(called, study.name)
    if record.begun and not terms.resume:
        raise InvalidInput(
            f"{out} holds the record of an earlier submission; --resume continues it. Sites grant a study "
            "its budget once: to ask again, write a new study"
        )


class _Desk:
    """One submission at the coordinator's desk."""

    def __init__(
        self,
        study: Study,
        folder: CoordinatorFolder,
        record: Record,
        live: Live,
        terms: Terms,
        kept: ResultsFolder,
    ) -> None:
        from cape.flare.link import Network

        self._study, self._live, self._terms, self._kept = study, live, terms, kept
        self._link = Network(folder.path, study.name, list(study.sites), live.event, live.present)
        self._heard = Heard()
        self._submission = Submission(study, folder, self._link, record, live.step, self._heard.stage)
        self.results = Results(study, study.scheme, self._submission.budget, scope=_SCOPE, heard=self._heard)
        self._paid = self._submission.spent
        self._left: list[int] = []
        self._left_out: list[tuple[Entry, CapeError]] = []

    def work(self) -> None:
        """Take finished analyses from the record, ask the sites to review the rest, and run it.

        An analysis that was interrupted before and that the budget no longer covers is skipped.
        """
        submission, results = self._submission, self.results
        last = {attempt.number: attempt.refusals for attempt in submission.record.attempts}
        for number, refusals in last.items():
            self._heard.before(number, {site: Refusal(0, *why) for site, why in refusals.items()})
        for entry in filter(submission.finished, self._study.analyses):
            self._answer(entry)
        left = [entry for entry in self._study.analyses if not submission.finished(entry)]
        self._left = [entry.number for entry in left]
        if left:
            self._link.open()
            self._connected()
            submission.resume()  # settles interrupted runs
            self._paid = submission.spent
            self._agree()
        for entry in left:
            results.failed, self._paid = entry, submission.spent
            self._live.start(entry, submission.budget)
            if entry is not left[0]:
                self._look_who_is_back()
            try:
                self._answer(entry)
            except BudgetExceeded as error:
                self._left_out.append((entry, error))
                self._live.say(f"skipped: {error}")
                continue
            results.failed, results.budget = None, submission.budget
            self._kept.keep(results)
        results.failed, self._paid = None, submission.spent
        if self._left_out:
            results.failed, results.error = self._left_out[0]

    def _answer(self, entry: Entry) -> None:
        each = answered(entry, partial(self._submission.answer, entry))
        self.results.answered = sorted([*self.results.answered, each], key=lambda each: each.entry.number)
        self._live.done(each, self._submission.budget)

    def close(self) -> Results:
        """End the job, and return the results with their cost."""
        with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl-C must not cost the results
            self._link.close()
        submission, results = self._submission, self.results
        results.lost = max(submission.spent - self._paid, Fraction(0)) if results.failed else Fraction(0)
        results.unsettled = any(attempt.open for attempt in submission.record.attempts)
        results.budget = submission.budget
        results.finished = datetime.now(UTC)
        return results

    def _look_who_is_back(self) -> None:
        before = self._link.alive
        if self._link.refresh() != before:
            self._connected()

    def _connected(self) -> None:
        self._live.connected(self._link.alive)
        self._heard.alive(self._study.sites, self._link.alive)

    def _agree(self) -> None:
        """Wait until enough sites would answer everything; raise and say who would not, and why."""
        until = time.monotonic() + self._terms.wait
        told: set[str] = set()
        while True:
            reports = list(self._submission.check().values())
            self._live.reviewed(reports)
            self._heard.reviewed(reports, self._left)
            for line in [str(report) for report in reports if not report.ready]:
                if line not in told:
                    self._live.say(line)
                    told.add(line)
            held = [report.site for report in reports if report.held]
            self._require_enough(reports, SiteReport.could_answer)  # no approval would change this
            if held and time.monotonic() < until:
                time.sleep(_AGAIN)
                continue
            if held and not self._terms.wait:
                raise Refused(
                    f"the study awaits approval by the steward of {', '.join(held)} (`cape site approve`); "
                    "submit it again after that, or give --wait SECONDS"
                )
            return self._require_enough(reports, SiteReport.would_answer)

    def _require_enough(self, reports: Sequence[SiteReport], will: Callable[[SiteReport, int], bool]) -> None:
        """Raise unless enough sites will answer each analysis that is left."""
        needed = self._study.setting.parties.min_sites
        for number in self._left:
            willing = [report.site for report in reports if will(report, number)]
            if len(willing) < needed:
                why = "; ".join(str(report) for report in reports if report.site not in willing)
                raise TooFewSites(
                    f"{len(willing)} of {len(reports)} sites would answer analysis {number}, but min_sites "
                    f"requires {needed}. {why}"
                )
