"""Typical rows for regressions by scores: where a first step starts, and what a plan of all steps says.

No data is needed for either: columns say what is typical of them (`cape.blocks.typical`).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from cape.blocks import Design, typical
from cape.core.arrays import Floats
from cape.data import Number, Schema
from cape.data.schema import Column
from cape.engine.query import Answer, Query

__all__ = ["crowded", "over_typical", "typical_target", "typical_turn"]

_Found = TypeVar("_Found")


def typical_target(schema: Schema, target: str) -> tuple[Floats, Floats]:
    """Return likely targets and their probabilities."""
    column = schema[target]
    if not isinstance(column, Number):
        return np.arange(len(column.values), dtype=float), np.array(column.shares)
    t = typical.Shape(column).at((np.arange(64) + 0.5) / 64)
    return np.asarray(column.middle + column.half * t), np.full(64, 1 / 64)


def typical_turn(design: Design, schema: Schema) -> Floats:
    """Return what whitens typical rows."""
    x = typical.rows(design, schema, 1024)
    second = x.T @ x / len(x)
    values, vectors = np.linalg.eigh(second)
    return np.asarray((vectors / np.sqrt(np.maximum(values, 1e-9 * values[-1]))) @ vectors.T)


def crowded(schema: Schema, columns: Sequence[str]) -> Schema:
    """Return the schema with columns that lie within an SD of a bound crowding there, as counts do.

    Where they lie decides on caps, which mean and SD alone do not.
    """
    changed: dict[str, Column] = {}
    for name in columns:
        column = schema[name]
        if not isinstance(column, Number) or column.expected is None or column.expected.form != "smooth":
            continue
        mean, sd = column.expected.mean, column.expected.sd
        if min(mean - column.low, column.high - mean) < sd:
            changed[name] = replace(column, expected=column.expected.taking("crowded"))
    return schema.changed(changed)


def over_typical(
    talk: Generator[Query, Answer, _Found],
    shares: Sequence[float],
    schema: Schema,
    rows: int,
    *,
    unit: float,
    public: int | None,
) -> _Found:
    """Return what stages with these shares find over typical rows.

    `unit` is the noise of a stage that has all of the budget, for a sensitivity of 1; `public` is how many
    rows there are, where that is known.
    """
    query = next(talk)
    for share in shares:
        sums = tuple(block.typical(schema, max(rows, 1)) for block in query.blocks)
        std = unit * query.sensitivity / math.sqrt(share)
        stds = tuple(tuple(std * scale for scale in each) for each in query.scales)
        try:
            query = talk.send(Answer(sums, stds, public, schema))
        except StopIteration as stop:
            found: _Found = stop.value
            return found
    raise AssertionError("there are as many steps as shares")
