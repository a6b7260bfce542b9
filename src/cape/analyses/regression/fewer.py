"""Smaller questions than a regression, for plans that leave it without an answer."""

from __future__ import annotations

from collections.abc import Iterator

from cape.analyses.table_one import TableOne
from cape.data import Category, Schema
from cape.engine.query import Analysis

__all__ = ["fewer"]


def fewer(analysis: Analysis, schema: Schema, target: str, features: tuple[str, ...]) -> Iterator[Analysis]:
    """Yield regressions on fewer features, then on each alone, then the target by each category."""
    for many in range(len(features) - 1, 1, -1):
        yield analysis.changed(features=features[:many])
    if len(features) > 1:
        for name in features:
            yield analysis.changed(features=(name,))
    for name in features:
        if isinstance(schema[name], Category):
            yield TableOne(target, by=name)
