"""What a site has released: one SQLite file, written and synced before anything leaves, never rewritten.

Claim. Whatever is killed and whenever, and however many processes and threads ask at once: every release
of which something may have left the site is in the ledger, and no total in it is above its limit. A site that
is shown a head which it signed and which is not in its ledger reserves nothing until the gap is settled;
after that, no total (overall, of a year or of a coordinator) is below what the head stated plus what is
written here.
Reason. `reserve` checks run, stage and all limits and writes the line in one transaction that holds the
write lock from its start (BEGIN IMMEDIATE), so that no other can read the same totals; it returns once SQLite
has synced the log (WAL, synchronous = FULL). Only then is there a grant. A process that dies between the two
leaves the ledger too high, never too low. Amounts are rounded up to a decimal grid, once, and added exactly,
under one adjacency (`amount`); running totals keep the time for a line from growing (`running`). Triggers
forbid changing or deleting a line; every line holds a hash of the lines before it, and the site's signature
of that hash and of the totals (`heads`), so that a line changed by hand is detected, and a ledger that was
replaced as a whole contradicts heads that others keep (`verify`). Time never runs backwards in it: a clock
that is set back does not reopen an old year.
Tested in tests/unit/site/test_ledger.py, test_heads.py and test_kills.py.

A missing ledger is an error; only `Ledger.create` makes one. The file is `ledger_file`'s; `lines` defines
what a line holds.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from cape.core.errors import BudgetExceeded, CapeError, InvalidInput, Refused
from cape.privacy.accounting import Amount, Basis, Limit, total
from cape.secagg.keys import Identity
from cape.site.ledger import running
from cape.site.ledger.gaps import Gap, Unsettled, gap_of, is_known, note, open_gaps
from cape.site.ledger.heads import Head, chain_of, of_json, start, to_json
from cape.site.ledger.ledger_file import LedgerFile, make
from cape.site.ledger.lines import COLUMNS, SETTLED, Entry, Line, line_of, values_of
from cape.site.ledger.reading import chain_at, earlier, head_of, totals_at

__all__ = ["NOTHING", "Amount", "Answers", "Entry", "Ledger", "Limit", "Line", "require_covered"]

_NOBODY = b""  # whose lines count for every coordinator


class Answers(NamedTuple):
    """How many lines a ledger has, and which of them is the last that answered an analysis; 0 if none did."""

    lines: int
    last: int = 0


NOTHING = Answers(0)
"""An empty ledger: no approval counts that was given later."""


def _utc() -> datetime:
    return datetime.now(UTC)


class Ledger(LedgerFile):
    """The ledger of one site. Processes and threads may share the file; each call is one transaction.

    >>> ledger = Ledger(folder / "ledger.sqlite", lambda: identity)  # `create` makes one
    >>> ledger.reserve(entry, limits)  # written, signed and synced when it returns
    1

    Args:
        path: where the file is.
        identity: returns the site's key, which signs every line; without it the ledger can only be read.
        clock: tells the time, for tests.
    """

    def __init__(
        self,
        path: str | Path,
        identity: Callable[[], Identity] | None = None,
        *,
        clock: Callable[[], datetime] = _utc,
    ) -> None:
        super().__init__(path)
        self._identity, self._clock = identity, clock

    @classmethod
    def create(
        cls,
        path: str | Path,
        identity: Callable[[], Identity] | None = None,
        *,
        clock: Callable[[], datetime] = _utc,
    ) -> Ledger:
        """Make an empty ledger, readable by its owner only; never overwrite a file."""
        make(path, clock().astimezone(UTC))
        return cls(path, identity, clock=clock)

    def reserve(
        self,
        entry: Entry,
        limits: Sequence[Limit] = (),
        approved: Callable[[Answers], bool] = lambda answers: True,
    ) -> int:
        """Write a line for a stage, and return its number once it is on the disk.

        `approved` says whether policy and steward allow the analysis, at this moment, after the answers that
        other runs got.

        Raises:
            Refused: this stage of the run was reserved before, the run belongs to another release, it was
                closed, or it is not `approved` any more.
            BudgetExceeded: a limit would be passed; the error names it. Nothing was written.
        """
        with self._writing() as db:
            if open_gaps(db):
                raise Unsettled
            name = _closed(entry.run, entry.coordinator).hex()
            if db.execute("SELECT 1 FROM runs WHERE run = ?", (name,)).fetchone() is not None:
                raise Refused("this run was closed by its coordinator; every release needs a new run")
            begun = db.execute(
                "SELECT stage, plan FROM releases WHERE run = ? AND coordinator = ?",
                (entry.run.hex(), entry.coordinator.hex()),
            ).fetchall()
            if any(plan != entry.plan.hex() for _, plan in begun):
                raise Refused("this run was used for another release; every release needs a new run")
            if any(stage == entry.stage for stage, _ in begun):
                raise Refused("this stage was released before; a retry is a new release with a new run")
            if not approved(_answers(db, entry.study_hash, entry.coordinator, entry.number, entry.run)):
                raise Refused(
                    "this site's policy, or its steward's approval, has changed meanwhile; ask again"
                )
            charged = (entry.cost if begun else entry.cost + entry.once).rounded_up()
            now = self._now(db)
            if charged != Amount():
                require_covered(
                    partial(running.sums, db), entry.coordinator, now.year, charged, limits, entry.basis
                )
            return _insert(db, entry, charged, now, self.id, self._signer())

    def spent(
        self, coordinator: bytes | None = None, year: int | None = None, adjacency: str | None = None
    ) -> Amount:
        """Return the sum of all lines, or of those of one coordinator, or of one calendar year (UTC).

        It is under one adjacency: the one named, or replace-one if any line is stated so.
        """
        with self._connected() as db:
            return total(running.sums(db, coordinator, year), adjacency)

    def has(self, run: bytes, stage: int, coordinator: bytes) -> bool:
        """Return whether this coordinator has reserved this stage of a run."""
        return self._holds("run = ? AND coordinator = ? AND stage = ?", run.hex(), coordinator.hex(), stage)

    def may_have(self, run: bytes, stage: int, coordinator: bytes) -> bool:
        """Return whether a stage was reserved, here or in lines that were lost before a gap was settled."""
        return self._holds(f"kind = '{SETTLED}'") or self.has(run, stage, coordinator)

    def begun(self, run: bytes, coordinator: bytes) -> bool:
        """Return whether this coordinator has reserved any stage of a run."""
        return self._holds("run = ? AND coordinator = ?", run.hex(), coordinator.hex())

    def answers(
        self, study_hash: str, coordinator: bytes, number: int | None = None, run: bytes = b""
    ) -> Answers:
        """Return what other runs than this were told of an analysis of a study, or of any in it."""
        with self._connected() as db:
            return _answers(db, study_hash, coordinator, number, run)

    @property
    def lines(self) -> int:
        """How many lines there are."""
        with self._connected() as db:
            return _last(db)

    def _holds(self, where: str, *values: str | int) -> bool:
        with self._connected() as db:
            return db.execute(f"SELECT 1 FROM releases WHERE {where}", values).fetchone() is not None

    def close(self, run: bytes, coordinator: bytes) -> None:
        """Let this coordinator reserve no further stage of a run: from now on, `has` is final for it.

        Other coordinators' runs of the same name continue: knowing a run's name must not suffice to end it.
        """
        self._remember(_closed(run, coordinator))

    def entries(self, coordinator: bytes | None = None, year: int | None = None) -> list[Line]:
        """Return the lines, oldest first, after checking that none was changed."""
        with self._connected():  # turns errors of a line into a sentence
            last, lines = start(self.id), []
            for number, chain, values in self.rows():
                if chain != chain_of(last, values).hex():
                    raise self.changed(number)
                last = bytes.fromhex(chain)
                line = line_of(number, values)
                if coordinator in (None, line.coordinator) and year in (None, line.at.year):
                    lines.append(line)
        return lines

    def rows(self, after: int = 0, only: Sequence[int] | None = None) -> Iterator[tuple[int, str, list[Any]]]:
        """Yield number, chain value and values of the lines after one, or of some; nothing is checked."""
        which = "" if only is None else f"AND id IN ({', '.join(str(int(each)) for each in only)})"
        with self._connected() as db:
            found = db.execute(
                f"SELECT id, chain, {', '.join(COLUMNS)} FROM releases WHERE id > ? {which} ORDER BY id",
                (after,),
            )
            for number, chain, *values in found:
                yield number, chain, values

    def signed(self) -> Iterator[tuple[Any, ...]]:
        """Yield number, chain value, signature and values of all lines; nothing is checked."""
        with self._connected() as db:
            yield from db.execute(
                f"SELECT id, chain, signature, {', '.join(COLUMNS)} FROM releases ORDER BY id"
            )

    def chain(self, lines: int) -> bytes | None:
        """Return the chain value after so many lines; None if there are fewer."""
        with self._connected() as db:
            return chain_at(db, self.id, lines)

    def changed(self, number: int) -> CapeError:
        """Return the error for a line that does not fit its chain value."""
        return CapeError(f"line {number} of {self.path} was changed by hand; keep a copy and investigate")

    def check(
        self, coordinator: bytes, cost: Amount, limits: Sequence[Limit], basis: Basis | None = None
    ) -> None:
        """Raise `BudgetExceeded` if this could not be reserved now. It reserves nothing."""
        with self._connected() as db:
            db.execute("BEGIN")
            year = self._now(db).year
            spent = partial(running.sums, db)
            require_covered(spent, coordinator, year, cost.rounded_up(), limits, basis or Basis())

    @property
    def year(self) -> int:
        """The calendar year (UTC) whose budgets count: it never goes back."""
        with self._connected() as db:
            return self._now(db).year

    def claim(self, session: bytes) -> None:
        """Take the name of a session of secure aggregation; raise `Refused` if it was used before."""
        if not self._remember(session):
            raise Refused(f"run {session.hex()} was used before; every run needs a new name")

    def _remember(self, name: bytes) -> bool:
        """Write a name, synced; return False if it is there already."""
        with self._writing() as db:
            values = name.hex(), self._clock().astimezone(UTC).isoformat()
            return db.execute("INSERT OR IGNORE INTO runs VALUES (?, ?)", values).rowcount == 1

    def head(self, lines: int | None = None) -> Head | None:
        """Return the head after so many lines, or after all; None of an empty ledger."""
        with self._connected() as db:
            (last,) = db.execute("SELECT max(id) FROM releases").fetchone()
            at = last if lines is None else lines
            return None if last is None or not 1 <= at <= last else head_of(db, self.id, at)

    def show(self, head: Head, own: bytes) -> bool:
        """Take a head that this site may have signed; return whether the ledger accounts for it.

        If not, the head is kept, and nothing is reserved until it is settled. Heads with a key that this site
        has never used are ignored.

        Raises:
            BadMessage: it names the site's key, which did not sign it.
        """
        with self._connected() as db:
            used = db.execute("SELECT 1 FROM releases WHERE key = ? LIMIT 1", (head.key.hex(),)).fetchone()
            if head.key != own and used is None:
                return True
            head.verify()
            if is_known(db, self.id, head):
                return True
        with self._writing() as db:
            note(db, head, self._now(db))
        return False

    def gaps(self) -> list[Gap]:
        """Return what is missing and not settled, the longest head first."""
        with self._connected() as db:
            return [gap_of(db, self.id, head) for head in open_gaps(db)]

    @property
    def settled(self) -> bool:
        """Whether nothing that the site has signed is known to be missing."""
        with self._connected() as db:
            return not open_gaps(db)

    def settle(self) -> int:
        """Charge all that is known to be missing, whatever the limits say; return how many lines it took."""
        written = 0
        with self._writing() as db:
            for head in open_gaps(db):
                missing = gap_of(db, self.id, head).missing or {Basis(): Amount()}
                run = os.urandom(16)
                for stage, (basis, amount) in enumerate(_apart(missing)):
                    what = f"what was signed up to line {head.lines}, and lost"
                    release = (_NOBODY, SETTLED, head.ledger.hex(), head.lines, SETTLED, what, "", run, stage)
                    entry = Entry(*release, head.digest, amount, basis=basis, asked=basis.adjacency)
                    _insert(db, entry, amount, self._now(db), self.id, self._signer())
                    written += 1
        return written

    def carry_over(self, lines: Sequence[tuple[Entry, datetime]], runs: Sequence[tuple[str, str]]) -> None:
        """Write what an earlier ledger of the site held, with its times; this one must be empty."""
        with self._writing() as db:
            if db.execute("SELECT 1 FROM releases").fetchone() is not None:
                raise InvalidInput("lines can be carried over to an empty ledger only")
            for entry, at in lines:
                _insert(db, entry, entry.cost, at.astimezone(UTC), self.id, self._signer())
            db.executemany("INSERT INTO runs VALUES (?, ?)", runs)

    def _signer(self) -> Identity:
        if self._identity is None:
            raise InvalidInput("the ledger was opened for reading: writing a line needs the site's key")
        return self._identity()

    def _now(self, db: sqlite3.Connection) -> datetime:
        last = db.execute("SELECT at FROM releases ORDER BY id DESC LIMIT 1").fetchone()
        now = self._clock().astimezone(UTC)
        return now if last is None else max(now, datetime.fromisoformat(last[0]))


def require_covered(
    spent: Callable[[bytes | None, int | None, str | None], dict[Basis, Amount]],
    coordinator: bytes,
    year: int,
    charged: Amount,
    limits: Sequence[Limit],
    basis: Basis,
) -> None:
    """Raise `BudgetExceeded` if a limit would be passed.

    `spent` returns what was spent: by a coordinator, in a year, on a study.
    """
    for limit in limits:
        who, when = coordinator if limit.of_coordinator else None, year if limit.in_year else None
        parts = spent(who, when, limit.of_study)
        parts[basis] = parts.get(basis, Amount()) + charged
        if not limit.most.covers(total(parts, basis.adjacency)):
            more = f"; {limit.hint}" if limit.hint else ""
            raise BudgetExceeded(f"the budget {limit.name} does not cover this release{more}")


def _closed(run: bytes, coordinator: bytes) -> bytes:
    """Return the name that records that a coordinator has closed a run."""
    return sha256(b"cape closed 1\0" + coordinator + run).digest()


def _last(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT ifnull(max(id), 0) FROM releases").fetchone()[0])


def _answers(
    db: sqlite3.Connection, study_hash: str, coordinator: bytes, number: int | None, run: bytes
) -> Answers:
    last = db.execute(
        "SELECT id FROM releases WHERE coordinator = ?1 AND study_hash = ?2 AND run != ?3 "
        "AND (?4 IS NULL OR number = ?4) ORDER BY id DESC LIMIT 1",
        (coordinator.hex(), study_hash, run.hex(), number),
    ).fetchone()
    return Answers(_last(db), 0 if last is None else int(last[0]))


def _insert(
    db: sqlite3.Connection, entry: Entry, charged: Amount, now: datetime, ledger: bytes, identity: Identity
) -> int:
    count = _last(db)
    last = chain_at(db, ledger, count)
    assert last is not None
    totals = totals_at(db, count)
    totals[entry.basis] = totals.get(entry.basis, Amount()) + charged
    values = values_of(entry, charged, now, to_json(totals), identity.public)
    chain = chain_of(last, values)
    stated = of_json(to_json(totals)), identity.public
    head = Head(ledger, count + 1, chain, earlier(db, ledger, count + 1), *stated).signed(identity)
    marks = ", ".join("?" * (len(values) + 3))
    db.execute(
        f"INSERT INTO releases (id, {', '.join(COLUMNS)}, chain, signature) VALUES ({marks})",
        (count + 1, *values, chain.hex(), head.signature.hex()),
    )
    running.add(db, entry.study_hash, entry.coordinator.hex(), now.year, entry.basis, charged)
    return count + 1


def _apart(missing: dict[Basis, Amount]) -> Iterator[tuple[Basis, Amount]]:
    """Yield Gaussian and pure parts, each as a line can hold it."""
    for basis, amount in missing.items():
        if amount.pure and amount.mu_squared:
            yield basis, Amount(amount.mu_squared, amount.extra)
            yield basis, Amount(pure=amount.pure)
        else:
            yield basis, amount
