"""A submission as its page shows it, out of the files in its folder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

from cape.app import words
from cape.app.folder import RECORD
from cape.app.progress import PROGRESS, Progress
from cape.app.sites import SiteOutcome, which
from cape.coordinator.record import Attempt
from cape.core.check import plain
from cape.core.errors import CapeError, InvalidInput
from cape.desk.coordinator.kept import Kept, Released
from cape.desk.coordinator.pages import when
from cape.desk.coordinator.submitted import RESULTS, State, Submitted
from cape.study import Study

__all__ = ["AnalysisSeen", "Seen", "SiteLine", "file_of", "files_of", "look", "report_of", "sentence"]

_GOOD, _BAD = "allowed", "refused"  # classes of the desk's style
_LOOKS = {"answered": _GOOD, "connected": _GOOD, "lost": _BAD, "refused": _BAD, "not connected": _BAD}
_SAID: dict[State, str] = {
    "running": "It is running",
    "waiting": "It waits for a steward's approval",
    "finished": "It is finished",
    "cancelled": "It was cancelled",
    "failed": "It ended with an error",
    "stopped": "Its process was ended from outside",
}
_HIDDEN = (RECORD, PROGRESS)
_LONGEST = 500
_DAMAGED = (
    "The record of this submission is damaged, so it is not known what was spent. Keep a copy of its folder, "
    "and compare the sites' ledgers."
)


@dataclass(frozen=True)
class SiteLine:
    """A site: what it does or did, and why it did not take part in everything."""

    name: str
    state: str
    look: str
    round: str
    took_part: str
    why: str


@dataclass(frozen=True)
class AnalysisSeen:
    """An analysis: how far it is, which sites are in it, and which were dropped."""

    title: str
    state: str
    look: str
    sites: str
    dropped: str


@dataclass(frozen=True)
class Seen:
    """Everything that the page of a submission shows."""

    id: str
    name: str
    by: str
    when: str
    ended: bool
    sentence: str
    problems: Sequence[str]
    again: str
    sites: Sequence[SiteLine]
    analyses: Sequence[AnalysisSeen]
    budget: str
    spent: float
    released: Sequence[Released]
    guarantee: str
    report: bool
    files: Sequence[str]
    output: Sequence[str]


def look(submission: Submitted) -> Seen:
    """Return what is known of a submission now."""
    about, state, kept = submission.about, submission.state, submission.kept
    attempts, progress = submission.record.attempts, submission.progress
    study = _study(submission.text)
    ended = state not in ("running", "waiting")
    analyses = [
        _analysis(number, title, about.sites, [each for each in attempts if each.number == number], ended)
        for number, title in enumerate(about.analyses, 1)
    ]
    spent, damaged = Fraction(0) if study is None else submission.spent, submission.damaged
    again = ""
    if ended and study is not None and not damaged and submission.done < len(analyses):
        again = "Resume the submission" if attempts else "Submit again"
    return Seen(
        submission.id,
        about.name,
        about.by,
        when(about.submitted),
        ended,
        sentence(submission),
        [_DAMAGED] * damaged + _problems(submission, state, kept),
        again,
        _sites(about.sites, progress, kept, ended),
        analyses,
        "It is not known what was spent." if study is None or damaged else _budget(study, spent),
        min(float(spent), 1.0),
        kept.analyses if kept else (),
        kept.guarantee.statement if kept and kept.guarantee else "",
        report_of(submission) is not None,
        files_of(submission),
        submission.output,
    )


def sentence(submission: Submitted) -> str:
    """Return how far it is, in a sentence."""
    state, done = submission.state, submission.done
    total = len(submission.about.analyses)
    said = f"{_SAID[state]}: {done} of {total} {'analysis' if total == 1 else 'analyses'} answered"
    progress = submission.progress
    if state == "running" and progress is not None and progress.number:
        said += f", analysis {progress.number} is being answered"
        said += f" ({plain(progress.step, 200)})" if progress.step else ""
    elif state == "running" and not done:
        said += "; sites are being connected and asked to review the study"
    return f"{said}."


@lru_cache(maxsize=16)
def _study(text: str) -> Study | None:
    """Return the study; None if this version of cape reads it no more."""
    try:
        return Study.parse(text, Path("study"))
    except CapeError:
        return None


def _problems(submission: Submitted, state: State, kept: Kept | None) -> list[str]:
    """Return what went wrong, as the command said it."""
    said = [] if kept is None else list(kept.warnings)
    if state in ("failed", "cancelled", "stopped"):
        if kept is not None and kept.error:
            said.append(kept.error)
        else:
            lines = [line.removeprefix("cape: ") for line in submission.output if line.startswith("cape: ")]
            said += [words.sentence(line) for line in lines if not line.startswith("warning: ")][-1:]
    return [plain(each.replace("--resume checks them", "Resuming checks them"), 2000) for each in said]


def _analysis(
    number: int, title: str, sites: Sequence[str], attempts: Sequence[Attempt], ended: bool
) -> AnalysisSeen:
    name = f"{number}. {words.capital(title)}"
    finished = next((each for each in attempts if each.finished), None)
    last = finished or (attempts[-1] if attempts else None)
    if last is None:
        return AnalysisSeen(name, "not asked" if ended else "not asked yet", "", "", "")
    took_part, dropped = dict[str, None](), dict[str, None]()
    for answer in last.answers:
        took_part |= dict.fromkeys(answer.participants)
        dropped |= dict.fromkeys(site for site in sites if site not in answer.participants)
        dropped |= dict.fromkeys(answer.late)
    who, gone = ", ".join(took_part), ", ".join(dropped)
    if finished:
        return AnalysisSeen(name, "answered", _GOOD, who, gone)
    if last.failed is not None:
        return AnalysisSeen(name, f"broke off: {plain(last.why, _LONGEST)}", _BAD, who, gone)
    if ended:
        return AnalysisSeen(name, "interrupted; resuming settles what it cost", _BAD, who, gone)
    step = f": stage {last.asked}" if last.asked > 1 else ""
    return AnalysisSeen(name, f"being answered{step}", "", who, gone)


def _sites(names: Sequence[str], progress: Progress | None, kept: Kept | None, ended: bool) -> list[SiteLine]:
    """Return a line for each site: what it does while it runs, what became of it afterwards."""
    live = {each.name: each for each in progress.sites} if progress else {}
    outcomes = {each.name: each.outcome for each in kept.sites} if kept else {}
    found = []
    for name in names:
        seen, outcome = live.get(name), outcomes.get(name)
        took_part = which(outcome.took_part) if outcome and outcome.took_part else ""
        state, why, round_ = "not asked yet", "", ""
        if seen is not None:
            state, why, round_ = seen.what, seen.why, "" if ended else seen.round
        if ended and outcome is not None:
            state, why = _became(outcome), "; ".join(outcome.reasons) or why
        state = "waits for its steward" if state == "waits" else state
        found.append(
            SiteLine(
                name,
                plain(state),
                _LOOKS.get(state, ""),
                plain(round_),
                took_part,
                plain(why, 2 * _LONGEST),
            )
        )
    return found


def _became(outcome: SiteOutcome) -> str:
    """Return what became of a site, in a word or two."""
    if outcome.took_part:
        return "answered"
    if outcome.refusals:
        return "refused"
    return "lost" if outcome.lost else "not connected" if outcome.connected is False else "no answer"


def _budget(study: Study, spent: Fraction) -> str:
    budget = study.budget
    pair = f"epsilon = {budget.epsilon:g}" + ("" if budget.pure else f", delta = {budget.delta:g}")
    if not spent:
        return f"Nothing is spent of the study's budget ({pair})."
    epsilon = study.guarantee(spent).epsilon
    so_far = f": epsilon so far {epsilon:.3g}" if math.isfinite(epsilon) else ""
    return f"{words.percent(float(spent))} of the study's budget ({pair}) is spent{so_far}."


def files_of(submission: Submitted) -> list[str]:
    """Return the names of the files that may be downloaded."""
    folder = submission.folder / RESULTS
    if not folder.is_dir():
        return []
    return sorted(
        path.name
        for path in folder.iterdir()
        if path.is_file() and path.name not in _HIDDEN and path.suffix != ".new" and path.name[0] != "."
    )


def report_of(submission: Submitted) -> Path | None:
    """Return the latest report; None if there is none."""
    found = (submission.folder / RESULTS).glob("report*.html")
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def file_of(submission: Submitted, name: str) -> Path:
    """Return a file that may be downloaded."""
    if name not in files_of(submission):
        raise InvalidInput(f"this submission has no file {plain(name)!r}")
    return submission.folder / RESULTS / name
