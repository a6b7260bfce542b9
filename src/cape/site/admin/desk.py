"""The steward's operations on a site's folder, one method each: see the package."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Generic, TypeVar

from cape import __version__
from cape.core import check, documents
from cape.core.check import hint
from cape.core.errors import CapeError, InvalidInput
from cape.site.admin import data, shown
from cape.site.admin.compared import diff
from cape.site.admin.data import Day, Hash, Lines, Name, Number, PageSize, Question, Reason, Text, Wait
from cape.site.admin.events import Events
from cape.site.admin.hidden import hide, restore, scrub
from cape.site.admin.reserved import require_kept
from cape.site.admin.studied import study_file
from cape.site.admin.surveyed import surveyed
from cape.site.decide.approvals import Held, State, Verb, state_of
from cape.site.decide.policy import Policy
from cape.site.decide.preview import preview
from cape.site.folder import LOG, SiteFolder
from cape.site.keyring import Card, fingerprint, person, public_text, read_public, write_whole
from cape.site.ledger.export import export
from cape.site.ledger.gaps import Unsettled
from cape.site.ledger.ledger import Answers
from cape.site.ledger.verify import verify_rows
from cape.site.notify import Notify
from cape.site.persons import Person
from cape.study import Study
from cape.study.document import document
from cape.study.named_files import refuse_named_files

__all__ = ["Desk", "at_desk"]

_MOST_FILES = 1000
_LOG_BYTES = 1 << 24  # of the log's end, for its last lines
_T = TypeVar("_T")


class Desk:
    """The steward's desk of one site.

    >>> Desk(SiteFolder("our-site")).inbox()

    Args:
        folder: the site's folder.
        linked: returns whether a link is connected; None if no daemon runs.
        person: who reads and decides; by default the user of this process. For somebody whom the desk names,
            a part of the policy cannot be changed (`reserved`).
    """

    def __init__(
        self,
        folder: SiteFolder,
        linked: Callable[[], bool] | None = None,
        person: Person | str | None = None,
    ) -> None:
        self.folder = folder
        self._linked = linked
        self._person = Person.of_user(os.geteuid()) if person is None else _person(person)
        self._reserved = self._person.desk
        self._watch = _Once(lambda: Events(folder))
        self._lock = threading.Lock()  # guards site.toml between the check of its hash and the change
        self._key = os.urandom(32)  # keys the hashes, so that passwords cannot be guessed from them

    def __enter__(self) -> Desk:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def status(self) -> data.Status:
        """Return the state of the site, whatever is wrong with its files."""
        mine = summary = problem = None
        try:
            mine = self.mine()
        except CapeError as error:
            problem = scrub(str(error))
        try:
            summary = shown.summary(self.folder.policy)
        except CapeError as error:
            problem = scrub(str(error))
        state: data.PolicyState = (
            "broken" if summary is None else "expired" if summary.expired else "in force"
        )
        linked = None if self._linked is None else self._linked()
        waiting = len(self.folder.approvals.studies("waiting"))
        last = self._watch.value.last
        return data.Status(__version__, mine, state, problem, summary, waiting, linked, last)

    def mine(self) -> data.Mine:
        """Return the site's own name and public key."""
        card = self.folder.card
        return data.Mine(card.name, public_text(card.key), fingerprint(card.key))

    def inbox(self) -> data.Inbox:
        """Return every study that is held here, with the current verdicts."""
        approvals, policy = self.folder.approvals, self.folder.policy
        self.folder.book.refresh()  # raises if a line was changed by hand
        states: tuple[State, ...] = ("waiting", "approved", "refused")
        studies = [self._shown(policy, held, state) for state in states for held in approvals.studies(state)]
        return data.Inbox(tuple(studies), tuple(approvals.unreadable()))

    def study(self, study: Name, coordinator: Name | None = None, counted: bool = True) -> data.StudyFile:
        """Return all that the site knows of a study: its text, plan, sites, approvals, and what left.

        `counted` says whether its plan goes by this site's number of rows.
        """
        folder = self.folder
        held, state = self._any(study, coordinator)
        folder.book.refresh()
        told = self._shown(folder.policy, held, state)
        own = folder.identity.public
        rows = self.people().count if counted else None
        return study_file(folder.policy, own, folder.book, held, told, rows)

    def approve(
        self,
        study: Name,
        coordinator: Name | None = None,
        reason: Reason = "",
        once: bool = False,
        was: Name | None = None,
    ) -> data.Decided:
        """Approve a study, by its name or the start of its hash; with `once`, each analysis for one answer.

        It is durable when this returns. Where the policy asks for several persons, the study may still wait.
        `was` is the state in which the person saw it: a decision since then is not reversed.
        """
        policy, approvals = self.folder.policy, self.folder.approvals
        held = self._find(study, coordinator, "approve")
        now = state_of(held)
        if was is not None and was != now:
            raise InvalidInput(f"the study {check.show(held.name)} was {now} meanwhile; look at it again")
        self._shown(policy, held, "approved")  # an invalid study, or a broken ledger, is not approved
        self._watch.value.look()
        held, state = approvals.approve(
            held, self._person, policy.approvals, self._answers(held), once=once, note=reason
        )
        verb = "approved" if state == "approved" else f"approved ({held.persons} of {policy.approvals})"
        return self._decided(f"{verb} for once" if once else verb, held, state, reason)

    def refuse(self, study: Name, coordinator: Name | None = None, reason: Reason = "") -> data.Decided:
        """Refuse a study from now on; it is durable when this returns. The reason stays at the site."""
        held = self._find(study, coordinator, "refuse")
        self._watch.value.look()
        held = self.folder.approvals.refuse(held, self._person, reason)  # even an invalid study
        return self._decided("refused", held, "refused", reason)

    def ask(self, study: Name, question: Question, coordinator: Name | None = None) -> data.Decided:
        """Ask the coordinator of a study that waits: the question is the site's answer until a decision.

        It leaves the site: say nothing about rows in it.
        """
        held = self._find(study, coordinator, "ask about")
        self._watch.value.look()
        held = self.folder.approvals.ask(held, self._person, question)
        assert held.question is not None
        return self._decided("asked about", held, "waiting", held.question.text)

    def policy(self) -> data.Document:
        """Return the text of site.toml without passwords, and its summary."""
        text = self._text()
        problem, summary = self._parsed(text)
        return data.Document(hide(text), self._hash(text), problem, summary)

    def try_policy(self, text: Text) -> data.Tried:
        """Return the summary of another text, and how it differs; change nothing."""
        return self._tried(self._text(), text)

    def save_policy(self, text: Text, was: Hash) -> data.Tried:
        """Put another text in force if it is valid, and the file still has the hash `was`."""
        with self._lock:
            old = self._text()
            tried = self._tried(old, text)
            if tried.problem is not None:
                return tried
            text = restore(text, old)
            if tried.hash != was:
                raise InvalidInput(
                    "site.toml has changed since it was read; read it again, and repeat the change"
                )
            path = self.folder.path / "site.toml"
            write_whole(path, text, path.stat().st_mode & 0o777)
        self.folder.log(f"the policy was changed by {self._person}")
        self._watch.value.look()
        return data.Tried(None, tried.summary, tried.diff, self._hash(text), saved=True)

    def notify(self) -> Notify:
        """Return where notices go."""
        return self.folder.policy.notify

    def trust(self, name: Name, key: Name, role: Name, coordinator: bool) -> data.Trusted:
        """Write a public key into the policy, as that of a coordinator or of a peer."""
        card = Card(person("name", name), read_public("key", key), role)
        with self._lock:
            added = self.folder.trust(card, coordinator=coordinator)
        if added:
            said = f"trusts {_what(coordinator)} {name!r}, fingerprint {fingerprint(card.key)}"
            self.folder.log(f"{said}, by {self._person}")
            self._watch.value.look()
        return data.Trusted(name, key, fingerprint(card.key), coordinator, added)

    def revoke(self, name: Name, coordinator: bool | None = None) -> data.Trusted:
        """Remove a key from the policy; `coordinator` selects the role of a name that has both."""
        with self._lock:
            policy = self.folder.policy
            found = [
                (is_coordinator, known[name])
                for is_coordinator, known in ((True, policy.coordinators), (False, policy.peers))
                if name in known and coordinator in (None, is_coordinator)
            ]
            if len(found) > 1:
                raise InvalidInput(
                    f"{check.show(name)} is a coordinator and a peer; give --coordinator or --peer"
                )
            if not found:
                raise _unknown(name, policy, coordinator)
            (is_coordinator, key) = found[0]
            self.folder.revoke(name, coordinator=is_coordinator)
        said = f"revoked {_what(is_coordinator)} {name!r}, fingerprint {fingerprint(key)}"
        self.folder.log(f"{said}, by {self._person}")
        self._watch.value.look()
        return data.Trusted(name, public_text(key), fingerprint(key), is_coordinator, True)

    def ledger(
        self,
        after: Number | None = None,
        most: PageSize = 200,
        coordinator: Name | None = None,
        study: Name | None = None,
        since: Day | None = None,
        until: Day | None = None,
        lines: bool = False,
        newest: bool = False,
    ) -> data.Ledger:
        """Return a page of the releases by run, or by line.

        Args:
            after: the line after which the page begins, in its order; as `next` of the page before.
            most: how many runs, or lines.
            coordinator: a name in the policy, or a fingerprint; study: a name, or the start of a hash.
            since, until: the first and the last day (UTC), as in 2026-12-31.
            lines: whether to return lines, rather than runs.
            newest: whether the newest come first.
        """
        policy, book = self.folder.policy, self.folder.book
        book.refresh()
        who = None if coordinator is None else shown.key_of(policy, coordinator, book)
        chosen = book.select(who, study, since, until)
        return shown.ledger(policy, book, chosen, after, most, lines=lines, newest=newest)

    def curve(self) -> data.Curve:
        """Return the running total of all releases, against what may be spent ever."""
        policy, book = self.folder.policy, self.folder.book
        book.refresh()
        return shown.curve(policy, book)

    def people(self) -> data.People:
        """Return how many rows, or persons, the table has: exact, and so for the steward only."""
        policy = self.folder.policy
        unit = "row" if policy.person is None else "person"
        try:
            table = self.folder.table(policy)
            return data.People(table.of(policy.schema.of_persons(policy.person)).rows(), unit)
        except CapeError:
            return data.People(None, unit)

    def row_files(self) -> tuple[str, ...]:
        """Return the files that hold the site's rows, the first thousand: the desk must not read them."""
        return tuple(self.folder.policy.data.files()[:_MOST_FILES])

    def ledger_export(self) -> str:
        """Return the whole ledger as JSON, signed: `cape site verify --export` checks it."""
        policy, identity = self.folder.policy, self.folder.identity
        return export(self.folder.ledger, policy.name, identity)

    def verify(self) -> data.Verified:
        """Check every line of the ledger: chain, signature by the site's key, time and totals."""
        ledger = self.folder.ledger
        try:
            found = verify_rows(ledger.id, ledger.signed(), [self.folder.identity.public])
        except (ValueError, TypeError, ArithmeticError):  # a cell that cape did not write
            raise CapeError(f"the ledger {ledger.path} cannot be used: a line in it cannot be read") from None
        return shown.verified(found)

    def events(self, after: Number = 0, wait: Wait = 0.0) -> tuple[data.Event, ...]:
        """Return what happened after an event, oldest first; wait so many seconds for the first."""
        return tuple(self._watch.value.after(after, wait))

    def check(
        self, study: Text | None = None, coordinator: Name | None = None, where: Name = "study.toml"
    ) -> data.Checked:
        """Check the policy against the data and the text of a study; nothing is spent or sent."""
        policy, book = self.folder.policy, self.folder.book
        book.refresh()
        key = _asker(policy, coordinator)
        verdicts = None
        if study is not None:
            refuse_named_files(documents.parse(Path(where), study))
            asked = document(Study.parse(study, Path(where), elsewhere=True))
            verdicts = shown.analyses(policy, preview(policy, book, asked, key))
        problems, found = surveyed(self.folder, policy)
        approvals = self.folder.approvals
        unsettled = () if self.folder.ledger.settled else (str(Unsettled()),)
        return data.Checked(
            policy.name,
            tuple(map(scrub, (*problems, *unsettled, *approvals.unreadable()))),
            found,
            policy.approve,
            policy.expires.isoformat(),
            tuple(policy.coordinators),
            tuple(policy.peers),
            tuple(check.plain(held.name) for held in approvals.studies("waiting")),
            policy.release.delta,
            verdicts,
            policy.approvals,
        )

    def log(self, lines: Lines = 100) -> data.Log:
        """Return the last lines of the site's log."""
        try:
            with open(self.folder.path / LOG, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - _LOG_BYTES, 0))
                text = file.read().decode("utf-8", "backslashreplace")
        except FileNotFoundError:
            return data.Log(())
        except OSError as error:
            raise CapeError(f"the log cannot be read: {error.strerror}") from None
        found = text.split("\n")[:-1]
        if size > _LOG_BYTES:  # the first of them is incomplete
            found = found[1:]
        return data.Log(tuple(map(scrub, found[max(len(found) - lines, 0) :])))

    def _find(self, study: str, coordinator: str | None, to: Verb) -> Held:
        who = _asker(self.folder.policy, coordinator) if coordinator else None
        return self.folder.approvals.find(study, to=to, coordinator=who, also=self._ended)

    def _any(self, study: str, coordinator: str | None) -> tuple[Held, State]:
        """Return a study in any state, and its state."""
        who = _asker(self.folder.policy, coordinator) if coordinator else None
        held = self.folder.approvals.find(study, to="show", coordinator=who)
        return held, state_of(held)

    def _answers(self, held: Held) -> Answers:
        """Return the answers to any analysis of a study."""
        return self.folder.ledger.answers(held.study_hash, held.coordinator)

    def _ended(self, held: Held) -> bool:
        """Return whether too few approvals of a study count: they were used, or the policy asks for more."""
        return held.counting(self._answers(held)).persons < self.folder.policy.approvals

    def _shown(self, policy: Policy, held: Held, state: State) -> data.Study:
        return shown.study(policy, self.folder.book, held, state, self._answers(held))

    def _decided(self, what: str, held: Held, state: State, reason: str) -> data.Decided:
        """Log a decision that is on the disk, and return the study as it is now."""
        policy = self.folder.policy
        who = policy.who(held.coordinator) or fingerprint(held.coordinator)
        why = f": {check.plain(reason, 500)}" if reason else ""
        about = f"{check.plain(held.name)!r} {held.study_hash} of {who!r}"
        self.folder.log(f"{what} {about} by {self._person}{why}")
        self._watch.value.look()
        self.folder.book.refresh()
        told = self._shown(policy, held, state)
        return data.Decided(told, tuple(self.folder.approvals.unreadable()))

    def _text(self) -> str:
        return documents.read(self.folder.path / "site.toml", "policy")

    def _tried(self, old: str, text: str) -> data.Tried:
        if len(text) > data.MOST_POLICY:  # to look for secrets in a long one takes long
            long = f"a policy may have at most {data.MOST_POLICY >> 10} kB here; edit site.toml itself"
            return data.Tried(long, None, "", self._hash(old))
        try:
            new = restore(text, old)
            if self._reserved:
                require_kept(new, old)
            problem, summary = self._parsed(new)
        except InvalidInput as error:
            problem, summary = scrub(str(error)), None
        return data.Tried(problem, summary, diff(hide(old), hide(text)), self._hash(old))

    def _hash(self, text: str) -> str:
        return blake2b(text.encode(), digest_size=32, key=self._key).hexdigest()

    def _parsed(self, text: str) -> tuple[str | None, data.PolicySummary | None]:
        try:
            return None, shown.summary(Policy.parse(text, self.folder.path / "site.toml"))
        except CapeError as error:
            return scrub(str(error)), None


