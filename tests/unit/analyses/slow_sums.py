"""Block sums by their meaning in cape.blocks.block, written again and slowly, and answers made from them."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
from scipy.linalg import helmert

from cape import privacy
from cape.blocks import (
    Counts,
    Custom,
    Gram,
    Grouped,
    GroupedProducts,
    Merged,
    Moments,
    SiteScores,
    Squares,
)
from cape.blocks.predicted import Errors, ErrorSquares, RiskCounts, Risks
from cape.blocks.residuals import Residuals
from cape.blocks.survival import Exits, woven
from cape.data import Number
from cape.engine.query import Answer
from cape.stats.law import Law

STEP = 2.0**-20
MU = float(privacy.mu(1.0, 1e-6))  # epsilon 1
SITES, HONEST = 5, 4


def unrounded(values, column):
    """t, NaN where missing."""
    return np.clip((np.clip(values, column.low, column.high) - column.middle) / column.half, -1, 1)


def scaled(values, column):
    """t on the grid, NaN where missing."""
    return np.trunc(unrounded(values, column) / STEP) * STEP


def codes(table, axis, schema):
    """The bin of each row, -1 if missing."""
    if axis.edges is None:
        return table[axis.column]
    column = schema.number(axis.column)
    values = np.clip(table[axis.column], column.low, column.high)
    found = np.digitize(values, axis.edges) - 1
    found = np.clip(found, 0, len(axis.edges) - 2)
    return np.where(np.isnan(values), -1, found)


def parts(block, schema, table):
    """What each row adds to each array: arrays of shape (rows, entries)."""
    rows = len(next(iter(table.values())))
    if isinstance(block, Grouped):
        here = [(table[block.by] == code)[:, None] for code in range(len(block.blocks))]
        return [
            where * array
            for where, each in zip(here, block.blocks, strict=True)
            if each is not None
            for array in parts(each, schema, table)
        ]
    if isinstance(block, Moments):
        t = np.stack([scaled(table[name], schema.number(name)) for name in block.columns], axis=1)
        present = ~np.isnan(t)
        t = np.where(present, t, 0.0)
        arrays = [present.astype(float), t] + ([t * t] if block.squares else [])
        if block.by is None:
            return arrays
        here = np.ones((rows, 1))
        for name in (block.by,) if isinstance(block.by, str) else block.by:
            groups = len(schema.category(name).values)
            here = (here[:, :, None] * (table[name][:, None] == np.arange(groups))[:, None, :]).reshape(
                rows, -1
            )
        return [(here[:, :, None] * array[:, None, :]).reshape(rows, -1) for array in arrays]
    if isinstance(block, GroupedProducts):
        return products(block, schema, table)
    if isinstance(block, Gram):
        t = np.stack([scaled(table[name], schema.number(name)) for name in block.columns], axis=1)
        whole = ~np.isnan(t).any(axis=1)
        t = np.where(whole[:, None], t, 0.0)
        width = t.shape[1]
        cross = [t[:, i] * t[:, j] for i in range(width) for j in range(i + 1, width)]
        return [whole[:, None].astype(float), t, t * t, np.stack(cross, axis=1)]
    if isinstance(block, Merged):
        groups = []
        for axis, merged in zip(block.axes, block.groups, strict=True):
            place = codes(table, axis, schema)
            groups.append(np.array(merged)[np.where(place < 0, len(merged) - 1, place)])
        found = []
        for each in block.tables:
            shape = tuple(block.sizes[i] for i in each)
            cell = np.ravel_multi_index([groups[i] for i in each], shape)
            found.append((cell[:, None] == np.arange(math.prod(shape))).astype(float))
        return found
    if isinstance(block, Counts):
        if not block.axes:
            return [np.ones((rows, 1))]
        shape = tuple(axis.bins(schema) for axis in block.axes)
        places = np.stack([codes(table, axis, schema) for axis in block.axes])
        kept = (places >= 0).all(axis=0)
        flat = np.ravel_multi_index(tuple(np.where(kept, places, 0)), shape)
        if block.cell is not None:
            for at, place in zip(block.cell, places, strict=True):
                kept &= True if at is None else place == at
            return [kept[:, None].astype(float)]
        hot = np.zeros((rows, math.prod(shape)))
        hot[np.arange(rows)[kept], flat[kept]] = 1.0
        return [hot]
    if isinstance(block, Residuals):
        return residuals(block, schema, table)
    if isinstance(block, (RiskCounts, Risks, Errors, ErrorSquares)):
        return predicted(block, schema, table)
    if isinstance(block, Exits):
        return [exits(block, schema, table)]
    assert isinstance(block, Custom)
    values = np.asarray(block.function(table), float).reshape(rows, block.size) / block.bound
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    return [np.trunc(values / np.maximum(norms, 1) / STEP) * STEP]


def residuals(block, schema, table):
    """What each row adds to the coordinates of every set: products of rows of orthonormal contrasts."""
    rows = len(next(iter(table.values())))
    contrasts = []
    for axis in block.axes:
        place = codes(table, axis, schema)
        many = axis.bins(schema) + schema.stated[axis.column].missing
        contrasts.append(helmert(many)[:, place].T if many > 1 else np.zeros((rows, 0)))  # -1 is the last
    found = []
    for columns in block.sets:
        product = np.ones((rows, 1))
        for i in columns:
            product = (product[:, :, None] * contrasts[i][:, None, :]).reshape(rows, -1)
        found.append(product)
    return found


def by_group(block, schema, table):
    """(1, x, y) of each row, 0 where a cell is missing, and in which group it is, if any."""
    columns = []
    for name in block.design.features:
        if is_number(schema, name):
            columns.append(unrounded(table[name], schema.number(name)))
        else:
            codes = np.where(table[name] < 0, math.nan, table[name])
            values = range(1, len(schema.category(name).values))
            columns += [np.where(np.isnan(codes), math.nan, codes == value) for value in values]
    length = block.design.length(schema)
    x = [np.trunc(column / length / STEP) * STEP for column in columns]
    y = scaled(table[block.design.target], schema.number(block.design.target))
    rows = np.stack([np.ones(len(y)), *x, y])
    here = table[block.by][:, None] == np.arange(len(schema.category(block.by).values))
    whole = ~np.isnan(rows).any(axis=0) & here.any(axis=1)
    return np.where(whole, rows, 0.0), here & whole[:, None]


def products(block, schema, table):
    """What each row adds to products of (1, x, y), by group: nothing, if it misses a cell."""
    rows, here = by_group(block, schema, table)
    found = []
    for each in block.products(schema):
        entries = np.stack([rows[i] * rows[j] for i, j in each.places], axis=1)
        found.append((here[:, :, None] * entries[:, None, :]).reshape(len(here), -1))
    return found


def predicted(block, schema, table):
    """What each row adds to sums over predictions: nothing, if it misses a cell."""
    target, columns = block.design.target, []
    for name in block.design.features:
        if is_number(schema, name):
            columns.append(scaled(table[name], schema.number(name)))
        else:
            codes = np.where(table[name] < 0, math.nan, table[name])
            values = range(1, len(schema.category(name).values))
            columns += [np.where(np.isnan(codes), math.nan, codes == value) for value in values]
    eta = block.weights[0] + sum(w * x for w, x in zip(block.weights[1:], columns, strict=True))
    value = {"logit": lambda: 1 / (1 + np.exp(-eta)), "identity": lambda: eta, "log": lambda: np.exp(eta)}
    prediction = value[block.link]()
    if isinstance(block, (RiskCounts, Risks)):
        kept = ~np.isnan(prediction) & (table[target] >= 0)
        p, y = np.where(kept, prediction, 0.0), np.where(kept, table[target], 0)
        edges, rows = np.array(block.edges), np.arange(len(p))
        cell = np.clip(np.digitize(p, edges) - 1, 0, len(edges) - 2)
        if isinstance(block, RiskCounts):
            hot = np.zeros((len(p), len(edges) - 1))
            hot[rows, cell] = kept
            return [hot]
        inside = (p - edges[cell]) / (edges[cell + 1] - edges[cell])
        low, high = np.array(block.ranks)[cell].T
        rank = low + (high - low) * np.clip(inside, 0, 1)
        place = 2 * (np.digitize(cell, block.starts) - 1) + y
        counts, ranks = np.zeros((2, len(p), 2 * len(block.starts)))
        counts[rows, place] = kept
        ranks[rows, place] = np.trunc(rank / STEP) * STEP * kept
        return [counts, ranks, (np.trunc((y - p) ** 2 / STEP) * STEP * kept)[:, None]]
    column = schema.number(target)
    t = scaled(table[target], column)
    e = (t - np.clip((prediction - column.middle) / column.half, -1, 1)) / 2
    kept = ~np.isnan(e)
    t, e = np.where(kept, t, 0.0), np.trunc(np.where(kept, e, 0.0) / STEP) * STEP
    if isinstance(block, Errors):
        return [kept[:, None] * each[:, None] for each in (np.ones(len(t)), t, t * t, e * e)]
    pair = e, t - block.centre
    forms = [(sum(w * pair[i] * pair[j] for i, j, w in form.terms), form.bound) for form in block.forms]
    return [np.stack([np.clip(q / bound, -1, 1) ** 2 * kept for q, bound in forms], axis=1)]


def exits(block, schema, table):
    """The column of W that belongs to each row's bin, in the place of its group and event."""
    times, edges = block.times, block.times.edges
    column, matrix = schema.number(times.time), woven(block.cells, block.plain).matrix
    groups = [len(schema.category(name).values) for name in block.by]
    kinds, found = len(schema.category(times.event).values), []
    for i in range(len(table[times.time])):
        t, kind = np.clip(table[times.time][i], column.low, column.high), table[times.event][i]
        of = [table[name][i] for name in block.by]
        vector = np.zeros((math.prod(groups), kinds, block.cells))
        if not np.isnan(t) and kind >= 0 and all(code >= 0 for code in of):
            group = int(np.ravel_multi_index(of, groups)) if of else 0
            stays = t > edges[-1] or (t == edges[-1] and kind == 0)
            bin_ = next((k for k, end in enumerate(edges[1:]) if t <= end), len(edges) - 1)
            vector[group, 0 if stays else kind] = matrix[:, len(edges) - 1 if stays else bin_]
        found.append(vector.reshape(-1))
    return np.array(found)


