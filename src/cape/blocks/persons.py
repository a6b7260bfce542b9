"""Which rows of each person count, and one row made of all of a person's.

Claim. Of each person at most so many rows count as `Person` says; which ones, and what is made of them,
depends on that person's rows alone, in their order, and on a secret key. A row without an id counts for
nobody. If the rows of a later pass are not where the choice found them, they are chosen again; if they move
once more, there is no sum.
Reason. Rows are grouped by id as text, exactly: nothing is hashed to tell persons apart. Within a person they
are ranked by the stated column, and by a keyed hash of (id, how many-th row of that person it is), and the
first are taken; no number that enters looks at another person. Sums within a person are sums of integers, so
they do not depend on the parts in which rows come. A choice is kept as one bit a row; each pass adds up a
keyed hash of (place, id) over all rows and compares it with that of the choice, so bits are never applied to
rows in another order, among which one person could have more of them.
A person's rank, and so the choice, may differ between sites, keys and versions of polars: each pass is
charged for `rows` rows of a person, whichever they are.
Tested in tests/unit/blocks/test_persons.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cape.core.arrays import Flags, Floats
from cape.data.cells import is_missing
from cape.data.columns import Number
from cape.data.dates import days_of
from cape.data.person import Aggregate, Take
from cape.data.schema import Schema

__all__ = ["Choice", "Chosen", "Digest", "as_texts", "count_persons"]

_AT_ONCE = 1 << 20  # rows that are grouped at once, at least
_SUM_BITS = 40  # what a cell is rounded to before it is added up within a person
_LAST = math.inf
_KNOWN_DAYS = (-700_000, 2_900_000)  # of years that Python and all time zones have
_WHOLE = 2.0**62  # floats below it are 64-bit integers if they are whole
_UNDECODED = "\ufffd"
_LONGEST = 1000  # digits of a decimal that are written out
_NONE = pl.Series("id", [None], dtype=pl.String)
_NOBODY, _NOWHERE = np.zeros(0, np.int64), np.zeros(0, np.int64)


def as_texts(ids: pl.Series) -> pl.Series:
    """Return ids as texts, null where one is missing; 7 is "7", whether an integer or a float holds it.

    Never raises, and what it makes of an id depends on that id alone: not on the type that others give to
    their column, or to the batch that they come in. So does the time: the type of the column says how its
    ids are written, and an id that takes longer takes it for itself (`edge.id-time` measures it). An id with
    a sign that could not be decoded is none, or two persons whose ids differ in that sign would be taken for
    one.
    """
    kind = ids.dtype
    ids = ids.alias("id")
    if kind.is_float():
        return _floats(ids)
    if kind == pl.String or kind.is_integer() or kind in (pl.Categorical, pl.Enum):
        texts = ids.cast(pl.String)
    elif kind.is_temporal():
        whole = ids.to_physical().cast(pl.Int64)
        known = days_of(ids).is_between(*_KNOWN_DAYS).fill_null(True)  # beyond, polars panics
        held = ids.to_frame().select(pl.when(known).then(pl.first())).to_series()
        texts = _one_by_one(held).zip_with(known, whole.cast(pl.String))
    else:
        texts = _one_by_one(ids)
    none = (texts.fill_null("") == "") | texts.str.contains(_UNDECODED, literal=True).fill_null(False)
    return texts.zip_with(~none, _NONE)


def _floats(ids: pl.Series) -> pl.Series:
    """Return floats as texts: whole ones all at once, and any other one as Python writes it."""
    cells = ids.to_numpy().astype(np.float64)
    missing, near = np.isnan(cells), np.abs(cells) < _WHOLE
    whole = np.where(near, cells, 0.0).astype(np.int64)
    texts = pl.Series("id", whole).cast(pl.String)
    others = np.flatnonzero(~missing & (whole != cells))
    written = [_text(each) for each in cells[others].tolist()]
    return texts.scatter(others, pl.Series(written, dtype=pl.String)).zip_with(pl.Series(~missing), _NONE)


def _one_by_one(ids: pl.Series) -> pl.Series:
    texts = [None if is_missing(each) else _text(each) for each in ids]
    return pl.Series("id", texts, dtype=pl.String)


def _text(value: Any) -> str:
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        value = int(value)
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) < _LONGEST:
        value = format(value, "f")
        value = value.rstrip("0").rstrip(".") if "." in value else value
    return str(value).encode(errors="backslashreplace").decode()  # polars refuses a lone surrogate


class Digest:
    """A keyed sum over (place, id) of all rows, in whichever parts they come."""

    def __init__(self, key: bytes) -> None:
        self._seed = _seed(key, "place")
        self.value, self.rows = 0, 0

    def add(self, ids: pl.Series) -> None:
        """Add the ids, as texts, of the next rows."""
        place = pl.int_range(self.rows, self.rows + len(ids), eager=True)
        hashed = pl.DataFrame({"place": place, "id": ids}).select(pl.struct("place", "id").hash(self._seed))
        total = int(hashed.to_series().to_numpy().sum(dtype=np.uint64)) if len(ids) else 0
        self.value = (self.value + total) % (1 << 64)
        self.rows += len(ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Digest) and (self.value, self.rows) == (other.value, other.rows)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Chosen:
    """Which rows count: a bit for each, the digest of the rows that were looked at, and computed columns.

    `columns` has one cell for each row that counts, in their order, and `persons` the number of its person;
    `places` are the rows' own numbers. The last two are there only if they are needed.
    """

    bits: NDArray[np.uint8]
    digest: Digest
    columns: Mapping[str, Floats]
    persons: NDArray[np.int64]
    places: NDArray[np.int64]

    @property
    def count(self) -> int:
        """How many rows count."""
        return int(np.bitwise_count(self.bits).sum())

    def flags(self, start: int, rows: int) -> Flags:
        """Return for each of these rows whether it counts; none beyond the rows that were looked at."""
        first = start // 8
        flags = np.unpackbits(self.bits[first : (start + rows + 7) // 8])[start - 8 * first :][:rows]
        return np.concatenate([flags, np.zeros(rows - len(flags), np.uint8)]).astype(bool)

    def cells(self, start: int, rows: int) -> dict[str, Floats]:
        """Return the computed columns of those among these rows that count."""
        among = self._among(start, rows)
        return {name: cells[among] for name, cells in self.columns.items()}

    def people(self, start: int, rows: int) -> NDArray[np.int64]:
        """Return whose those among these rows are that count, as numbers."""
        return self.persons[self._among(start, rows)]

    def _among(self, start: int, rows: int) -> slice:
        first, last = np.searchsorted(self.places, [start, start + rows])
        return slice(first, last)


class Choice:
    """Chooses rows, part by part of a table; memory grows with the number of persons, not of cells.

    `apart` keeps whose each row is that counts.
    """

    def __init__(self, schema: Schema, key: bytes, *, apart: bool = False) -> None:
        person = schema.person
        assert person is not None
        self._person, self._apart = person, apart
        self._digest = Digest(key)
        self._seed = _seed(key, "choice")
        self._sums = [
            _Column(name, aggregate, _unit(schema.stated[aggregate.column]) if aggregate.column else None)
            for name, aggregate in person.aggregates
        ]
        self._waiting: list[pl.DataFrame] = []
        self._held = 0
        self._best: pl.DataFrame | None = None
        self._persons: pl.DataFrame | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that it looks at, besides the id."""
        return self._person.reads

    def add(self, ids: pl.Series, cells: Mapping[str, NDArray[Any]], matches: Flags | None = None) -> None:
        """Look at the next rows: their ids as texts, the columns that it reads, and which may count."""
        start = self._digest.rows
        self._digest.add(ids)
        take, by = self._order
        found = {
            "id": ids,
            "row": pl.int_range(start, start + len(ids), eager=True),
            "order": _order(take, None if by is None else cells[by], len(ids)),
            **{f"cell {each.name}": each.cells(cells, len(ids)) for each in self._sums},
        }
        frame = pl.DataFrame(found)
        keep = frame["id"].is_not_null()
        frame = frame.filter(keep if matches is None else keep & pl.Series(matches))
        self._waiting.append(frame)
        self._held += frame.height
        known = 0 if self._persons is None else self._persons.height
        if self._held >= max(_AT_ONCE, known):  # so that all rows are sorted a few times at most
            self._group()

    @property
    def _order(self) -> tuple[Take, str | None]:
        made: Any = self._person.row or self._person
        return made.take, made.by

    def _group(self) -> None:
        if not self._waiting:
            return
        part = pl.concat(self._waiting).sort("id", "row")
        self._waiting, self._held = [], 0
        persons = part.group_by("id").agg(
            pl.len().alias("rows"), *(e for each in self._sums for e in each.partial)
        )
        part = part.select("id", "row", "order", _place_in_run(part["id"]))
        if self._persons is not None:
            before = self._persons.select("id", pl.col("rows").alias("before"))
            part = part.join(before, on="id", how="left").with_columns(
                pl.col("place") + pl.col("before").fill_null(0)
            )
            merged = [each.merged for each in self._sums]
            persons = (
                pl.concat([self._persons, persons])
                .group_by("id")
                .agg(pl.col("rows").sum(), *(e for each in merged for e in each))
            )
        self._persons = persons
        part = part.select("id", "row", "order", pl.struct("id", "place").hash(self._seed).alias("tie"))
        best = part if self._best is None else pl.concat([self._best, part])
        best = best.sort("id", "order", "tie", "row")
        self._best = best.filter(_place_in_run(best["id"]) < self._person.rows)

    def result(self) -> Chosen:
        """Return which rows count, once all have been looked at."""
        self._group()
        flags = np.zeros(self._digest.rows, np.uint8)
        if self._best is None or self._persons is None:
            nothing = {each.name: np.zeros(0) for each in self._sums}
            return Chosen(np.packbits(flags), self._digest, nothing, _NOBODY, _NOWHERE)
        rows = self._best["row"].to_numpy()
        flags[rows] = 1
        bits = np.packbits(flags)
        if self._sums:
            one = self._best.join(self._persons, on="id", how="left").sort("row")
            columns = {each.name: each.result(one) for each in self._sums}
            return Chosen(bits, self._digest, columns, _NOBODY, np.sort(rows))
        if not self._apart:
            return Chosen(bits, self._digest, {}, _NOBODY, _NOWHERE)
        order = np.argsort(rows)
        persons = self._best["id"].rle_id().to_numpy()[order].astype(np.int64)
        return Chosen(bits, self._digest, {}, persons, rows[order])


