"""Covariances and correlations of numeric columns, over the rows where none of them is missing.

Claim. With k columns, weight 1 on each sum of t and of t², weight 2 on each sum of products (so that both
halves of the symmetric matrix count) and weight c on the number of rows, one row moves the sums, each
divided by its scale, by at most the root of `moved`.
Reason. Let x, y in [-1, 1]^k be two rows, A = ||x||² <= k, B = ||y||² <= k and s = x·y. The sums of t move by
||x - y||² = A + B - 2 s, squared; those of products, off-diagonals counted twice, by the Frobenius norm
||xx' - yy'||² = A² + B² - 2 s².

- *Replaced*: A + B + A² + B² - 2 s - 2 s² <= 2 k + 2 k² + 1/2 = 2 (k + 1/2)², the last two terms being
  largest at s = -1/2. Two corners of the cube have s of the parity of k, so s = 0 or s = -1 reaches 2 k + 2
  k²: the bound is loose by 1/4 in (k + 1/2)², 2% of the sensitivity at k = 2 and less above.
- *Added or removed, or replaced by an incomplete row*: A + A² + c <= k + k² + c, at a corner. Under
  replace-one the count is therefore free with c = k² + k + 1/2. If no cell is ever missing the count is
  public.

*Choice.* A covariance is (sum of products) / n - (product of the means); for weight a on the first moments
its noise variance is proportional to (one row's move) (1/2 + (m_i² + m_j²) / a). With a = 1 that is near its
least for means of t around 0.3 to 0.5, and (1 + 1 / (2 k))² times its least for means of 0.
Rounding toward zero maps the cube into itself. Tested in tests/unit/analyses/test_sensitivity.py.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from cape.analyses.by_group import ByGroup
from cape.analyses.columns import OfColumns
from cape.analyses.influence import STAGES, Influence, product_bound, spreads, squares
from cape.blocks import Design, Form, Gram
from cape.blocks.terms import quoted
from cape.core import check
from cape.core.errors import InvalidInput
from cape.data import Number, Schema
from cape.engine.query import Analysis, Answer, Conversation, Neighbours, Query
from cape.stats.correlations import CorrelationInterval
from cape.stats.estimates import Estimate, unknown, warn_of_unknown
from cape.stats.moments import likely
from cape.stats.product_sums import ProductSums

__all__ = ["Correlation", "Covariance", "moved", "product_sums"]


_CUT = 3.0  # SDs: what a plan proposes


def moved(columns: int, neighbours: Neighbours) -> float:
    """Return the most that one row changes the sums, squared: proof at the head of the module."""
    return 2 * (columns + 0.5) ** 2 if neighbours == "replace-one" else columns**2 + columns + 1.0


def _count_weight(columns: int, neighbours: Neighbours) -> float:
    return columns**2 + columns + 0.5 if neighbours == "replace-one" else 1.0


def product_sums(answer: Answer, columns: Sequence[str]) -> ProductSums | None:
    """Return what a query of these columns was answered; None if noise hides how many rows there are."""
    count, count_noise = answer.complete_rows(columns)
    _, first, square, cross = answer.sums[0]
    _, *noise = answer.noise[0]
    matrix = ProductSums(count, first, square, cross, count_noise, noise[0], noise[1], noise[2])
    return matrix if matrix.column(0).enough else None


@dataclass(frozen=True, init=False)
class _FromGram(ByGroup, OfColumns):
    least: ClassVar[int] = 2

    decisive: ClassVar[int] = 0

    @abstractmethod
    def pair(self, matrix: ProductSums | None, i: int, j: int, schema: Schema) -> Estimate:
        """Return the estimate for two columns, or for one if both are the same."""

    @abstractmethod
    def influence(self, matrix: ProductSums, i: int, j: int) -> Influence | None:
        """Return the influence of a row on that estimate; None if it is unknown anyway."""

    @property
    @abstractmethod
    def pairs(self) -> list[tuple[int, int]]:
        """The pairs of columns, by place, that are reported."""

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        for name in self.columns:
            schema.number(name)
        width, cut = len(self.columns), self.cuts(schema)
        scales = (1 / math.sqrt(_count_weight(width, neighbours)), 1.0, 1.0, 1 / math.sqrt(2))
        return Query((Gram(self.columns, cut),), (scales,), math.sqrt(moved(width, neighbours)))

    def cuts(self, schema: Schema) -> tuple[tuple[str, Number], ...]:
        """Return narrower bounds at which columns are cut; none by default."""
        return ()

    def stages(self) -> tuple[float, ...]:
        return STAGES

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        """Ask for second moments, then for the squares of influences at what was released."""
        answer = yield self.query(schema, neighbours)
        matrix = product_sums(answer, self.columns)
        found = {} if matrix is None else {pair: self.influence(matrix, *pair) for pair in self.pairs}
        asked = {pair: influence for pair, influence in found.items() if influence is not None}
        if matrix is None or not asked:
            return self.finish(answer)
        design = Design(tuple(map(quoted, self.columns)), cube=True, cut=self.cuts(schema))
        influences = list(asked.values())
        last = yield squares([(design, matrix.means.tolist(), influences)])
        known = zip(asked, spreads(last, 0, influences, matrix.count), strict=True)
        return self._finished(replace(matrix, spreads=dict(known)), answer.schema)

    def finish(self, answer: Answer) -> list[Estimate]:
        return self._finished(product_sums(answer, self.columns), answer.schema)

    def _finished(self, matrix: ProductSums | None, schema: Schema) -> list[Estimate]:
        estimates = [self.pair(matrix, i, j, schema) for i, j in self.pairs]
        warn_of_unknown(estimates)
        return estimates

    def title(self, label: str, schema: Schema) -> str:
        first, between, second = label.partition(", ")
        return f"{schema.label(first)}, {schema.title(second)}" if between else schema.title(label)


class Covariance(_FromGram):
    """The population's covariance matrix, over the rows where no named column is missing.

    >>> consortium.release(Covariance("age", "chol"), share=0.1).model

    The estimate is made positive semidefinite by setting negative eigenvalues, which only noise can cause,
    to 0: this is the nearest such matrix. Sampling errors are those of the columns as they are: see
    `influence`.

    **Sensitivity** sqrt(2) (k + 1/2) for k columns under replace-one, sqrt(k² + k + 1) under add-remove:
    `moved`.
    """

    kind: ClassVar[str] = "covariance"
    example: ClassVar[dict[str, Any]] = {"columns": ["age", "chol"]}

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return list(itertools.combinations_with_replacement(range(len(self.columns)), 2))

    def pair(self, matrix: ProductSums | None, i: int, j: int, schema: Schema) -> Estimate:
        a, b = (schema.number(self.columns[k]) for k in (i, j))
        unit = a.half * b.half
        label = (
            f"{self.columns[i]} variance" if i == j else f"{self.columns[i]}, {self.columns[j]} covariance"
        )
        if matrix is None:
            return unknown(label, 0.0 if i == j else -unit, unit)
        if i == j:
            return matrix.fitted(i).variance_estimate(label, a)
        value = min(max(float(matrix.covariance[i, j]), -1.0), 1.0)
        both = matrix.column(i).likely_variance * matrix.column(j).likely_variance
        sampling = math.sqrt(matrix.spreads.get((i, j), both + value**2) / (matrix.count - 1))
        privacy = math.hypot(matrix.noise(i, j, 1.0, (0.0, 0.0)), (matrix.first_noise / matrix.count) ** 2)
        return Estimate(label, unit * value, unit * sampling, unit * privacy, (-unit, unit))

    def influence(self, matrix: ProductSums, i: int, j: int) -> Influence:
        bound = product_bound((0.0, 1.0, 0.0), (matrix.box(i), matrix.box(j)))
        vi, vj = (matrix.column(k).likely_variance for k in (i, j))
        return Influence(Form(((i, j, 1.0),), bound), float(matrix.covariance[i, j]), math.sqrt(vi * vj))

    def units(self, schema: Schema) -> list[float]:
        halves = [schema.number(name).half for name in self.columns]
        return [halves[i] * halves[j] for i, j in self.pairs]


@dataclass(frozen=True, init=False)
class Correlation(_FromGram):
    """The population's correlations, over the rows where no named column is missing.

    >>> consortium.release(Correlation("age", "chol"), share=0.1).model

    From the same release as `Covariance`, and positive semidefinite like it. The interval holds the
    correlations r with |estimate - r| <= z sqrt(f² (1 - r²)² / (n - 1) + noise²): the sampling error is taken
    at r, as in Fisher's z, f times that of a normal population (`influence`), and noise, which does not
    shrink near 1, is counted beside it.

    **Sensitivity** sqrt(2) (k + 1/2) for k columns under replace-one, sqrt(k² + k + 1) under add-remove:
    `moved`. It does not depend on where columns are cut: cells lie in [-1, 1] between the cuts.

    Args:
        columns: two or more numeric columns.
        cut: cut each column so many of its expected SDs from its expected mean, which the schema must
            state. Cells then fill the range that noise is made for: there is several times less of it where
            bounds are wide. The correlation is that of the cut columns; with 3 it is hardly another one,
            unless much of it comes from the tails.
    """

    kind: ClassVar[str] = "correlation"
    example: ClassVar[dict[str, Any]] = {"columns": ["age", "chol"]}

    cut: float | None

    def __init__(self, *columns: str, cut: float | None = None) -> None:
        super().__init__(*columns)
        self._set(cut=None if cut is None else check.real("cut", cut, least=1.0, most=100.0))

    def describe(self) -> str:
        cut = "" if self.cut is None else f", cut {self.cut:g} expected SDs from their expected means"
        return super().describe() + cut

    def cuts(self, schema: Schema) -> tuple[tuple[str, Number], ...]:
        if self.cut is None:
            return ()
        return tuple((name, _cut(name, schema.number(name), self.cut)) for name in self.columns)

    def smaller(self, schema: Schema) -> Iterator[Analysis]:
        """Yield the same of cut columns, where enough is known of them; then that of fewer columns."""
        if self.cut is None and all(schema[name].expected is not None for name in self.columns):
            yield self.changed(cut=_CUT)
        yield from super().smaller(schema)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return list(itertools.combinations(range(len(self.columns)), 2))

    def pair(self, matrix: ProductSums | None, i: int, j: int, schema: Schema) -> Estimate:
        label = f"{self.columns[i]}, {self.columns[j]} correlation"
        if matrix is None or not matrix.clear(i, j):
            return unknown(label, -1.0, 1.0)
        vi, vj, value = matrix.correlated(i, j)
        root = math.sqrt(vi * vj)
        noise = matrix.noise(i, j, 1 / root, (-value / (2 * vi), -value / (2 * vj)))
        apart = likely(1 - abs(value), noise)  # from 1, which noise may have cut it to
        normal = apart * (2 - apart)
        spread = math.sqrt(matrix.spreads.get((i, j), normal**2))
        interval = CorrelationInterval(value, noise, spread / normal, matrix.count)
        sampling = spread / math.sqrt(matrix.count - 1)
        return Estimate(label, value, sampling, noise, (-1.0, 1.0), interval)

    def influence(self, matrix: ProductSums, i: int, j: int) -> Influence | None:
        if not matrix.clear(i, j):
            return None
        vi, vj, value = matrix.correlated(i, j)
        form = (-value / (2 * vi), 1 / math.sqrt(vi * vj), -value / (2 * vj))
        terms = ((i, i, form[0]), (i, j, form[1]), (j, j, form[2]))
        bound = product_bound(form, (matrix.box(i), matrix.box(j)))
        return Influence(Form(terms, bound), 0.0, 1 + abs(value))


def _cut(name: str, column: Number, cut: float) -> Number:
    """Return a column that ends so many of its expected SDs from its expected mean."""
    known = column.expected
    if known is None:
        raise InvalidInput(
            f"cut needs to know what is expected of {name!r}: write expected = {{mean = ..., sd = ...}} in "
            "the schema"
        )
    low, high = max(column.low, known.mean - cut * known.sd), min(column.high, known.mean + cut * known.sd)
    most = math.sqrt((known.mean - low) * (high - known.mean))  # that cells between these ends can have
    return Number(low, high, missing=column.missing, expected=replace(known, sd=min(known.sd, most)))
