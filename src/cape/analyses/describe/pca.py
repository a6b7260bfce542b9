"""Principal components, from the sums of x and of xx' over complete rows.

Claim. With weight 1/4 on the sum of x and 1 on that of xx' (off-diagonals counted twice), ||x|| <= 1,
replacing one complete row moves them, squared, by at most 2 (1 + 1/8)²; without the sum of x, by 2. See
`PCA`. Tested in tests/unit/analyses/describe/test_pca.py.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cape.analyses.describe.pca_estimate import Components, NoisyMatrix, component, label
from cape.analyses.describe.pca_model import PCAModel
from cape.analyses.influence import STAGES, spreads, squares
from cape.analyses.tensor_sums import joint
from cape.blocks import Design, Term
from cape.blocks.terms import quoted
from cape.core import check
from cape.core.errors import InvalidInput, TooNoisyWarning, outside
from cape.data import Schema
from cape.engine.arguments import joined, names
from cape.engine.query import Analysis, AnalysisResult, Answer, Conversation, Neighbours, Query
from cape.stats.estimates import Estimate, unknown
from cape.stats.moments import enough

__all__ = ["PCA"]


_X, _XX = Term(1), Term(2)
_MEANS = 0.25


@dataclass(frozen=True, init=False)
class PCA(Analysis):
    """The directions in which scaled columns vary most, and how much they vary in them.

    >>> consortium.release(PCA("age", "chol", components=1), share=0.2).model

    Columns enter as t, from -1 to 1 between their bounds, and categories as 0 or 1 for each value but the
    first: variances are in those units, and bounds take the place of standardisation. The matrix
    is that of the paper's capePCA, second moments with noise that is the same in every direction.

    Noise pushes eigenvalues apart: the largest look larger than they are. What it adds, to second order, is
    subtracted (`matrices.without_repulsion`). A component whose eigenvalue is no larger than those of the
    noise is marked, with a warning. Sampling errors are those of the columns as they are: see `influence`.

    **Sensitivity** sqrt(2) 9/8 under replace-one, sqrt(2) if not centred: with s = x·z two rows of length 1
    move the sum of xx' by ||xx' - zz'||² = 2 (1 - s²) and that of x by 2 (1 - s), a quarter of which
    counts: 5/2 - s/2 - 2 s², at most 2 (9/8)², at s = -1/8. *Choice.* A covariance has the noise of the
    product and of two means, which are small where columns lie around the middle of their bounds.

    Args:
        columns: numeric columns, or categories.
        components: how many, by default all.
        norm: the length, in units of t, that longer rows are shortened to; by default none is. A shorter
            norm means less noise: noise is proportional to its square.
        center: whether means are subtracted.
    """

    kind: ClassVar[str] = "pca"
    example: ClassVar[dict[str, Any]] = {"columns": ["age", "chol"], "components": 1}
    decisive: ClassVar[int] = 0
    columns: tuple[str, ...]
    components: int | None
    norm: float | None
    center: bool

    def __init__(
        self,
        *columns: str,
        components: int | None = None,
        norm: float | None = None,
        center: bool = True,
    ) -> None:
        if len(columns) == 1 and isinstance(columns[0], (list, tuple)):
            columns = tuple(columns[0])
        if not isinstance(center, bool):
            raise InvalidInput(f"center must be True or False, not {center!r}")
        self._set(
            columns=names(columns),
            components=None if components is None else check.integer("components", components, least=1),
            norm=None if norm is None else check.real("norm", norm, above=0.0),
            center=center,
        )

    @property
    def _design(self) -> Design:
        return Design(tuple(map(quoted, self.columns)), norm=self.norm)

    def _many(self, schema: Schema) -> int:
        width = self._design.width(schema)
        if self.components is not None and self.components > width:
            raise InvalidInput(
                f"components must be at most {width}, the number of columns, not {self.components}"
            )
        return width if self.components is None else self.components

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        self._many(schema)
        if not self.center:
            return joint(self._design, (_XX,), (1.0,), schema, neighbours)
        return joint(self._design, (_X, _XX), (_MEANS, 1.0), schema, neighbours)

    def stages(self) -> tuple[float, ...]:
        return STAGES

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        """Ask for second moments, then for the squares of influences on what was released."""
        answer = yield self.query(schema, neighbours)
        found = NoisyMatrix.of(answer, self._design, self.center)
        if not enough(found.count, found.count_noise):
            return self.finish(answer)
        influences = Components.of(found).influences(self._many(schema))
        if not influences:
            return self.finish(answer)
        asked = [each for pair in influences.values() for each in pair]
        last = yield squares([(self._design, found.mean.tolist(), asked)])
        spread = iter(spreads(last, 0, asked, found.count))
        return self._finished(found, schema, {i: (next(spread), next(spread)) for i in influences})

    def finish(self, answer: Answer) -> AnalysisResult:
        return self._finished(NoisyMatrix.of(answer, self._design, self.center), answer.schema, {})

    def _finished(
        self, found: NoisyMatrix, schema: Schema, spread: Mapping[int, tuple[float, float]]
    ) -> AnalysisResult:
        many, unit = self._many(schema), self._design.length(schema) ** 2
        if not enough(found.count, found.count_noise):
            labels = [label(i, what) for i in range(many) for what in ("variance", "share")]
            _warn(f"noise of {found.count_noise:.3g} hides the number of rows: no component can be estimated")
            return AnalysisResult(
                [unknown(each, 0.0, unit if "variance" in each else 1.0) for each in labels]
            )
        parts = Components.of(found)
        values, vectors, variances, clear = parts.values, parts.vectors, parts.variances, parts.clear
        total, edge = parts.total(many), parts.edge
        estimates: list[Estimate] = []
        for i in range(many):
            estimates += component(i, parts, total, unit, spread.get(i))
        hidden = np.nonzero(~clear[:many])[0]
        if len(hidden) and found.noise > 0:
            first = int(hidden[0])
            _warn(
                f"component {first + 1} cannot be distinguished from noise: its variance is estimated as "
                f"{unit * values[first]:.3g}, and noise alone gives up to {unit * edge:.3g}; use fewer "
                "columns, a smaller norm, a larger share, more epsilon or more rows"
            )
        model = PCAModel(
            self._design,
            schema,
            np.ascontiguousarray(vectors[:, :many].T),
            unit * variances[:many],
            variances[:many] / total,
            math.sqrt(unit) * found.mean,
            tuple(estimates),
            tuple(bool(each) for each in clear[:many]),
            found.count,
            found.count_noise,
        )
        return AnalysisResult(estimates, model)

    def describe(self) -> str:
        many = "all" if self.components is None else f"{self.components}"
        return f"principal components ({many}) of {joined(self.columns)}"


def _warn(text: str) -> None:
    warnings.warn(text, TooNoisyWarning, stacklevel=outside())
