"""Sums of logistic regressions and principal components by meaning, and conversations with noise."""

from __future__ import annotations

import math

import numpy as np

from cape import privacy
from cape.blocks import Sandwich, Scores, Squares, Tensors
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


def sums_of(block, schema, table):
    """The arrays of a block."""
    x, y = rows_of(block.design, schema, table)
    above = np.triu_indices(x.shape[1], 1)
    arrays = [np.array([float(len(x))])]
    if isinstance(block, Scores):
        p = 1 / (1 + np.exp(-np.clip(x @ np.array(block.weights), -700, 700)))
        u = x @ np.array(block.turn).T
        squares, bent = (u**2).sum(axis=1), p * (1 - p)
        with np.errstate(divide="ignore"):
            limits = block.bound / np.fmax(p, 1 - p) / np.sqrt(squares), block.curve / (bent * squares)
        v = np.fmin(1, np.fmin(*limits))
        s = np.trunc((v * (p - (1 + y) / 2))[:, None] * u / block.bound / STEP) * STEP
        z = np.trunc(np.sqrt(v * bent)[:, None] * u / math.sqrt(block.curve) / STEP) * STEP
        for square in (z.T @ z, s.T @ s):
            arrays += [np.diag(square).copy(), square[above]]
        return (arrays[0], s.sum(axis=0), *arrays[1:])
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
    rows = len(next(iter(table.values())))
    return Answer(sums, noise, rows if neighbours == "replace-one" else None, schema)


def converse(analysis, schema, table, rng, *, mu=MU, neighbours="replace-one"):
    """What is found, and how many steps were asked for."""
    talk = analysis.conduct(schema, neighbours)
    query, steps = next(talk), 0
    for share in analysis.stages():
        steps += isinstance(query.blocks[0], Scores)
        try:
            query = talk.send(answer_to(query, schema, table, rng, mu * math.sqrt(share), neighbours))
        except StopIteration as stop:
            return stop.value, steps
    raise AssertionError("the analysis asked for more than it has stages")
