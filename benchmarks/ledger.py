"""A site's ledger: what a line costs when there are many, whatever the releases before it cost."""

from __future__ import annotations

import os
import statistics
import time
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import Result, bench
from cape.secagg import Identity
from cape.site import Amount, Entry, Ledger, Limit

SHORT, LONG = 1_000, int(os.environ.get("CAPE_LEDGER_LINES", "1000000"))
LINES = 201  # written to each, in turns
OFFICES = 5
_MUCH = Amount(Fraction(10**6), Fraction(1))
_LIMITS = (
    Limit("of this site", _MUCH),
    Limit("of this year", _MUCH, in_year=True),
    Limit("of this coordinator", _MUCH, of_coordinator=True),
)


@bench("ledger.line")
def line() -> Result:
    """CPU of line 1,000,000 over that of line 1,000: checked, written, signed, with a price of its own."""
    memory = Path("/dev/shm")  # a disk's time to sync would hide the rest
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        began = time.perf_counter()
        short, long = (_filled(Path(folder) / str(lines), lines) for lines in (SHORT, LONG))
        filled = time.perf_counter() - began
        times: dict[Ledger, list[float]] = {short: [], long: []}
        for place in range(LINES):
            for ledger, taken in times.items():
                entry = _entry(ledger.lines)
                own = Limit("of the study", _MUCH, of_coordinator=True, of_study=entry.study_hash)
                start = time.process_time()
                ledger.reserve(entry, (*_LIMITS, own))
                if place:  # the first finds files that are not in memory
                    taken.append(time.process_time() - start)
        middle = {ledger: statistics.median(taken) for ledger, taken in times.items()}
        size = (Path(folder) / str(LONG)).stat().st_size
    detail = {
        "milliseconds of CPU": [round(1e3 * middle[each], 3) for each in (short, long)],
        "lines": [SHORT, LONG],
        "bytes a line": round(size / LONG),
        "seconds to fill": round(filled, 1),
    }
    return Result(middle[long] / middle[short], 1.5, "lower", detail=detail)


def _entry(number: int) -> Entry:
    """Return a release with a price of its own, as analyses of many stages have."""
    study, stage = divmod(number, 7)
    return Entry(
        bytes([study % OFFICES]) * 32,
        f"study {study}",
        f"{study:064x}",
        1,
        "mean",
        "mean of age",
        "cape",
        study.to_bytes(16, "big"),
        stage,
        study.to_bytes(32, "big"),
        Amount(Fraction(1, 100 + number % 1009), Fraction(1, 10**12)),
    )


def _filled(path: Path, lines: int) -> Ledger:
    """Return a ledger with so many signed lines of three years."""
    from cape.site.ledger.ledger import _insert

    identity = Identity()
    ledger = Ledger.create(path, lambda: identity)
    begin = datetime.now(UTC) - timedelta(days=1000)
    with ledger._writing() as db:
        for number in range(lines):
            entry = _entry(number)
            at = begin + number * timedelta(days=999) / lines
            _insert(db, entry, entry.cost.rounded_up(), at, ledger.id, identity)
    return ledger
