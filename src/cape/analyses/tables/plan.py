"""What a release of tables will be like: the noise in each table, and whether all of them fit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cape.analyses.tables.marginals import Levels, Workload
from cape.analyses.tables.whole_tables import noise_of_sets
from cape.blocks.residuals import Residuals
from cape.core.errors import InvalidInput
from cape.data import Number, Schema
from cape.engine.arguments import joined
from cape.engine.query import Neighbours, Noise
from cape.privacy.residuals import Columns, subsets
from cape.show import Table
from cape.show.numbers import number

if TYPE_CHECKING:
    from cape.analyses.tables.tables import Tables

__all__ = ["ExpectedErrors", "expected_errors", "refuse_if_large"]

_MOST_SETS = 200_000  # of columns, each with numbers of its own
_MOST_CELLS = 1 << 22  # of one table
_MOST_NUMBERS = 1 << 23
_LISTED = 30  # tables; more are put together by size


@dataclass(frozen=True)
class ExpectedErrors:
    """The noise that a release would have.

    Attributes:
        levels: the values of all columns.
        asked: the tables that matter.
        noise: set of columns -> standard deviation of the noise in its coordinates.
    """

    levels: tuple[Levels, ...]
    asked: Workload
    noise: Mapping[Columns, float]

    def of_columns(self) -> dict[str, float]:
        """Return the noise in the count of each value of each column."""
        return {
            each.label(place): self.of_table((i,))
            for i, each in enumerate(self.levels)
            for place in range(len(each))
        }

    def of_table(self, columns: Columns) -> float:
        """Return the noise in a cell of a table, the same in all."""
        square = 0.0
        for chosen in subsets(columns):
            inside = math.prod(1 - 1 / len(self.levels[i]) for i in chosen)
            outside = math.prod(len(self.levels[i]) for i in columns if i not in chosen)
            square += self.noise.get(chosen, 0.0) ** 2 * inside / outside**2
        return math.sqrt(square)

    def tables(self, rows: int) -> list[Table]:
        """Return the noise of every table, or of every size of table if there are many."""
        held = dict.fromkeys(self._within())
        found: list[tuple[str, ...]] = []
        if len(held) <= _LISTED:
            for columns in held:
                name = " by ".join(self.levels[i].column for i in columns)
                found.append((name, *self._told(columns, rows)))
            return [Table(("table", *_TOLD), tuple(found), "Expected noise of each table", _CAPTION)]
        sizes: Counter[tuple[tuple[int, ...], float]] = Counter()
        example: dict[tuple[tuple[int, ...], float], Columns] = {}
        for columns in held:
            key = tuple(len(self.levels[i]) for i in columns), round(self.of_table(columns), 9)
            sizes[key] += 1
            example.setdefault(key, columns)
        for key, many in sizes.items():
            columns = example[key]
            name = " by ".join(self.levels[i].column for i in columns)
            name += "" if many == 1 else f", and {many - 1:,} more of that size"
            found.append((name, *self._told(columns, rows)))
        return [Table(("tables", *_TOLD), tuple(found), "Expected noise of each table", _CAPTION)]

    def _within(self) -> Iterator[Columns]:
        """Yield all tables that are released, the smallest first."""
        every = {chosen for columns in self.asked for chosen in subsets(columns) if chosen}
        yield from sorted(every, key=lambda columns: (len(columns), columns))

    def _told(self, columns: Columns, rows: int) -> tuple[str, ...]:
        shape = [len(self.levels[i]) for i in columns]
        noise, average = self.of_table(columns), rows / math.prod(shape)
        part = f"{noise / average:.1%}" if average else ""
        return " x ".join(map(str, shape)), number(noise), number(average), part


_TOLD = ("cells", "noise (SD) of a count", "average count", "noise / average")
_CAPTION = (
    "Sums over cells, and coarser tables, have noise that is known as well: see `table` of the release."
)


def expected_errors(analysis: Tables, schema: Schema, noise: Noise, neighbours: Neighbours) -> ExpectedErrors:
    """Return the noise of all tables, given that of the query's arrays."""
    query = analysis.query(schema, neighbours)
    found: dict[Columns, float] = {}
    for block, each in zip(query.blocks, noise, strict=True):
        assert isinstance(block, Residuals)
        found |= dict(zip(block.sets, each, strict=True))
    known = tuple(Levels.of(axis, schema) for axis in analysis.axes(schema))
    if analysis.laplace:
        found = noise_of_sets(found, [len(each) for each in known])
        if neighbours == "replace-one" and not schema.open:
            found[()] = 0.0
    return ExpectedErrors(known, analysis.tables_asked(), found)