def at_desk(desk: Desk, person: Person, *, reserved: bool = False) -> Desk:
    """Return the same desk, at which this person decides; `reserved` for the desk's user under any name."""
    other = copy.copy(desk)
    other._person, other._reserved = person, reserved or person.desk
    return other


class _Once(Generic[_T]):
    """A value that is made when it is first needed, once."""

    def __init__(self, make: Callable[[], _T]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._made: list[_T] = []

    @property
    def value(self) -> _T:
        with self._lock:
            if not self._made:
                self._made.append(self._make())
            return self._made[0]


def _person(given: Person | str) -> Person:
    return given if isinstance(given, Person) else Person.at_desk(given)


def _what(coordinator: bool) -> str:
    return "coordinator" if coordinator else "site"


def _asker(policy: Policy, coordinator: str | None) -> bytes | None:
    """Return a coordinator's key; by default that of the policy's only coordinator."""
    if coordinator is None:
        return next(iter(policy.coordinators.values())) if len(policy.coordinators) == 1 else None
    return shown.key_of(policy, coordinator)


def _unknown(name: str, policy: Policy, coordinator: bool | None) -> InvalidInput:
    known = [
        *(policy.coordinators if coordinator is not False else ()),
        *(policy.peers if not coordinator else ()),
    ]
    return InvalidInput(f"the policy does not trust {check.show(name)}{hint(name, known) if known else ''}")
