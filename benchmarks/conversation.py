"""An analysis of several questions, answered from a table's own sums with noise of numpy: many runs take
seconds. Benchmarks and tests share it; whole releases are measured beside it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl

from cape.blocks.table import Table
from cape.data import Schema
from cape.engine.query import Analysis, AnalysisResult, Answer, Neighbours

__all__ = ["GROWTH", "conducted"]

GROWTH = math.sqrt(5 / 4)
"""The noise of five sites of which one colludes, in that of a trusted curator."""


def conducted(
    analysis: Analysis,
    columns: dict[str, Any],
    schema: Schema,
    mu: float,
    rng: np.random.Generator,
    neighbours: Neighbours = "replace-one",
    growth: float = GROWTH,
) -> AnalysisResult:
    """What the analysis makes of the blocks' own sums, with `growth` times the noise of a curator."""
    frame = pl.DataFrame(columns)
    held, rows = Table("all", frame, schema), frame.height if neighbours == "replace-one" else None
    talk = analysis.conduct(schema, neighbours)
    query = next(talk)
    for share in analysis.stages():
        std = growth * query.sensitivity / mu / math.sqrt(share)
        noise = tuple(tuple(std * scale for scale in scales) for scales in query.scales)
        sums = tuple(
            tuple(
                np.asarray(each, float) / 2.0**array.bits + rng.normal(size=array.shape) * s
                for each, array, s in zip(found, block.arrays(schema), stds, strict=True)
            )
            for block, found, stds in zip(query.blocks, held.sums(query.blocks), noise, strict=True)
        )
        try:
            query = talk.send(Answer(sums, noise, rows, schema))
        except StopIteration as told:
            result: AnalysisResult = told.value
            return result
    raise AssertionError("an analysis asks as often as it has stages")
