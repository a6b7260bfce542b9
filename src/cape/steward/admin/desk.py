"""The steward's operations on a site's folder, one method each: see the package."""

from __future__ import annotations

import difflib
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

from cape import __version__, check
from cape.data import troubles
from cape.data.schema import hint
from cape.data.survey import survey
from cape.data.surveyed import Survey
from cape.errors import CapeError, InvalidInput
from cape.steward.admin import data, shown
from cape.steward.admin.data import Hash, Lines, Name, Reason, Text, Year
from cape.steward.admin.hidden import hide, restore
from cape.steward.approvals import Held, State
from cape.steward.folder import LOG, SiteFolder
from cape.steward.gaps import Unsettled
from cape.steward.keyring import Card, fingerprint, person, public_text, read_public, write_whole
from cape.steward.policy import Policy
from cape.steward.preview import preview
from cape.study import Study, places
from cape.study.document import document

__all__ = ["Desk"]

_MOST_DIFFERENT = 20_000  # lines of two texts that are still compared
_LOG_BYTES = 1 << 24  # of the log's end, for its last lines


class Desk:
    """The steward's desk of one site.

    >>> Desk(SiteFolder("our-site")).inbox()

    Args:
        folder: the site's folder.
        linked: returns whether a link is connected; None if no daemon runs.
    """

    def __init__(self, folder: SiteFolder, linked: Callable[[], bool] | None = None) -> None:
        self.folder = folder
        self._linked = linked
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
            problem = hide(str(error))
        try:
            summary = shown.summary(self.folder.policy)
        except CapeError as error:
            problem = hide(str(error))
        state: data.PolicyState = (
            "broken" if summary is None else "expired" if summary.expired else "in force"
        )
        linked = None if self._linked is None else self._linked()
        waiting = len(self.folder.approvals.studies("waiting"))
        return data.Status(__version__, mine, state, problem, summary, waiting, linked)

    def mine(self) -> data.Mine:
        """Return the site's own name and public key."""
        card = self.folder.card
        return data.Mine(card.name, public_text(card.key), fingerprint(card.key))

    def inbox(self) -> data.Inbox:
        """Return every study that is held here, with the current verdicts."""
        approvals, policy, ledger = self.folder.approvals, self.folder.policy, self.folder.ledger
        ledger.entries()  # raises if a line was changed by hand
        states: tuple[State, ...] = ("waiting", "approved", "refused")
        studies = [
            shown.study(policy, ledger, held, state) for state in states for held in approvals.studies(state)
        ]
        return data.Inbox(tuple(studies), tuple(approvals.unreadable()))

    def approve(self, study: Name, coordinator: Name | None = None, reason: Reason = "") -> data.Decided:
        """Approve a study, by its name or the start of its hash."""
        held = self._find(study, coordinator, approve=True)
        told = self._told(held, "approved")
        self.folder.approvals.approve(held)
        self._log_decision("approved", told, reason)
        return data.Decided(told, tuple(self.folder.approvals.unreadable()))

    def refuse(self, study: Name, coordinator: Name | None = None, reason: Reason = "") -> data.Decided:
        """Refuse a study from now on."""
        held = self._find(study, coordinator, approve=False)
        held = self.folder.approvals.refuse(held)  # first: any study can be refused, even an invalid one
        told = self._told(held, "refused")
        self._log_decision("refused", told, reason)
        return data.Decided(told, tuple(self.folder.approvals.unreadable()))

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
        self.folder.log("the policy was changed")
        return data.Tried(None, tried.summary, tried.diff, self._hash(text), saved=True)

    def trust(self, name: Name, key: Name, role: Name, coordinator: bool) -> data.Trusted:
        """Write a public key into the policy, as that of a coordinator or of a peer."""
        card = Card(person("name", name), read_public("key", key), role)
        with self._lock:
            added = self.folder.trust(card, coordinator=coordinator)
        if added:
            self.folder.log(f"trusts {_what(coordinator)} {name!r}, fingerprint {fingerprint(card.key)}")
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
        self.folder.log(f"revoked {_what(is_coordinator)} {name!r}, fingerprint {fingerprint(key)}")
        return data.Trusted(name, public_text(key), fingerprint(key), is_coordinator, True)

    def ledger(
        self,
        coordinator: Name | None = None,
        year: Year | None = None,
        study: Name | None = None,
        lines: bool = False,
    ) -> data.Ledger:
        """Return the releases, optionally of one coordinator, calendar year (UTC) or study."""
        policy, book = self.folder.policy, self.folder.ledger
        who = None if coordinator is None else shown.key_of(policy, coordinator, book)
        return shown.ledger(policy, book, who, year, study, lines)

    def check(
        self, study: Text | None = None, coordinator: Name | None = None, where: Name = "study.toml"
    ) -> data.Checked:
        """Check the policy against the data and the text of a study; nothing is spent or sent."""
        policy, book = self.folder.policy, self.folder.ledger
        key = _asker(policy, coordinator)
        verdicts = None
        if study is not None:
            asked = document(Study.parse(study, Path(where)))
            verdicts = shown.analyses(policy, preview(policy, book, asked, key))
        problems, found = self._data(policy)
        approvals = self.folder.approvals
        unsettled = () if book.settled else (str(Unsettled()),)
        return data.Checked(
            policy.name,
            (*problems, *unsettled, *approvals.unreadable()),
            found,
            policy.approve,
            policy.expires.isoformat(),
            tuple(policy.coordinators),
            tuple(policy.peers),
            tuple(check.plain(held.name) for held in approvals.studies("waiting")),
            policy.release.delta,
            verdicts,
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
        return data.Log(tuple(found[max(len(found) - lines, 0) :]))

    def _find(self, study: str, coordinator: str | None, *, approve: bool) -> Held:
        who = _asker(self.folder.policy, coordinator) if coordinator else None
        return self.folder.approvals.find(study, to="approve" if approve else "refuse", coordinator=who)

    def _told(self, held: Held, state: State) -> data.Study:
        ledger = self.folder.ledger
        ledger.entries()  # raises if a line was changed by hand
        return shown.study(self.folder.policy, ledger, held, state)

    def _log_decision(self, what: str, told: data.Study, reason: str) -> None:
        why = f": {check.plain(reason, 500)}" if reason else ""
        self.folder.log(f"{what} {told.study!r} {told.hash} of {told.who!r}{why}")

    def _text(self) -> str:
        return places.read(self.folder.path / "site.toml", "policy")

    def _tried(self, old: str, text: str) -> data.Tried:
        try:
            problem, summary = self._parsed(restore(text, old))
        except InvalidInput as error:
            problem, summary = hide(str(error)), None
        return data.Tried(problem, summary, _diff(hide(old), hide(text)), self._hash(old))

    def _hash(self, text: str) -> str:
        return blake2b(text.encode(), digest_size=32, key=self._key).hexdigest()

    def _parsed(self, text: str) -> tuple[str | None, data.PolicySummary | None]:
        try:
            return None, shown.summary(Policy.parse(text, self.folder.path / "site.toml"))
        except CapeError as error:
            return hide(str(error)), None

    def _too_few(self, policy: Policy, rows: int) -> list[str]:
        """Return the problem that there are too few rows, or persons, if there are."""
        what = "rows"
        if policy.person is not None:
            rows, what = (
                self.folder.table(policy).of(policy.schema.of_persons(policy.person)).rows(),
                "persons",
            )
        if rows >= policy.min_rows:
            return []
        return [f"there are {rows:,} {what}, and min_rows asks for {policy.min_rows:,}"]

    def _data(self, policy: Policy) -> tuple[list[str], Survey | None]:
        """Return problems, and a survey of the rows without cells."""
        problems: list[str] = []
        found = None
        try:
            self.folder.identity  # noqa: B018  raises if others can read its file
            schema = policy.schema.of_persons(policy.person)
            found = survey(policy.name, policy.data.source(), schema, lenient=True).shown()
            problems += [f"the table cannot be used: {trouble}" for trouble in troubles.stops(found)]
            if not problems:
                problems += self._too_few(policy, found.rows)
        except CapeError as error:
            problems.append(str(error))
        if policy.expires < datetime.now(UTC).date():
            problems.append(f"the policy expired on {policy.expires}; nothing is answered")
        return problems, found


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


def _diff(old: str, new: str) -> str:
    before, after = old.splitlines(), new.splitlines()
    if len(before) + len(after) > _MOST_DIFFERENT:
        return "" if old == new else "the texts are too long to be compared\n"
    lines = difflib.unified_diff(before, after, "site.toml", "new", lineterm="")
    return "".join(f"{line}\n" for line in lines)
