"""What a site has released: one SQLite file, written and synced before anything leaves, never rewritten.

Claim. Whatever is killed and whenever, and however many processes and threads ask at once: every release
of which something may have left the site is in the ledger, and no total in it is above its limit. A site that
is shown a head which it signed and which is not in its ledger reserves nothing until the gap is settled;
after that, no total (overall, of a year or of a coordinator) is below what the head stated plus what is
written here.
Reason. `reserve` checks run, stage and all limits and writes the line in one transaction that holds the
write lock from its start (BEGIN IMMEDIATE), so that no other can read the same totals; it returns once SQLite
has synced the log (WAL, synchronous = FULL). Only then is there a grant. A process that dies between the two
leaves the ledger too high, never too low. Amounts are fractions, added exactly, under one adjacency
(`amount`). Triggers forbid changing or deleting a line; every line holds a hash of the lines before it, and
the site's signature of that hash and of the totals (`heads`), so that a line changed by hand is detected, and
a ledger that was replaced as a whole contradicts heads that others keep (`verify`). Time never runs backwards
in it: a clock that is set back does not reopen an old year.
Tested in tests/steward/test_ledger.py, test_heads.py and test_kills.py.

A missing ledger is an error; only `Ledger.create` makes one. Format 2; `lines` defines what a line holds.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cape import check
from cape.errors import BudgetExceeded, CapeError, InvalidInput, Refused
from cape.secagg.keys import Identity
from cape.steward.amount import Amount, Basis, Limit, total
from cape.steward.gaps import Gap, Unsettled, gap_of, is_known, note, open_gaps
from cape.steward.heads import ID_BYTES, Head, chain_of, of_json, start, to_json
from cape.steward.lines import COLUMNS, SETTLED, Entry, Line, line_of, values_of
from cape.steward.reading import chain_at, earlier, head_of, sums, totals_at

__all__ = ["Amount", "Entry", "Ledger", "Limit", "Line", "require_covered"]

APPLICATION = 0x43415045  # "CAPE", in the file's header
FORMAT = 2
_PATIENCE = 60.0  # seconds to wait for others who write
_TABLES = f"""
CREATE TABLE ledger (id TEXT PRIMARY KEY, at TEXT NOT NULL);
CREATE TABLE releases (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    {", ".join(f"{name} {kind} NOT NULL" for name, kind in COLUMNS.items())},
    chain TEXT NOT NULL, signature TEXT NOT NULL,
    UNIQUE (coordinator, run, stage)
);
CREATE INDEX spent ON releases (
    year, coordinator, adjacency, unit, unit_rows, unit_sites, sampled, loss, amount, extra
);
CREATE INDEX settled ON releases (plan) WHERE kind = '{SETTLED}';
CREATE TABLE runs (run TEXT PRIMARY KEY, at TEXT NOT NULL);
CREATE TABLE gaps (digest TEXT PRIMARY KEY, head BLOB NOT NULL, at TEXT NOT NULL);
"""
_TRIGGER = """
CREATE TRIGGER {table}_{verb} BEFORE {verb} ON {table}
BEGIN SELECT RAISE(ABORT, 'a line of the ledger never changes'); END;
"""
_TRIGGERS = "".join(
    _TRIGGER.format(table=table, verb=verb)
    for table in ("ledger", "releases", "runs", "gaps")
    for verb in ("UPDATE", "DELETE")
)
_MARKS = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {FORMAT};"
_NOBODY = b""  # whose lines count for every coordinator


def _utc() -> datetime:
    return datetime.now(UTC)


class Ledger:
    """The ledger of one site. Processes and threads may share the file; each call is one transaction.

    >>> ledger = Ledger.create("ledger.sqlite", lambda: identity)
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
        self.path, self._identity, self._clock = Path(path), identity, clock
        if not self.path.is_file():
            raise InvalidInput(
                f"no ledger {str(self.path)!r}; it says what was spent, so nothing is answered without it. "
                "Find the lost file; do not create a new one: see docs/stewards.md"
            )
        with self._connected() as db:
            marks = [
                db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
            ]
            if marks != [APPLICATION, FORMAT]:
                raise InvalidInput(f"{self.path} {_unusable(*marks)}")
            ((name,),) = db.execute("SELECT id FROM ledger").fetchall()
            self.id = bytes.fromhex(name)

    @classmethod
    def create(
        cls,
        path: str | Path,
        identity: Callable[[], Identity] | None = None,
        *,
        clock: Callable[[], datetime] = _utc,
    ) -> Ledger:
        """Make an empty ledger, readable by its owner only; never overwrite a file."""
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            raise InvalidInput(f"{path} already exists; a ledger is never overwritten") from None
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            made = clock().astimezone(UTC).isoformat()
            named = f"INSERT INTO ledger VALUES ('{os.urandom(ID_BYTES).hex()}', '{made}');"
            db.executescript(f"BEGIN; {_TABLES} {named} {_TRIGGERS} {_MARKS} COMMIT;")
        return cls(path, identity, clock=clock)

    def reserve(self, entry: Entry, limits: Sequence[Limit] = (), once: int | None = None) -> int:
        """Write a line for a stage, and return its number once it is on the disk.

        With `once`, an analysis of the study that another run has begun after so many lines is not answered
        again.

        Raises:
            Refused: this stage of the run was reserved before, the run belongs to another release, it was
                closed, or the analysis was answered `once`.
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
            if once is not None and _answered(
                db, entry.study_hash, entry.coordinator, once, entry.number, entry.run
            ):
                raise Refused("this analysis was approved for once, and was answered; ask again")
            charged = entry.cost if begun else entry.cost + entry.once
            now = self._now(db)
            if charged != Amount():
                require_covered(partial(sums, db), entry.coordinator, now.year, charged, limits, entry.basis)
            return _insert(db, entry, charged, now, self.id, self._signer())

    def spent(
        self, coordinator: bytes | None = None, year: int | None = None, adjacency: str | None = None
    ) -> Amount:
        """Return the sum of all lines, or of those of one coordinator, or of one calendar year (UTC).

        It is under one adjacency: the one named, or replace-one if any line is stated so.
        """
        with self._connected() as db:
            return total(sums(db, coordinator, year), adjacency)

    def has(self, run: bytes, stage: int, coordinator: bytes) -> bool:
        """Return whether this coordinator has reserved this stage of a run."""
        return self._holds("run = ? AND coordinator = ? AND stage = ?", run.hex(), coordinator.hex(), stage)

    def may_have(self, run: bytes, stage: int, coordinator: bytes) -> bool:
        """Return whether a stage was reserved, here or in lines that were lost before a gap was settled."""
        return self._holds("kind = ?", SETTLED) or self.has(run, stage, coordinator)

    def begun(self, run: bytes, coordinator: bytes) -> bool:
        """Return whether this coordinator has reserved any stage of a run."""
        return self._holds("run = ? AND coordinator = ?", run.hex(), coordinator.hex())

    def answered(
        self, study_hash: str, coordinator: bytes, after: int, number: int | None = None, run: bytes = b""
    ) -> bool:
        """Return whether an analysis of a study, or any, was answered to this coordinator after so many
        lines, in another run than this one.
        """
        with self._connected() as db:
            return _answered(db, study_hash, coordinator, after, number, run)

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
            require_covered(partial(sums, db), coordinator, year, cost, limits, basis or Basis())

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
            ours = {bytes.fromhex(key) for (key,) in db.execute("SELECT DISTINCT key FROM releases")} | {own}
            if head.key not in ours:
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
        (last,) = db.execute("SELECT max(at) FROM releases").fetchone()
        now = self._clock().astimezone(UTC)
        return now if last is None else max(now, datetime.fromisoformat(last))

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Open a connection for one call: none is shared between threads or kept over a fork."""
        uri = f"file:{quote(str(self.path))}?mode=rw"
        try:
            with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_PATIENCE)) as db:
                db.execute("PRAGMA synchronous = FULL")
                db.execute("PRAGMA recursive_triggers = ON")  # so that REPLACE is a DELETE
                yield db
        except CapeError:
            raise
        except sqlite3.Error as error:
            problem = check.plain(str(error), 200)  # SQLite quotes what is in the file
        except (ValueError, TypeError, ArithmeticError) as error:  # a cell that cape did not write
            problem = f"a line in it cannot be read ({type(error).__name__})"
        else:
            return
        raise CapeError(f"the ledger {self.path} cannot be used: {problem}")

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._connected() as db, db:  # commits, or rolls back if anything is raised
            db.execute("BEGIN IMMEDIATE")
            yield db


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


