"""The results of a run: what was released, what failed, what is left of the budget."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from cape import __version__
from cape.app import words
from cape.app.sites import Heard, SiteOutcome, outcomes
from cape.app.words import listed
from cape.blocks.table import Table
from cape.core.errors import BudgetExceeded, CapeError, DataError, InvalidInput
from cape.data import Database, Schema, troubles
from cape.data.survey import survey
from cape.data.troubles import Trouble
from cape.engine.consortium import Consortium
from cape.engine.execute import Progress
from cape.engine.result import Release, ReleaseGuarantee
from cape.privacy import Budget
from cape.study import Entry, Study

if TYPE_CHECKING:
    from cape.app.folder import ResultsFolder

__all__ = ["Answered", "Results", "answered", "execute"]


_MOST_SAID = 30  # lines about one site's rows


@dataclass(frozen=True)
class Answered:
    """One analysis of the study, its release and its warnings."""

    entry: Entry
    release: Release
    warnings: tuple[str, ...] = ()
    released: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass
class Results:
    """Everything a run gave. After a failure it holds what was released before, which is paid for."""

    study: Study
    scheme: str
    budget: Budget
    answered: list[Answered] = field(default_factory=list)
    error: CapeError | None = None
    interrupted: bool = False
    failed: Entry | None = None
    lost: Fraction = Fraction(0)  # what the failed analysis cost
    unsettled: bool = False  # whether it is still unknown if a message of it left a site
    finished: datetime = field(default_factory=lambda: datetime.now(UTC))
    next: str = ""  # what to do after a failure
    scope: str = ""  # what "spent" counts besides this run
    heard: Heard = field(default_factory=Heard)  # what sites said besides answers

    @property
    def sites(self) -> list[SiteOutcome]:
        """The outcome of each site."""
        took_part = {each.entry.number: each.release.participants for each in self.answered}
        return outcomes(self.study.sites, took_part, self.heard)

    @property
    def guarantee(self) -> ReleaseGuarantee:
        """The guarantee of all releases together, including those that failed after messages were sent."""
        return self.study.guarantee(self.budget.spent, self.scheme)

    @property
    def failure(self) -> str | None:
        """What went wrong, what it cost, and what is left of the budget."""
        if self.interrupted:
            left = f"\nBudget: {self.budget}." if self.budget.spent else ""
            return f"interrupted{self._in}. {self._paid}{left}"
        if self.error is None:
            return None
        said = f"{self._where}{self.error}"
        return f"{said}{'' if said.endswith(('.', '?')) else '.'} {self._paid}\nBudget: {self.budget}."

    @property
    def public_failure(self) -> str | None:
        """The same, without what only a site may know about its table."""
        if self.interrupted:
            return f"It was interrupted{self._in}. {self._paid}"
        if self.error is None:
            return None
        why = self.error.public if isinstance(self.error, DataError) else str(self.error)
        return f"{words.sentence(self._where + why)} {self._paid}"

    @property
    def _where(self) -> str:
        return f"{self._which}: " if self._which else ""

    @property
    def _in(self) -> str:
        return f" in {self._which}" if self._which else ""

    @property
    def _which(self) -> str:
        entry = self.failed
        return "" if entry is None else f"analysis {entry.number} ({entry.analysis.kind})"

    @property
    def _paid(self) -> str:
        if self.lost and self.unsettled:
            return (
                f"Its share of {float(self.lost):g} counts as spent: messages may have left the sites, and "
                "their ledgers could not be checked. --resume checks them."
            )
        if self.lost:
            had = "may have" if self.interrupted else "had"
            return f"Its share of {float(self.lost):g} is spent: messages {had} left the sites."
        if self.answered:
            return "Nothing was spent on it; what was released before is kept."
        return "Nothing was spent on it." if self.budget.spent else "Nothing was spent."

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data, for JSON."""
        return {
            "cape": __version__,
            "finished": self.finished.isoformat(timespec="seconds"),
            "study": self.study.to_dict() | {"scheme": self.scheme},
            "analyses": [
                {
                    "number": each.entry.number,
                    "released": each.released.isoformat(timespec="seconds"),
                    **each.release.to_dict(),
                    "findings": list(each.release.findings()),
                    "tables": [asdict(table) for table in each.release.tables()],
                    "records": each.release.records(),
                    "warnings": list(each.warnings),
                }
                for each in self.answered
            ],
            "sites": [each.to_dict() for each in self.sites],
            "warnings": list(self.study.warnings),
            "guarantee": self.guarantee.to_dict() if self.answered else None,
            "assumptions": words.assumptions(self.study.setting, self.scheme),
            "budget": {
                "epsilon": self.budget.epsilon,
                "delta": self.budget.delta,
                "mu": None if self.budget.pure else self.budget.mu,
                "spent": float(self.budget.spent),
                "left": float(self.budget.remaining),
            },
            "cost": {
                "bytes": sum(each.release.cost.bytes for each in self.answered),
                "seconds": sum(each.release.cost.seconds for each in self.answered),
            },
            "error": self.public_failure,
        }


class Steps(Protocol):
    """Whoever shows how far a run is: `execute` says what it does, and when a step is done."""

    def start(self, what: str) -> None:
        """Name the current step."""

    def tell(self, line: str) -> None:
        """Report the progress of the current step."""

    def say(self, text: str) -> None:
        """Show lines that stay."""

    @property
    def width(self) -> int:
        """How many signs a line of `say` may have."""

    def done(self) -> None:
        """Count one step."""


