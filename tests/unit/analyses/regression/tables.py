"""The sums of linear regressions by their meaning, written again and slowly, and answers made from them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import polars as pl

from cape import privacy
from cape.blocks import Sandwich, Table
from cape.data import Category, Number, Schema
from cape.engine.query import Answer

STEP = 2.0**-20
SITES, HONEST = 5, 4


def numeric(width, *, missing=False):
    """Columns x0, x1, ... and y, all between -1 and 1."""
    names = [f"x{i}" for i in range(width)]
    return Schema({name: Number(-1, 1, missing=missing) for name in (*names, "y")}), names


def vectors(design, schema, table):
    """x and y of the complete rows, on the grid; of interactions and splines as a site has them."""
    if not design.plain:
        x, y = Table("site", pl.DataFrame(table), schema).vectors(design)
        return x * STEP, y * STEP
    columns = []
    for name in design.features:
        column, cells = schema[name], table[name]
        if isinstance(column, Category):
            columns += [(np.asarray(cells) == value).astype(float) for value in column.values[1:]]
        else:
            columns.append(np.clip((np.asarray(cells, float) - column.middle) / column.half, -1, 1))
    x = np.stack(columns, axis=1) / design.length(schema)
    x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1)
    if design.intercept:
        x = np.column_stack([np.full(len(x), design.intercept), x]) / math.hypot(1, design.intercept)
    target, cells = schema[design.target], table[design.target]
    if isinstance(target, Category):
        y = np.where(np.asarray(cells) == target.values[1], 1.0, -1.0)
    else:
        y = np.clip((np.asarray(cells, float) - target.middle) / target.half, -1, 1)
    whole = ~np.isnan(x).any(axis=1) & ~np.isnan(y)
    return np.trunc(x[whole] / STEP) * STEP, np.trunc(y[whole] / STEP) * STEP


def times(index):
    """How often an entry of a symmetric tensor occurs in it."""
    return len(set(itertools.permutations(index)))


def row_parts(block, x, y):
    """What each row adds to each array: arrays of shape (rows, entries)."""
    width = x.shape[1]
    parts = [np.ones((len(x), 1))]
    for term in block.terms:
        c = np.polynomial.polynomial.polyval(y, term.target)
        indices = list(itertools.combinations_with_replacement(range(width), term.degree))
        for multiplicity in sorted({times(index) for index in indices}):
            chosen = [index for index in indices if times(index) == multiplicity]
            parts.append(np.stack([c * np.prod(x[:, list(index)], axis=1) for index in chosen], axis=1))
    return parts


def influences(block, x, y):
    """w of each row."""
    u = np.column_stack([np.ones(len(x)), x])
    w = (u @ np.array(block.directions).T) * (y - u @ np.array(block.weights))[:, None]
    return w / np.maximum(np.linalg.norm(w, axis=1, keepdims=True), 1.0)


def exact(query, schema, table):
    """The sums over rows."""
    (block,) = query.blocks
    x, y = vectors(block.design, schema, table)
    if isinstance(block, Sandwich):
        w = influences(block, x, y)
        square = w.T @ w
        return ((np.diag(square).copy(), square[np.triu_indices(len(square), 1)]),)
    return (tuple(part.sum(axis=0) for part in row_parts(block, x, y)),)


def answer(analysis, schema, table, rng, *, epsilon=1.0, delta=1e-6, neighbours="replace-one"):
    """The answer that five sites, one of them colluding, would give; epsilon=inf for no noise."""
    return noisy(analysis.query(schema, neighbours), schema, table, rng, level(epsilon, delta), neighbours)


def level(epsilon, delta=1e-6):
    """The noise per unit of sensitivity."""
    return 0.0 if math.isinf(epsilon) else math.sqrt(SITES / HONEST) / privacy.mu(epsilon, delta)


def noisy(query, schema, table, rng, unit, neighbours):
    """The sums with noise of `unit` per unit of sensitivity."""
    noise = (tuple(unit * query.sensitivity * scale for scale in query.scales[0]),)
    sums = exact(query, schema, table)
    found = (tuple(a + s * rng.normal(size=a.shape) for a, s in zip(sums[0], noise[0], strict=True)),)
    rows = len(next(iter(table.values())))
    return Answer(found, noise, rows if neighbours == "replace-one" else None, schema)


def found(analysis, schema, table, rng, **how):
    """The finding of the first stage alone."""
    return analysis.finish(answer(analysis, schema, table, rng, **how))


def conducted(analysis, schema, table, rng, *, epsilon=1.0, neighbours="replace-one", asked=None):
    """The finding after all stages; queries are added to the list `asked`."""
    conversation = analysis.conduct(schema, neighbours)
    query = next(conversation)
    for share in analysis.stages():
        if asked is not None:
            asked.append(query)
        unit = level(epsilon) / math.sqrt(share)
        try:
            query = conversation.send(noisy(query, schema, table, rng, unit, neighbours))
        except StopIteration as stop:
            return stop.value
    raise AssertionError("it asked more often than it has stages")
