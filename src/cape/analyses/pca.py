"""Principal components, from the sums of x and of xx' over complete rows.

Claim. With weight 1/4 on the sum of x and 1 on that of xx' (off-diagonals counted twice), ||x|| <= 1,
replacing one complete row moves them, squared, by at most 2 (1 + 1/8)²; without the sum of x, by 2. See
`PCA`. Tested in tests/analyses/test_pca.py.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from cape import check
from cape.analyses.arguments import joined, names
from cape.analyses.matrices import spectral, symmetric, without_repulsion
from cape.analyses.moments import enough, likely
from cape.analyses.planning import unknown
from cape.analyses.regression.sensitivity import joint
from cape.blocks import Design, Term
from cape.blocks.typical import SQUARE
from cape.blocks.units import Units
from cape.data import Schema
from cape.engine.query import Analysis, Answer, Estimate, Finding, Neighbours, Query
from cape.engine.result import as_text, number
from cape.errors import InvalidInput, TooNoisyWarning

__all__ = ["PCA", "PCAModel"]

Floats = NDArray[np.float64]

_X, _XX = Term(1), Term(2)
_MEANS = 0.25


@dataclass(frozen=True, init=False)
class PCA(Analysis):
    """The directions in which scaled columns vary most, and how much they vary in them.

    Columns enter as t, from -1 to 1 between their bounds, and categories as 0 or 1 for each value but the
    first: variances are in those units, and bounds take the part that standardising has elsewhere. The
    matrix is that of the paper's capePCA, second moments with noise that is the same in every direction.

    Noise pushes eigenvalues apart: the largest look larger than they are. What it adds, to second order, is
    taken off (`matrices.without_repulsion`). A component whose eigenvalue is within the noise's own is told
    apart, with a warning. Sampling errors are those of a normal population.

    **Sensitivity** sqrt(2) 9/8 under replace-one, sqrt(2) if not centred: with s = x·z two rows of length 1
    move the sum of xx' by ||xx' - zz'||² = 2 (1 - s²) and that of x by 2 (1 - s), a quarter of which
    counts: 5/2 - s/2 - 2 s², at most 2 (9/8)², at s = -1/8. *Choice.* A covariance has the noise of the
    product and of two means, which are small where columns lie around the middle of their bounds.

    Args:
        columns: numeric columns, or categories.
        components: how many, by default all.
        norm: the length, in units of t, that longer rows are shortened to; by default none is. A shorter
            one makes for less noise: noise is in proportion to its square.
        center: whether means are taken off.
    """

    kind: ClassVar[str] = "pca"
    shape_matters: ClassVar[bool] = True
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
        object.__setattr__(self, "columns", names(columns))
        known = None if components is None else check.integer("components", components, least=1)
        object.__setattr__(self, "components", known)
        object.__setattr__(self, "norm", None if norm is None else check.real("norm", norm, above=0.0))
        object.__setattr__(self, "center", center)

    @property
    def _design(self) -> Design:
        return Design(self.columns, norm=self.norm)

    def _many(self, schema: Schema) -> int:
        width = self._design.width(schema)
        if self.components is not None and self.components > width:
            raise InvalidInput(
                f"components must be at most {width}, the number of columns, not {self.components}"
            )
        return width if self.components is None else self.components

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return the first and second moments over complete rows."""
        self._many(schema)
        if not self.center:
            return joint(self._design, (_XX,), (1.0,), schema, neighbours)
        return joint(self._design, (_X, _XX), (_MEANS, 1.0), schema, neighbours)

    def finish(self, answer: Answer) -> Finding:
        """Return variances along components, and their shares of all variance."""
        schema = answer.schema
        found = _Noisy.of(answer, self._design, self.center)
        many, unit = self._many(schema), self._design.length(schema) ** 2
        if not enough(found.count, found.count_noise):
            labels = [_label(i, what) for i in range(many) for what in ("variance", "share")]
            _warn(f"noise in the number of rows, {found.count_noise:.3g}, hides it: nothing can be said")
            return Finding([unknown(label, 0.0, unit if "variance" in label else 1.0) for label in labels])
        matrix = found.matrix
        values, vectors = np.linalg.eigh(matrix)
        values, vectors = values[::-1], vectors[:, ::-1]
        vectors = vectors * np.where(
            vectors[np.abs(vectors).argmax(axis=0), range(len(values))] < 0, -1.0, 1.0
        )
        variances = np.clip(without_repulsion(values, found.noise), 0.0, 1.0)
        edge = spectral(len(values), found.noise)
        clear = values > edge
        total = max(float(np.trace(matrix)), float(variances[:many].sum()), 1e-300)
        estimates: list[Estimate] = []
        for i in range(many):
            estimates += _told(i, variances, vectors[:, i], found, bool(clear[i]), total, unit)
        hidden = np.nonzero(~clear[:many])[0]
        if len(hidden) and found.noise > 0:
            first = int(hidden[0])
            _warn(
                f"component {first + 1} cannot be told from noise: its variance looks like "
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
        return Finding(estimates, model)

    def expected(
        self,
        schema: Schema,
        noise: Sequence[Sequence[float]],
        rows: int,
        neighbours: Neighbours = "replace-one",
    ) -> dict[str, float]:
        """Return the noise of each variance and share, for independent columns as they are planned for."""
        unit = self._design.length(schema) ** 2
        second = Units(self._design, schema).typical(SQUARE)
        mean = second[0, 1:] if self.center else np.zeros(len(second) - 1)
        total = float(np.trace(second[1:, 1:] - np.outer(mean, mean)))
        each = noise[0][2 if self.center else 1] / max(rows, 1)
        found = {}
        for i in range(self._many(schema)):
            found[_label(i, "variance")] = unit * each
            found[_label(i, "share")] = min(each / total, 0.5)
        return found

    def describe(self) -> str:
        """Return one line that an ethics board can read."""
        many = "all" if self.components is None else f"{self.components}"
        return f"principal components ({many}) of {joined(self.columns)}"


def _label(i: int, what: str) -> str:
    return f"component {i + 1} {what}"


def _warn(text: str) -> None:
    warnings.warn(text, TooNoisyWarning, stacklevel=3)


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
        (count, *sums), (count_noise, *noise) = answer.sums[0], answer.noise[0]
        rows = answer.at_most(float(count[0]))
        if answer.rows is not None and not design.missing(answer.schema):
            rows, count_noise = float(answer.rows), 0.0
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


def _told(
    i: int, variances: Floats, vector: Floats, found: _Noisy, clear: bool, total: float, unit: float
) -> list[Estimate]:
    """Return the variance of a component and its share; noise that hides it is all its error."""
    value = float(variances[i])
    freedom = max(found.count - 1, 1.0)
    noise = found.along(vector, value) if clear else spectral(len(variances), found.noise)
    share = min(value / total, 1.0)
    others = float((np.delete(variances, i) ** 2).sum())  # as a difference it could be below 0
    varies = likely(value, noise)
    of_share = math.sqrt(2 / freedom * (varies**2 * (1 - share) ** 2 + share**2 * others)) / total
    hidden = noise * math.hypot(1 - share, share * math.sqrt(len(variances) - 1)) / total
    return [
        Estimate(
            _label(i, "variance"),
            unit * value,
            unit * math.sqrt(2 / freedom) * varies,
            unit * noise,
            (0.0, unit),
        ),
        Estimate(_label(i, "share"), share, of_share, hidden, (0.0, 1.0)),
    ]


@dataclass(frozen=True, repr=False, eq=False)
class PCAModel:
    """Directions, one a row of `components`, in units of t; the largest entry of each is positive.

    Attributes:
        explained_variance: along each component, without what noise adds.
        explained_variance_ratio: the same as a share of all variance.
        mean: of t, by column; 0 if columns were not centred.
        clear: whether a component could be told from noise.
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
        """What each entry of a component belongs to."""
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
        return Units(self.design, self.schema).back(scores @ self.components + self.mean)

    def __rich__(self) -> Group:
        table = Table(title=f"principal components ({self.count:,.0f} rows)", title_justify="left")
        table.add_column("")
        for i, clear in enumerate(self.clear):
            table.add_column(f"{i + 1}" if clear else f"{i + 1} (noise)", justify="right")
        by_label = {each.label: each for each in self.estimates}
        for what in ("variance", "share"):
            told = [by_label[_label(i, what)] for i in range(len(self.clear))]
            table.add_row(what, *[number(each.value) for each in told])
            intervals = [each.interval(0.95) for each in told]
            table.add_row("  95% interval", *[f"{number(low)} to {number(high)}" for low, high in intervals])
        table.add_section()
        for j, name in enumerate(self.names):
            table.add_row(escape(name), *[f"{row[j]:.3f}" for row in self.components])
        note = "Columns from -1 to 1 between their bounds. Variances: without what noise adds."
        return Group(table, Text(note, style="dim"))

    def summary(self) -> str:
        """Return variances, shares and loadings as text."""
        return as_text(self, max(110, 20 + 22 * len(self.clear)))

    __str__ = summary
    __repr__ = summary
