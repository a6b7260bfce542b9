"""The progress of a study across machines: sites, rounds, lost sites and results.

A live table on a terminal, and otherwise a line for each event that a log should keep. All of it goes to
stderr, so that results can be piped. The same state stands in a file (`cape.app.progress`), for the desk.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live as Drawing
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from cape.app import words
from cape.app.progress import Progress as Seen
from cape.app.progress import ProgressFile, SiteSeen, Spent
from cape.app.results import Answered
from cape.coordinator import Event, SiteReport
from cape.core.check import plain
from cape.engine.execute import Progress
from cape.privacy import Budget
from cape.show.numbers import rounded
from cape.study import Entry

__all__ = ["Live"]

_COLOURS = {
    "answered": "green",
    "asked": "cyan",
    "refused": "yellow",
    "waits": "yellow",
    "lost": "red",
    "connected": "green",
}
_MOST = 3  # estimates of one analysis in its line
_LONGEST = 500  # characters of a site's sentence
_LINES = 50  # that the file keeps


@dataclass
class _Seen:
    """What was last heard of a site."""

    what: str = "not connected"
    round: str = ""
    at: float = 0.0
    why: str = ""


class Live:
    """The live table of one study.

    Args:
        name: the name of the study.
        sites: the sites that are asked.
        total: the number of analyses.
        file: where the same state is kept for others to read; None for nowhere.
    """

    def __init__(self, name: str, sites: Sequence[str], total: int, file: Path | None = None) -> None:
        self._name, self._total = name, total
        self._sites = {site: _Seen() for site in sites}
        self._told: dict[str, set[str]] = {site: set() for site in sites}  # reasons already printed
        self._task, self._line, self._budget = "connecting", "", ""
        self._done, self._number = 0, 0
        self._spent: Spent | None = None
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._file = None if file is None else ProgressFile(file, self._seen)
        self._open = ExitStack()
        self._lock = threading.Lock()
        self._console = Console(stderr=True)
        self._drawing: Drawing | None = None
        if sys.stderr.isatty():
            self._drawing = Drawing(
                get_renderable=self._table, console=self._console, refresh_per_second=8, transient=True
            )

    def __enter__(self) -> Live:
        if self._file is not None:
            self._open.enter_context(self._file)
        if self._drawing is not None:
            self._drawing.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._drawing is not None:
            self._drawing.stop()
        self._number, self._line = 0, ""
        self._open.close()

    def connected(self, alive: Sequence[str]) -> None:
        """Report which sites are connected."""
        self.present(alive)
        away = [site for site in self._sites if site not in alive]
        self.say(f"connected: {', '.join(alive)}" + (f"; not connected: {', '.join(away)}" if away else ""))

    def present(self, alive: Sequence[str]) -> None:
        """Record which sites show a sign of life."""
        with self._lock:
            for site, seen in self._sites.items():
                if site in alive and seen.what in ("not connected", "lost"):
                    seen.what, seen.round, seen.at = "connected", "", time.monotonic()
                elif site not in alive and seen.what == "connected":
                    seen.what = "not connected"
        self._changed()

    def event(self, event: Event) -> None:
        """Record an event that the aggregator reports about a site."""
        with self._lock:
            seen = self._sites.get(event.site)
            if seen is None:
                return
            new = seen.what != event.what
            seen.what, seen.round, seen.at = event.what, event.round, time.monotonic()
            why = seen.why = plain(event.why, _LONGEST)
            told = why in self._told[event.site] or event.round == "review"  # the caller prints that
            self._told[event.site].add(why)
        self._changed()
        if new and event.what == "lost":
            self.say(f"{event.site} was lost in round {event.round!r}")
        if event.what == "refused" and not told:
            self.say(f"{event.site} refused ({why})")

    def reviewed(self, reports: Sequence[SiteReport]) -> None:
        """Record the sites' reviews of the study; the caller prints them."""
        with self._lock:
            for report in reports:
                seen = self._sites[report.site]
                said = [each for each in (report.refused, *report.refusals) if each is not None]
                if said:
                    why = plain(str(said[0]), _LONGEST)
                    seen.what = "waits" if report.held else "refused"
                    seen.why = why
                    self._told[report.site].update(plain(str(each), _LONGEST) for each in said)
                elif seen.what in ("refused", "waits"):
                    seen.what, seen.why = "connected", ""
        self._changed()

    def start(self, entry: Entry, budget: Budget) -> None:
        """Show which analysis is running."""
        self._task, self._line = f"{entry.number}. {entry.analysis.kind}", ""
        self._number = entry.number
        self._costs(budget)

    def step(self, done: Progress) -> None:
        """Show the progress of an analysis in several stages."""
        if done.of > 1:
            self._line = words.step(done)
            self._changed()

    def done(self, each: Answered, budget: Budget) -> None:
        """Print a result as soon as it is released."""
        self._done += 1
        self._costs(budget)
        found = each.release.estimates
        shown = ", ".join(
            f"{e.label} {rounded(e.value, e.standard_error)} ± {rounded(e.standard_error, e.standard_error)}"
            for e in found[:_MOST]
        )
        more = f", and {len(found) - _MOST} more" if len(found) > _MOST else ""
        who = words.count(len(each.release.participants), "site")
        self.say(
            f"{each.entry.number}. {each.entry.analysis.kind} ({who}, {each.release.cost.seconds:.1f} s): "
            f"{shown}{more}"
        )

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self._console.print(Text(line), soft_wrap=True)
        with self._lock:
            self._lines.append(plain(line, _LONGEST))
        self._changed()

    def _costs(self, budget: Budget) -> None:
        self._budget, self._spent = str(budget), Spent.of(budget)
        self._changed()

    def _changed(self) -> None:
        if self._file is not None:
            self._file.changed()

    def _seen(self) -> Seen:
        """Return the state for the file."""
        past = time.time() - time.monotonic()
        with self._lock:
            sites = tuple(
                SiteSeen(site, seen.what, seen.round, round(seen.at + past, 1) if seen.at else 0.0, seen.why)
                for site, seen in self._sites.items()
            )
            lines = tuple(self._lines)
        return Seen(sites, self._total, self._done, self._number, self._line, self._spent, lines)

    def _table(self) -> RenderableType:
        table = Table(box=box.SIMPLE, header_style="bold", padding=(0, 1))
        for header in ("site", "state", "round", "for"):
            table.add_column(header)
        with self._lock:
            for site, seen in self._sites.items():
                colour = _COLOURS.get(seen.what, "dim")
                age = f"{time.monotonic() - seen.at:.0f} s" if seen.at else ""
                table.add_row(escape(site), f"[{colour}]{seen.what}[/{colour}]", escape(seen.round), age)
            reasons = [f"{site}: {seen.why}" for site, seen in self._sites.items() if seen.why]
        heading = Text(f"{self._name}: {self._task} ({self._done} of {self._total} done)", style="bold")
        parts: list[RenderableType] = [heading, table]
        parts += [Text(why, style="yellow", no_wrap=True, overflow="ellipsis") for why in reasons]
        if self._line:
            parts.append(Text(self._line, no_wrap=True, overflow="ellipsis"))
        if self._budget:
            parts.append(Text(f"Budget: {self._budget}", style="dim"))
        return Group(*parts)
