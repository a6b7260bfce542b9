"""Sums by meaning, or as a site adds them up, and conversations with noise."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from cape import privacy
from cape.blocks import Counts, Sandwich, Scores, Squares, Table, Tensors
from cape.data import Number
from cape.engine.query import Answer
from tests.unit.analyses.regression.tables import influences

STEP = 2.0**-20
MU = float(privacy.mu(1.0, 1e-6))
SITES, HONEST = 5, 4


def rows_of(design, schema, table):
    """x on the grid and y of each complete row."""
    parts = []
    for name in design.features:
        column = schema[name]
        cells = np.asarray(table[name], float)
        if isinstance(column, Number):
            t = np.clip((np.clip(cells, column.low, column.high) - column.middle) / column.half, -1, 1)
            parts.append(t[:, None])
        else:
            hot = (cells[:, None] == np.arange(1, len(column.values))).astype(float)
            hot[cells < 0] = np.nan
            parts.append(hot)
    x = np.concatenate(parts, axis=1) / design.length(schema)
    x = x / np.fmax(np.linalg.norm(x, axis=1, keepdims=True), 1.0)
    if design.intercept:
        x = np.concatenate([np.full((len(x), 1), design.intercept), x], axis=1) / math.sqrt(
            1 + design.intercept**2
        )
    y = np.ones(len(x))
    if design.target is not None:
        code = np.asarray(table[design.target], float)
        y = np.where(code < 0, np.nan, 2.0 * code - 1)
    whole = ~(np.isnan(x).any(axis=1) | np.isnan(y))
    return np.trunc(x[whole] / STEP) * STEP, y[whole]


def site(schema, table):
    """A site with this table, whose categories are codes, -1 or NaN if missing."""
    cells = {}
    for name in schema:
        if name in table:
            column, given = schema[name], pl.Series(np.asarray(table[name], float), dtype=pl.Float64)
            if isinstance(column, Number):
                cells[name] = given.fill_nan(None)
            else:
                values = pl.Series([*column.values, None])
                cells[name] = values[given.fill_nan(-1).cast(pl.Int64).to_numpy()]
    return Table("site", pl.DataFrame(cells), schema)


def at_a_site(block, schema, table):
    """The arrays of a block as a site adds them up."""
    (found,) = table.sums([block])
    return tuple(
        np.asarray(each, float) * 2.0**-array.bits
        for each, array in zip(found, block.arrays(schema), strict=True)
    )


def sums_of(block, schema, table):
    """The arrays of a block: by their meaning, but for scores and counts, which have tests of their own."""
    if isinstance(block, (Counts, Scores)):
        return at_a_site(block, schema, table if isinstance(table, Table) else site(schema, table))
    x, y = rows_of(block.design, schema, table)
    above = np.triu_indices(x.shape[1], 1)
    arrays = [np.array([float(len(x))])]
    if isinstance(block, Squares):
        c = x - np.array(block.centre)
        forms = [(sum(w * c[:, i] * c[:, j] for i, j, w in form.terms), form.bound) for form in block.forms]
        return (np.array([np.sum(np.clip(q / bound, -1, 1) ** 2) for q, bound in forms]),)
    if isinstance(block, Sandwich):
        w = influences(block, x, y)
        square = w.T @ w
        return np.diag(square).copy(), square[np.triu_indices(len(square), 1)]
    assert isinstance(block, Tensors)
    for term in block.terms:
        c = np.polynomial.polynomial.polyval(y, term.target)
        if term.degree == 0:
            arrays.append(np.array([c.sum()]))
        elif term.degree == 1:
            arrays.append(c @ x)
        else:
            square = (c[:, None] * x).T @ x
            arrays.append(np.diag(square).copy())
            if x.shape[1] > 1:
                arrays.append(square[above])
    return tuple(arrays)


def answer_to(query, schema, table, rng, mu, neighbours="replace-one"):
    """The answer of five sites, one of them colluding, that costs mu; without noise if mu is infinite."""
    std = query.sensitivity / mu * math.sqrt(SITES / HONEST)
    noise = tuple(tuple(std * scale for scale in scales) for scales in query.scales)
    sums = tuple(
        tuple(
            a + rng.normal(size=a.shape) * s for a, s in zip(sums_of(block, schema, table), stds, strict=True)
        )
        for block, stds in zip(query.blocks, noise, strict=True)
    )
    rows = table.rows() if isinstance(table, Table) else len(next(iter(table.values())))
    return Answer(sums, noise, rows if neighbours == "replace-one" else None, schema)


def converse(analysis, schema, table, rng, *, mu=MU, neighbours="replace-one"):
    """What is found, and how many steps were asked for."""
    talk = analysis.conduct(schema, neighbours)
    query, steps = next(talk), 0
    if isinstance(query.blocks[0], Counts):
        table = site(schema, table)
    for share in analysis.stages():
        steps += isinstance(query.blocks[0], Scores)
        try:
            query = talk.send(answer_to(query, schema, table, rng, mu * math.sqrt(share), neighbours))
        except StopIteration as stop:
            return stop.value, steps
    raise AssertionError("the analysis asked for more than it has stages")
