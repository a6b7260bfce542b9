"""The worst neighbouring tables, found by search.

Sums over rows are exact and additive, so the distance of two tables that differ in one row is that of the two
rows' vectors (replace-one), or the length of one row's vector (add-remove): a search over rows is a search
over tables. Rows are drawn at random, with cells at the public bounds more often than elsewhere; the best
pair is then improved cell by cell, over both rows, until no cell helps. Distances are those of the encoded
integers, in standard deviations of a site's noise. If later queries depend on earlier answers, the queries
are those of a real run, and the search also covers the other rows of the tables, which steer it. If a study
has several releases, a row's vector is what it adds to all of them, each divided by its own noise. If
earlier answers are forged, the queries are those that follow from them, whatever the rows. With sampling, a
row's vector is what it adds when it takes part: the worst pair is again the one furthest apart, two
opposite rows at the bound (`cape.privacy.subsampling`). A person's rows add up, so the worst person has the
worst row as often as it may count; here twice as often, so that half of them have to be left out.
Tested in tests/audit/test_search.py.
"""

from __future__ import annotations

import math
import warnings
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
from cape.engine.contribution import exact_sums
from cape.engine.observer import Observer
from cape.engine.query import Neighbours, Query
from cape.noise import SecureStream
from cape.privacy import Budget

__all__ = ["Found", "Questions", "find", "questions"]

Floats = NDArray[np.float64]
Questions = list[tuple[Query, Calibration]]

_FIRST, _SWEEPS, _FILLS = 40, 6, 3


@dataclass(frozen=True)
class Found:
    """Neighbouring tables, their distance in local standard deviations, and how many were tried."""

    tables: Tables
    distance: float
    tried: int


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
    fills = range(_FILLS if steered else 1)
    found = [_find(name, neighbours, budget, (seed, fill), sites, forged, person) for fill in fills]
    best = max(found, key=lambda each: each.distance)
    return replace(best, tried=sum(each.tried for each in found))


def _find(
    name: str,
    neighbours: Neighbours,
    budget: Budget,
    seed: tuple[int, int],
    sites: int,
    forged: bool,
    person: Person | None,
) -> Found:
    stream = stream_of("search", name, neighbours, *seed)
    rest = random_rows(5, stream)
    others = tuple(tuple(random_rows(4, stream)) for _ in range(sites - 1))
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
    times = 1 if person is None else person.rows
    return Found(tables, times * pair.apart(one, two), pair.tried)


class _Questions(Observer):
    """Records the queries of a run."""

    def __init__(self) -> None:
        self.asked_for: Questions = []

    def asked(self, query: Query, calibration: Calibration) -> None:
        self.asked_for.append((query, calibration))


def questions(name: str, neighbours: Neighbours, budget: Budget, tables: Tables) -> Questions:
    """Return the queries and grids of a real run of scheme `conventional`."""
    observer = _Questions()
    consortium = Consortium(
        tables.sites(Remembered)[0],
        tables.schema,
        budget,
        colluding=0,
        neighbours=neighbours,
        scheme="conventional",
        stream=stream_of("questions", name, neighbours),
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
        self._asked, self._neighbours, self._schema = asked, neighbours, schema
        self._norm = norm  # in which rows are far apart: L2 for Gaussian noise, L1 for Laplace noise
        self._places = [list(SCHEMA).index(column) for column in columns]
        self._known: dict[Row, Floats] = {}

    @property
    def tried(self) -> int:
        """How many rows were tried."""
        return len(self._known)

    def vector(self, row: Row) -> Floats:
        """Return what a row adds, in standard deviations of a site's noise."""
        if row not in self._known:
            table = Table("search", frame([row], self._schema), self._schema)
            self._known[row] = np.concatenate(
                [
                    exact_sums(table, replace(query, blocks=tuple(whole(query.blocks))), calibration)
                    for query, calibration in self._asked
                ]
            ) / float(RESOLUTION)
        return self._known[row]

    def apart(self, one: Row, two: Row) -> float:
        """Return the distance between the tables with these rows."""
        if self._neighbours == "add-remove":
            return float(np.linalg.norm(self.vector(one), self._norm))
        return float(np.linalg.norm(self.vector(one) - self.vector(two), self._norm))

    def search(self, stream: SecureStream) -> tuple[Row, Row]:
        """Return the best two rows: random ones first, then cell by cell."""
        rows = random_rows(2, stream)
        for _ in range(_FIRST):
            row = list(rows[0])
            for place in self._places:
                choices = cells(list(SCHEMA)[place], stream)
                row[place] = choices[stream.integer(len(choices))]
            rows.append(tuple(row))
        vectors = np.array([self.vector(row) for row in rows])
        apart = np.linalg.norm(vectors[:, None] - vectors[None], self._norm, axis=2)
        first, second = np.unravel_index(int(apart.argmax()), apart.shape)
        pair = [rows[int(first)], rows[int(second)]]
        if self._neighbours == "add-remove":
            pair[0] = rows[int(np.linalg.norm(vectors, self._norm, axis=1).argmax())]
        best = self.apart(*pair)
        for _ in range(_SWEEPS):
            before = best
            for which in (0, 1):
                best = self._improve(pair, which, best, stream)
            if math.isclose(before, best, rel_tol=1e-9):
                break
        return pair[0], pair[1]

    def _improve(self, pair: list[Row], which: int, best: float, stream: SecureStream) -> float:
        for place in self._places:
            for cell in cells(list(SCHEMA)[place], stream):
                tried = list(pair)
                tried[which] = (*pair[which][:place], cell, *pair[which][place + 1 :])
                found = self.apart(*tried)
                if found > best:
                    best, pair[which] = found, tried[which]
        return best


def cells(name: str, stream: SecureStream) -> list[Cell]:
    """Return cells to try: the bounds, the middle, values between, and a missing cell if allowed."""
    column = SCHEMA[name]
    nothing: list[Cell] = [None] if column.missing else []
    if not isinstance(column, Number):
        return [*nothing, *column.values]
    near = column.low + (column.high - column.low) * 0.2 * uniform(stream)
    return [*nothing, column.low, column.high, column.middle, near, anywhere(name, stream)]
