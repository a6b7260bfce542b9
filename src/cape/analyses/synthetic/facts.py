"""Public facts about pairs of columns: what no row can hold, and which value follows from another.

They are stated by people, never read from rows. A model gives such cells no mass, and no synthetic row has
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from cape.analyses.tables.marginals import spans
from cape.blocks import Axis
from cape.blocks.residuals import levels
from cape.core import check
from cape.core.arrays import Flags
from cape.core.check import hint
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.data.categories import Value

__all__ = ["Facts", "determined_by", "impossible_cells"]

Cell = Value | tuple[float, float]
"""A category, or the numbers from one to another."""
Impossible = tuple[tuple[str, Cell], tuple[str, Cell]]
Determined = tuple[str, str, tuple[tuple[str, Value], ...]]

_Fact = TypeVar("_Fact")

_MOST_FACTS = 1000
_ZEROS = 'impossible must be a list of cells of two columns, as in [{"sex": "male", "pregnant": "yes"}]'
_GIVEN = 'determines must say it by column, as in {"ward": {"hospital": {"A1": "A", "B1": "B"}}}'


def impossible_cells(given: Any, columns: Sequence[str]) -> tuple[Impossible, ...]:
    """Return stated structural zeros, checked as far as columns go."""
    if given is None:
        return ()
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise InvalidInput(f"{_ZEROS}, not {check.show(given)}")
    found = []
    for each in given:
        if not isinstance(each, Mapping) or len(each) != 2:
            raise InvalidInput(f"{_ZEROS}, not {check.show(each)}")
        (first, one), (second, other) = ((name, _cell(name, cell)) for name, cell in each.items())
        _known((first, second), columns, "impossible")
        found.append(((first, one), (second, other)))
    return _few(found)


def determined_by(given: Any, columns: Sequence[str]) -> tuple[Determined, ...]:
    """Return stated functional dependencies, checked as far as columns go."""
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{_GIVEN}, not {check.show(given)}")
    found: list[Determined] = []
    for name, others in given.items():
        if not isinstance(others, Mapping) or not all(isinstance(each, Mapping) for each in others.values()):
            raise InvalidInput(f"{_GIVEN}, not {check.show(others)}")
        for other, values in others.items():
            _known((name, other), columns, "determines")
            if name == other:
                raise InvalidInput(f"determines: {name!r} cannot determine itself")
            found.append((name, other, tuple((str(key), value) for key, value in values.items())))
    return _few(found)


def _few(found: list[_Fact]) -> tuple[_Fact, ...]:
    if len(found) > _MOST_FACTS:
        raise InvalidInput(f"at most {_MOST_FACTS} facts may be stated, not {len(found)}")
    return tuple(found)


def _cell(name: Any, cell: Any) -> Cell:
    if isinstance(cell, (list, tuple)):
        if len(cell) != 2:
            raise InvalidInput(
                f"impossible: numbers of {name!r} are two bounds, as in [0, 12], not {check.show(cell)}"
            )
        low, high = (check.real(f"impossible: a bound of {name!r}", end) for end in cell)
        return low, high
    if not isinstance(cell, (str, int, bool)):
        raise InvalidInput(
            f"impossible: {check.show(name)} must be a category, or two bounds of a number, not "
            f"{check.show(cell)}"
        )
    return cell


def _known(names: Iterable[Any], columns: Sequence[str], where: str) -> None:
    for name in names:
        if name not in columns:
            raise InvalidInput(f"{where} names {check.show(name)}{hint(name, columns)}")


@dataclass(frozen=True)
class Facts:
    """Which cells of which pairs of columns are possible, by level; pairs rise."""

    possible: Mapping[tuple[int, int], Flags]

    @classmethod
    def of(
        cls,
        schema: Schema,
        axes: Sequence[Axis],
        impossible: Sequence[Impossible],
        determined: Sequence[Determined],
    ) -> Facts:
        """Return facts about these columns, or raise `InvalidInput` where they do not fit the schema."""
        place = {axis.column: i for i, axis in enumerate(axes)}
        sizes = [levels(axis, schema) for axis in axes]
        found: dict[tuple[int, int], Flags] = {}

        def forbid(one: int, other: int, cells: Flags) -> None:
            a, b = min(one, other), max(one, other)
            known = found.setdefault((a, b), np.ones((sizes[a], sizes[b]), bool))
            known &= ~(cells if one < other else cells.T)

        for (first, cell), (second, other) in impossible:
            i, j = place[first], place[second]
            forbid(i, j, np.outer(_levels(schema, axes[i], cell), _levels(schema, axes[j], other)))
        for name, other, values in determined:
            i, j = place[name], place[other]
            given = dict(values)
            cells = np.zeros((sizes[i], sizes[j]), bool)
            for level, value in enumerate(schema.category(name).values):
                if str(value) not in given:
                    raise InvalidInput(
                        f"determines: {name!r} must give a value of {other!r} for {value!r}, too"
                    )
                cells[level, : len(schema.category(other).values)] = ~_levels(
                    schema, axes[j], given[str(value)]
                )[: len(schema.category(other).values)]
            forbid(i, j, cells)
        for (a, b), known in found.items():
            if not known.any(axis=1).all() or not known.any(axis=0).all():
                raise InvalidInput(
                    f"the facts about {axes[a].column!r} and {axes[b].column!r} leave a value of one of them "
                    "without any of the other"
                )
        return cls(found)

    def apart(self, axes: Sequence[Axis], sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return for each column labels of its levels that differ where a fact tells two levels apart.

        That the cell of a number is missing is apart from all its bins.
        """
        found = []
        for i, (axis, size) in enumerate(zip(axes, sizes, strict=True)):
            kinds = [b"" for _ in range(size)]
            if axis.cut is not None and size > axis.cut.count:
                kinds[-1] = b"missing"
            for (a, b), known in sorted(self.possible.items()):
                if i in (a, b):
                    rows = known if i == a else known.T
                    kinds = [
                        kind + b"|" + row.tobytes()
                        for kind, row in zip(kinds, np.ascontiguousarray(rows), strict=True)
                    ]
            order = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
            found.append(tuple(order[kind] for kind in kinds))
        return tuple(found)

    def merged(self, groups: Sequence[Sequence[int]]) -> dict[tuple[int, int], Flags]:
        """Return which cells of groups are possible, where no group has levels that a fact tells apart."""
        firsts = [[list(each).index(g) for g in range(max(each) + 1)] for each in groups]
        return {(a, b): known[np.ix_(firsts[a], firsts[b])] for (a, b), known in self.possible.items()}


def _levels(schema: Schema, axis: Axis, cell: Cell) -> Flags:
    """Return which levels of a column a cell of a fact takes in: bins that lie within its bounds."""
    found = np.zeros(levels(axis, schema), bool)
    if axis.edges is not None:
        if not isinstance(cell, tuple):
            raise InvalidInput(
                f"a fact about {axis.column!r} must give two bounds, as in [0, 12], not {check.show(cell)}"
            )
        low, high = cell
        least, most = spans(axis.edges, schema.number(axis.column))
        found[: len(axis.edges) - 1] = (least >= low) & (most <= high)
        if not found.any():
            raise InvalidInput(
                f"no bin of {axis.column!r} lies within {low:g} and {high:g}; give edges that do"
            )
        return found
    values = schema.category(axis.column).values
    if isinstance(cell, tuple) or cell not in values:
        raise InvalidInput(
            f"no category {check.show(cell)} in column {axis.column!r}{hint(cell, map(str, values))}"
        )
    found[values.index(cell)] = True
    return found
