"""What synthetic data was measured by: released tables of three stages, and what a model is fitted to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cape.analyses.synthetic.choices import merged_counts, nearest_counts
from cape.analyses.synthetic.fit import Measurement
from cape.analyses.tables.marginals import Levels
from cape.blocks import Axis, Merged
from cape.core.arrays import Flags, Floats, Integers
from cape.data import Schema
from cape.engine.query import Answer, Query

__all__ = ["Measured", "Stage"]

Columns = tuple[int, ...]

_MERGED = 2.0  # how many times the noise of one count that of a group counts for, at most


@dataclass(frozen=True)
class Stage:
    """Released tables of one stage: by the places of their columns, with the noise of each cell."""

    groups: tuple[tuple[int, ...], ...]
    tables: Mapping[Columns, Floats]
    noise: Mapping[Columns, float]

    @classmethod
    def of(cls, query: Query, answer: Answer) -> Stage:
        """Return the tables of an answer."""
        (block,) = query.blocks
        if not isinstance(block, Merged):
            raise TypeError("a stage must ask for tables")
        (sums,), (noise,) = answer.sums, answer.noise
        return cls(
            block.groups,
            {table: np.asarray(each, np.float64) for table, each in zip(block.tables, sums, strict=True)},
            dict(zip(block.tables, noise, strict=True)),
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many groups each column has."""
        return tuple(max(each) + 1 for each in self.groups)


@dataclass(frozen=True)
class Measured:
    """All that was released: each column, all pairs coarsely, and chosen pairs.

    Attributes:
        rows: how many rows there are, as is public or as the counts say.
        public: that number, if it is public.
        possible: by pair with a public fact, which cells of the chosen groups a row can have.
    """

    axes: tuple[Axis, ...]
    rows: float
    public: int | None
    singles: Stage
    doubles: Stage
    chosen: Stage
    possible: Mapping[tuple[int, int], Flags]

    def levels(self, schema: Schema) -> tuple[Levels, ...]:
        """Return the values of each column."""
        return tuple(Levels.of(axis, schema) for axis in self.axes)

    @cached_property
    def counts(self) -> tuple[Floats, ...]:
        """The counts of each column's values: not negative, and they add up to the rows."""
        return tuple(nearest_counts(each, self.rows) for each in self.singles.tables.values())

    def measurements(self) -> list[Measurement]:
        """Return what the model is fitted to: groups of each column, and chosen pairs.

        A chosen pair's table is the mean, weighted by noise, of its own and its coarse one: counts within a
        coarse cell are moved alike.
        """
        found = []
        for i, counts in enumerate(self.counts):
            groups = np.array(self.chosen.groups[i])
            many = np.bincount(groups)
            noise = self.singles.noise[i,] * math.sqrt(float(np.minimum(many, _MERGED**2).mean()))
            found.append(Measurement((i,), merged_counts(counts, self.chosen.groups[i]), noise))
        for pair, table in self.chosen.tables.items():
            noise = self.chosen.noise[pair]
            coarse = self._coarse(pair)
            size = self.doubles.tables[pair].size
            cells = np.bincount(coarse.reshape(-1), minlength=size)
            sums = np.bincount(coarse.reshape(-1), table.reshape(-1), size)
            other = self.doubles.noise[pair] ** 2
            with np.errstate(invalid="ignore", divide="ignore"):
                weight = np.nan_to_num(noise**2 / (noise**2 * cells + other))
            moved = weight * (self.doubles.tables[pair].reshape(-1) - sums)
            found.append(Measurement(pair, table + moved[coarse], noise))
        return found

    def _coarse(self, pair: Columns) -> Integers:
        """Return the coarse cell of each cell of a chosen pair: its groups lie within coarse ones."""
        of = []
        for i in pair:
            fine, coarse = self.chosen.groups[i], self.doubles.groups[i]
            of.append(np.array([coarse[fine.index(group)] for group in range(max(fine) + 1)]))
        return np.asarray(of[0][:, None] * self.doubles.sizes[pair[1]] + of[1])
