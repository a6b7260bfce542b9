"""From a model's value of a number to an estimate that released counts decide, with all of its errors.

Let psi be the influence of a row on the number (`influence`), Q the shares of rows that a model draws, P
those of the population. To first order the number is f(Q) + sum of psi (P - Q). Released tables T show P in
groups, unbiased, with known noise. Write psi = sum over T of theta_T(group) + rest. Then

    f(Q) + sum over T of theta_T (released shares - Q's)

misses the population's value by (a) the noise of what was released, of variance sum_T noise_T² |theta_T|²,
centred, as the shares of a table add up to 1; (b) having sampled people, of variance Var(psi) / rows; (c) the
mean of the rest among people, which no released table shows: where in its bin a number lies, and how two
columns go together within a group. Whatever that is, it is at most the mean of the largest |rest| in each
cell: a bound, estimated from released counts; (d) what is not of first order, which tables with as much noise
again show. theta minimises (a) plus the mean square of the rest. Nothing here is the model's belief: with a
bad model (d) grows, not the bias.
Tested in tests/unit/analyses/synthetic/test_combine.py and by truth.synthetic.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from cape.analyses.synthetic.influence import Drawn, Nodes
from cape.analyses.synthetic.measured import Measured, Stage
from cape.analyses.synthetic.synthetic_model import SyntheticModel
from cape.core.arrays import Floats, Integers
from cape.stats.simulation import Random

__all__ = ["Parts", "Seen", "noisy_rows", "seen_tables", "split"]

_RIDGE = 1e-11  # of the largest weight: constants may go to any table


@dataclass(frozen=True)
class Seen:
    """One released table: the shares of its cells, which add up to 1, and the noise of each.

    Attributes:
        columns: places among the columns in question.
        groups: of each of them, the group of every level.
    """

    columns: tuple[int, ...]
    groups: tuple[Integers, ...]
    shares: Floats
    noise: float

    @classmethod
    def of(cls, stage: Stage, table: tuple[int, ...], columns: Sequence[int], rows: float) -> Seen:
        """Return a table of a stage."""
        counts = stage.tables[table].reshape(-1)
        shares = counts / rows
        groups = tuple(np.array(stage.groups[i]) for i in table)
        return cls(
            tuple(columns.index(i) for i in table),
            groups,
            shares + (1 - shares.sum()) / shares.size,
            stage.noise[table] / rows,
        )

    def cell(self, places: Sequence[Integers]) -> Integers:
        """Return the cell that rows with these levels are in."""
        found = np.zeros(len(places[0]), np.int64)
        for i, groups in zip(self.columns, self.groups, strict=True):
            found = found * (int(groups.max()) + 1) + groups[places[i]]
        return found

    def shares_of(self, places: Sequence[Integers]) -> Floats:
        """Return the shares of the cells among rows."""
        cells = self.cell(places)
        return np.bincount(cells, minlength=self.shares.size) / len(cells)

    def mean(self, values: Floats) -> tuple[float, float]:
        """Return the mean of a function of the cell among people, and its noise."""
        spread = values - values.mean()
        return float(self.shares @ values), self.noise * math.sqrt(float(spread @ spread))


def seen_tables(measured: Measured, columns: tuple[int, ...]) -> list[Seen]:
    """Return the released tables within one column or two; the one of most columns and groups is the last."""
    rows = measured.rows
    found = [Seen.of(measured.singles, (i,), columns, rows) for i in columns]
    if len(columns) == 2:
        found.append(Seen.of(measured.doubles, columns, columns, rows))
        if columns in measured.chosen.tables:
            found.append(Seen.of(measured.chosen, columns, columns, rows))
    return found


@dataclass(frozen=True)
class Parts:
    """An influence as a sum over released tables, and what is left of it.

    Attributes:
        seen: the tables.
        weights: by table, theta of each cell.
        sampling: the variance of the influence among people.
        noise: the variance of the estimate by noise.
        unseen: the bound on what no table shows.
    """

    seen: tuple[Seen, ...]
    weights: tuple[Floats, ...]
    sampling: float
    noise: float
    unseen: float

    def moved(self, places: Sequence[Integers]) -> float:
        """Return what a number of such rows changes by when their tables become the released ones."""
        return _moved(self.seen, self.weights, places)


def split(model: SyntheticModel, rows: Drawn, columns: tuple[int, ...], nodes: Nodes) -> list[Parts]:
    """Return the parts of the influence on each number; `rows` are of the model."""
    seen = seen_tables(model.measured, columns)
    cells = [table.cell(nodes.places) for table in seen]
    starts = np.cumsum([0, *(table.shares.size for table in seen)])
    many = len(nodes.places[0])
    index = np.stack(
        [*(cell + start for cell, start in zip(cells, starts, strict=False)), np.full(many, starts[-1])]
    )
    design = csr_array(
        (np.ones(index.size), (np.tile(np.arange(many), len(index)), index.reshape(-1))),
        shape=(many, int(starts[-1]) + 1),
    )
    shares = model.table(*(model.columns[i] for i in columns)) / model.measured.rows
    shares = shares / shares.sum()
    mass = _mass(shares, nodes, seen[-1], cells[-1])
    squares = (design.T @ (design * mass[:, None])).toarray()
    for table, start in zip(seen, starts, strict=False):
        size = table.shares.size
        squares[start : start + size, start : start + size] += table.noise**2 * (np.eye(size) - 1 / size)
    squares += _RIDGE * squares.max() * np.eye(len(squares))
    values = np.nan_to_num(nodes.values)
    both = np.concatenate([values, values**2], axis=1)
    found = np.linalg.solve(squares, design.T @ (both * mass[:, None]))
    rest = both - design @ found
    places = [rows.places[i] for i in columns]
    numbers = nodes.values.shape[1]
    parts = []
    for k in range(numbers):
        weights = [found[a:b, k] for a, b in itertools.pairwise(starts)]
        weights_of_squares = [found[a:b, numbers + k] for a, b in itertools.pairwise(starts)]
        known = np.isfinite(nodes.values[:, k]).all()
        parts.append(
            Parts(
                tuple(seen),
                tuple(weights),
                _variance(seen, weights, weights_of_squares, nodes, values[:, k], places),
                math.fsum(table.mean(each)[1] ** 2 for table, each in zip(seen, weights, strict=True)),
                _bound(shares, seen, nodes, rest[:, k]) if known else math.inf,
            )
        )
    return parts


def _moved(seen: Sequence[Seen], weights: Sequence[Floats], places: Sequence[Integers]) -> float:
    return math.fsum(
        float(each @ (table.shares - table.shares_of(places)))
        for table, each in zip(seen, weights, strict=True)
    )


def noisy_rows(seen: Sequence[Seen], columns: Sequence[int], rows: Drawn, random: Random) -> Drawn:
    """Return rows drawn from these, so that shares differ by as much noise as was released, and chance."""
    places = [rows.places[i] for i in columns]
    weights = np.ones(len(places[0]))
    for table in seen:
        shares = table.shares_of(places)
        moved = shares + random.normal(size=shares.size) * table.noise
        weights *= (np.maximum(moved, 0.0) / np.maximum(shares, 1 / len(weights)))[table.cell(places)]
    total = float(weights.sum())
    chances = weights / total if total > 0 else None
    return rows.taking(np.sort(random.choice(len(weights), len(weights), p=chances)))


def _mass(table: Floats, nodes: Nodes, seen: Seen, cells: Integers) -> Floats:
    """Return the share of rows that each node stands for: the model's, and what noise may hide of a cell."""
    flat = np.ravel_multi_index(nodes.places, table.shape)
    same = np.bincount(flat, minlength=table.size)
    alike = np.bincount(cells, minlength=seen.shares.size)
    return np.asarray(table.reshape(-1)[flat] / same[flat] + seen.noise / alike[cells])


