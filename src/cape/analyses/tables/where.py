"""Conditions on the cells of released tables: which values of which columns count.

A condition is evaluated for each combination of values. A number that was cut is known up to its bin only:
the condition is tried at the ends of every bin, and at all numbers that it mentions, and must be the same
within a bin; of whole numbers only those are tried.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.analyses.tables.marginals import Levels, Measured
from cape.core import check
from cape.core.arrays import Floats
from cape.core.check import hint
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.data.expressions import parse

__all__ = ["Where", "chosen"]

Where = str | Mapping[str, Any]
_NUMBER = re.compile(r"\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+")


def chosen(where: Where, measured: Measured, schema: Schema) -> tuple[tuple[str, ...], Floats]:
    """Return the columns of a condition, and 1 for each combination of their values that counts, else 0.

    A condition is text, as in "stage = 'II' and age >= 65", or {"stage": "II"}, {"stage": ["I", "II"]}.
    """
    if isinstance(where, Mapping):
        if not where:
            raise InvalidInput('where must name a column, as in {"sex": "female"}')
        masks = [_named(measured.levels[measured.place(name)], given) for name, given in where.items()]
        return tuple(where), reduce(np.multiply.outer, masks)
    if not isinstance(where, str) or not where.strip():
        raise InvalidInput(
            f'where must be a condition such as "sex = \'female\'", or {{"sex": "female"}}, not '
            f"{check.show(where)}"
        )
    expression = parse(where, {each.column: schema.stated[each.column] for each in measured.levels})
    if expression.kind != "boolean":
        raise InvalidInput(f"where must be a condition, as in age >= 65, not {check.show(where)}")
    if not expression.columns:
        raise InvalidInput(f"where must name a column of the tables, not {check.show(where)}")
    levels = [measured.levels[measured.place(name)] for name in expression.columns]
    mentioned = [sign * float(each) for each in _NUMBER.findall(expression.text) for sign in (1, -1)]
    trials = [_trials(each, mentioned) for each in levels]
    combinations = list(itertools.product(*trials))
    cells = {
        each.column: np.array([one[i][1] for one in combinations], np.int64 if each.edges is None else float)
        for i, each in enumerate(levels)
    }
    found = expression.evaluate(cells) == 1
    mask: NDArray[Any] = np.full([len(each) for each in levels], -1.0)
    for one, true in zip(combinations, found.tolist(), strict=True):
        at = tuple(place for place, _ in one)
        if mask[at] not in (-1.0, float(true)):
            raise InvalidInput(_divided(where, levels, at))
        mask[at] = float(true)
    return expression.columns, mask


def _trials(levels: Levels, mentioned: Sequence[float]) -> list[tuple[int, float]]:
    """Return values of a column with the cells that stand for them: a code, or several numbers of a bin."""
    missing = [(len(levels) - 1, math.nan if levels.edges is not None else -1)] if levels.missing else []
    if levels.edges is None:
        return [*((i, i) for i in range(len(levels.known))), *missing]
    found: list[tuple[int, float]] = []
    if levels.whole:
        near = {end + step for x in mentioned for end in (math.floor(x), math.ceil(x)) for step in (-1, 0, 1)}
        for i, (low, high) in enumerate(levels.ends or ()):
            found += [(i, x) for x in sorted({low, high, *(float(x) for x in near if low <= x <= high)})]
        return [*found, *missing]
    last = len(levels.edges) - 2
    for i, (low, high) in enumerate(itertools.pairwise(levels.edges)):
        end = high if i == last else float(np.nextafter(high, -math.inf))
        inside = {low, end, *(x for x in mentioned if low <= x <= end)}
        inside |= {float(np.nextafter(x, side)) for x in inside for side in (-math.inf, math.inf)}
        found += [(i, x) for x in sorted(inside) if low <= x <= end]
    return [*found, *missing]


def _named(levels: Levels, given: Any) -> Floats:
    """Return 1 for each value that is named, by itself or by its name."""
    wanted = list(given) if isinstance(given, (list, tuple, set, frozenset)) else [given]
    found = np.zeros(len(levels))
    for value in wanted:
        places = [
            i
            for i, (own, name) in enumerate(zip(levels.values, levels.names, strict=True))
            if value == name or (value is not None and value == own and type(value) is type(own))
        ]
        if value is None and levels.missing:
            places = [len(levels) - 1]
        if not places:
            raise InvalidInput(
                f"column {levels.column!r} has no value {check.show(value)} in these tables"
                f"{hint(value, levels.names)}"
            )
        found[places[0]] = 1.0
    return found


def _divided(where: str, levels: Sequence[Levels], at: tuple[int, ...]) -> str:
    bins = [f"{each.column} in {each.names[i]}" for each, i in zip(levels, at, strict=True) if each.edges]
    told = {each.column: ", ".join(f"{edge:g}" for edge in each.edges) for each in levels if each.edges}
    edges = "; ".join(f"of {column}: {listed}" for column, listed in told.items())
    return f"where = {check.show(where)} divides the bin {' and '.join(bins)}: use the edges {edges}"
