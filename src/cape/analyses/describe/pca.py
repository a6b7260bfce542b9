"""Principal components, from the sums of x and of xx' over complete rows.

Claim. With weight 1/4 on the sum of x and 1 on that of xx' (off-diagonals counted twice), ||x|| <= 1,
replacing one complete row moves them, squared, by at most 2 (1 + 1/8)²; without the sum of x, by 2. See
`PCA`. Tested in tests/unit/analyses/describe/test_pca.py.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cape.analyses.influence import STAGES, Influence, spreads, squares
from cape.analyses.tensor_sums import joint
from cape.blocks import Design, Form, Term
from cape.blocks.terms import quoted
from cape.blocks.units import Units
from cape.core import check
from cape.core.arrays import Flags, Floats
from cape.core.errors import InvalidInput, TooNoisyWarning, outside
from cape.data import Schema
from cape.engine.arguments import joined, names
from cape.engine.query import Analysis, AnalysisResult, Answer, Conversation, Neighbours, Query
from cape.show import Figure, HeatMap, Intervals, Mark, Shown, Table
from cape.show.figures import DOTS, MOST_MARKS, extent
from cape.show.numbers import between, rounded
from cape.show.plain import plain
from cape.stats.estimates import Estimate, unknown
from cape.stats.matrices import spectral, symmetric, without_repulsion
from cape.stats.moments import enough, likely

__all__ = ["PCA", "PCAModel"]


_X, _XX = Term(1), Term(2)
_MEANS = 0.25
_MOST_COLUMNS = 8  # of loadings that are drawn
_SHARES = "The share of all variance that lies along each component."
_LOADINGS = (
    "What a component is made of: the weight of each column, from -1 to 1, as released. No errors are known."
)


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
        found = _Noisy.of(answer, self._design, self.center)
        if not enough(found.count, found.count_noise):
            return self.finish(answer)
        influences = _Components.of(found).influences(self._many(schema))
        if not influences:
            return self.finish(answer)
        asked = [each for pair in influences.values() for each in pair]
        last = yield squares([(self._design, found.mean.tolist(), asked)])
        spread = iter(spreads(last, 0, asked, found.count))
        return self._finished(found, schema, {i: (next(spread), next(spread)) for i in influences})

    def finish(self, answer: Answer) -> AnalysisResult:
        return self._finished(_Noisy.of(answer, self._design, self.center), answer.schema, {})

    def _finished(
        self, found: _Noisy, schema: Schema, spread: Mapping[int, tuple[float, float]]
    ) -> AnalysisResult:
        many, unit = self._many(schema), self._design.length(schema) ** 2
        if not enough(found.count, found.count_noise):
            labels = [_label(i, what) for i in range(many) for what in ("variance", "share")]
            _warn(f"noise of {found.count_noise:.3g} hides the number of rows: no component can be estimated")
            return AnalysisResult(
                [unknown(label, 0.0, unit if "variance" in label else 1.0) for label in labels]
            )
        parts = _Components.of(found)
        values, vectors, variances, clear = parts.values, parts.vectors, parts.variances, parts.clear
        total, edge = parts.total(many), parts.edge
        estimates: list[Estimate] = []
        for i in range(many):
            estimates += _component(i, parts, total, unit, spread.get(i))
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
        )
        return AnalysisResult(estimates, model)

    def describe(self) -> str:
        many = "all" if self.components is None else f"{self.components}"
        return f"principal components ({many}) of {joined(self.columns)}"


def _label(i: int, what: str) -> str:
    return f"component {i + 1} {what}"


def _warn(text: str) -> None:
    warnings.warn(text, TooNoisyWarning, stacklevel=outside())


@dataclass(frozen=True)
class _Noisy:
    """The covariance of x (or its mean square), with noise that is the same in every direction."""

    count: float
    mean: Floats
    matrix: Floats
    count_noise: float
    mean_noise: float
    noise: float  # above the diagonal

    @classmethod
    def of(cls, answer: Answer, design: Design, center: bool) -> _Noisy:
        (_, *sums), (_, *noise) = answer.sums[0], answer.noise[0]
        rows, count_noise = answer.complete_rows(design.columns)
        held = max(rows, 1.0)
        mean, mean_noise = np.zeros(design.width(answer.schema)), 0.0
        if center:
            mean, mean_noise = np.clip(sums[0] / held, -1.0, 1.0), noise[0] / held
            sums, noise = sums[1:], noise[1:]
        square = symmetric(sums[0], sums[1] if len(sums) > 1 else np.zeros(0)) / held
        if center:
            square = square - np.outer(mean, mean) + mean_noise**2 * np.eye(len(mean))
            square = square * (held / max(held - 1, 1.0))
        return cls(rows, mean, square, count_noise, mean_noise, noise[0] / math.sqrt(2) / held)

    def along(self, vector: Floats, variance: float) -> float:
        """Return the noise of the variance along a direction."""
        at = float(vector @ self.mean)
        by_count = (variance - at**2) * self.count_noise / self.count
        return math.hypot(math.sqrt(2) * self.noise, 2 * at * self.mean_noise, by_count)


@dataclass(frozen=True)
class _Components:
    """Eigenvalues and eigenvectors of a noisy matrix, the largest first.

    Attributes:
        values: the eigenvalues as released; variances: without what noise adds to them.
        vectors: one a column; the largest entry of each is positive.
        edge: the largest eigenvalue of noise alone.
    """

    found: _Noisy
    values: Floats
    variances: Floats
    vectors: Floats
    edge: float

    @classmethod
    def of(cls, found: _Noisy) -> _Components:
        values, vectors = np.linalg.eigh(found.matrix)
        values, vectors = values[::-1], vectors[:, ::-1]
        largest = vectors[np.abs(vectors).argmax(axis=0), range(len(values))]
        variances = np.clip(without_repulsion(values, found.noise), 0.0, 1.0)
        signed = vectors * np.where(largest < 0, -1.0, 1.0)
        edge = spectral(len(values), found.noise) + found.mean_noise**2  # which centring adds to the diagonal
        return cls(found, values, variances, signed, edge)

    @property
    def clear(self) -> Flags:
        """Which components stand out from the noise."""
        return np.asarray(self.values > self.edge)

    def total(self, many: int) -> float:
        """Return the variance in all directions."""
        return max(float(np.trace(self.found.matrix)), float(self.variances[:many].sum()), 1e-300)

    def influences(self, many: int) -> dict[int, tuple[Influence, Influence]]:
        """Return, for components that stand out, how a row moves the variance and the share.

        Along the direction u a row c from the mean moves the variance by (u·c)², and the share, s of the
        total, by ((u·c)² - s ||c||²) / total. ||c|| is at most 1 and the length of the mean.
        """
        found, total = {}, self.total(many)
        reach = 1 + float(np.linalg.norm(self.found.mean))
        for i in np.flatnonzero(self.clear[:many]).tolist():
            vector, variance = self.vectors[:, i], float(self.variances[i])
            share = min(variance / total, 1.0)
            along = np.outer(vector, vector)
            bound = min((1 + abs(float(vector @ self.found.mean))) ** 2, reach**2)
            of_share = (along - share * np.eye(len(vector))) / total
            found[i] = (
                Influence(_form(along, bound), variance, variance),
                Influence(_form(of_share, max(share, 1 - share) * reach**2 / total), 0.0, 2 * share),
            )
        return found


def _form(matrix: Floats, bound: float) -> Form:
    """Return the quadratic form of a symmetric matrix."""
    rows = range(len(matrix))
    return Form(
        tuple((i, j, float(matrix[i, j]) * (1 if i == j else 2)) for i in rows for j in rows[i:]), bound
    )


def _component(
    i: int, parts: _Components, total: float, unit: float, spread: tuple[float, float] | None
) -> list[Estimate]:
    """Return the variance of a component and its share; where noise hides it, its error is the noise.

    `spread` are the variances of the influences on the two; without them, a normal population's. Along
    different directions noise is independent: that of the share s is (1 - s) times the component's own, and s
    times that of the others together.
    """
    found, variances, value = parts.found, parts.variances, float(parts.variances[i])
    freedom = max(found.count - 1, 1.0)
    noise = found.along(parts.vectors[:, i], value) if parts.clear[i] else parts.edge
    share = min(value / total, 1.0)
    if spread is None:
        squared = float((np.delete(variances, i) ** 2).sum())  # as a difference it could be below 0
        varies = likely(value, noise)
        sides = (
            math.sqrt(2) * varies,
            math.sqrt(2 * (varies**2 * (1 - share) ** 2 + share**2 * squared)) / total,
        )
    else:
        sides = math.sqrt(spread[0]), math.sqrt(spread[1])
    sampling, of_share = (each / math.sqrt(freedom) for each in sides)
    others = np.delete(range(len(variances)), i)
    rest = math.hypot(*(found.along(parts.vectors[:, j], float(variances[j])) for j in others))
    hidden = math.hypot((1 - share) * noise, share * rest) / total
    return [
        Estimate(_label(i, "variance"), unit * value, unit * sampling, unit * noise, (0.0, unit)),
        Estimate(_label(i, "share"), share, of_share, hidden, (0.0, 1.0)),
    ]


@dataclass(frozen=True, repr=False, eq=False)
class PCAModel(Shown):
    """Directions, one a row of `components`, in units of t; the largest entry of each is positive.

    Attributes:
        explained_variance: along each component, corrected for what noise adds.
        explained_variance_ratio: the same as a share of all variance.
        mean: of t, by column; 0 if columns were not centred.
        clear: whether a component stands out from the noise.
    """

    design: Design
    schema: Schema
    components: Floats
    explained_variance: Floats
    explained_variance_ratio: Floats
    mean: Floats
    estimates: tuple[Estimate, ...]
    clear: tuple[bool, ...]
    count: float

    @property
    def names(self) -> tuple[str, ...]:
        """The column, or category, of each entry of a component."""
        return self.design.names(self.schema)

    def transform(self, data: Any) -> Floats:
        """Return the scores of each row of a table; NaN where a column is missing."""
        t = Units(self.design, self.schema).rows(data) * self.design.length(self.schema)
        return np.asarray((t - self.mean) @ self.components.T)

    def inverse_transform(self, scores: Any) -> dict[str, Floats]:
        """Return rows by name, in the columns' units, that have these scores and are average otherwise."""
        try:
            scores = np.asarray(scores, np.float64)
        except (TypeError, ValueError):
            raise InvalidInput("scores must be rows of numbers, one for each component") from None
        if scores.ndim != 2 or scores.shape[1] != len(self.components):
            raise InvalidInput(
                f"scores must have {len(self.components)} columns, not the shape {scores.shape}"
            )
        return Units(self.design, self.schema).from_t(scores @ self.components + self.mean)

    def tables(self) -> Sequence[Table]:
        by_label = {each.label: each for each in self.estimates}
        rows: list[tuple[str, ...]] = []
        for what in ("variance", "share"):
            found = [by_label[_label(i, what)] for i in range(len(self.clear))]
            rows.append((what, *(rounded(e.value, e.standard_error) for e in found)))
            rows.append(("  95% interval", *(between(e.interval(), e.standard_error) for e in found)))
        for j, name in enumerate(self.names):
            rows.append((self._called(name), *(f"{row[j]:.3f}" for row in self.components)))
        title = f"principal components ({self.count:,.0f} rows)"
        return [Table(("", *self._titles), tuple(rows), title, drop=tuple(range(len(self.clear), 1, -1)))]

    def figures(self) -> Sequence[Figure]:
        shares = [each for each in self.estimates if each.label.endswith(" share")][:MOST_MARKS]
        marks = tuple(
            Mark.of(each, f"component {name}") for each, name in zip(shares, self._titles, strict=False)
        )
        held = Intervals(marks, axis="share of all variance", ends=(0.0, *extent(marks)))
        found = [Figure((held,), f"{_SHARES} {DOTS}")]
        if len(marks) <= _MOST_COLUMNS:
            cells = tuple(
                tuple(
                    Mark.exact(f"{name} in component {i + 1}", float(row[j]))
                    for i, row in enumerate(self.components)
                )
                for j, name in enumerate(self.names)
            )
            names = tuple(map(self._called, self.names))
            found.append(Figure((HeatMap(names, self._titles, cells),), _LOADINGS))
        return found

    def notes(self) -> Sequence[str]:
        return [
            "Columns are scaled to -1 to 1 between their bounds. Variances are corrected for what noise adds."
        ]

    def to_dict(self) -> dict[str, Any]:
        return plain(
            {
                "names": self.names,
                "components": self.components,
                "mean": self.mean,
                "explained_variance": self.explained_variance,
                "explained_variance_ratio": self.explained_variance_ratio,
                "clear": self.clear,
                "rows": self.count,
            }
        )

    def _called(self, name: str) -> str:
        """Return a column as people call it, without its unit."""
        return self.schema.label(name) if name in self.schema else self.schema.title(name)

    @property
    def _titles(self) -> tuple[str, ...]:
        return tuple(f"{i + 1}" if clear else f"{i + 1} (noise)" for i, clear in enumerate(self.clear))
