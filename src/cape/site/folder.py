"""A site's folder: its key, its policy, its ledger and its log, and how it handles a request."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from polars.exceptions import PanicException

from cape.analyses import KINDS
from cape.blocks.table import Table
from cape.core import check
from cape.core.check import hint
from cape.core.errors import CapeError, InvalidInput
from cape.noise import SecureStream
from cape.secagg.keys import Identity
from cape.site.decide.approvals import Approvals
from cape.site.decide.codes import Code, Refusal
from cape.site.decide.decide import Decider
from cape.site.decide.grant import Grant, Offer, answer, guarded
from cape.site.decide.nonces import Nonces
from cape.site.decide.policy import Policy
from cape.site.decide.replay import Sessions
from cape.site.decide.request import Request
from cape.site.keyring import Card, load_identity, make_identity, new_folder, pin, unpin, write_whole
from cape.site.ledger.book import Book
from cape.site.ledger.ledger import Ledger
from cape.site.template import site_toml
from cape.site.traffic import Traffic

__all__ = ["SiteFolder"]

KEY, POLICY, LEDGER, LOG = "identity.key", "site.toml", "ledger.sqlite", "site.log"
NONCES = "nonces.sqlite"
OLD_LOG = "site.log.1"
MISSING = "unreadable cells that count as missing"
"""How a line of the log begins that counts cells: for those who may know numbers of rows."""
MOST_LOG = 1 << 26
"""Bytes of a log, after which it is rotated."""
_YEAR = timedelta(days=365)


class SiteFolder:
    """Everything that a site owns, except its rows.

    >>> site = SiteFolder("our-site")
    >>> granted = site.decide(data)  # a Grant, already in the ledger, or a Refusal
    >>> vector = site.answer(granted)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not (self.path / POLICY).is_file():
            raise InvalidInput(
                f"{str(self.path)!r} is not a site's folder: it has no {POLICY}; run `cape site init`"
            )
        self.approvals = Approvals(self.path)
        self._sessions = Sessions()
        self._lock = threading.Lock()
        self._logging = threading.Lock()
        self._table: Table | None = None
        self._opened: tuple[object, ...] = ()
        self._logged: dict[str, int] = {}  # cells counted as missing, by column
        self.book = Book(lambda: self.ledger)
        self.traffic = Traffic()

    @classmethod
    def create(cls, path: str | Path, name: str | None = None, *, private: bytes | None = None) -> SiteFolder:
        """Make a folder with a key, a policy to edit and an empty ledger; overwrite nothing.

        The key is new, unless a test gives one for a reproducible site.
        """
        path = Path(path)
        called = new_folder(path, (KEY, POLICY, LEDGER), name)
        make_identity(path / KEY, private)
        Ledger.create(path / LEDGER)
        expires = (datetime.now(UTC) + _YEAR).date()
        write_whole(path / POLICY, site_toml(called, expires, list(KINDS)))
        return cls(path)

    @property
    def policy(self) -> Policy:
        """The policy as it is in the file now."""
        return Policy.load(self.path / POLICY)

    @property
    def identity(self) -> Identity:
        """The site's key."""
        return load_identity(self.path / KEY)

    @property
    def ledger(self) -> Ledger:
        """The site's ledger."""
        return Ledger(self.path / LEDGER, lambda: self.identity)

    @property
    def nonces(self) -> Nonces:
        """The requests that were accepted."""
        return Nonces(self.path / NONCES)

    @property
    def card(self) -> Card:
        """The card to hand to coordinators and peers."""
        return Card(self.policy.name, self.identity.public, "site")

    def table(self, policy: Policy | None = None) -> Table:
        """Return the table that the policy names now; it is opened once.

        A cell that does not fit the schema counts as missing: nobody outside learns that there is one.
        """
        policy = policy or self.policy
        wanted = (policy.name, policy.data.where, policy.data, repr(policy.schema.to_dict()))
        with self._lock:
            if self._table is None or self._opened != wanted:
                source = policy.data.source()
                # The same rows of a person are chosen again after a restart. No message that is signed for
                # others begins like this one.
                key = sha256(self.identity.sign(b"cape choice of rows 1\0")).digest()
                self._table = Table(policy.name, source, policy.schema, unreadable="missing", key=key)
                self._opened, self._logged = wanted, {}
            return self._table

    def consider(self, data: bytes) -> Offer | Refusal:
        """Return an offer, not paid for yet, or a refusal. Never raises."""
        return guarded(lambda: self.decider().consider(data), "a request", self.log)

    def reconsider(self, request: Request) -> Offer | Refusal:
        """Consider a request again, with the current policy, ledger and clock."""
        return guarded(lambda: self.decider().reconsider(request), "a request", self.log)

    def decide(self, data: bytes) -> Grant | Refusal:
        """Return a grant, already in the ledger, or a refusal that may be sent. Never raises."""
        return guarded(lambda: self.decider().decide(data), "a request", self.log)

    def decider(self) -> Decider:
        """Return a decider with the current policy, ledger and key."""
        policy = self.policy
        return Decider(
            policy,
            self.ledger,
            self.identity.public,
            lambda: self.table(policy),
            self.nonces,
            self.approvals,
            self._sessions,
            self.log,
            self.traffic.considered,
            lambda: self.policy == policy,
        )

    def answer(self, grant: Grant, stream: SecureStream | None = None) -> NDArray[np.int64] | Refusal:
        """Return this site's noisy vector, or a refusal; the ledger holds the release either way."""
        try:
            table = self.table()
            vector = answer(grant, table, stream)
            self._log_missing(table.of(grant.schema).counted_as_missing)
            return vector
        except CapeError as error:
            self.log(f"line {grant.number} of the ledger was not answered: {error}")
        except (Exception, PanicException) as error:  # its text may quote a cell
            self.log(f"line {grant.number} of the ledger was not answered: {type(error).__name__}")
        return Refusal(Code.DATA, "this site's table cannot be used for this study")

    def _log_missing(self, cells: Mapping[str, int]) -> None:
        """Log the cells that count as missing, once; a full disk must not change the answer."""
        new = {name: count for name, count in cells.items() if count != self._logged.get(name, 0)}
        self._logged.update(new)
        if new:
            counts = ", ".join(f"{name} {count}" for name, count in new.items())
            with contextlib.suppress(OSError):
                self.log(f"{MISSING}: {counts}")

    def trust(self, card: Card, *, coordinator: bool) -> bool:
        """Write a coordinator's or a peer's key into the policy; return False if it is there already."""
        policy = self.policy
        if card.key == self.identity.public:
            raise InvalidInput("that is this site's own key; it trusts itself already")
        card.require("coordinator" if coordinator else "site")
        section, known = ("coordinators", policy.coordinators) if coordinator else ("peers", policy.peers)
        return pin(policy.path, section, known, card, lambda text: Policy.parse(text, policy.path))

    def revoke(self, name: str, *, coordinator: bool) -> None:
        """Remove a coordinator's or a peer's key from the policy."""
        policy = self.policy
        section, known = ("coordinators", policy.coordinators) if coordinator else ("peers", policy.peers)
        if name not in known:
            raise InvalidInput(f"[{section}] has no {check.show(name)}{hint(name, known) if known else ''}")
        unpin(policy.path, section, name, lambda text: Policy.parse(text, policy.path))

    def settle(self) -> tuple[int, int]:
        """Charge what the ledger lacks; return how many lines that took, and how many studies wait again.

        Decisions since the lines were lost may be lost with them: no approval counts any more.
        """
        waiting = self.approvals.end()  # first: a process that dies in between leaves nothing approved
        return self.ledger.settle(), waiting

    def log(self, line: str) -> None:
        """Append a line to the site's own log, which nobody else sees.

        A full log replaces the previous one (site.log.1), so that a flood of messages cannot fill the disk
        that the ledger is on.
        """
        text = f"{datetime.now(UTC).isoformat(timespec='seconds')} {_one_line(line)}\n"
        path = self.path / LOG
        with self._logging:
            handle = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            if path.stat().st_size > MOST_LOG:
                os.replace(path, self.path / OLD_LOG)


def _one_line(text: str) -> str:
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)[:2000]
