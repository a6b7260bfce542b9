"""The intercept where people are: a prediction at stated values of the features, not where all are 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cape.analyses.regression.joint import Joint
from cape.data import Category, Number, Schema
from cape.data.products import pieces
from cape.show.numbers import between, rounded
from cape.stats.estimates import Estimate

__all__ = ["INTERCEPT", "Reference", "reference"]

INTERCEPT = "intercept"


@dataclass(frozen=True)
class Reference:
    """The predictor at reference values.

    Attributes:
        estimate: the predictor there.
        values: the value of each column.
        words: the same, for readers.
    """

    estimate: Estimate
    values: dict[str, Any]
    words: str

    def said(self, what: str, mean: Callable[[float], float]) -> str:
        """Return the prediction there and its interval; `mean` makes it of the predictor."""
        low, high = map(mean, self.estimate.interval())
        value = mean(self.estimate.value)
        error = (high - low) / 4 if math.isfinite(high - low) else abs(value)
        there = f"{rounded(value, error)} ({between((low, high), error)})"
        return f"At reference: {self.words}. There {what} is {there}."

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"at": self.values, "value": self.estimate.value, "interval": self.estimate.interval()}


def reference(joint: Joint, schema: Schema, means: Mapping[str, float] | None = None) -> Reference | None:
    """Return the predictor at typical values of numbers, and the first category of a column.

    Typical is the released mean, where there is one, else the mean that people expect, or the middle of the
    bounds.

    None without an intercept, with a spline, or where nothing is known.
    """
    if INTERCEPT not in joint.labels or not joint.values:
        return None
    columns, times, values = dict(schema), {INTERCEPT: 1.0}, dict[str, Any]()
    for label in joint.labels:
        if label == INTERCEPT:
            continue
        product = 1.0
        for factor in pieces(label, columns):
            name = factor if factor in columns else factor.partition("=")[0]
            column = columns.get(name)
            if isinstance(column, Number) and factor == name:
                values[name] = _typical(column) if means is None or name not in means else means[name]
                product *= values[name]
            elif isinstance(column, Category):
                values[name] = column.values[0]
                product = 0.0
            else:
                return None
        times[label] = product
    words = ", ".join(_worded(schema, *each) for each in values.items())
    return Reference(joint.combination(times), values, words)


def _typical(column: Number) -> float:
    """Return the mean that people expect, or the middle of the bounds to two digits of half their width."""
    if column.expected is not None:
        return column.expected.mean
    unit = 10.0 ** math.floor(math.log10(column.half / 10))
    return min(max(round(column.middle / unit) * unit, column.low), column.high)


def _worded(schema: Schema, name: str, value: Any) -> str:
    column = schema[name]
    if isinstance(column, Number):
        return f"{schema.label(name)} {value:g}{f' {column.unit}' if column.unit else ''}"
    return f"{schema.label(name)} {value}"
