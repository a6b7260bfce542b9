"""What an analysis would give, before any row is read: its own post-processing, on rows as people are.

What rows are taken to be like is said in `cape.blocks.typical`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from cape.data import Schema
from cape.engine.estimates import Estimates
from cape.engine.query import Analysis, AnalysisResult, Answer, Estimate, Neighbours
from cape.errors import TooNoisyWarning

__all__ = ["Planned", "unknown", "warn_of"]


class Planned(Analysis):
    """An analysis that is planned by finishing the sums of rows as people might be."""

    def expected(
        self,
        schema: Schema,
        noise: Sequence[Sequence[float]],
        rows: int,
        neighbours: Neighbours = "replace-one",
    ) -> dict[str, float]:
        blocks = self.query(schema, neighbours).blocks
        answer = Answer(
            tuple(block.typical(schema, rows) for block in blocks),
            tuple(tuple(each) for each in noise),
            rows if neighbours == "replace-one" else None,
            schema,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TooNoisyWarning)
            found = self.finish(answer)
        estimates = Estimates.of(found.estimates if isinstance(found, AnalysisResult) else found)
        return dict(zip(estimates.labels, estimates.privacy.tolist(), strict=True))


def unknown(label: str, low: float, high: float) -> Estimate:
    """Return an estimate that says nothing but the bounds."""
    half = high / 2 - low / 2
    return Estimate(label, low + half, 0.0, half, (low, high), _Whole(low, high))


class _Whole:
    """An interval that is the same at every level."""

    def __init__(self, low: float, high: float) -> None:
        self._ends = low, high

    def __call__(self, level: float) -> tuple[float, float]:
        return self._ends


def warn_of(estimates: Sequence[Estimate]) -> None:
    """Warn, once, of the estimates that say nothing."""
    empty = [estimate.label for estimate in estimates if isinstance(estimate.at, _Whole)]
    if empty:
        more = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
        warnings.warn(
            f"there is too much noise to say anything about {empty[0]!r}{more}: the interval is all that is "
            "possible; use a larger share, more epsilon, more rows or fewer columns",
            TooNoisyWarning,
            stacklevel=3,
        )
