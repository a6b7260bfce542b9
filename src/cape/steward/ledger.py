"""What a site has given away: one SQLite file, written and synced before anything leaves, never rewritten.

Claim. Whatever is killed and whenever, and however many processes and threads ask at once: every release
that something may have left for is in the ledger, and no total in it is above its limit.
Reason. `reserve` checks run, stage and all limits and writes the line in one transaction that holds the
write lock from its start (BEGIN IMMEDIATE), so that no other can read the same totals; it returns once SQLite
has synced the log (WAL, synchronous = FULL). Only then is there a grant. What dies between the two leaves the
ledger too high, never too low. Amounts are fractions, added exactly. Triggers forbid to change or delete a
line, and every line holds a hash of those before it, so that a line changed by hand is found. Time never runs
backwards in it: a clock that is set back does not open an old year again.
Tested in tests/steward/test_ledger.py and test_kills.py.

What no ledger can notice: that the file was replaced by an older copy of itself. A ledger that is missing is
an error, and is never made anew but by `Ledger.create`.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Callable, Iterator, MutableSet, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from cape import check
from cape.errors import BudgetExceeded, CapeError, InvalidInput, Refused
from cape.privacy import gaussian

__all__ = ["Amount", "Entry", "Ledger", "Limit", "Line"]

_APPLICATION = 0x43415045  # "CAPE", in the file's header
_FORMAT = 1
_PATIENCE = 60.0  # seconds to wait for others who write
_COLUMNS = (
    "at, year, coordinator, study, study_hash, number, kind, description, scheme, run, stage, plan, "
    "mu_squared, extra"
)
_TABLES = """
CREATE TABLE releases (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at TEXT NOT NULL, year INTEGER NOT NULL, coordinator TEXT NOT NULL, study TEXT NOT NULL,
    study_hash TEXT NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL, description TEXT NOT NULL,
    scheme TEXT NOT NULL, run TEXT NOT NULL, stage INTEGER NOT NULL, plan TEXT NOT NULL,
    mu_squared TEXT NOT NULL, extra TEXT NOT NULL, chain TEXT NOT NULL,
    UNIQUE (coordinator, run, stage)
);
CREATE INDEX spent ON releases (year, coordinator, mu_squared, extra);
CREATE TABLE runs (run TEXT PRIMARY KEY, at TEXT NOT NULL);
"""
_TRIGGER = """
CREATE TRIGGER {table}_{verb} BEFORE {verb} ON {table}
BEGIN SELECT RAISE(ABORT, 'a line of the ledger never changes'); END;
"""
_TRIGGERS = "".join(
    _TRIGGER.format(table=table, verb=verb) for table in ("releases", "runs") for verb in ("UPDATE", "DELETE")
)
_MARKS = f"PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {_FORMAT};"


@dataclass(frozen=True)
class Amount:
    """What something costs: mu², and what it adds to delta beside it. Both are exact, and add."""

    mu_squared: Fraction = Fraction(0)
    extra: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if not (isinstance(self.mu_squared, Fraction) and isinstance(self.extra, Fraction)):
            raise InvalidInput("an amount must be made of fractions: sums of floats are not exact")
        if self.mu_squared < 0 or self.extra < 0:
            raise InvalidInput("an amount must not be negative: nothing is ever given back")

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.mu_squared + other.mu_squared, self.extra + other.extra)

    @property
    def mu(self) -> float:
        """The root, rounded up."""
        return math.nextafter(math.sqrt(_float(self.mu_squared)), math.inf) if self.mu_squared else 0.0

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon at this delta, what was added to delta taken off it."""
        left = delta - _float(self.extra)
        return gaussian.epsilon(left, self.mu) if left > 0 else math.inf


@dataclass(frozen=True)
class Limit:
    """A total that may not be passed: of one coordinator, of one study, in one calendar year or ever."""

    name: str
    most: Amount
    of_coordinator: bool = False
    in_year: bool = False
    of_study: str | None = None
    """The hash of a study: what was given to it."""