def execute(
    study: Study,
    scheme: str,
    entries: Sequence[Entry],
    drop: Mapping[str, str],
    progress: Callable[[int], AbstractContextManager[Steps]],
    folder: ResultsFolder | None = None,
) -> Results:
    """Check every table against the schema, then release the analyses one after the other.

    So a site that cannot answer is found before anything is spent. The first failure ends the run, and so
    does Ctrl-C; what was released before is kept, because it is paid for. Each release is written to the
    folder before the next starts. What earlier runs in the folder spent counts; an analysis that the budget
    no longer covers is skipped. `progress` shows so many steps while they are made.
    """
    consortium = study.consortium(scheme=scheme, spent=Fraction(0) if folder is None else folder.spent)
    results = Results(study, scheme, consortium.budget, scope="" if folder is None else folder.scope)
    left_out: list[tuple[Entry, CapeError]] = []
    try:
        with progress(len(study.sites) + len(entries)) as steps:
            _check_tables(study, steps)
            for entry in entries:
                steps.start(f"{entry.number}. {entry.analysis.kind}")
                results.failed = entry
                try:
                    told = _told(entry, results, folder)
                    results.answered.append(_answer(consortium, told, drop, steps))
                except BudgetExceeded as error:
                    left_out.append((entry, error))
                    continue
                results.failed, results.budget = None, consortium.budget
                if folder is not None:
                    folder.keep(results)
                steps.done()
            if left_out:
                results.failed, results.error = left_out[0]
    except CapeError as error:
        results.error = error
    except KeyboardInterrupt:
        results.interrupted = True
    results.lost = consortium.budget.spent - results.budget.spent
    results.budget = consortium.budget
    results.finished = datetime.now(UTC)
    return results


def _told(entry: Entry, results: Results, folder: ResultsFolder | None) -> Entry:
    """Return an analysis with the model of the one that it follows, released now or in an earlier run."""
    number = entry.analysis.follows
    if number is None:
        return entry
    here = {each.entry.number: each.release for each in results.answered}
    model = here.get(number) or (folder.released.get(number, {}).get("model") if folder else None)
    if model is None:
        raise InvalidInput(
            f"analysis {entry.number} needs the model of analysis {number}, which is not released"
        )
    earlier = results.study.analyses[number - 1].analysis
    return replace(entry, analysis=entry.analysis.told(earlier, model))


def _check_tables(study: Study, steps: Steps) -> None:
    """Read the rows of all sites, and report to whoever runs this all that is wrong; fail if a run would."""
    failing: dict[str, list[Trouble]] = {}
    noted: dict[str, list[Trouble]] = {}
    for name, place in study.sites.items():
        steps.start(f"checking {name}")
        fails, lines = _looked(name, place.source(), study.setting.schema)
        (failing if fails else noted)[name] = lines
        steps.done()
    said = failing or noted
    if sum(map(len, failing.values())) != 1:  # the error has a single one
        for site, lines in said.items():
            more = len(lines) - _MOST_SAID
            cut = [Trouble("", f"{more} more; `cape check` lists them")] if more > 0 else []
            if lines:
                steps.say(listed([*lines[:_MOST_SAID], *cut], steps.width, f"{site}: "))
    if failing:
        raise _unusable(failing, study)


def _looked(name: str, source: Any, schema: Schema) -> tuple[bool, list[Trouble]]:
    """Return whether a run would fail for a site's rows and why, or what is read otherwise than it stands.

    A database checks its rows itself, and they are fetched only if something is wrong.
    """
    error = None
    if isinstance(source, Database):
        try:
            table = Table(name, source, schema)
            table.check()
            return False, troubles.beyond(schema, table.clamped())
        except DataError as found:
            error = found
    surveyed = survey(name, source, schema).shown()
    if error is not None and not surveyed.fails():
        raise error
    return surveyed.fails(), troubles.stops(surveyed) if surveyed.fails() else troubles.warnings(surveyed)


def _unusable(failing: Mapping[str, Sequence[Trouble]], study: Study) -> DataError:
    """Return the error for tables that cannot be used; everyone else learns the column at most."""
    (site, lines), *others = failing.items()
    advice = f"`cape check {study.path}` shows the cells"
    if len(lines) == 1 and not others:
        return DataError(
            site, f"{lines[0]}; {advice}" if lines[0].column else str(lines[0]), lines[0].column or None
        )
    also = f"; the data of {', '.join(name for name, _ in others)} cannot be used either" if others else ""
    columns = {line.column for line in lines}
    return DataError(
        site,
        f"the data cannot be used{also}. All that is wrong is listed above; {advice}",
        lines[0].column or None if len(columns) == 1 else None,
    )


def _answer(consortium: Consortium, entry: Entry, drop: Mapping[str, str], steps: Steps) -> Answered:
    def told(done: Progress) -> None:
        if done.of > 1:
            steps.tell(words.step(done))

    return answered(entry, partial(consortium.release, entry.analysis, entry.share, drop=drop, progress=told))


def answered(entry: Entry, release: Callable[[], Release]) -> Answered:
    """Return an analysis with its release and the warnings that it caused."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        released = release()
    said = [str(warning.message) for warning in caught]
    return Answered(entry, released, tuple(dict.fromkeys(said)))