def refuse_if_large(analysis: Tables, values: Sequence[int], schema: Schema) -> None:
    """Raise `InvalidInput` if the tables are too large to hold, and say what would not be."""
    if analysis.workload is not None and _many_sets(analysis.tables_asked()):
        raise InvalidInput(
            f"the tables of this workload are made of more than {_MOST_SETS:,} sets of columns, which is too "
            "large: ask for fewer tables, or for tables of fewer columns"
        )
    size = _Size.of(analysis, values, analysis.ways)
    if size.fits:
        return
    proposed = []
    for ways in range(min(analysis.ways, len(values)) - 1, 0, -1):
        smaller = _Size.of(analysis, values, ways)
        if analysis.workload is None and smaller.fits:
            proposed.append(f"ways = {ways} ({smaller.tables:,} tables, {smaller.numbers:,} numbers)")
            break
    numeric = [i for i, name in enumerate(analysis.columns) if isinstance(schema[name], Number)]

    def fit(bins: int) -> bool:
        coarser = [min(n, bins + 1) if i in numeric else n for i, n in enumerate(values)]
        return _Size.of(analysis, coarser, analysis.ways).fits

    fewest, bins = 2, max((values[i] for i in numeric), default=0)
    if fewest < bins and fit(fewest):  # the most that fit
        while bins - fewest > 1:
            middle = (fewest + bins) // 2
            fewest, bins = (middle, bins) if fit(middle) else (fewest, middle)
        proposed.append(f"at most {fewest} bins for each number")
    if not proposed:
        most = sorted(range(len(values)), key=lambda i: -values[i])[:3]
        named = joined([f"{analysis.columns[i]} ({values[i]:,} values)" for i in most])
        proposed.append(f"fewer columns, or fewer categories of {named}")
    raise InvalidInput(
        f"{size.tables:,} tables with {size.numbers:,} numbers to release, the largest of {size.cells:,} "
        f"cells, are too large: at most {_MOST_SETS:,} tables with those within them, {_MOST_NUMBERS:,} "
        f"numbers and {_MOST_CELLS:,} cells in a table can be held. Ask for {', or '.join(proposed)}"
    )


def _many_sets(asked: Workload) -> bool:
    """Return whether tables are made of more sets of columns than can be held, without holding them."""
    found: set[Columns] = set()
    for columns in asked:
        found.update(subsets(columns))
        if len(found) > _MOST_SETS:
            return True
    return False


@dataclass(frozen=True)
class _Size:
    """How many tables there are, of how many sets of columns they are made, how many numbers are released,
    and the cells of the largest table."""

    tables: int
    sets: int
    numbers: int
    cells: int

    @classmethod
    def of(cls, analysis: Tables, values: Sequence[int], ways: int) -> _Size:
        """Return the size, without going through all sets of columns."""
        if analysis.workload is not None:
            asked = analysis.tables_asked()
            every = {chosen for columns in asked for chosen in subsets(columns)}
            numbers = sum(math.prod(values[i] - 1 for i in chosen) for chosen in every)
            largest = max(math.prod(values[i] for i in columns) for columns in asked)
            return cls(len(asked), len(every), numbers, largest)
        ways = min(ways, len(values))
        sums = [1, *[0] * ways]  # over all sets of so many columns
        for n in values:
            for many in range(ways, 0, -1):
                sums[many] += sums[many - 1] * (n - 1)
        largest = math.prod(sorted(values)[-ways:])
        sets = sum(math.comb(len(values), many) for many in range(ways + 1))
        return cls(math.comb(len(values), ways), sets, sum(sums), largest)

    @property
    def fits(self) -> bool:
        """Whether that can be held."""
        return self.sets <= _MOST_SETS and self.numbers <= _MOST_NUMBERS and self.cells <= _MOST_CELLS