@dataclass(frozen=True)
class Entry:
    """One stage of one release, as it is asked for.

    Attributes:
        coordinator: the public key of who asks.
        plan: what all stages of a run have in common, hashed: a run cannot become another one.
        cost: what this stage costs.
        once: what the run costs beside it, charged with the first of its stages that is reserved.
    """

    coordinator: bytes
    study: str
    study_hash: str
    number: int
    kind: str
    description: str
    scheme: str
    run: bytes
    stage: int
    plan: bytes
    cost: Amount
    once: Amount = Amount()


@dataclass(frozen=True)
class Line:
    """One line of the ledger."""

    id: int
    at: datetime
    coordinator: bytes
    study: str
    study_hash: str
    number: int
    kind: str
    description: str
    scheme: str
    run: bytes
    stage: int
    charged: Amount


class Ledger:
    """The ledger of one site. Processes and threads may share the file; each call is one transaction.

    >>> ledger = Ledger.create("ledger.sqlite")
    >>> ledger.reserve(entry, limits)  # written and synced when it returns
    1
    """

    def __init__(self, path: str | Path, *, clock: Callable[[], datetime] | None = None) -> None:
        self.path = Path(path)
        self._clock = clock or (lambda: datetime.now(UTC))
        if not self.path.is_file():
            raise InvalidInput(
                f"no ledger {str(self.path)!r}; it says what was spent, so nothing is answered without it. A "
                "lost one must be found again, and not be made anew: see docs/stewards.md"
            )
        with self._connected() as db:
            marks = [
                db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
            ]
        if marks != [_APPLICATION, _FORMAT]:
            raise InvalidInput(f"{self.path} is not a ledger, or one of another version of cape")

    @classmethod
    def create(cls, path: str | Path, *, clock: Callable[[], datetime] | None = None) -> Ledger:
        """Make an empty ledger, readable by its owner only. What is there already is never overwritten."""
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            raise InvalidInput(f"{path} is there already; a ledger is never overwritten") from None
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.executescript(f"BEGIN; {_TABLES} {_TRIGGERS} {_MARKS} COMMIT;")
        return cls(path, clock=clock)

    def reserve(self, entry: Entry, limits: Sequence[Limit] = ()) -> int:
        """Write down a stage, and return its number once that is on the disk.

        Raises:
            Refused: this stage of the run was reserved before, the run was that of something else, or it was
                closed.
            BudgetExceeded: a limit would be passed; the error names it. Nothing was written.
        """
        with self._writing() as db:
            if _is_run(db, _closed(entry.run, entry.coordinator)) or _is_run(db, entry.run):
                raise Refused("this run was closed by who asked for it; every release needs a new run")
            begun = db.execute(
                "SELECT stage, plan FROM releases WHERE run = ? AND coordinator = ?",
                (entry.run.hex(), entry.coordinator.hex()),
            ).fetchall()
            if any(plan != entry.plan.hex() for _, plan in begun):
                raise Refused("this run was used for another release; every release needs a new run")
            if any(stage == entry.stage for stage, _ in begun):
                raise Refused("this stage was released before; a retry is a new release with a new run")
            charged = entry.cost if begun else entry.cost + entry.once
            now = self._now(db)
            if charged != Amount():
                self._check(db, entry.coordinator, now.year, charged, limits)
            return _insert(db, entry, charged, now)

    def spent(self, coordinator: bytes | None = None, year: int | None = None) -> Amount:
        """Return the sum of all lines, or of those of one coordinator, or of one calendar year (UTC)."""
        with self._connected() as db:
            return _sum(db, coordinator, year)

    def total_epsilon(self, delta: float) -> float:
        """Return the epsilon of all that ever may have left the site, at this delta."""
        return self.spent().epsilon(delta)

    def has(self, run: bytes, stage: int, coordinator: bytes) -> bool:
        """Return whether this coordinator has reserved this stage of a run."""
        found = "SELECT 1 FROM releases WHERE run = ? AND coordinator = ? AND stage = ?"
        with self._connected() as db:
            return db.execute(found, (run.hex(), coordinator.hex(), stage)).fetchone() is not None

    def begun(self, run: bytes, coordinator: bytes) -> bool:
        """Return whether this coordinator has reserved any stage of a run."""
        found = "SELECT 1 FROM releases WHERE run = ? AND coordinator = ?"
        with self._connected() as db:
            return db.execute(found, (run.hex(), coordinator.hex())).fetchone() is not None

    def close(self, run: bytes, coordinator: bytes) -> None:
        """Let this coordinator reserve no more stage of a run, ever: what `has` says of it then is final.

        Those of others go on: whoever learns the name of somebody's run must not be able to end it.
        """
        name = _closed(run, coordinator)
        with self._writing() as db:
            if not _is_run(db, name):
                _insert_run(db, name, self._clock())

    def entries(self, coordinator: bytes | None = None, year: int | None = None) -> list[Line]:
        """Return the lines, oldest first, once it is certain that none was changed."""
        with self._connected() as db:
            rows = db.execute(f"SELECT id, chain, {_COLUMNS} FROM releases ORDER BY id").fetchall()
            before, lines = "", []
            for number, chain, *values in rows:
                if chain != _chain(before, values):
                    raise CapeError(
                        f"line {number} of {self.path} was changed by hand; keep a copy and look into it"
                    )
                before = chain
                line = _line(number, values)
                if coordinator in (None, line.coordinator) and year in (None, line.at.year):
                    lines.append(line)
        return lines

    def check(self, coordinator: bytes, cost: Amount, limits: Sequence[Limit]) -> None:
        """Raise `BudgetExceeded` if this could not be reserved now. It reserves nothing."""
        with self._connected() as db:
            db.execute("BEGIN")
            self._check(db, coordinator, self._now(db).year, cost, limits)

    @property
    def runs(self) -> MutableSet[bytes]:
        """The runs of secure aggregation that this site took part in: what `secagg.Site` takes as seen."""
        return _Runs(self)

    def _check(
        self, db: sqlite3.Connection, coordinator: bytes, year: int, charged: Amount, limits: Sequence[Limit]
    ) -> None:
        for limit in limits:
            who, when = coordinator if limit.of_coordinator else None, year if limit.in_year else None
            spent = _sum(db, who, when, limit.of_study)
            after = spent + charged
            if after.mu_squared > limit.most.mu_squared or after.extra > limit.most.extra:
                raise BudgetExceeded(f"the budget {limit.name} does not cover this release")

    def _now(self, db: sqlite3.Connection) -> datetime:
        (last,) = db.execute("SELECT max(at) FROM releases").fetchone()
        now = self._clock().astimezone(UTC)
        return now if last is None else max(now, datetime.fromisoformat(last))

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Give a connection of its own: none is ever shared between threads or kept over a fork."""
        uri = f"file:{quote(str(self.path))}?mode=rw"
        try:
            with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_PATIENCE)) as db:
                db.execute("PRAGMA synchronous = FULL")
                db.execute("PRAGMA recursive_triggers = ON")  # so that REPLACE is a DELETE
                yield db
        except CapeError:
            raise
        except sqlite3.Error as error:
            problem = check.plain(str(error), 200)  # SQLite repeats what stands in the file
        except (ValueError, TypeError, ArithmeticError) as error:  # a cell that no code of ours has written
            problem = f"a line in it cannot be read ({type(error).__name__})"
        else:
            return
        raise CapeError(f"the ledger {self.path} cannot be used: {problem}")

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._connected() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"


class _Runs(MutableSet[bytes]):
    """Names of runs: they can be added once, and stay."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def __contains__(self, run: object) -> bool:
        if not isinstance(run, bytes):
            return False
        with self._ledger._connected() as db:
            return _is_run(db, run)

    def __iter__(self) -> Iterator[bytes]:
        with self._ledger._connected() as db:
            return iter([bytes.fromhex(run) for (run,) in db.execute("SELECT run FROM runs ORDER BY at")])

    def __len__(self) -> int:
        with self._ledger._connected() as db:
            return int(db.execute("SELECT count(*) FROM runs").fetchone()[0])

    def add(self, value: bytes) -> None:
        """Remember a run; whoever comes second with the same one is refused."""
        with self._ledger._writing() as db:
            if _is_run(db, value):
                raise Refused(f"run {value.hex()} was used before; every run needs a new name")
            _insert_run(db, value, self._ledger._clock())

    def discard(self, value: bytes) -> None:
        """Runs are never forgotten."""
        raise Refused("the ledger forgets no run")


