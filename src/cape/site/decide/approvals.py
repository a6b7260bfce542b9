"""Studies that wait for the steward, were approved, or refused, as files in three folders.

Claim. Whatever is killed and whenever: a decision that was acknowledged is in force, and no other was made.
A study is approved only while as many different persons as the policy asks for have approved its hash, and
none has refused it since. An approval for once counts for one answer to each analysis, and for no second one,
whoever else approves and however the policy changes.
Reason. The steward approves one coordinator's whole study, by its hash: every column, analysis and budget
share in it. A study that differs in anything has another hash and waits again. Approvals and refusals can be
reversed at any time. A decision writes a new file (whole, synced, with its folder) into the folder of the new
state, and then removes the old one (synced): of two files of one study that in `refused` counts before that
in `approved`, and that before the one in `held`. One lock is held meanwhile, so that no approval is lost to
another. Whether the policy is satisfied is asked with every request. Which approvals still count is asked of
the ledger, which knows what was answered (`Approval.counts`), again in the transaction that pays for the
answer (`Ledger.reserve`). When the ledger has lost lines, all approvals end before it is settled (`end`):
nobody knows any more which of them were used, or taken back.
Unrecognised files are reported (`unreadable`) and ignored; in `refused` a file's name alone refuses.
What leaves: a question of the steward goes to the coordinator; the reason of a refusal does not, nor do the
names of who decided. Both are texts of people, who must not describe rows in them: no code could see to it.
Tested in tests/unit/site/test_approvals.py, test_four_eyes.py and test_approval_kills.py.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from cape.core import check
from cape.core.errors import InvalidInput
from cape.core.files import give_to_owner, sync_folder
from cape.site import persons
from cape.site.decide import held as files
from cape.site.decide.held import MOST_QUESTION, MOST_REASON, Approval, Held, Said, file_name, is_meant, load
from cape.site.decide.request import Request
from cape.site.keyring import write_whole
from cape.site.ledger.ledger import NOTHING, Answers
from cape.site.persons import Person

__all__ = ["FOLDERS", "Approvals", "Held", "State", "Verb", "state_of"]

State = Literal["waiting", "approved", "refused"]
Verb = Literal["approve", "refuse", "ask about", "show"]

FOLDERS: dict[State, str] = {"waiting": "held", "approved": "approved", "refused": "refused"}
"""The folder of the studies in each state."""
_STRONGER: dict[State, tuple[State, ...]] = {
    "waiting": ("approved", "refused"),
    "approved": ("refused",),
    "refused": (),
}
_FROM: dict[Verb, tuple[State, ...]] = {
    "approve": ("waiting", "refused"),
    "refuse": ("waiting", "approved"),
    "ask about": ("waiting",),
    "show": ("waiting", "approved", "refused"),
}
_LOCK = "approvals.lock"
_MOST_HELD = 100  # of each coordinator, so that none can fill the disk
_MOST_NAMED = 6


class Approvals:
    """The folders `held`, `approved` and `refused` of a site."""

    def __init__(self, folder: Path) -> None:
        self._lock = folder / _LOCK
        self._folders: dict[State, Path] = {state: folder / name for state, name in FOLDERS.items()}

    def approved(self, request: Request, needed: int = 1, answers: Answers = NOTHING) -> Held | None:
        """Return the study of a request if so many persons allow it after these answers to its analysis."""
        path = self._folders["approved"] / file_name(request.coordinator, request.study_hash)
        if not path.is_file():
            return None
        held = load(path)
        if held is None:
            raise InvalidInput(_unrecognised(path))
        same = (held.coordinator, held.study_hash) == (request.coordinator, request.study_hash)
        return held if same and held.counting(answers).persons >= needed else None

    def refused(self, request: Request) -> bool:
        """Return whether the steward has refused it: the file's name decides, whatever its content."""
        return (self._folders["refused"] / file_name(request.coordinator, request.study_hash)).is_file()

    def hold(self, request: Request, needed: int = 1, answers: Answers = NOTHING) -> Held | None:
        """Keep a study for the steward; return None if too many wait, or it could not be read again.

        One that was approved waits again, unless it was approved anew meanwhile: with the approvals that
        still count after these answers, which wait for those of others.
        """
        name = file_name(request.coordinator, request.study_hash)
        with self._locked():
            found = self._at(name)
            if found is not None:
                state, held = found
                left = held.counting(answers)
                if state == "refused" or (state == "approved" and left.persons >= needed):
                    return held  # it was decided meanwhile
                return held if (state, left) == ("waiting", held) else self._put(left, "waiting")
            theirs = [held for held in self.studies("waiting") if held.coordinator == request.coordinator]
            if len(theirs) >= _MOST_HELD:
                return None
            path = self._folders["waiting"] / name
            new = Held(path, request.coordinator, request.study, files.now())
            if files.parse(path, new.text()) is None:
                return None
            return self._put(new, "waiting")

    def unreadable(self) -> list[str]:
        """Return a sentence for each unrecognised file, saying what to do."""
        return [
            _unrecognised(path, refuses=state == "refused")
            for state, folder in self._folders.items()
            for path in _files(folder)
            if load(path) is None
        ]

    def studies(self, state: State) -> list[Held]:
        """Return the studies that wait, were approved, or were refused."""
        paths = [
            path
            for path in _files(self._folders[state])
            if not any((self._folders[other] / path.name).exists() for other in _STRONGER[state])
        ]
        return [held for path in paths if (held := load(path)) is not None]

    def find(
        self,
        study: str,
        *,
        to: Verb = "approve",
        coordinator: bytes | None = None,
        also: Callable[[Held], bool] = lambda held: False,
    ) -> Held:
        """Return a study that waits, or was decided the other way, by its name or the start of its hash.

        `also` says which approved studies may be approved again: those that are not answered any more.
        """
        states: tuple[State, ...] = ("waiting", "approved", "refused")
        known = [
            held
            for state in states
            for held in self.studies(state)
            if state in _FROM[to] or (to == "approve" and state == "approved" and also(held))
        ]
        found = {
            held.path.name: held
            for held in known
            if study
            and is_meant(study, held.name, held.study_hash)
            and coordinator in (None, held.coordinator)
        }
        if len(found) == 1:
            return next(iter(found.values()))
        if found:
            hashes = _some([held.study_hash[:12] for held in found.values()])
            raise InvalidInput(
                f"{len(found)} studies are called {check.show(study)}; give the start of a hash ({hashes}), "
                "or say who asks with --coordinator"
            )
        names = _some([f"{check.show(held.name)} ({held.study_hash[:12]})" for held in known])
        there = f"there are {names}" if names else "there are none"
        raise InvalidInput(f"there is no study {check.show(study)} to {to}; {there}")

    def approve(
        self,
        held: Held,
        by: Person,
        needed: int = 1,
        answers: Answers = NOTHING,
        *,
        once: bool = False,
        note: str = "",
    ) -> tuple[Held, State]:
        """Note a person's approval, and return the study with its state: it may wait for other persons.

        It is answered from then on, within the policy and the budgets. `answers` are those to any of its
        analyses: of earlier approvals, those that were used no longer count. The note stays at the site.
        """
        with self._locked():
            state, now = self._now(held)
            found = held.path.parent
            if state == "refused" and found != self._folders["refused"]:
                raise InvalidInput(f"the study {check.show(held.name)} was refused meanwhile; look again")
            kept = now.counting(answers).approvals
            others = [each for each in kept if not persons.same(each.person, by.name)]
            text, lines = check.plain(note, MOST_REASON), answers.lines
            own = Approval(person=by.name, desk=by.desk, at=files.now(), once=once, lines=lines, text=text)
            new = replace(now, approvals=(*others, own), question=None, refusal=None)
            then: State = "approved" if new.persons >= needed else "waiting"
            return self._put(new, then), then

    def refuse(self, held: Held, by: Person, reason: str = "") -> Held:
        """Refuse every part of a study from now on, whatever the policy allows and others approved."""
        with self._locked():
            _, now = self._now(held)
            why = Said(person=by.name, desk=by.desk, at=files.now(), text=check.plain(reason, MOST_REASON))
            return self._put(replace(now, approvals=(), question=None, refusal=why), "refused")

    def ask(self, held: Held, by: Person, question: str) -> Held:
        """Ask the coordinator of a study that waits; the next answer to it is this question."""
        text = files.one_line(question, MOST_QUESTION)
        if not text:
            raise InvalidInput("the question is empty; write what the coordinator should answer")
        with self._locked():
            state, now = self._now(held)
            if state != "waiting":
                raise InvalidInput(f"the study {check.show(held.name)} was {state} meanwhile")
            said = Said(person=by.name, desk=by.desk, at=files.now(), text=text)
            return self._put(replace(now, question=said), "waiting")

    def end(self) -> int:
        """Let all approved studies wait again, and no approval count; return how many studies had one."""
        with self._locked():
            ended = 0
            for path in (*_files(self._folders["approved"]), *_files(self._folders["waiting"])):
                held = load(path)
                if held is None or not held.approvals:
                    continue
                ended += 1
                left = replace(held, approvals=())
                if (self._folders["refused"] / path.name).exists():  # the refusal remains in force
                    write_whole(path, left.text())
                else:
                    self._put(left, "waiting")
        return ended

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one thread of one process at a time decide; the kernel releases the lock of a dead one."""
        try:
            handle = os.open(self._lock, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
            give_to_owner(self._lock, handle)
        except OSError as error:
            raise InvalidInput(f"{self._lock} cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _at(self, name: str) -> tuple[State, Held] | None:
        """Return the state of a study and the study, by the name of its file; None if there is none."""
        order: tuple[State, ...] = ("refused", "approved", "waiting")
        for state in order:
            path = self._folders[state] / name
            held = load(path)
            if held is not None:
                return state, held
            if path.exists() and state != "waiting":
                raise InvalidInput(_unrecognised(path, refuses=state == "refused"))
        return None

    def _now(self, held: Held) -> tuple[State, Held]:
        """Return a study that was found before, as it is now."""
        found = self._at(held.path.name)
        if found is None:
            raise InvalidInput(f"the study {check.show(held.name)} is no longer there")
        return found

    def _put(self, held: Held, state: State) -> Held:
        """Write a study into the folder of a state, and remove it from the others; both are synced.

        What could not be read back is not written: a decision would be lost, and those before it.
        """
        name, to = held.path.name, self._folders[state]
        text = held.text()
        if files.parse(to / name, text) is None:
            raise InvalidInput(
                "the decision cannot be kept, because its file could not be read again; write a shorter text"
            )
        try:
            if not to.is_dir():
                to.mkdir(mode=0o700)
                give_to_owner(to)
                sync_folder(to.parent)
            write_whole(to / name, text)
            for folder in self._folders.values():
                if folder != to and (folder / name).exists():
                    (folder / name).unlink()
                    sync_folder(folder)
        except OSError as error:
            raise InvalidInput(f"{held.path} cannot be moved to {to}: {error.strerror}") from None
        return replace(held, path=to / name)


def state_of(held: Held) -> State:
    """Return the state in which a study was found."""
    return next(state for state, name in FOLDERS.items() if name == held.path.parent.name)


def _some(names: list[str]) -> str:
    """Return the first few names, for an error."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _unrecognised(path: Path, *, refuses: bool = False) -> str:
    kept = "; the refusal remains in force until you do" if refuses else ""
    return f"{check.plain(str(path), 300)} is an unrecognised file; remove it{kept}"


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))
