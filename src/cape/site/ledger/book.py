"""A ledger as a process has read it: every line checked once, then only what is new.

Claim. What a `Book` says is what the ledger's file holds when it is asked, as long as nobody changes old
lines: lines that any process has written are in it, and totals are exact. A line that it returns was compared
with the chain value that was checked when the book first read it. If a line does not fit, it raises.
Reason. Lines are never changed or deleted, so that what was read stays right; `refresh` compares the chain
value of the last line that it knows, which depends on all lines before it, and reads what follows. If that
value differs, the file was replaced, and everything is read again. Sums count equal amounts, and multiply.
What it does not notice is an old line that was changed by hand after it was read, until that line is shown
again; `cape site verify` reads everything.
Tested in tests/unit/site/test_book.py; measured in benchmarks/desk.py.

It takes about 100 bytes for each line.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.core.errors import CapeError
from cape.privacy.accounting import Amount, Basis, Limit, total
from cape.site.decide.held import is_meant
from cape.site.ledger.heads import chain_of, start
from cape.site.ledger.ledger import Ledger, Line, require_covered
from cape.site.ledger.lines import COLUMNS, line_of

__all__ = ["Book", "Places"]

_AT = {name: place for place, name in enumerate(COLUMNS)}
_COST = tuple(
    _AT[name]
    for name in ("adjacency", "unit", "unit_rows", "unit_sites", "sampled", "loss", "amount", "extra")
)
_SOME = 400  # lines read from the file at once
Places = NDArray[np.int64]
"""Lines of a book by their places, from 0, in order."""
_Counts = dict[tuple[str, int], Counter[int]]  # (coordinator, year) -> how often each cost


class _Names:
    """Values that occur again and again, by number."""

    def __init__(self) -> None:
        self.known: list[Any] = []
        self._numbers: dict[Hashable, int] = {}

    def number(self, value: Hashable) -> int:
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.known)
            self.known.append(value)
        return found

    def find(self, value: Hashable) -> int | None:
        return self._numbers.get(value)


class _Columns:
    """What is kept of each line."""

    def __init__(self, ledger: bytes) -> None:
        self.ledger = ledger
        self.chains = [start(ledger)]
        self.days: list[str] = []  # never run backwards
        self.last = ""
        self.coordinators, self.studies, self.runs, self.costs = _Names(), _Names(), _Names(), _Names()
        self.coordinator, self.study, self.run, self.cost, self.year = (array("i") for _ in range(5))
        self.every: _Counts = {}
        self.of_study: dict[str, _Counts] = {}  # by its hash

    def add(self, chain: bytes, values: Sequence[Any]) -> None:
        coordinator = self.coordinators.number(values[_AT["coordinator"]])
        study = self.studies.number((values[_AT["study"]], values[_AT["study_hash"]]))
        run = self.runs.number((coordinator, values[_AT["run"]]))
        cost = self.costs.number(tuple(values[place] for place in _COST))
        year = values[_AT["year"]]
        self.chains.append(chain)
        self.last = values[_AT["at"]]
        self.days.append(self.last[:10])
        for column, number in (
            (self.coordinator, coordinator),
            (self.study, study),
            (self.run, run),
            (self.cost, cost),
            (self.year, year),
        ):
            column.append(number)
        of_study = self.of_study.setdefault(values[_AT["study_hash"]], {})
        for counts in (self.every, of_study):
            counts.setdefault((values[_AT["coordinator"]], year), Counter())[cost] += 1


class Book:
    """The ledger of a site, read once and kept up to date.

    >>> book = Book(lambda: folder.ledger)
    >>> book.refresh()
    >>> book.spent(year=2026)

    Args:
        ledger: returns the site's ledger.
        clock: tells the time, for tests.
    """

    def __init__(
        self, ledger: Callable[[], Ledger], *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._ledger, self._clock = ledger, clock
        self._lock = threading.Lock()
        self._read: _Columns | None = None
        self._amounts: dict[tuple[Any, ...], tuple[Basis, Amount]] = {}

    def refresh(self) -> int:
        """Read what is new, and return the number of lines; raise if a line was changed by hand."""
        with self._lock:
            ledger, read = self._ledger(), self._read
            known = 0 if read is None else len(read.days)
            if read is None or read.ledger != ledger.id or ledger.chain(known) != read.chains[-1]:
                read, known = _Columns(ledger.id), 0
            try:
                for number, chain, values in ledger.rows(known):
                    fits = chain_of(read.chains[-1], values)
                    if chain != fits.hex() or number != len(read.days) + 1:
                        raise ledger.changed(number)
                    self._amount(tuple(values[place] for place in _COST))
                    read.add(fits, values)
            except (ValueError, TypeError, ArithmeticError) as error:  # a cell that cape did not write
                raise CapeError(
                    f"the ledger {ledger.path} cannot be used: a line in it cannot be read "
                    f"({type(error).__name__})"
                ) from None
            self._read = read
            return len(read.days)

    @property
    def _now(self) -> _Columns:
        if self._read is None:
            self.refresh()
        assert self._read is not None
        return self._read

    @property
    def lines(self) -> int:
        """How many lines were read."""
        return len(self._now.days)

    @property
    def head(self) -> bytes:
        """The chain value of the last line that was read, which depends on all lines."""
        return self._now.chains[-1]

    @property
    def year(self) -> int:
        """The calendar year (UTC) whose budgets count: it never goes back."""
        last, now = self._now.last, self._clock().astimezone(UTC)
        return now.year if not last else max(now, datetime.fromisoformat(last)).year

    def spent(
        self, coordinator: bytes | None = None, year: int | None = None, adjacency: str | None = None
    ) -> Amount:
        """Return what `Ledger.spent` returns."""
        return total(self.parts(coordinator, year), adjacency)

    def check(
        self, coordinator: bytes, cost: Amount, limits: Sequence[Limit], basis: Basis | None = None
    ) -> None:
        """Raise what `Ledger.check` raises."""
        require_covered(self.parts, coordinator, self.year, cost, limits, basis or Basis())

    def parts(
        self, coordinator: bytes | None = None, year: int | None = None, study: str | None = None
    ) -> dict[Basis, Amount]:
        """Return the sum of lines for each basis; settled lines count for every coordinator."""
        read = self._now
        every = read.every if study is None else read.of_study.get(study, {})
        counts: Counter[int] = Counter()
        for (who, when), costs in list(every.items()):
            if year in (None, when) and (coordinator is None or who in (coordinator.hex(), "")):
                counts.update(costs)
        return self._sum(counts)

    def select(
        self,
        coordinator: bytes | None = None,
        study: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> Places:
        """Return lines: of one coordinator, of a study (name, or start of its hash), of these days (UTC)."""
        read = self._now
        count = len(read.days)
        low = 0 if since is None else bisect_left(read.days, since, 0, count)
        high = count if until is None else bisect_right(read.days, until, 0, count)
        chosen = np.arange(low, max(low, high))
        if coordinator is not None:
            who = read.coordinators.find(coordinator.hex())
            chosen = chosen[self._numbers(read.coordinator)[chosen] == (-1 if who is None else who)]
        if study is not None:
            which = [
                number
                for number, (name, digest) in enumerate(read.studies.known)
                if is_meant(study, name, digest)
            ]
            chosen = chosen[np.isin(self._numbers(read.study)[chosen], which)]
        return chosen

    def cost(self, lines: Places) -> Amount:
        """Return the sum of some lines, under one adjacency."""
        numbers = self._numbers(self._now.cost)[lines]
        found, counts = np.unique(numbers, return_counts=True)
        return total(self._sum(dict(zip(found.tolist(), counts.tolist(), strict=True))))

    def coordinators(self, lines: Places) -> list[bytes]:
        """Return whose lines these are, in the order of their first lines; settled lines are nobody's."""
        read = self._now
        numbers = self._numbers(read.coordinator)[lines]
        names = [read.coordinators.known[number] for number in np.unique(numbers).tolist()]
        return [bytes.fromhex(name) for name in names if name]

    def known_coordinators(self) -> list[bytes]:
        """Return the keys of all coordinators with lines."""
        return [bytes.fromhex(name) for name in self._now.coordinators.known if name]

    def runs(self, lines: Places) -> Places:
        """Return the first line of each run among some lines."""
        _, first = np.unique(self._numbers(self._now.run)[lines], return_index=True)
        return np.sort(lines[first])

    def new_runs(self, after: int) -> Places:
        """Return the first line of each run that begins after so many lines."""
        _, first = np.unique(self._numbers(self._now.run), return_index=True)
        return np.sort(first[first >= after])

    def cost_of_runs(self, firsts: Places, lines: Places) -> list[tuple[int, Amount]]:
        """Return for runs, each named by a line, how many of some lines they have, and what these cost."""
        read = self._now
        runs, costs = self._numbers(read.run), self._numbers(read.cost)
        counts: dict[int, Counter[int]] = {run: Counter() for run in runs[firsts].tolist()}
        theirs = lines[np.isin(runs[lines], list(counts))]
        for run, cost in zip(runs[theirs].tolist(), costs[theirs].tolist(), strict=True):
            counts[run][cost] += 1
        known: dict[frozenset[tuple[int, int]], Amount] = {}  # many runs cost the same
        found = []
        for run in runs[firsts].tolist():
            each = frozenset(counts[run].items())
            if each not in known:
                known[each] = total(self._sum(counts[run]))
            found.append((counts[run].total(), known[each]))
        return found

    def read(self, lines: Places) -> list[Line]:
        """Return lines in full from the file, each compared with what was checked before."""
        kept, ledger = self._now, self._ledger()
        found: dict[int, Line] = {}
        places = lines.tolist()
        for at in range(0, len(places), _SOME):
            for number, chain, values in ledger.rows(only=[place + 1 for place in places[at : at + _SOME]]):
                before, own = kept.chains[number - 1], kept.chains[number]
                if chain != own.hex() or chain_of(before, values) != own:
                    raise ledger.changed(number)
                found[number - 1] = line_of(number, values)
        if len(found) < len(set(places)):
            raise CapeError(f"lines of {ledger.path} are missing; keep a copy and investigate")
        return [found[place] for place in places]

    def _amount(self, cost: tuple[Any, ...]) -> tuple[Basis, Amount]:
        found = self._amounts.get(cost)
        if found is None:
            adjacency, unit, rows, sites, sampled, loss, amount, extra = cost
            if loss not in ("mu", "epsilon"):
                raise ValueError("unknown loss")
            basis = Basis(adjacency, unit, rows, sites, bool(sampled))
            kind = "mu_squared" if loss == "mu" else "pure"
            each = Amount(**{kind: Fraction(amount)}, extra=Fraction(extra))
            found = self._amounts[cost] = basis, each
        return found

    def _sum(self, counts: Mapping[int, int]) -> dict[Basis, Amount]:
        known = self._now.costs.known
        found: dict[Basis, Amount] = {}
        for number, times in counts.items():
            basis, each = self._amount(known[number])
            found[basis] = found.get(basis, Amount()) + each.times(times)
        return found

    def _numbers(self, column: array[int]) -> NDArray[np.int64]:
        """Return a copy of a column: an array that is lent out cannot grow."""
        with self._lock:
            return np.array(column, dtype=np.int64)
