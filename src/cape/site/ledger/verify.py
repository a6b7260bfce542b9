"""Check a ledger without trusting the site or the file: with the site's public key, and with heads.

Claim. A ledger that passes only ever grew: each line is signed by a given key, amounts add up to the stated
totals, and times never run backwards. With heads that others kept: each of them is a head of this ledger, so
no line up to the longest head was cut off, changed, or rewritten with the site's key.
Reason. The chain, the totals and the signed heads are recomputed from the lines.
What it cannot detect: a line that was never written, and a tail that was cut off after the longest head.
Tested in tests/unit/site/test_verify.py.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from cape.core.errors import BadMessage, CapeError, InvalidInput
from cape.privacy.accounting import Amount, Basis
from cape.site.ledger import running
from cape.site.ledger.heads import Head, before, chain_of, of_json, start, to_json
from cape.site.ledger.ledger_file import APPLICATION, FORMAT
from cape.site.ledger.lines import COLUMNS, Line, line_of

__all__ = ["Verified", "verify", "verify_rows"]

_MOST_PROBLEMS = 100


@dataclass
class Verified:
    """What a check of a ledger found.

    Attributes:
        ledger: the ledger's identifier.
        lines: the number of lines.
        totals: their sum, for each basis.
        first, last: when the first and the last line were written.
        heads: how many heads were compared.
        problems: what is wrong, in sentences; empty if nothing is.
        wrong: the first line that is wrong; None if none is.
    """

    ledger: bytes
    lines: int = 0
    totals: dict[Basis, Amount] = field(default_factory=dict)
    first: datetime | None = None
    last: datetime | None = None
    heads: int = 0
    problems: list[str] = field(default_factory=list)
    wrong: int | None = None

    def say(self, problem: str, line: int | None = None) -> None:
        """Add a problem, up to a limit, of a line if it is one's."""
        if line is not None and (self.wrong is None or line < self.wrong):
            self.wrong = line
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(problem)


def verify(path: Path, keys: Sequence[bytes], heads: Sequence[Head] = ()) -> Verified:
    """Check a ledger against the site's keys (several, if it was renewed) and against heads that others kept.

    Heads of other keys are ignored. The file is copied before it is opened, and is not changed.

    Raises:
        InvalidInput: it is not a ledger, or cannot be read.
    """
    problem = ""
    try:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "ledger.sqlite"
            shutil.copyfile(path, copy)
            log = path.with_name(path.name + "-wal")
            if log.exists():
                shutil.copyfile(log, copy.with_name(copy.name + "-wal"))
            with closing(sqlite3.connect(copy, isolation_level=None)) as db:
                return _verify(db, set(keys), heads)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or type(error).__name__}"
    except (sqlite3.Error, ValueError, TypeError, ArithmeticError):
        problem = "is not a ledger, or is damaged"
    raise InvalidInput(f"{path} {problem}")


def _verify(db: sqlite3.Connection, keys: set[bytes], heads: Sequence[Head]) -> Verified:
    marks = [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    if marks != [APPLICATION, FORMAT]:
        raise ValueError("no ledger")
    ((name,),) = db.execute("SELECT id FROM ledger").fetchall()
    rows = db.execute(f"SELECT id, chain, signature, {', '.join(COLUMNS)} FROM releases ORDER BY id")
    found = verify_rows(bytes.fromhex(name), rows, keys, heads)
    if not found.problems:  # else the lines may not add up to anything
        for problem in running.problems(db):
            found.say(problem)
    return found


def verify_rows(
    ledger: bytes, rows: Iterable[Sequence[Any]], keys: Collection[bytes], heads: Sequence[Head] = ()
) -> Verified:
    """Check lines: number, chain value, signature and the values of `COLUMNS` of each, in order.

    Raises:
        ValueError or TypeError: a line is none.
    """
    found, chains, known = Verified(ledger), {0: start(ledger)}, set(keys)
    for row in rows:
        _check_line(found, chains, known, row)
    _check_heads(found, chains, known, heads)
    return found


def _check_line(found: Verified, chains: dict[int, bytes], keys: set[bytes], row: Sequence[Any]) -> None:
    number, chain, signature, *values = row
    found.lines += 1
    if number != found.lines:
        found.say(f"line {found.lines} is missing: the next one is {number}", found.lines)
        found.lines = number
    stated = chain_of(chains.get(number - 1, b""), values)
    chains[number] = stated
    if chain != stated.hex():
        found.say(f"line {number} was changed, or does not follow the one before", number)
    try:
        line = line_of(number, values)
    except (ValueError, TypeError, ArithmeticError, CapeError):
        found.say(f"line {number} cannot be read", number)
        return
    _check_time(found, line)
    found.totals[line.basis] = found.totals.get(line.basis, Amount()) + line.charged
    if line.totals != to_json(found.totals):
        found.say(f"line {number} does not state what all lines up to it add up to", number)
    _check_signature(found, chains, keys, line, signature)


def _check_time(found: Verified, line: Line) -> None:
    if found.last is not None and line.at < found.last:
        found.say(f"line {line.id} is older than the one before", line.id)
    found.first = found.first or line.at
    found.last = line.at


def _check_signature(
    found: Verified, chains: dict[int, bytes], keys: set[bytes], line: Line, signature: Any
) -> None:
    if line.key not in keys:
        found.say(f"line {line.id} was signed with another key than the site's", line.id)
        return
    try:
        earlier = tuple(chains.get(each, bytes(32)) for each in before(line.id))
        signed = bytes.fromhex(str(signature))
        Head(found.ledger, line.id, chains[line.id], earlier, of_json(line.totals), line.key, signed).verify()
    except (BadMessage, ValueError):
        found.say(f"line {line.id} does not have the site's signature", line.id)


def _check_heads(found: Verified, chains: dict[int, bytes], keys: set[bytes], heads: Sequence[Head]) -> None:
    for head in heads:
        if head.key not in keys:
            continue
        found.heads += 1
        if head.ledger != found.ledger:
            found.say(f"the site has signed line {head.lines} of another ledger")
        elif head.lines > found.lines:
            found.say(f"the site has signed line {head.lines}, and the ledger ends at {found.lines}")
        elif chains.get(head.lines) != head.chain:
            rewritten = "is not the one that the site has signed: the ledger was rewritten"
            found.say(f"line {head.lines} {rewritten}", head.lines)