def _float(value: Fraction) -> float:
    """Return it as a float; inf if none is as large."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _is_run(db: sqlite3.Connection, run: bytes) -> bool:
    """Return whether a name is taken: of a session of secure aggregation, or of a run that was closed."""
    return db.execute("SELECT 1 FROM runs WHERE run = ?", (run.hex(),)).fetchone() is not None


def _closed(run: bytes, coordinator: bytes) -> bytes:
    """Return the name under which it is kept that a coordinator has closed a run."""
    return sha256(b"cape closed 1\0" + coordinator + run).digest()


def _insert_run(db: sqlite3.Connection, run: bytes, now: datetime) -> None:
    db.execute("INSERT INTO runs VALUES (?, ?)", (run.hex(), now.astimezone(UTC).isoformat()))


def _sum(
    db: sqlite3.Connection, coordinator: bytes | None, year: int | None, study: str | None = None
) -> Amount:
    """Add up exactly; equal amounts are counted by SQLite, so that long runs cost nothing here."""
    rows = db.execute(
        "SELECT mu_squared, extra, count(*) FROM releases WHERE (?1 IS NULL OR year = ?1) "
        "AND (?2 IS NULL OR coordinator = ?2) AND (?3 IS NULL OR study_hash = ?3) GROUP BY mu_squared, extra",
        (year, None if coordinator is None else coordinator.hex(), study),
    )
    total = Amount()
    for mu_squared, extra, times in rows:
        total += Amount(times * Fraction(mu_squared), times * Fraction(extra))
    return total


def _insert(db: sqlite3.Connection, entry: Entry, charged: Amount, now: datetime) -> int:
    values = (
        now.isoformat(timespec="microseconds"),
        now.year,
        entry.coordinator.hex(),
        entry.study,
        entry.study_hash,
        entry.number,
        entry.kind,
        entry.description,
        entry.scheme,
        entry.run.hex(),
        entry.stage,
        entry.plan.hex(),
        str(charged.mu_squared),
        str(charged.extra),
    )
    last = db.execute("SELECT chain FROM releases ORDER BY id DESC LIMIT 1").fetchone()
    chain = _chain(last[0] if last else "", values)
    marks = ", ".join("?" * (len(values) + 1))
    done = db.execute(f"INSERT INTO releases ({_COLUMNS}, chain) VALUES ({marks})", (*values, chain))
    assert done.lastrowid is not None
    return done.lastrowid


def _chain(before: str, values: Sequence[object]) -> str:
    return sha256(json.dumps([before, *values]).encode()).hexdigest()


def _line(number: int, values: Sequence[str | int]) -> Line:
    at, _, coordinator, study, study_hash, which, kind, description, scheme, run, stage, _, mu2, extra = (
        values
    )
    return Line(
        number,
        datetime.fromisoformat(str(at)),
        bytes.fromhex(str(coordinator)),
        str(study),
        str(study_hash),
        int(which),
        str(kind),
        str(description),
        str(scheme),
        bytes.fromhex(str(run)),
        int(stage),
        Amount(Fraction(str(mu2)), Fraction(str(extra))),
    )
