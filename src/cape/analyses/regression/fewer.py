"""Smaller questions than a regression, for plans that leave it without an answer."""

from __future__ import annotations

from collections.abc import Iterator

from cape.analyses.describe.table_one import TableOne
from cape.blocks.terms import parse
from cape.data import Category, Schema
from cape.engine.query import Analysis

__all__ = ["fewer"]


def fewer(analysis: Analysis, schema: Schema, target: str, features: tuple[str, ...]) -> Iterator[Analysis]:
    """Yield regressions on fewer features, then on each alone, then the target by each category."""
    for many in range(len(features) - 1, 1, -1):
        yield analysis.changed(features=features[:many])
    if len(features) > 1:
        for feature in features:
            if len(parse(feature).factors) == 1:
                yield analysis.changed(features=(feature,))
    for feature in features:
        term = parse(feature)
        if term.plain and isinstance(schema[term.columns[0]], Category):
            yield TableOne(target, by=term.columns[0])
