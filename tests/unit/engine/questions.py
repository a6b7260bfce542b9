"""Small analyses for tests of the machinery, so that these do not lean on the real ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from cape.blocks import Axis, Counts, Custom, Moments
from cape.core.errors import InvalidInput
from cape.engine import Analysis, AnalysisResult, Query
from cape.show import Shown, Table
from cape.stats.estimates import Estimate


class Bins(Analysis):
    """Counts of a numeric column in equal bins."""

    kind = "bins"

    def __init__(self, column, edges):
        self.column, self.edges = column, tuple(float(e) for e in edges)

    def query(self, schema, neighbours):
        sensitivity = math.sqrt(2) if neighbours == "replace-one" else 1.0
        return Query((Counts((Axis(self.column, self.edges),)),), ((1.0,),), sensitivity)

    def finish(self, answer):
        ((counts,),), ((noise,),) = answer.sums, answer.noise
        return [Estimate(f"bin {i}", float(v), 0.0, noise) for i, v in enumerate(counts)]

    def expected(self, schema, noise, rows, neighbours):
        return {f"bin {i}": noise[0][0] for i in range(len(self.edges) - 1)}

    def describe(self):
        return f"counts of {self.column}"


class Average(Analysis):
    """The mean of a column that is never missing: its noise falls with the number of rows."""

    kind = "average"

    def __init__(self, column):
        self.column = column

    def query(self, schema, neighbours):
        return Query((Moments((self.column,), squares=False),), ((1.0, 1.0),), 2.0)

    def finish(self, answer):
        column = answer.schema.number(self.column)
        (_, first), (_, noise) = answer.sums[0], answer.noise[0]
        scale = column.half / answer.rows
        return [Estimate(self.column, column.middle + scale * float(first[0]), 0.0, scale * noise)]

    def expected(self, schema, noise, rows, neighbours):
        return {self.column: schema.number(self.column).half * noise[0][1] / rows}

    def describe(self):
        return f"average of {self.column}"


class Squares(Average):
    """The sum of squares, whose unit is the finest of all."""

    kind = "squares"

    def query(self, schema, neighbours):
        return Query((Moments((self.column,)),), ((1.0, 1.0, 1.0),), 2.0)

    def finish(self, answer):
        (_, _, second), (_, _, noise) = answer.sums[0], answer.noise[0]
        return [Estimate(self.column, float(second[0]), 0.0, noise)]


class Size(Analysis):
    """What everyone knows already: it asks nothing of the tables."""

    kind = "size"

    def query(self, schema, neighbours):
        return Query((), (), 0.0)

    def finish(self, answer):
        return [Estimate("rows", float(answer.rows), 0.0, 0.0)]

    def expected(self, schema, noise, rows, neighbours):
        return {"rows": 0.0}

    def describe(self):
        return "rows"


class Rounds(Bins):
    """The same counts, asked again and again: the mean of the answers."""

    kind = "rounds"

    def __init__(self, column, edges, parts=(1, 1, 2), *, ask=None, fail_after=None, sampling=1.0):
        super().__init__(column, edges)
        self.parts, self.ask, self.fail_after = tuple(parts), len(parts) if ask is None else ask, fail_after
        self._sampling, self.answers = sampling, []

    @property
    def sampling(self):
        return self._sampling

    def stages(self):
        return self.parts

    def query(self, schema, neighbours):
        query = super().query(schema, neighbours)
        if self.sampling == 1:
            return query
        bins = len(self.edges) - 1

        def one_hot(batch):
            return np.digitize(batch[self.column], self.edges[1:-1])[:, None] == np.arange(bins)

        return replace(query, blocks=(Custom(one_hot, (self.column,), bins, 1.0, self.sampling),))

    def conduct(self, schema, neighbours):
        self.answers = []
        for asked in range(self.ask):
            if asked == self.fail_after:
                raise InvalidInput("the analysis gave up")
            self.answers.append((yield replace(self.query(schema, neighbours), norm=1.0, note=f"{asked}")))
        return AnalysisResult(
            self.finish(self.answers[-1]) if self.answers else [], Heard(tuple(self.answers))
        )


@dataclass(frozen=True, repr=False)
class Heard(Shown):
    """A model that holds the answers of all stages."""

    answers: tuple

    def tables(self):
        return [Table(("", "answers"), (("in all", f"{len(self.answers)} answers"),))]

    def to_dict(self):
        return {"answers": len(self.answers)}
