"""Made-up rows from a study's schema alone, to rehearse a study before there is anything to read.

Claim. What is made up depends on the study file, a number of rows and a seed: no site's file is opened, none
has to exist, and nothing is spent.
Reason. A rehearsed study has sources in memory in the place of all of its sites' (`rehearsed`).
Tested in tests/unit/study/test_rehearsal.py and tests/unit/cli/test_synth.py, without any file.

Numbers have the mean and SD that the schema states (`expected`), else those that a plan takes; categories
the shares. Columns are independent of each other, so every association that a rehearsal finds is chance.
A column that may be missing is missing in a twentieth of the rows.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from cape.blocks.typical import Shape
from cape.core import check
from cape.data import Schema
from cape.data.schema import Category, Column, Number
from cape.stats.simulation import Random, generator
from cape.study.sites import SourceSpec
from cape.study.study import Study

__all__ = ["made_up", "rehearsed"]

_ROWS = 1000  # at a site, where a study does not say how many it expects
_MISSING = 0.05
_FEW = 3  # rows of a person, at most
_STEPS = 200  # that numbers are rounded to, at least, from one bound to the other
_WARNING = (
    "this is a rehearsal on made-up rows: every number below comes from the schema alone and says nothing "
    "about anybody; nothing was read at a site, and nothing was spent"
)


class _MadeUp(SourceSpec, frozen=True, kw_only=True):
    frame: Any

    @property
    def where(self) -> tuple[str, ...]:
        return ("made up",)

    def source(self) -> Any:
        return self.frame


def rehearsed(study: Study, rows: int | None = None, seed: int = 0) -> Study:
    """Return a study whose sites hold made-up rows: `rows` each, or as many as the study expects."""
    seed = check.integer("seed", seed, least=0)
    if rows is not None:
        rows = check.integer("rows", rows, least=1)
    sites = {}
    for place, (name, spec) in enumerate(study.sites.items()):
        many = rows or spec.rows or _ROWS
        sites[name] = _MadeUp(rows=many, frame=made_up(study.setting.schema, many, (seed, place)))
    return replace(study, sites=sites, warnings=(_WARNING, *study.warnings), rehearsal=True)


def made_up(schema: Schema, rows: int, seed: int | tuple[int, ...]) -> pl.DataFrame:
    """Return the made-up table of a site: all columns that a file must have, of so many rows.

    With [person] so many persons, each with up to three rows where several may count, or one is made of them.
    """
    random = generator(seed)
    person, found = schema.person, {}
    total = rows
    if person is not None:
        most = _FEW if person.row is not None else min(person.rows, _FEW)
        each = random.integers(1, most + 1, rows)
        found[person.id] = pl.Series(np.repeat([f"person {i}" for i in range(1, rows + 1)], each))
        total = int(each.sum())
    made = {} if person is None else dict(person.aggregates)
    for name, column in schema.stated.items():
        if name not in schema.derived and name not in made and not getattr(column, "made", False):
            found[name] = _cells(column, total, random)
    return pl.DataFrame(found)


def _cells(column: Column, rows: int, random: Random) -> pl.Series:
    ranks = random.random(rows)
    absent = random.random(rows) < (_MISSING if column.missing else 0.0)
    if isinstance(column, Category):
        ends = np.cumsum(column.shares)
        places = np.searchsorted(ends[:-1], ranks, side="right")
        cells = pl.Series([column.values[place] for place in places])
    else:
        cells = _numbers(column, ranks)
    return cells.set(pl.Series(absent), None) if absent.any() else cells


def _numbers(column: Number, ranks: np.ndarray[Any, Any]) -> pl.Series:
    values = column.middle + column.half * Shape(column).at(ranks)
    step = 1.0 if column.date or _whole(column) else 10.0 ** math.floor(math.log10(2 * column.half / _STEPS))
    rounded = np.clip(np.round(values / step) * step, column.low, column.high)
    if column.date:
        return pl.Series(rounded.astype(np.int32)).cast(pl.Date)
    digits = max(0, -math.floor(math.log10(step)))
    return pl.Series(rounded.astype(np.int64) if _whole(column) else np.round(rounded, digits))


def _whole(column: Number) -> bool:
    """Return whether cells are taken to be whole numbers: stated, or bounds are, and hold more than a few."""
    return column.integer or (column.low.is_integer() and column.high.is_integer() and 2 * column.half >= 10)
