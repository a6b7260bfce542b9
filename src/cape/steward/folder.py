"""A site's folder: its key, its policy, its ledger, its log, and what it does with a request."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cape import check
from cape.analyses import KINDS
from cape.blocks.table import Table
from cape.data.schema import hint
from cape.errors import CapeError, InvalidInput
from cape.noise import SecureStream
from cape.secagg.keys import Identity
from cape.steward.approvals import Approvals
from cape.steward.codes import Code, Refusal
from cape.steward.decide import Decider
from cape.steward.grant import SOMETHING, Grant, Offer, answer
from cape.steward.keyring import Card, load_identity, make_identity, new_folder, pin, unpin, write_whole
from cape.steward.ledger import Ledger
from cape.steward.nonces import Nonces
from cape.steward.policy import Policy
from cape.steward.replay import Sessions
from cape.steward.request import Request
from cape.steward.template import site_toml

__all__ = ["SiteFolder"]

KEY, POLICY, LEDGER, LOG = "identity.key", "site.toml", "ledger.sqlite", "site.log"
NONCES = "nonces.sqlite"
OLD_LOG = "site.log.1"
MOST_LOG = 1 << 26
"""Bytes of a log, after which it is put aside."""
_YEAR = timedelta(days=365)
_T = TypeVar("_T")


class SiteFolder:
    """Everything that a site owns, but its rows.

    >>> site = SiteFolder("our-site")
    >>> granted = site.decide(data)  # a Grant, in the ledger already, or a Refusal
    >>> vector = site.answer(granted)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not (self.path / POLICY).is_file():
            raise InvalidInput(
                f"{str(self.path)!r} is no site's folder: it has no {POLICY}; `cape site init DIR` makes one"
            )
        self.approvals = Approvals(self.path)
        self._sessions = Sessions()
        self._lock = threading.Lock()
        self._logging = threading.Lock()
        self._table: Table | None = None
        self._opened: tuple[object, ...] = ()
        self._told: dict[str, int] = {}  # cells that count as missing, as the log has them

    @classmethod
    def create(cls, path: str | Path, name: str | None = None, *, private: bytes | None = None) -> SiteFolder:
        """Make a folder with a key, a policy to change and an empty ledger; overwrite nothing.

        The key is a new one; tests give one to make a site that can be repeated.
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
        """The policy as the file says it now."""
        return Policy.load(self.path / POLICY)

    @property
    def identity(self) -> Identity:
        """The site's key."""
        return load_identity(self.path / KEY)

    @property
    def ledger(self) -> Ledger:
        """What was given away."""
        return Ledger(self.path / LEDGER, lambda: self.identity)

    @property
    def nonces(self) -> Nonces:
        """The requests that were taken."""
        return Nonces(self.path / NONCES)

    @property
    def card(self) -> Card:
        """What other people need of this site."""
        return Card(self.policy.name, self.identity.public, "site")

    def table(self, policy: Policy | None = None) -> Table:
        """Return the rows, as the policy says now; they are opened once.

        A cell that does not fit the schema counts as missing: that there is one is nobody else's business.
        """
        policy = policy or self.policy
        wanted = (
            policy.name,
            policy.data.where,
            policy.data,
            repr(policy.schema.to_dict()),
        )
        with self._lock:
            if self._table is None or self._opened != wanted:
                source = policy.data.source()
                self._table = Table(policy.name, source, policy.schema, unreadable="missing")
                self._opened, self._told = wanted, {}
            return self._table

    def consider(self, data: bytes) -> Offer | Refusal:
        """Return what this site would agree to, not paid for yet, or a refusal. Never raises."""
        return self._now(lambda site: site.consider(data))

    def reconsider(self, request: Request) -> Offer | Refusal:
        """Return the same of a request that was considered before, as policy, ledger and clock are now."""
        return self._now(lambda site: site.reconsider(request))

    def decide(self, data: bytes) -> Grant | Refusal:
        """Return a grant, in the ledger already, or a refusal that may be sent. Never raises."""
        return self._now(lambda site: site.decide(data))

    def decider(self) -> Decider:
        """Return what decides with this site's policy, ledger and key as they are now."""
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
        )

    def _now(self, work: Callable[[Decider], _T]) -> _T | Refusal:
        try:
            site = self.decider()
        except CapeError as error:
            self.log(f"failed: {error}")
            return Refusal(Code.SITE, SOMETHING)
        return work(site)

    def answer(self, grant: Grant, stream: SecureStream | None = None) -> NDArray[np.int64] | Refusal:
        """Return this site's noisy vector, or a refusal; the ledger holds the release either way."""
        try:
            table = self.table()
            vector = answer(grant, table, stream)
            self._tell(table.counted_as_missing)
            return vector
        except CapeError as error:
            self.log(f"line {grant.number} of the ledger was not answered: {error}")
        except Exception as error:  # its text may quote a cell
            self.log(f"line {grant.number} of the ledger was not answered: {type(error).__name__}")
        return Refusal(Code.DATA, "this site's table cannot be used for this study")

    def _tell(self, cells: Mapping[str, int]) -> None:
        """Tell the steward of cells that count as missing, once; a full disk must not tell others."""
        new = {name: count for name, count in cells.items() if count != self._told.get(name, 0)}
        self._told.update(new)
        if new:
            counts = ", ".join(f"{name} {count}" for name, count in new.items())
            with contextlib.suppress(OSError):
                self.log(f"cells that could not be read, and count as missing: {counts}")

    def trust(self, card: Card, *, coordinator: bool) -> bool:
        """Write a coordinator's or a peer's key into the policy; return False if it was there."""
        policy = self.policy
        if card.key == self.identity.public:
            raise InvalidInput("that is this site's own key; it trusts itself already")
        card.require("coordinator" if coordinator else "site")
        section, known = ("coordinators", policy.coordinators) if coordinator else ("peers", policy.peers)
        if known.get(card.name) == card.key:
            return False
        if card.name in known:
            raise InvalidInput(
                f"[{section}] {card.name} has another key in {policy.path}; if it was renewed, take the "
                "old line out"
            )
        pin(policy.path, section, card, lambda text: Policy.parse(text, policy.path))
        return True

    def revoke(self, name: str, *, coordinator: bool) -> None:
        """Take a coordinator's or a peer's key out of the policy: nothing is answered to it any more."""
        policy = self.policy
        section, known = ("coordinators", policy.coordinators) if coordinator else ("peers", policy.peers)
        if name not in known:
            raise InvalidInput(f"[{section}] has no {check.show(name)}{hint(name, known) if known else ''}")
        unpin(policy.path, section, name, lambda text: Policy.parse(text, policy.path))

    def log(self, line: str) -> None:
        """Append a line to the site's own log, which nobody else sees.

        A log that is full is put aside, in the place of the one before: whoever sends messages without end
        must not fill the disk that the ledger is on.
        """
        text = f"{datetime.now(UTC).isoformat(timespec='seconds')} {_one_line(line)}\n"
        path = self.path / LOG
        with self._logging:
            handle = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            if path.stat().st_size > MOST_LOG:
                os.replace(path, self.path / OLD_LOG)


def _one_line(text: str) -> str:
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)[:2000]
