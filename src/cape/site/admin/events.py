"""What happens at a site, as numbered events, for pages and notices: never anything of the data.

Claim. An event names a kind, a study, its hash and its coordinator, a budget, or a key, and a time. Nothing
in it depends on a row, except through lines of the ledger, which are paid for.
Reason. Events are differences between what the folders of studies, the policy and the ledger say now and said
before, and none of these holds rows. So they are right whichever process has decided or written. They are
kept in memory; a daemon that starts takes what it finds for known, and counts on from its time of start, so
that numbers grow over restarts.
Tested in tests/unit/site/test_events.py.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC

from cape.core import check
from cape.core.errors import CapeError
from cape.privacy.accounting import Amount
from cape.site.admin import shown
from cape.site.admin.data import Event
from cape.site.decide import held as files
from cape.site.decide.approvals import FOLDERS, State
from cape.site.decide.held import Held
from cape.site.decide.policy import Policy
from cape.site.folder import POLICY, SiteFolder
from cape.site.keyring import fingerprint
from cape.site.notify import Kind

__all__ = ["Events"]

_KEPT = 1000
_OFTEN = 0.5  # seconds between two looks of somebody who waits
_MUCH = 0.8  # of an allowance
_ORDER: tuple[State, ...] = ("waiting", "approved", "refused")  # the later one counts


@dataclass(frozen=True)
class _Said:
    """An event before it has a number."""

    kind: Kind
    sentence: str
    at: str = ""
    study: str = ""
    hash: str = ""
    coordinator: bytes = b""


class Events:
    """The events of a site since this was made.

    >>> events = Events(folder)
    >>> events.after(0, wait=10.0)
    """

    def __init__(self, folder: SiteFolder) -> None:
        self._kept: deque[Event] = deque(maxlen=_KEPT)
        self._number = int(time.time() * 1_000_000)
        self._changed = threading.Condition()
        self._policy = _Rules(folder)
        self._watched = (_Studies(folder), self._policy, _Declined(folder), _Spending(folder))
        for each in self._watched:
            for _ in each.look():  # what is there already has not happened
                pass

    @property
    def last(self) -> int:
        """The number of the newest event, or a lower one if there is none yet."""
        with self._changed:
            return self._number

    def after(self, number: int, wait: float = 0.0) -> list[Event]:
        """Return the events after one, oldest first; wait so many seconds for the first."""
        until = time.monotonic() + wait
        with self._changed:
            while True:
                self._look()
                found = [event for event in self._kept if event.number > number]
                left = until - time.monotonic()
                if found or left <= 0:
                    return found
                self._changed.wait(min(left, _OFTEN))

    def look(self) -> None:
        """Find what is new, and wake who waits for it."""
        with self._changed:
            self._look()

    def _look(self) -> None:
        before = self._number
        for each in self._watched:
            for said in each.look():
                self._number += 1
                who = self._policy.who(said.coordinator) if said.coordinator else ""
                told = check.plain(said.study), who, said.sentence, said.hash
                self._kept.append(Event(self._number, said.at or files.now(), said.kind, *told))
        if self._number != before:
            self._changed.notify_all()


class _Studies:
    """The folders of studies."""

    def __init__(self, folder: SiteFolder) -> None:
        self._path = folder.path
        self._known: dict[str, tuple[State, int, Held]] = {}  # by file: state, time of change, content

    def look(self) -> Iterator[_Said]:
        before, self._known = self._known, self._found()
        for name, now in self._known.items():
            if before.get(name) != now:
                state, _, held = before.get(name, (None, 0, None))
                yield from _of_study(state, held, now[0], now[2])

    def _found(self) -> dict[str, tuple[State, int, Held]]:
        """Return all studies; only files that changed are read."""
        found = {}
        for state in _ORDER:
            folder = self._path / FOLDERS[state]
            try:
                entries = [(entry.name, entry.stat().st_mtime_ns) for entry in os.scandir(folder)]
            except OSError:  # there is none yet, or a file was just moved: the next look finds it
                continue
            for name, changed in entries:
                known = self._known.get(name)
                if known is not None and known[:2] == (state, changed):
                    found[name] = known
                elif name.endswith(".json") and (held := files.load(folder / name)) is not None:
                    found[name] = (state, changed, held)
        return found


def _of_study(before: State | None, old: Held | None, state: State, held: Held) -> Iterator[_Said]:
    what = f"study {check.plain(held.name)!r} ({held.study_hash[:12]})"

    def said(kind: Kind, sentence: str, at: str = "") -> _Said:
        return _Said(kind, sentence, at, held.name, held.study_hash, held.coordinator)

    approved_at = held.approvals[-1].at if held.approvals else ""
    if state == "approved" and (before != state or old is None or old.approvals != held.approvals):
        once = " for once" if held.once else ""
        yield said("approved", f"{what} was approved{once}", approved_at)
    elif state == "refused" and (before != state or old is None or old.refusal != held.refusal):
        yield said("refused", f"{what} was refused", "" if held.refusal is None else held.refusal.at)
    elif state == "waiting":
        now = {each.person for each in held.approvals}
        then = now if old is None else {each.person for each in old.approvals}
        if before is None:
            yield said("waiting", f"{what} waits for approval", held.since)
        elif before != "waiting" or then - now:
            yield said("waiting", f"{what} waits for approval again")
        elif now - then:
            sentence = f"{what} was approved, and waits for another person's approval"
            yield said("waiting", sentence, approved_at)
        if held.question is not None and (old is None or old.question != held.question):
            yield said("asked", f"a question about {what} was asked", held.question.at)


class _Rules:
    """The policy, and the keys in it."""

    def __init__(self, folder: SiteFolder) -> None:
        self._folder = folder
        self._changed: tuple[int, int] | None = None
        self._policy: Policy | None = None

    def who(self, key: bytes) -> str:
        """Return the name of a coordinator, or its fingerprint."""
        return (self._policy and self._policy.who(key)) or fingerprint(key)

    def look(self) -> Iterator[_Said]:
        try:
            state = os.stat(self._folder.path / POLICY)
        except OSError:
            return
        changed = state.st_mtime_ns, state.st_ino
        if changed == self._changed:
            return
        before, self._changed = self._policy, changed
        try:
            self._policy = now = self._folder.policy
        except CapeError:
            self._policy = None
            yield _Said("policy", "the policy was changed, and is invalid: nothing is answered")
            return
        if before is None or _without_keys(before) != _without_keys(now):
            yield _Said("policy", "the policy was changed")
        if before is not None:
            yield from _of_keys("coordinator", before.coordinators, now.coordinators)
            yield from _of_keys("site", before.peers, now.peers)


def _without_keys(policy: Policy) -> Policy:
    return replace(policy, coordinators={}, peers={})


def _of_keys(role: str, before: Mapping[str, bytes], now: Mapping[str, bytes]) -> Iterator[_Said]:
    for name in {**before, **now}:
        if before.get(name) != now.get(name):
            key, said = (now[name], "is trusted now") if name in now else (before[name], "is not trusted now")
            yield _Said("key", f"{role} {name!r}, fingerprint {fingerprint(key)}, {said}")


class _Declined:
    """Requests that the policy refused: a steward never sees them in the inbox."""

    def __init__(self, folder: SiteFolder) -> None:
        self._traffic, self._last = folder.traffic, 0

    def look(self) -> Iterator[_Said]:
        for seen in self._traffic.after(self._last):
            self._last = seen.event
            if seen.kind == "declined":
                yield _Said("refused", seen.sentence, seen.at, seen.study, seen.hash)


class _Spending:
    """The ledger, and the budgets of which much is spent."""

    def __init__(self, folder: SiteFolder) -> None:
        self._folder = folder
        self._lines = -1
        self._above: frozenset[str] = frozenset()

    def look(self) -> Iterator[_Said]:
        book, before, above = self._folder.book, self._lines, self._above
        try:
            lines = book.refresh()
            if lines == before:
                return
            policy = self._folder.policy
            limits = list(shown.limits(policy, book, book.known_coordinators(), Amount()))
            new = book.read(book.new_runs(max(before, 0))[-_KEPT:]) if before >= 0 else []
        except CapeError:  # the ledger or the policy is broken: commands and pages say so
            return
        self._lines = lines
        self._above = frozenset(each.name for each in limits if each.spent >= _MUCH * each.epsilon)
        for line in new:
            yield _Said(
                "answered",
                f"analysis {line.number} of study {check.plain(line.study)!r} ({line.study_hash[:12]}) was "
                "answered",
                line.at.astimezone(UTC).isoformat(timespec="seconds"),
                line.study,
                line.study_hash,
                line.coordinator,
            )
        for name in sorted(self._above - above):
            yield _Said("spent-80", f"80% of a budget is spent: {name}")
