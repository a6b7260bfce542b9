"""Whether two numeric columns are correlated: Pearson's test, or Spearman's from ranks of public bins.

What noise does to the P value is in `stats/correlations.py`.
Tested in tests/unit/analyses/compare/test_correlation_test.py and by compare.size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cape.analyses.columns import OfColumns
from cape.analyses.compare.correlation_test_model import CorrelationModel
from cape.analyses.describe.covariance import Correlation, product_sums
from cape.analyses.describe.histogram import one_hot
from cape.analyses.empty import same_everywhere
from cape.blocks import Axis, Counts
from cape.blocks.bins import rising
from cape.core import check
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.arguments import names
from cape.engine.query import AnalysisResult, Answer, Neighbours, Query
from cape.stats.correlations import Products, products, rank_products
from cape.stats.estimates import is_unknown, unknown, warn_of_unknown

__all__ = ["CorrelationTest"]

_METHODS = ("pearson", "spearman")
_CLEAR = 2.0  # times its noise: a variance that is larger is not none
_BINS, _MOST_BINS = 8, 1 << 10


@dataclass(frozen=True, init=False)
class CorrelationTest(OfColumns):
    """Whether two columns are correlated: a P value that counts the noise, and Fisher's interval with noise.

    >>> CorrelationTest("age", "chol"), CorrelationTest("age", "crp", method="spearman")

    Pearson's correlation comes from sums of products, over the rows that miss neither cell; `cut` is that of
    `Correlation`. Spearman's comes from a table of counts: `bins` cuts both bounds into equal parts, `edges`
    gives a column edges of its own, and values of one bin are ties. It is better where bounds are wide or
    columns are skewed, and for skewed columns give edges.

    **Sensitivity** that of `Correlation` of two columns, sqrt(2) 5/2 under replace-one and sqrt(7) under
    add-remove; of Spearman's table sqrt(2) and 1 (`one_hot`).
    """

    kind: ClassVar[str] = "correlation-test"
    example: ClassVar[dict[str, Any]] = {"columns": ["age", "chol"]}
    least: ClassVar[int] = 2
    method: str
    cut: float | None
    bins: int
    edges: tuple[tuple[str, tuple[float, ...]], ...]

    def __init__(
        self,
        *columns: str,
        method: str = "pearson",
        cut: float | None = None,
        bins: int | None = None,
        edges: Mapping[str, Iterable[float]] | None = None,
    ) -> None:
        found = names(columns, least=2)
        if len(found) > 2:
            raise InvalidInput(f"a correlation must be tested of two columns, not of {len(found)}")
        if method not in _METHODS:
            raise InvalidInput(f"method must be 'pearson' or 'spearman', not {check.show(method)}")
        if method == "pearson" and not (bins is None and edges is None):
            raise InvalidInput("bins and edges are for method='spearman': leave them out")
        if method == "spearman" and cut is not None:
            raise InvalidInput("cut is for method='pearson': leave it out")
        self._set(
            columns=found,
            method=method,
            cut=Correlation(*found, cut=cut).cut,
            bins=_BINS if bins is None else check.integer("bins", bins, least=2, most=_MOST_BINS),
            edges=_edges(found, edges),
        )

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        if self.method == "pearson":
            return Correlation(*self.columns, cut=self.cut).query(schema, neighbours)
        block = Counts(tuple(self._axis(name, schema) for name in self.columns))
        return Query((block,), ((1.0,),), math.sqrt(one_hot(neighbours, block.arrays(schema)[0].size)))

    def finish(self, answer: Answer) -> AnalysisResult:
        found = self._products(answer) if self.method == "pearson" else self._ranks(answer)
        kind = "correlation" if self.method == "pearson" else "rank correlation"
        label = f"{', '.join(self.columns)} {kind}"
        estimate = unknown(label, -1.0, 1.0) if found is None else found.estimate(label)
        warn_of_unknown([estimate])
        test = None if found is None else found.test
        same = self._same(answer) if is_unknown(estimate) and self.method == "pearson" else ()
        return AnalysisResult(
            [estimate], CorrelationModel(self.columns, self.method, answer.schema, estimate, test, same)
        )

    def describe(self) -> str:
        cut = "" if self.cut is None else f", cut {self.cut:g} expected SDs from their expected means"
        return f"{self.method.title()}'s test of the correlation of {' and '.join(self.columns)}{cut}"

    def title(self, label: str, schema: Schema) -> str:
        return Correlation(*self.columns).title(label, schema)

    def keys(self) -> dict[str, Any]:
        ranks: dict[str, Any] = {"bins": self.bins}
        if self.edges:
            ranks["edges"] = {name: list(edges) for name, edges in self.edges}
        own = ranks if self.method == "spearman" else {} if self.cut is None else {"cut": self.cut}
        return {"columns": list(self.columns), "method": self.method, **own}

    def _axis(self, name: str, schema: Schema) -> Axis:
        column, own = schema.number(name), dict(self.edges).get(name)
        return Axis(name, np.linspace(column.low, column.high, self.bins + 1) if own is None else own)

    def _products(self, answer: Answer) -> Products | None:
        matrix = product_sums(answer, self.columns)
        return None if matrix is None else products(matrix)

    def _same(self, answer: Answer) -> tuple[str, ...]:
        """Return sentences on columns that do not vary, as far as is seen."""
        matrix = product_sums(answer, self.columns)
        if matrix is None:
            return ()
        columns = [(name, matrix.column(i)) for i, name in enumerate(self.columns)]
        flat = [name for name, one in columns if not one.variance > max(_CLEAR * one.variance_noise, 1e-12)]
        noisy = any(one.variance_noise > 0 for _, one in columns)
        return tuple(same_everywhere(flat, answer.schema, noisy=noisy))

    def _ranks(self, answer: Answer) -> Products | None:
        ((table,),), ((noise,),) = answer.sums, answer.noise
        return rank_products(np.asarray(table, np.float64), noise)


def _edges(columns: Sequence[str], given: Any) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """Return the edges of columns as plain data, or raise `InvalidInput`."""
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise InvalidInput(
            f'edges must be of columns, as in {{"age": [18, 40, 90]}}, not {check.show(given)}'
        )
    found = []
    for name, edges in given.items():
        if name not in columns:
            raise InvalidInput(f"edges are given for {check.show(name)}, which is not tested")
        if isinstance(edges, (str, bytes)) or not isinstance(edges, Iterable):
            raise InvalidInput(f"edges of {name!r} must be numbers that rise, not {check.show(edges)}")
        own = tuple(rising(name, edges).tolist())
        if len(own) < 3:
            raise InvalidInput("edges must be at least three numbers: ranks need two bins or more")
        found.append((name, own))
    return tuple(found)