def vectors(query, schema, table):
    """One vector per row: everything it adds, each array divided by its scale."""
    arrays = [array for block in query.blocks for array in parts(block, schema, table)]
    return np.concatenate([a / s for a, s in zip(arrays, query.flat_scales, strict=True)], axis=1)


def exact(query, schema, table):
    """The sums over rows, in the shapes of the query."""
    sums = []
    for block in query.blocks:
        if isinstance(block, Grouped):
            groups = [
                {k: v[table[block.by] == code] for k, v in table.items()} for code in range(len(block.blocks))
            ]
            found = [
                exact(SimpleNamespace(blocks=(each,)), schema, group)[0]
                for each, group in zip(block.blocks, groups, strict=True)
                if each is not None
            ]
            sums.append(tuple(array for arrays in found for array in arrays))
        elif isinstance(block, SiteScores):
            held, here = by_group(block, schema, table)
            sums.append(block.summed([(held[:-1, each], held[-1, each], 1.0) for each in here.T]))
        elif isinstance(block, Squares):
            sums.append(squares(block, schema, table))
        elif isinstance(block, Counts) and len(block.axes) == 1 and block.cell is None:
            place = codes(table, block.axes[0], schema)
            sums.append((np.bincount(place[place >= 0], minlength=block.axes[0].bins(schema)).astype(float),))
        else:
            shapes = [array.shape for array in block.arrays(schema)]
            found = [part.sum(axis=0) for part in parts(block, schema, table)]
            sums.append(tuple(s.reshape(shape) for s, shape in zip(found, shapes, strict=True)))
    return tuple(sums)


