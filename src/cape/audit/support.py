"""Events that break float Gaussian noise: answers that one table can give and its neighbour cannot.

A float y is the rounded sum of x and float noise only if it has no finer bits than both leave: when the
noise that leads from x to y is larger than y itself, its last bits are coarser than y's may be. So for some
y there is a float that leads there from one table and none from the other, and one such answer tells which
(Mironov 2012). On our grid every integer within the sampler's reach can come from either table, and such
events do not exist.
Tested in tests/unit/audit/test_support.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from cape.audit.search import Found, Questions
from cape.audit.view import Stage
from cape.audit.world import SCHEMA, Row, Tables, frame, random_rows, stream_of
from cape.blocks.table import Table
from cape.engine.calibration import RESOLUTION
from cape.engine.contribution import exact_sums
from cape.noise import SecureStream
from cape.noise.gaussian import largest

__all__ = ["float_noise", "reachable", "telltale", "worst"]

_FILLS, _TRIES = 100, 500


def reachable(answer: NDArray[np.generic], exact: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return for each entry whether some noise turns the exact sum into the answer."""
    if answer.dtype.kind != "f":
        reach = 64 * largest(float(RESOLUTION))  # of up to 64 sites
        return np.asarray(np.abs(answer.astype(np.int64) - exact) <= reach)
    start = exact.astype(np.float64)
    noise = answer.astype(np.float64) - start
    tries = (noise, np.nextafter(noise, np.inf), np.nextafter(noise, -np.inf))
    return np.asarray(np.any([start + one == answer for one in tries], axis=0))


def float_noise(std: float, size: int, stream: SecureStream) -> NDArray[np.float64]:
    """Return normal noise as float64, by inversion of 53 uniform bits: as in a textbook, without a grid."""
    uniform = (stream.words(size) >> np.uint64(11)) * 2.0**-53 + 2.0**-54
    return np.asarray(std * ndtri(uniform), np.float64)


def worst(found: Found, asked: Questions, seed: int) -> Found:
    """Return tables with other shared rows: those whose float sums would reveal most.

    How often an answer gives the table away depends on the exact sums, and so on the rows that both tables
    share.
    """
    best, most = found, -1.0
    for fill in range(_FILLS):
        stream = stream_of("support", seed, fill)
        tables = _filled(found.tables, stream)
        first, second = (_total(rows, tables.others, asked) for rows in (tables.one, tables.two))
        told = 0.0
        for exact, other in ((first, second), (second, first)):
            answers = exact + float_noise(float(RESOLUTION), _TRIES * exact.size, stream).reshape(_TRIES, -1)
            told = max(
                told, 1 - float(reachable(answers, np.broadcast_to(other, answers.shape)).all(1).mean())
            )
        if told > most:
            best, most = replace(found, tables=tables), told
    return best


def _filled(tables: Tables, stream: SecureStream) -> Tables:
    rest = tuple(random_rows(len(tables.one) - 1, stream))
    others = tuple(tuple(random_rows(len(rows), stream)) for rows in tables.others)
    return Tables((*rest, tables.one[-1]), (*rest, *tables.two[len(rest) :]), others)


def _total(rows: Sequence[Row], others: Sequence[Sequence[Row]], asked: Questions) -> NDArray[np.int64]:
    """Return the exact sum over all sites, in steps."""
    tables = [Table("support", frame(site), SCHEMA) for site in (rows, *others)]
    return np.asarray(np.sum([exact_sums(table, *asked[0]) for table in tables], axis=0))


def telltale(stages: list[Stage], target: str, swapped: bool) -> float:
    """Return 1 if the view cannot come from the first table, -1 if not from the second, else 0."""
    for stage in stages:
        exact = stage.exact
        true = np.sum([exact[name] for name in exact], axis=0)
        false = true - exact[target] + stage.other
        first, second = (false, true) if swapped else (true, false)
        if not reachable(stage.total, first).all():
            return 1.0
        if not reachable(stage.total, second).all():
            return -1.0
    return 0.0