def count_persons(ids: Any) -> int:
    """Return how many different ids there are in a sequence of parts, as texts."""
    known, waiting, held = pl.Series("id", [], dtype=pl.String), list[pl.Series](), 0
    for part in ids:
        waiting.append(part.drop_nulls())
        held += len(waiting[-1])
        if held >= max(_AT_ONCE, len(known)):
            known, waiting, held = pl.concat([known, *waiting]).unique(), [], 0
    return int(pl.concat([known, *waiting]).n_unique()) if waiting or len(known) else 0


@dataclass(frozen=True)
class _Column:
    """An aggregate within a person, of columns that were clamped to their bounds; exact in any parts."""

    name: str
    aggregate: Aggregate
    bounds: tuple[float, float, float] | None  # of the column: low, high, and what its cells are rounded to

    def cells(self, cells: Mapping[str, NDArray[Any]], rows: int) -> pl.Series:
        """Return what is aggregated: null for missing."""
        column = self.aggregate.column
        if column is None:
            return pl.repeat(1, rows, dtype=pl.Int64, eager=True)
        found = cells[column]
        if self.aggregate.function == "count":
            present = ~np.isnan(found) if found.dtype.kind == "f" else found >= 0
            return pl.Series(present.astype(np.int64))
        assert self.bounds is not None
        low, high, unit = self.bounds
        clamped = np.clip(found, low, high)
        if self.aggregate.function in ("min", "max"):
            return pl.Series(clamped).fill_nan(None)
        whole = pl.Series(np.rint(clamped / unit)).fill_nan(None)
        return whole.cast(pl.Int64)

    @property
    def partial(self) -> list[pl.Expr]:
        """The state of a person after some of their rows."""
        cell = pl.col(f"cell {self.name}")
        return [self._state(cell).alias(self._held), cell.count().alias(f"n {self.name}")]

    @property
    def merged(self) -> list[pl.Expr]:
        """The state of a person after more of their rows."""
        return [self._state(pl.col(self._held)), pl.col(f"n {self.name}").sum()]

    @property
    def _held(self) -> str:
        """What the state is called beside "id", "row" and the like: whoever asks names the aggregate."""
        return f"made {self.name}"

    def _state(self, cell: pl.Expr) -> pl.Expr:
        function = self.aggregate.function
        return cell.min() if function == "min" else cell.max() if function == "max" else cell.sum()

    def result(self, persons: pl.DataFrame) -> Floats:
        """Return the aggregate of each person, NaN where there is none."""
        found: Floats = persons[self._held].cast(pl.Float64).to_numpy()
        if self.aggregate.function not in ("sum", "avg"):
            return np.array(found, np.float64)
        assert self.bounds is not None
        count = persons[f"n {self.name}"].to_numpy().astype(np.float64)
        whole = found * self.bounds[2]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(count > 0, whole / count if self.aggregate.function == "avg" else whole, np.nan)