def squares(block, schema, table):
    """Sums of squared forms of numeric columns, each cut at its bound."""
    columns = [scaled(table[name], schema.number(name)) for name in block.design.features]
    whole = ~np.isnan(columns).any(axis=0)
    c = [column[whole] - at for column, at in zip(columns, block.centre, strict=True)]
    forms = [(sum(w * c[i] * c[j] for i, j, w in form.terms), form.bound) for form in block.forms]
    return (np.array([np.sum(np.clip(q / bound, -1, 1) ** 2) for q, bound in forms]),)


def noisy(query, schema, sums, rows, rng, *, neighbours="replace-one", mu=MU):
    """The answer that the aggregate of five sites, one of them colluding, would give."""
    std = query.sensitivity / mu * math.sqrt(SITES / HONEST) if mu else 0.0
    noise = tuple(tuple(std * scale for scale in scales) for scales in query.scales)
    found = tuple(
        tuple(np.asarray(a + rng.normal(size=np.shape(a)) * s) for a, s in zip(arrays, stds, strict=True))
        for arrays, stds in zip(sums, noise, strict=True)
    )
    return Answer(found, noise, rows if neighbours == "replace-one" else None, schema)


def noisy_laplace(query, schema, sums, rows, rng, *, neighbours="replace-one", epsilon=1.0):
    """As `noisy`, with Laplace noise: differences of gamma variables of the shape that five sites make."""
    shape, scale = SITES / HONEST, query.l1 / epsilon
    std = scale * math.sqrt(2 * shape)
    noise = tuple(tuple(std * each for each in scales) for scales in query.scales)

    def blurred(array, by):
        drawn = rng.gamma(shape, size=(2, *np.shape(array))) * scale * by
        return np.asarray(array + drawn[0] - drawn[1])

    found = tuple(
        tuple(blurred(a, s) for a, s in zip(arrays, scales, strict=True))
        for arrays, scales in zip(sums, query.scales, strict=True)
    )
    return Answer(found, noise, rows if neighbours == "replace-one" else None, schema, Law(shape))


