"""Synthetic rows: a model of all columns from private tables, measured in stages, and rows drawn from it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from cape.analyses.describe.histogram import one_hot
from cape.analyses.synthetic.card import data_card
from cape.analyses.synthetic.choices import (
    Coarse,
    choose_pairs,
    groups_of,
    many_groups,
    merged_counts,
    nearest_counts,
    scales_of,
)
from cape.analyses.synthetic.facts import Facts, determined_by, impossible_cells
from cape.analyses.synthetic.fit import require_mbi
from cape.analyses.synthetic.measured import Measured, Stage
from cape.analyses.synthetic.synthetic_model import SyntheticModel
from cape.analyses.tables.tables import Tables, cut
from cape.blocks import Axis, Merged
from cape.blocks.residuals import levels
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Number, Schema
from cape.engine.arguments import joined, names
from cape.engine.query import (
    Analysis,
    AnalysisResult,
    Answer,
    Conversation,
    Neighbours,
    Noise,
    Query,
)
from cape.show import Table
from cape.show.numbers import count
from cape.stats.estimates import Estimates

if TYPE_CHECKING:
    from cape.engine.result import Release

__all__ = ["SyntheticData"]

_STAGES = (0.3, 0.2, 0.5)  # of the share: each column, all pairs coarsely, the chosen pairs
_EXPECTED = 2  # chosen pairs for each column, of which groups are made before they are known
_BINS = 32  # of a number, where nothing else is said
_MOST_SINGLE = 128  # whole numbers of a column that have a bin each, where nothing else is said of it
_MOST_LEVELS = 1024  # of a column
_MOST_COLUMNS = 100
_MOST_ROWS = 10**9


@dataclass(frozen=True, init=False)
class SyntheticData(Analysis):
    """Synthetic rows that resemble the data in all tables of two columns, as far as noise allows.

    >>> SyntheticData(["age", "sex", "stage", "ill"], edges={"age": [18, 40, 65, 90]})
    >>> SyntheticData(["sex", "pregnant", "age"], impossible=[{"sex": "male", "pregnant": "yes"}])

    In three stages. First the counts of each column's values. Then all tables of two columns, coarsely:
    values are merged into groups by the first counts. Then finer tables of the pairs that the second answers
    say matter. A graphical model is fitted to all of them by mbi (the extra `synthetic`) when rows are first
    drawn: `release.model.sample(rows, seed)`, as often as wanted. `release.model.evaluate()` says which
    tables of it are trustworthy, and `cape.synthetic.combine` gives intervals for what is computed from
    synthetic rows.

    Args:
        columns: two or more: categories, and numbers, which are cut into bins.
        rows: how many rows `cape run` writes, and `sample()` draws; by default as many as there are.
        edges: column -> edges of its bins, within its bounds.
        bins: into how many equal parts the bounds of a number without edges are cut; or column -> so many.
            A column of at most 128 whole numbers (`integer = true`) has a bin for each, unless it is named
            here or in `edges`.
        impossible: public facts: cells of two columns that no row can have, each a category or, for a number,
            two bounds, as in {"age": [0, 12], "married": "yes"}.
        determines: public facts: column -> another -> the value of that for each value of the column.

    A missing cell is a value of its own, where the schema says that cells may be missing; so is the number 0,
    and either bound, of a number that is not whole (`singled`): many cells may be exactly there.

    **Sensitivity** of every stage: sqrt(2 sum_t 1/s_t²) under replace-one, sqrt(sum_t 1/s_t²) under
    add-remove, with s_t the scale of table t. A row that counts is in one cell of each table
    (`cape.blocks.merged`), whatever the groups and the pairs are: replaced, it takes 1 from one cell and
    gives 1 to another (`one_hot`), in all tables at once if the rows differ in all columns, across groups. So
    the claim holds for any earlier answer, also one that was made up; groups and pairs follow from released
    numbers only, and are free.
    """

    kind: ClassVar[str] = "synthetic-data"
    example: ClassVar[dict[str, Any]] = {"columns": ["age", "sex", "disease"], "bins": 4}
    decisive: ClassVar[int] = 0
    whole: ClassVar[bool] = True
    synthetic: ClassVar[bool] = True
    least: ClassVar[int] = 2
    columns: tuple[str, ...]
    rows: int | None
    edges: tuple[tuple[str, tuple[float, ...]], ...]
    bins: int | tuple[tuple[str, int], ...]
    impossible: tuple[Any, ...]
    determines: tuple[Any, ...]

    def __init__(
        self,
        columns: Iterable[str],
        rows: int | None = None,
        *,
        edges: Mapping[str, Iterable[float]] | None = None,
        bins: int | Mapping[str, int] = _BINS,
        impossible: Sequence[Mapping[str, Any]] | None = None,
        determines: Mapping[str, Mapping[str, Mapping[str, Any]]] | None = None,
    ) -> None:
        found = names(columns, least=self.least)
        if len(found) > _MOST_COLUMNS:
            raise InvalidInput(f"at most {_MOST_COLUMNS} columns can be asked for, not {len(found)}")
        cuts = Tables(found, edges=edges, bins=bins)
        self._set(
            columns=found,
            rows=None if rows is None else check.integer("rows", rows, least=1, most=_MOST_ROWS),
            edges=cuts.edges,
            bins=cuts.bins,
            impossible=impossible_cells(impossible, found),
            determines=determined_by(determines, found),
        )

    def axes(self, schema: Schema) -> tuple[Axis, ...]:
        """Return the columns, numbers cut at their edges."""
        edges = dict(self.edges)
        every, named = (self.bins, {}) if isinstance(self.bins, int) else (_BINS, dict(self.bins))
        bins = dict(named)
        for name in self.columns:
            column = schema[name]
            if isinstance(column, Number) and name not in edges:
                few = column.integer and column.high - column.low < _MOST_SINGLE
                bins.setdefault(name, _MOST_SINGLE if few else every)
        found = tuple(singled(axis, schema) for axis in cut(schema, self.columns, edges, tuple(bins.items())))
        for axis in found:
            many = levels(axis, schema)
            if many < 2:
                raise InvalidInput(f"column {axis.column!r} has one value in the schema; leave it out")
            if many > _MOST_LEVELS:
                raise InvalidInput(
                    f"column {axis.column!r} has {many:,} values, more than {_MOST_LEVELS:,}; "
                    "cut it more coarsely, as in bins = 100, or merge categories under [derive]"
                )
        return found

    def stages(self) -> tuple[float, ...]:
        return _STAGES

    def effort(self, schema: Schema, results: Sequence[int]) -> float:
        """Return the time for what follows each result, and for choosing pairs after the second."""
        chosen = 2.5e-6 * len(self.columns) ** 3 if len(results) > 1 else 0.0
        return super().effort(schema, results) + chosen

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return the first stage: the counts of each column's values."""
        axes = self.axes(schema)
        self._facts(schema, axes)
        groups = tuple(tuple(range(levels(axis, schema))) for axis in axes)
        return _ask(Merged(axes, groups, tuple((i,) for i in range(len(axes)))), neighbours)

    def require_extras(self) -> None:
        """Raise `MissingExtra` without mbi: a site, which fits no model, does not need it."""
        require_mbi()

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        first = self.query(schema, neighbours)
        answer = yield first
        singles = Stage.of(first, answer)
        rows = _total(singles, answer)
        counts = [nearest_counts(each, rows) for each in singles.tables.values()]
        axes = self.axes(schema)
        sizes = [len(each) for each in counts]
        facts = self._facts(schema, axes)
        apart = facts.apart(axes, sizes)
        unit = _unit(first, answer)
        pairs = tuple(itertools.combinations(range(len(axes)), 2))
        noise = unit * math.sqrt(_STAGES[0] / _STAGES[1] * len(pairs))
        coarse = _groups(counts, rows, many_groups(sizes, rows, noise), apart, axes)
        second = _ask(Merged(axes, coarse, pairs), neighbours)
        answer = yield second
        doubles = Stage.of(second, answer)
        table = Coarse(
            rows,
            tuple(merged_counts(each, group) for group, each in zip(coarse, counts, strict=True)),
            {pair: doubles.tables[pair] for pair in pairs},
            {pair: doubles.noise[pair] for pair in pairs},
        )
        least = unit * math.sqrt(_STAGES[0] / _STAGES[2])
        many = many_groups(sizes, rows, least * math.sqrt(_EXPECTED * len(axes)))
        fine = _groups(counts, rows, many, apart, axes, coarse)
        chosen = choose_pairs(table, [max(each) + 1 for each in fine], least, tuple(facts.possible))
        third = _ask(Merged(axes, fine, tuple(chosen)), neighbours)
        answer = yield third
        measured = Measured(
            axes,
            rows,
            answer.rows,
            singles,
            doubles,
            Stage.of(third, answer),
            facts.merged(fine),
        )
        model = SyntheticModel(measured, schema, self.rows, _STAGES)
        return AnalysisResult(_estimates(singles, measured, schema), model)

    def finish(self, answer: Answer) -> Estimates:
        """Return the counts of each column's values: the first stage."""
        neighbours: Neighbours = "add-remove" if answer.rows is None else "replace-one"
        query = self.query(answer.schema, neighbours)
        singles = Stage.of(query, answer)
        axes = self.axes(answer.schema)
        measured = Measured(axes, _total(singles, answer), answer.rows, singles, singles, singles, {})
        return _estimates(singles, measured, answer.schema)

    def limits(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return half the number of rows for each count."""
        return dict.fromkeys(self.expected(schema, noise, rows, neighbours), rows / 2)

    def outlook(self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours) -> Sequence[Table]:
        """Return the expected noise of each stage's tables, and how far off it makes them."""
        axes = self.axes(schema)
        sizes = [levels(axis, schema) for axis in axes]
        query = self.query(schema, neighbours)
        unit = noise[0][0] / (query.flat_scales[0] * query.sensitivity) * math.sqrt(one_hot(neighbours, 2))
        pairs = len(axes) * (len(axes) - 1) // 2
        told = [("each column", len(axes), float(np.mean(sizes)), noise[0][0])]
        many = (pairs, min(pairs, _EXPECTED * len(axes)))
        for part, (what, tables) in enumerate(
            zip(("all pairs, coarsely", "pairs that matter, at most"), many, strict=True), 1
        ):
            each = unit * math.sqrt(_STAGES[0] / _STAGES[part] * tables)
            groups = list(map(min, sizes, many_groups(sizes, rows, each)))
            cells = float(np.mean([a * b for a, b in itertools.combinations(groups, 2)]))
            told.append((what, tables, cells, each))
        found = tuple(
            (what, f"{tables:,}", f"{cells:.0f}", f"{each:.1f}", f"{min(0.4 * cells * each / rows, 1.0):.3f}")
            for what, tables, cells, each in told
        )
        names = ("tables", "how many", "cells", "noise of a cell (SD)", "distance by noise")
        return [Table(names, found, title=f"What is measured, with {count(rows, 'row')}")]

    def describe(self) -> str:
        facts = len(self.impossible) + len(self.determines)
        stated = f", with {count(facts, 'public fact')}" if facts else ""
        return f"synthetic rows of {joined(self.columns)}{stated}"

    def keys(self) -> dict[str, Any]:
        found: dict[str, Any] = {"columns": list(self.columns)}
        if self.rows is not None:
            found["rows"] = self.rows
        if self.edges:
            found["edges"] = {name: list(edges) for name, edges in self.edges}
        if self.bins != _BINS:
            found["bins"] = self.bins if isinstance(self.bins, int) else dict(self.bins)
        if self.impossible:
            found["impossible"] = [
                {name: list(cell) if isinstance(cell, tuple) else cell for name, cell in each}
                for each in self.impossible
            ]
        if self.determines:
            given: dict[str, dict[str, dict[str, Any]]] = {}
            for name, other, values in self.determines:
                given.setdefault(name, {})[other] = dict(values)
            found["determines"] = given
        return found

    def files(self, release: Release) -> Mapping[str, str]:
        """Return synthetic rows, and a card that says what they are: fits the model."""
        return {
            "synthetic.csv": release.model.sample().write_csv(),
            "synthetic.md": data_card(release.model, release),
        }

    def smaller(self, schema: Schema) -> Iterator[Analysis]:
        """Yield the same of fewer columns, where no fact names one that is left out."""
        if not (self.edges or self.impossible or self.determines or not isinstance(self.bins, int)):
            yield from super().smaller(schema)

    def _facts(self, schema: Schema, axes: tuple[Axis, ...]) -> Facts:
        return Facts.of(schema, axes, self.impossible, self.determines)


def singled(axis: Axis, schema: Schema) -> Axis:
    """Return an axis on which 0 and the bounds have bins of their own, with the next float64 as upper edge.

    Where they lie follows from the schema and from stated edges alone.
    """
    column = schema[axis.column]
    if axis.edges is None or not isinstance(column, Number) or column.integer:
        return axis
    points = [x for x in (column.low, 0.0, column.high) if axis.edges[0] <= x <= axis.edges[-1]]
    return Axis(axis.column, np.unique([*axis.edges, *points, *np.nextafter(points, np.inf)]))


def _ask(block: Merged, neighbours: Neighbours) -> Query:
    """Return the query of tables, with scales by their sizes: `SyntheticData` proves its sensitivity."""
    sizes = block.sizes
    scales = scales_of(math.prod(sizes[i] for i in table) for table in block.tables)
    change = one_hot(neighbours, 2)
    squares = math.fsum(change / scale**2 for scale in scales)
    together = math.fsum(change / scale for scale in scales)
    return Query((block,), (scales,), math.sqrt(squares), l1=together)


def _unit(query: Query, answer: Answer) -> float:
    """Return the noise that a single table would have had with all of a stage's budget."""
    change = query.sensitivity / math.sqrt(math.fsum(scale**-2.0 for scale in query.flat_scales))
    return answer.noise[0][0] / (query.flat_scales[0] * query.sensitivity) * change


def _total(singles: Stage, answer: Answer) -> float:
    """Return the public number of rows, or what the counts of all columns add up to, weighted by noise."""
    if answer.rows is not None:
        return float(max(answer.rows, 1))
    sums = np.array([table.sum() for table in singles.tables.values()])
    weights = np.array(
        [1 / (max(noise, 1e-9) ** 2 * singles.tables[key].size) for key, noise in singles.noise.items()]
    )
    return float(max((sums * weights).sum() / weights.sum(), 1.0))


def _groups(
    counts: Sequence[Floats],
    rows: float,
    many: Sequence[int],
    apart: Sequence[Sequence[int]],
    axes: Sequence[Axis],
    within: Sequence[Sequence[int]] | None = None,
) -> tuple[tuple[int, ...], ...]:
    """Return the groups of every column's levels; none of them crosses a boundary of those `within`."""
    found = []
    for i, (each, labels, axis) in enumerate(zip(counts, apart, axes, strict=True)):
        if within is not None:
            labels = [label * len(each) + group for label, group in zip(labels, within[i], strict=True)]
        found.append(groups_of(each / rows, many[i], labels, axis.edges is not None))
    return tuple(found)


def _estimates(singles: Stage, measured: Measured, schema: Schema) -> Estimates:
    labels = [each.label(i) for each in measured.levels(schema) for i in range(len(each))]
    values = np.concatenate(list(singles.tables.values()))
    noise = np.concatenate([np.full(singles.tables[key].size, n) for key, n in singles.noise.items()])
    most = math.inf if measured.public is None else float(measured.public)
    return Estimates(labels, np.clip(values, 0.0, most), 0.0, noise, (0.0, most))
