"""The worst neighbouring tables, found by search.

Sums over rows are exact and additive, so the distance of two tables that differ in one row is that of the two
rows' vectors (replace-one), or the length of one row's vector (add-remove): a search over rows is a search
over tables. Rows are drawn at random, with cells at the public bounds more often than elsewhere. Then the
cells of the best pair are changed one by one, in either row, also to what the other row has there, until a
round gains nothing; the best pair is always that among all rows tried so far. Distances are those of the
encoded integers, in standard deviations of a site's noise.

If later queries depend on earlier answers, the queries are those of a real run, and the search also covers
the other rows of the tables, which steer it. Where what a row adds is clipped at what the others are like,
as in a regression by scores, it adds most if it stands out from them, and if noise does not hide what they
are like: some of these tables have few rows, and some have many, all of them near the middle in some columns.
Each pair is then judged in other runs than the one it was found in: what the noise there favoured by chance
does not count.

If a study has several releases, a row's vector is what it adds to all of them, each divided by its own noise.
If earlier answers are forged, the queries are those that follow from them, whatever the rows. With sampling,
a row's vector is what it adds when it takes part: the worst pair is again the one furthest apart, two
opposite rows at the bound (`cape.privacy.subsampling`). A person's rows add up, so the worst person has the
worst row as often as it may count; here twice as often, so that half of them have to be left out.
Tested in tests/unit/audit/test_search.py.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cape.audit.deployed import forged_questions
from cape.audit.game import Game
from cape.audit.world import (
    HELD,
    SCHEMA,
    Cell,
    Remembered,
    Row,
    Tables,
    anywhere,
    asked_of,
    columns_of,
    frame,
    random_rows,
    stream_of,
    uniform,
    whole,
)
from cape.blocks.table import Table
from cape.data import Person, Schema
from cape.data.schema import Number
from cape.engine.calibration import RESOLUTION, Calibration
from cape.engine.consortium import Consortium
from cape.engine.observer import Observer
from cape.engine.query import Neighbours, Query
from cape.noise import SecureStream
from cape.privacy import Budget

__all__ = ["Found", "Questions", "find", "questions"]

Floats = NDArray[np.float64]
Questions = list[tuple[Query, Calibration]]

_FIRST, _SWEEPS, _GAIN = 40, 6, 1e-3
_FILLS = 3  # tables of few rows, if the other rows steer
_FEW, _MANY = 4, (300, 100)  # other rows at a site
_JUDGED = 4  # runs
_NEAR = 0.995  # of the claim: near enough to stop; further than the claim are rows of samples and of persons
_NARROW = 0.2  # of the bounds: where the numbers of a narrow column are
_ENDS = 0.25  # of the other numbers, where there are many rows: those at the bounds


@dataclass(frozen=True)
class Found:
    """Neighbouring tables, their distance in local standard deviations, and how many were tried."""

    tables: Tables
    distance: float
    tried: int


@dataclass(frozen=True)
class _Crowd:
    """The other rows: how many are at a site, and which of their numbers are near the middle of the bounds.

    In a crowd of few rows cells are anywhere; in one of many, some of the other numbers are at the bounds.
    """

    number: int
    rows: int = _FEW
    narrow: tuple[str, ...] = ()

    def draw(self, count: int, stream: SecureStream) -> list[Row]:
        """Return so many rows at random."""
        if self.rows == _FEW:
            return random_rows(count, stream)
        return [tuple(self._cell(name, stream) for name in SCHEMA) for _ in range(count)]

    def _cell(self, name: str, stream: SecureStream) -> Cell:
        column = SCHEMA[name]
        if not isinstance(column, Number):
            return anywhere(name, stream)
        if name in self.narrow:
            return column.middle + _NARROW * (column.high - column.low) * (uniform(stream) - 0.5)
        if uniform(stream) < _ENDS:
            return (column.low, column.high)[stream.integer(2)]
        return anywhere(name, stream)


def find(
    name: str,
    neighbours: Neighbours,
    budget: Budget,
    seed: int,
    sites: int = 3,
    forged: bool = False,
    person: Person | None = None,
) -> Found:
    """Return the worst pair of tables that the search finds for an analysis."""
    steered = not forged and any(len(analysis.stages()) > 1 for analysis, _ in asked_of(name))
    claim = budget.epsilon if budget.pure else budget.mu
    found: list[Found] = []
    for crowd in _crowds(columns_of(name)) if steered else [_Crowd(0)]:
        found.append(_find(name, neighbours, budget, seed, crowd, sites, forged, person))
        if steered:
            found[-1] = _judged(found[-1], name, neighbours, budget)
        if _NEAR * claim <= found[-1].distance <= claim:
            break
    best = max(found, key=lambda each: each.distance)
    return replace(best, tried=sum(each.tried for each in found))


def _crowds(columns: tuple[str, ...]) -> Iterator[_Crowd]:
    """Yield large crowds, in which each choice of the numbers is narrow, and then small ones."""
    numbers = [name for name in columns if isinstance(SCHEMA[name], Number)]
    chosen = [some for many in range(len(numbers) + 1) for some in itertools.combinations(numbers, many)]
    for number, (rows, narrow) in enumerate(itertools.product(_MANY, chosen), _FILLS):
        yield _Crowd(number, rows, narrow)
    yield from (_Crowd(number) for number in range(_FILLS))


def _find(
    name: str,
    neighbours: Neighbours,
    budget: Budget,
    seed: int,
    crowd: _Crowd,
    sites: int,
    forged: bool,
    person: Person | None,
) -> Found:
    stream = stream_of("search", name, neighbours, seed, crowd.number)
    rest = crowd.draw(crowd.rows + 1, stream)
    others = tuple(tuple(crowd.draw(crowd.rows, stream)) for _ in range(sites - 1))
    held = 1 if person is None else HELD * person.rows
    start = Tables((*rest, *rest[:1] * held), (*rest, *rest[:1] * held), others, person)
    if forged:
        asked = forged_questions(Game(name, "conventional", start, budget, 0, neighbours, forged=True))
    else:
        asked = questions(name, neighbours, budget, start)
    pair = _Pair(columns_of(name), asked, neighbours, start.schema, 1 if budget.pure else 2)
    one, two = pair.search(stream)
    last: tuple[Row, ...] = (two,) if neighbours == "replace-one" else ()
    tables = Tables((*rest, *(one,) * held), (*rest, *last * held), others, person)
    return Found(tables, _times(person) * pair.apart(one, two), pair.tried)


def _judged(found: Found, name: str, neighbours: Neighbours, budget: Budget) -> Found:
    """Return the same tables with their distance in other runs: the root of its mean square."""
    tables, squares = found.tables, []
    for run in range(1, 1 + _JUDGED):
        asked = questions(name, neighbours, budget, tables, run)
        pair = _Pair((), asked, neighbours, tables.schema, 1 if budget.pure else 2)
        squares.append(pair.apart(tables.one[-1], tables.two[-1]) ** 2)
    return replace(found, distance=_times(tables.person) * math.sqrt(math.fsum(squares) / _JUDGED))


def _times(person: Person | None) -> int:
    """Return how many rows at stake count at a site."""
    return 1 if person is None else person.rows


class _Questions(Observer):
    """Records the queries of a run."""

    def __init__(self) -> None:
        self.asked_for: Questions = []

    def asked(self, query: Query, calibration: Calibration) -> None:
        self.asked_for.append((query, calibration))


def questions(name: str, neighbours: Neighbours, budget: Budget, tables: Tables, run: int = 0) -> Questions:
    """Return the queries and grids of a real run of scheme `conventional`; each run has other noise."""
    observer = _Questions()
    consortium = Consortium(
        tables.sites(Remembered)[0],
        tables.schema,
        budget,
        colluding=0,
        neighbours=neighbours,
        scheme="conventional",
        stream=stream_of("questions", name, neighbours, run),
        observer=observer,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few rows and much noise
        for analysis, share in asked_of(name):
            consortium.release(analysis, share=share)
    return observer.asked_for


class _Pair:
    """Two rows whose cells are searched."""

    def __init__(
        self, columns: tuple[str, ...], asked: Questions, neighbours: Neighbours, schema: Schema, norm: int
    ) -> None:
        self._asked = [(query, calibration) for query, calibration in asked if query.blocks]
        self._neighbours, self._schema = neighbours, schema
        self._norm = norm  # in which rows are far apart: L2 for Gaussian noise, L1 for Laplace noise
        self._places = [list(SCHEMA).index(column) for column in columns]
        self._blocks = [whole(query.blocks) for query, _ in self._asked]
        self._known: dict[Row, Floats] = {}

    @property
    def tried(self) -> int:
        """How many rows were tried."""
        return len(self._known)

    def vector(self, row: Row) -> Floats:
        """Return what a row adds, in standard deviations of a site's noise."""
        if row not in self._known:
            table = Table("search", frame([row], self._schema), self._schema)
            sums = iter(table.sums([block for blocks in self._blocks for block in blocks]))  # in one pass
            steps: list[NDArray[np.int64]] = []
            for blocks, (_, calibration) in zip(self._blocks, self._asked, strict=True):
                steps += [calibration.encode(tuple(part for _ in blocks for part in next(sums)))]
            self._known[row] = np.concatenate(steps) / float(RESOLUTION)
        return self._known[row]

    def apart(self, one: Row, two: Row) -> float:
        """Return the distance between the tables with these rows."""
        return float(self._apart(self.vector(one), self.vector(two)[None])[0])

    def _apart(self, vector: Floats, others: Floats) -> Floats:
        """Return the distances of one vector from others, or its own length if a row is added or removed."""
        moved = vector[None] if self._neighbours == "add-remove" else vector - others
        return np.asarray(np.linalg.norm(moved, self._norm, axis=1))

    def search(self, stream: SecureStream) -> tuple[Row, Row]:
        """Return the best two rows: random ones first, then cell by cell."""
        start = random_rows(2, stream)
        pair = self._best((start[0], start[1]), self._drawn(start[0], stream))
        for _ in range(_SWEEPS):
            before = self.apart(*pair)
            for place in self._places:
                pair = self._best(pair, self._changed(pair, place, stream))
            if self.apart(*pair) <= before * (1 + _GAIN):
                break
        return pair

    def _drawn(self, row: Row, stream: SecureStream) -> Iterator[Row]:
        """Yield the row with other cells, at random."""
        for _ in range(_FIRST):
            drawn = list(row)
            for place in self._places:
                choices = cells(list(SCHEMA)[place], stream)
                drawn[place] = choices[stream.integer(len(choices))]
            yield tuple(drawn)

    def _changed(self, pair: tuple[Row, Row], place: int, stream: SecureStream) -> Iterator[Row]:
        """Yield either row with another cell in this place, also that of the other row."""
        for cell in (*cells(list(SCHEMA)[place], stream), *(row[place] for row in pair)):
            for row in pair:
                yield (*row[:place], cell, *row[place + 1 :])

    def _best(self, pair: tuple[Row, Row], rows: Iterable[Row]) -> tuple[Row, Row]:
        """Return the pair that is furthest apart: this one, or a new row with any of those tried before."""
        best = self.apart(*pair)
        for row in rows:
            if row in self._known:
                continue
            tried, vectors = list(self._known), np.array(list(self._known.values()))
            apart = self._apart(self.vector(row), vectors)
            at = int(apart.argmax())
            if apart[at] > best:
                best, pair = float(apart[at]), (row, tried[at])
        return pair


def cells(name: str, stream: SecureStream) -> list[Cell]:
    """Return cells to try: the bounds, the middle, values between, and a missing cell if allowed."""
    column = SCHEMA[name]
    nothing: list[Cell] = [None] if column.missing else []
    if not isinstance(column, Number):
        return [*nothing, *column.values]
    near = column.low + (column.high - column.low) * 0.2 * uniform(stream)
    beyond = column.low - column.half, column.high + column.half  # cells outside bounds are counted
    return [*nothing, column.low, column.high, *beyond, column.middle, near, anywhere(name, stream)]