def _variance(
    seen: Sequence[Seen],
    weights: Sequence[Floats],
    squares: Sequence[Floats],
    nodes: Nodes,
    values: Floats,
    places: Sequence[Integers],
) -> float:
    """Return the variance of an influence among people: the model's, or what released counts say if more."""
    shape = [int(each.max()) + 1 for each in nodes.places]
    flat = np.ravel_multi_index(nodes.places, shape)
    many = np.maximum(np.bincount(flat, minlength=math.prod(shape)), 1)
    rows = np.ravel_multi_index(tuple(places), shape)
    first, second = (
        (np.bincount(flat, each, math.prod(shape)) / many)[rows].mean() for each in (values, values**2)
    )
    moved, more = (_moved(seen, by, places) for by in (weights, squares))
    return float(max(second - first**2, second + more - (first + moved) ** 2, 0.0))


def _bound(table: Floats, seen: Sequence[Seen], nodes: Nodes, rest: Floats) -> float:
    """Return how far the mean of the rest may be from 0 among people with the model's shares of what is seen.

    Numbers may lie anywhere in their bins, and levels go together within groups in any way.
    """
    flat = np.ravel_multi_index(nodes.places, table.shape)
    most, least = np.full(table.size, -np.inf), np.full(table.size, np.inf)
    np.maximum.at(most, flat, rest)
    np.minimum.at(least, flat, rest)
    if table.ndim == 1:
        return float(max(table @ most, -(table @ least)))
    return max(_most(table, seen, most), _most(table, seen, -least))


def _most(table: Floats, seen: Sequence[Seen], values: Floats) -> float:
    """Return the largest mean that values can have if rows have the shares of all that is seen of a table.

    A linear program: over all ways in which levels of two columns may go together.
    """
    everywhere = np.unravel_index(np.arange(table.size), table.shape)
    some = np.flatnonzero(np.outer(table.sum(axis=1) > 0, table.sum(axis=0) > 0))
    places = tuple(each[some] for each in everywhere)
    sizes = [each.shares.size for each in seen]
    starts = np.cumsum([0, *sizes])
    index = np.concatenate([each.cell(places) + start for each, start in zip(seen, starts, strict=False)])
    shares = np.concatenate(
        [
            np.bincount(each.cell(everywhere), table.reshape(-1), size)
            for each, size in zip(seen, sizes, strict=True)
        ]
    )
    columns = np.tile(np.arange(some.size), len(seen))
    held = csr_array((np.ones(index.size), (index, columns)), shape=(len(shares), some.size))
    solved = linprog(-values[some], A_eq=held, b_eq=shares, method="highs")
    if solved.status == 0:
        return -float(solved.fun)
    return float(values.reshape(table.shape).max(axis=1) @ table.sum(axis=1))  # without what tables say