def release_laplace(analysis, schema, table, rng, *, neighbours="replace-one", epsilon=1.0):
    """What an analysis finds under Laplace noise."""
    rows, asked = len(next(iter(table.values()))), analysis.under(True)
    talk, parts = asked.conduct(schema, neighbours), asked.stages()
    query = next(talk)
    for part in parts:
        sums = exact(query, schema, table)
        paid = epsilon * part / sum(parts)
        try:
            query = talk.send(
                noisy_laplace(query, schema, sums, rows, rng, neighbours=neighbours, epsilon=paid)
            )
        except StopIteration as stop:
            return stop.value
    raise AssertionError("the analysis asked for more than it has stages")


def release(analysis, schema, table, rng, *, neighbours="replace-one", mu=MU):
    """The estimates by label."""
    rows = len(next(iter(table.values())))
    talk = analysis.conduct(schema, neighbours)
    query = next(talk)
    for share in analysis.stages():
        part = mu * math.sqrt(share / sum(analysis.stages()))
        sums = exact(query, schema, table)
        try:
            query = talk.send(noisy(query, schema, sums, rows, rng, neighbours=neighbours, mu=part))
        except StopIteration as stop:
            found = getattr(stop.value, "estimates", stop.value)
            return {estimate.label: estimate for estimate in found}
    raise AssertionError("the analysis asked for more than it has stages")


def is_number(schema, name):
    return isinstance(schema[name], Number)
