"""What is known of a synthetic data model's errors: from the noise, and from released coarse tables."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cape.analyses.synthetic.choices import beyond_noise
from cape.core.arrays import Floats
from cape.show.numbers import LEVEL
from cape.stats.estimates import Estimate, unknown
from cape.stats.independence import contrasts
from cape.stats.moments import enough
from cape.stats.together import by_lower_end

if TYPE_CHECKING:
    import polars as pl

    from cape.analyses.synthetic.synthetic_model import SyntheticModel

__all__ = ["Association", "associations", "evaluated"]

_DISTANCE = 1 / math.sqrt(2 * math.pi)  # half the mean of |x| for noise of SD 1


@dataclass(frozen=True)
class Association:
    """Cramér's V of a pair of columns in the population, with its errors."""

    pair: tuple[int, int]
    estimate: Estimate


def associations(model: SyntheticModel) -> list[Association]:
    """Return how strongly all pairs go together, from coarse tables: those first that surely do so most.

    That is by the lower ends of intervals that hold together for all pairs.
    """
    doubles = model.measured.doubles
    found = [
        Association(pair, _strength(model, pair, doubles.tables[pair], doubles.noise[pair]))
        for pair in itertools.combinations(range(len(model.columns)), 2)
    ]
    return by_lower_end(found, lambda each: each.estimate, LEVEL, len(found))


def _strength(model: SyntheticModel, pair: tuple[int, int], table: Floats, noise: float) -> Estimate:
    """Return V of a table whose groups of unclear size are merged with the largest one of their column."""
    merges = [_clear(table.sum(axis=1 - i), noise * math.sqrt(table.shape[1 - i])) for i in range(2)]
    left, right = merges
    label = " × ".join(model.columns[i] for i in pair)
    found = None
    if min(len(left), len(right)) > 1:
        found = contrasts(left @ table @ right.T, [(noise**2 * left @ left.T, right @ right.T)])
    if found is None:
        return unknown(label, 0.0, 1.0)
    unit = 1 / math.sqrt(found.count * found.least)
    blurred = unit * math.sqrt(max(float(np.trace(found.noise)), 0.0) / found.z.size)
    return Estimate(label, found.strength, unit, blurred, (0.0, 1.0), found.interval)


def _clear(margin: Floats, noise: float) -> Floats:
    """Return the matrix that merges groups without a clear count with the largest one."""
    largest = int(margin.argmax())
    kept = [i for i, count in enumerate(margin.tolist()) if i == largest or enough(count, noise)]
    found = np.zeros((len(kept), len(margin)))
    found[range(len(kept)), kept] = 1.0
    found[kept.index(largest), [i for i in range(len(margin)) if i not in kept]] = 1.0
    return found


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