def _answered(
    db: sqlite3.Connection, study_hash: str, coordinator: bytes, after: int, number: int | None, run: bytes
) -> bool:
    found = db.execute(
        "SELECT 1 FROM releases WHERE id > ?1 AND coordinator = ?2 AND study_hash = ?3 AND run != ?4 "
        "AND (?5 IS NULL OR number = ?5)",
        (after, coordinator.hex(), study_hash, run.hex(), number),
    )
    return found.fetchone() is not None


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
    return count + 1


def _apart(missing: dict[Basis, Amount]) -> Iterator[tuple[Basis, Amount]]:
    """Yield Gaussian and pure parts, each as a line can hold it."""
    for basis, amount in missing.items():
        if amount.pure and amount.mu_squared:
            yield basis, Amount(amount.mu_squared, amount.extra)
            yield basis, Amount(pure=amount.pure)
        else:
            yield basis, amount


def _unusable(application: int, form: int) -> str:
    """Return why a file is not a ledger of this version, and what to do."""
    if application != APPLICATION:
        return "is not a ledger"
    if form > FORMAT:
        return "was written by a later version of cape; install that version again"
    return (
        "was written by an earlier version of cape. Nothing is answered until its lines are taken over: stop "
        "the daemon, back up the folder, and run `cape site upgrade`"
    )
