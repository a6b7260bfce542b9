"""Whether two columns of categories go together, and how strongly: from one private table of counts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cape.analyses.columns import OfColumns
from cape.analyses.compare.association_model import AssociationModel
from cape.analyses.describe.histogram import one_hot
from cape.blocks import Axis, Counts
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.arguments import names
from cape.engine.query import AnalysisResult, Answer, Neighbours, Noise, Query
from cape.stats.estimates import warn_of_unknown
from cape.stats.independence import contrasts, strength
from cape.stats.risks import risks

__all__ = ["Association"]

_STRENGTH = 0.17  # the correlation that a plan supposes: between what is called small, .1, and medium, .3
_KEPT = 0.1  # of what a cell has where columns are independent, at least


@dataclass(frozen=True, init=False)
class Association(OfColumns):
    """Whether two columns of categories are independent, and how strongly they go together.

    >>> Association("sex", "ill"), Association("stage", "ill", trend=True)

    A chi-square test whose P value counts the noise, Cramér's V, and for two columns of two categories the
    risk difference, the risk ratio and the odds ratio: of the second category of the second column, for the
    second category of the first compared with its first. `trend` adds a test over categories in the order
    of the schema: that of Cochran and Armitage if one column has two. Rows that miss a cell are left out.

    **Sensitivity** sqrt(2) under replace-one, 1 under add-remove: `one_hot` has the proof.
    """

    kind: ClassVar[str] = "association"
    example: ClassVar[dict[str, Any]] = {"columns": ["sex", "disease"]}
    least: ClassVar[int] = 2
    trend: bool

    def __init__(self, *columns: str, trend: bool = False) -> None:
        found = names(columns, least=2)
        if len(found) > 2:
            raise InvalidInput(f"an association must be asked of two columns, not of {len(found)}")
        if not isinstance(trend, bool):
            raise InvalidInput(f"trend must be True or False, not {check.show(trend)}")
        self._set(columns=found, trend=trend)

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        for name in self.columns:
            if len(schema.category(name).values) < 2:
                raise InvalidInput(
                    f"column {name!r} has one category in the schema, and an association needs two or more"
                )
        block = Counts(tuple(Axis(name) for name in self.columns))
        return Query((block,), ((1.0,),), math.sqrt(one_hot(neighbours, block.arrays(schema)[0].size)))

    def finish(self, answer: Answer) -> AnalysisResult:
        ((table,),), ((noise,),) = answer.sums, answer.noise
        counts = np.asarray(table, np.float64)
        found = contrasts(counts, noise)
        estimates = [strength(found)]
        if counts.shape == (2, 2):
            estimates += risks(counts, noise)
        warn_of_unknown(estimates)
        trend = contrasts(counts, noise, trend=True) if self.trend else None
        model = AssociationModel(
            self.columns,
            answer.schema,
            tuple(estimates),
            counts,
            noise,
            None if found is None else found.test,
            self.trend,
            None if trend is None else trend.test,
        )
        return AnalysisResult(estimates, model)

    def typical(self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours) -> Answer:
        """As by default, but for columns that go together: noise in a ratio is in proportion to the ratio."""
        answer = super().typical(schema, noise, rows, neighbours)
        ((table,),) = answer.sums
        return replace(answer, sums=((_associated(np.asarray(table, np.float64)),),))

    def describe(self) -> str:
        return f"association of {' and '.join(self.columns)}" + (", with a trend" if self.trend else "")

    def title(self, label: str, schema: Schema) -> str:
        return label

    def keys(self) -> dict[str, Any]:
        return {"columns": list(self.columns), **({"trend": True} if self.trend else {})}


def _associated(table: Floats) -> Floats:
    """Return a table of independent columns, with the same margins, as if their places were correlated."""
    shares = table / table.sum()
    places = []
    for axis in (0, 1):
        of = shares.sum(axis=1 - axis)
        place = np.arange(len(of)) - float(of @ np.arange(len(of)))
        places.append(place / math.sqrt(float(of @ place**2)))
    tilt = np.outer(*places)
    return np.asarray(table * (1 + min(_STRENGTH, (1 - _KEPT) / -float(tilt.min())) * tilt))
