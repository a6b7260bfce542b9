"""All marginals under Laplace noise: whole tables are released, and everything else is made of them.

Residuals suit Gaussian noise, whose cost is an L2 norm. In the L1 norm a row moves many coordinates of a
residual, but two cells of a table at most: so the largest tables are released as they are.

**Sensitivity.** A row is in one cell of each of T tables. One that is replaced moves two cells of each by 1,
one that comes or goes moves one cell: with scales s_A by 2 sum 1/s_A or sum 1/s_A in the L1 norm, exactly,
and by sqrt(2 sum 1/s_A²) or sqrt(sum 1/s_A²) in the L2 norm. Two rows that differ in every column attain it.

**Scales.** The noise in a table has a standard deviation proportional to s_A sum 1/s: with weights v_A, the
table's weight times its cells, sum v_A s_A² (sum 1/s)² is least at s_A = v_A^(-1/3).

**Residuals of it.** The noise of a table A is alike and uncorrelated in all cells, so it is in any
orthonormal basis: the coordinates of a set B within A (`cape.blocks.residuals`), from sums over the other
columns, have the variance of a cell times the number of values of the others, uncorrelated for different B.
Tables are independent: the coordinates of B from all tables around it are averaged by their variances.

Tested in tests/unit/analyses/tables/test_whole_tables.py and tests/unit/analyses/test_sensitivity.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from cape.analyses.tables.marginals import Levels, Measured, Workload
from cape.blocks import Axis
from cape.blocks.residuals import WholeTables, basis, levels
from cape.core.arrays import Floats
from cape.data import Schema
from cape.engine.query import Answer, Neighbours, Query
from cape.privacy.residuals import Columns, subsets

__all__ = ["ask_whole", "measured_whole", "noise_of_sets"]


def ask_whole(axes: Sequence[Axis], schema: Schema, neighbours: Neighbours, workload: Workload) -> Query:
    """Return the query for the largest of these tables, with the best scales for Laplace noise."""
    values = [levels(axis, schema) for axis in axes]
    tables = _largest(workload, values)
    if not tables:
        return Query((), (), 0.0)
    weights = dict.fromkeys(tables, 0.0)
    for table, weight in workload.items():
        kept = tuple(i for i in table if values[i] > 1)
        over = next(each for each in tables if set(kept) <= set(each))
        weights[over] += weight * math.prod(values[i] for i in kept)
    most = max(weights.values())
    scales = tuple((weights[table] / most) ** (-1 / 3) for table in tables)
    moved = 1 if neighbours == "add-remove" else 2
    l1 = moved * math.fsum(1 / scale for scale in scales)
    l2 = math.sqrt(moved * math.fsum(scale**-2 for scale in scales))
    above = 1 + 1e-12  # what these sums in floating point may be off by, and more
    return Query((WholeTables(tuple(axes), tables),), (scales,), l2 * above, l1=l1 * above)


def _largest(workload: Workload, values: Sequence[int]) -> tuple[Columns, ...]:
    """Return the tables that are in no other one; a column with a single value is in none."""
    asked = {tuple(i for i in table if values[i] > 1) for table in workload} - {()}
    inside = {chosen for table in asked for chosen in subsets(table) if chosen != table}
    return tuple(sorted(asked - inside, key=lambda table: (-len(table), table)))


def measured_whole(answer: Answer, axes: Sequence[Axis], tables: Sequence[Columns]) -> Measured:
    """Return the coordinates of all residuals, from the answer to `ask_whole`."""
    found = tuple(Levels.of(axis, answer.schema) for axis in axes)
    values = [len(each) for each in found]
    noise = dict(zip(tables, answer.noise[0], strict=True)) if answer.sums else {}
    totals: dict[Columns, Floats] = {}
    for table, counts in zip(tables, answer.sums[0] if answer.sums else (), strict=True):
        for chosen in subsets(table):
            outside = math.prod(values[i] for i in table if i not in chosen)
            weight = 1 / (noise[table] ** 2 * outside) if noise[table] else 1.0
            part = weight * _coordinates(np.asarray(counts, np.float64), table, chosen, values)
            totals[chosen] = totals[chosen] + part if chosen in totals else part
    stds = noise_of_sets(noise, values)
    weights = {
        chosen: 1 / std**2 if std else float(sum(set(chosen) <= set(table) for table in tables))
        for chosen, std in stds.items()
    }
    coordinates = {chosen: total / weights[chosen] for chosen, total in totals.items()}
    if answer.rows is not None:
        coordinates[()], stds[()] = np.array(float(answer.rows)), 0.0
    return Measured(found, coordinates, stds, answer.law)


def noise_of_sets(noise: Mapping[Columns, float], values: Sequence[int]) -> dict[Columns, float]:
    """Return the noise in each coordinate of every set within these tables, given that of their cells."""
    inverse: dict[Columns, float] = {}
    exact: set[Columns] = set()
    for table, std in noise.items():
        for chosen in subsets(table):
            outside = math.prod(values[i] for i in table if i not in chosen)
            if std:
                inverse[chosen] = inverse.get(chosen, 0.0) + 1 / (std**2 * outside)
            else:
                exact.add(chosen)
    return {chosen: 1 / math.sqrt(each) for chosen, each in inverse.items()} | dict.fromkeys(exact, 0.0)


def _coordinates(counts: Floats, table: Columns, chosen: Columns, values: Sequence[int]) -> Floats:
    """Return the coordinates of a set within a table of counts."""
    found = counts.sum(axis=tuple(place for place, i in enumerate(table) if i not in chosen))
    for direction, i in enumerate(chosen):
        found = np.moveaxis(np.tensordot(basis(values[i]).T, found, (1, direction)), 0, direction)
    return np.asarray(found)