def _unit(column: Any) -> tuple[float, float, float] | None:
    """Return bounds, and a power of two of which cells within them have at most 2^40."""
    if not isinstance(column, Number):
        return None
    largest = max(abs(column.low), abs(column.high))
    return column.low, column.high, math.ldexp(1.0, max(math.frexp(largest)[1] - _SUM_BITS, -1000))


def _order(take: Take, cells: Floats | None, rows: int) -> pl.Series:
    """Return what the rows of a person are ranked by, ascending; what is missing comes last."""
    if cells is None:
        return pl.repeat(0.0, rows, dtype=pl.Float64, eager=True)
    ranked = -cells if take == "latest" else cells
    limit = np.finfo(np.float64).max
    return pl.Series(np.where(np.isnan(ranked), _LAST, np.clip(ranked, -limit, limit)))


def _place_in_run(sorted_ids: pl.Series) -> pl.Series:
    """Return for each of sorted ids how many equal ones stand before it."""
    run = sorted_ids.rle_id().to_numpy()
    places = np.arange(len(run))
    first = np.flatnonzero(np.diff(run, prepend=-1)) if len(run) else places
    return pl.Series("place", places - first[run] if len(run) else places, dtype=pl.Int64)


def _seed(key: bytes, label: str) -> int:
    return int.from_bytes(sha256(b"cape persons " + label.encode() + b"\0" + key).digest()[:8], "little")
