"""What is known of a synthetic data model's errors: from the noise, and from released coarse tables."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cape.analyses.synthetic.choices import beyond_noise, merged_counts
from cape.core.arrays import Floats
from cape.stats.estimates import Estimate

if TYPE_CHECKING:
    import polars as pl

    from cape.analyses.synthetic.model import SyntheticModel

__all__ = ["Association", "associations", "evaluated"]

_DISTANCE = 1 / math.sqrt(2 * math.pi)  # half the mean of |x| for noise of SD 1


@dataclass(frozen=True)
class Association:
    """Cramér's V of a pair of columns, with its error by privacy noise."""

    pair: tuple[int, int]
    estimate: Estimate


def associations(model: SyntheticModel) -> list[Association]:
    """Return how strongly all pairs go together, from coarse tables; the strongest first."""
    measured = model.measured
    merged = [
        merged_counts(counts, groups)
        for groups, counts in zip(measured.doubles.groups, measured.counts, strict=True)
    ]
    found = []
    for pair in itertools.combinations(range(len(merged)), 2):
        table, noise = measured.doubles.tables[pair], measured.doubles.noise[pair]
        found.append(_association(model, pair, table, noise, merged))
    return sorted(found, key=lambda each: (-each.estimate.value, each.pair))


def _association(
    model: SyntheticModel, pair: tuple[int, int], table: Floats, noise: float, merged: list[Floats]
) -> Association:
    """Return V: the sum of (count - expected)² / expected less what noise adds to it, on V's scale."""
    rows = model.measured.rows
    expected = np.maximum(np.outer(merged[pair[0]], merged[pair[1]]) / rows, max(noise, 1.0))
    apart = table - expected
    chance = noise**2 / expected
    most = rows * max(min(table.shape) - 1, 1)
    square = float((apart**2 / expected).sum() - chance.sum()) / most
    spread = math.sqrt(float((2 * chance**2 + 4 * apart**2 * chance / expected).sum())) / most
    value = math.sqrt(min(max(square, 0.0), 1.0))
    error = spread / (2 * max(value, math.sqrt(spread))) if spread else 0.0
    names = model.columns
    label = f"{names[pair[0]]} × {names[pair[1]]}"
    return Association(pair, Estimate(label, value, 0.0, min(error, 1.0), (0.0, 1.0)))


def evaluated(model: SyntheticModel, within: float) -> pl.DataFrame:
    """Return the errors of each column and each pair: see `SyntheticModel.evaluate`."""
    import polars as pl

    measured, rows = model.measured, model.measured.rows
    singles, doubles, chosen = measured.singles, measured.doubles, measured.chosen
    found: list[tuple[list[str], str, float, float | None]] = []
    for i, name in enumerate(model.columns):
        kept = int((measured.counts[i] > 0).sum())  # counts that noise hides are 0, as most of them are
        noise = min(_DISTANCE * max(kept - 1, 1) * singles.noise[i,] / rows, 1.0)
        found.append(([name], "finely", noise, None))
    network, fine = model.network, chosen.groups
    for pair in doubles.tables:
        nested = [
            np.array([doubles.groups[i][fine[i].index(g)] for g in range(max(fine[i]) + 1)]) for i in pair
        ]
        table = np.zeros(doubles.tables[pair].shape)
        np.add.at(table, np.ix_(*nested), network.table(pair) * rows)
        misfit = beyond_noise(doubles.tables[pair] - table, doubles.noise[pair]) / rows
        measured_by = chosen if pair in chosen.tables else doubles
        free = math.prod(n - 1 for n in measured_by.tables[pair].shape)
        noise = min(_DISTANCE * free * measured_by.noise[pair] / rows, 1.0)
        how = "finely" if pair in chosen.tables else "coarsely"
        found.append(([model.columns[i] for i in pair], how, noise, min(misfit, 1.0)))
    return pl.DataFrame(
        {
            "columns": [names for names, *_ in found],
            "measured": [how for _, how, *_ in found],
            "noise": [noise for *_, noise, _ in found],
            "misfit": [misfit for *_, misfit in found],
            "trustworthy": [math.hypot(noise, misfit or 0.0) <= within for *_, noise, misfit in found],
        },
        schema_overrides={"misfit": pl.Float64},
    )
