"""A graphical model of columns, fitted by mbi (the extra `synthetic`), as arrays that need it no more.

`fit` finds the distribution of largest entropy among those nearest to noisy tables. `Network` holds it as
conditional shares, one column after the other: rows are drawn, and tables computed, without mbi.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.special import logsumexp

from cape.core.arrays import Flags, Floats, Integers
from cape.core.errors import MissingExtra
from cape.stats.simulation import Random

__all__ = ["Measurement", "Network", "Potentials", "drawn", "fit", "require_mbi"]

Columns = tuple[int, ...]
Potentials = dict[Columns, Floats]
_STEPS = 1000  # of mirror descent, at most
_LEAST_NOISE = 0.5  # of a count: less is as good as exact
_TOLERANCE = 1e-4  # relative gain of the loss over 50 steps that ends it


@dataclass(frozen=True)
class Measurement:
    """A noisy table of columns; `noise` is the standard deviation of each cell."""

    columns: Columns
    counts: Floats
    noise: float


def require_mbi() -> None:
    """Raise `MissingExtra` if mbi is not installed; does not import it."""
    if find_spec("mbi") is None:
        raise MissingExtra("synthetic", "synthetic data")


def fit(
    sizes: Sequence[int],
    measured: Sequence[Measurement],
    rows: float,
    possible: Mapping[tuple[int, int], Flags],
) -> Potentials:
    """Return the log-potentials of the model; cells that are not possible have none there."""
    require_mbi()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mbi warns of jax's settings when it is imported
        import jax
        import mbi

        with jax.enable_x64(True):
            domain = mbi.Domain(tuple(range(len(sizes))), tuple(sizes))
            given = [
                mbi.LinearMeasurement(
                    each.counts.reshape(-1), each.columns, max(float(each.noise), _LEAST_NOISE)
                )
                for each in measured
            ]
            facts = tuple(
                mbi.Constraint(domain.project(pair), invalid=np.argwhere(~cells))
                for pair, cells in possible.items()
            )
            model: Any = mbi.estimation.MirrorDescent().estimate(
                domain,
                given,
                known_total=float(rows),
                constraints=facts,
                iters=_STEPS,
                tol=_TOLERANCE,
            )
            return {
                tuple(columns): np.asarray(model.potentials[columns].values, np.float64)
                for columns in model.potentials.cliques
            }


@dataclass(frozen=True)
class Conditional:
    """The shares of a column's groups given those of earlier columns: by [*given, column]."""

    column: int
    given: Columns
    shares: Floats


@dataclass(frozen=True)
class Network:
    """The model as conditional shares, in the order in which columns are drawn."""

    sizes: tuple[int, ...]
    parts: tuple[Conditional, ...]

    @classmethod
    def of(
        cls, sizes: Sequence[int], potentials: Potentials, possible: Mapping[tuple[int, int], Flags]
    ) -> Network:
        """Return it from log-potentials, by summing out one column after the other."""
        factors = [(columns, values) for columns, values in potentials.items() if columns]
        for pair, cells in possible.items():
            factors.append((pair, np.where(cells, 0.0, -np.inf)))
        left, parts = set(range(len(sizes))), []
        while left:
            column = min(left, key=lambda i: (_clique(i, [f[0] for f in factors], sizes), i))
            mine = [each for each in factors if column in each[0]]
            factors = [each for each in factors if column not in each[0]]
            given = tuple(sorted({i for columns, _ in mine for i in columns} - {column}))
            around = (*given, column)
            joint = np.zeros([sizes[i] for i in around])
            for columns, values in mine:
                joint = joint + _spread(values, columns, around)
            total = logsumexp(joint, axis=-1, keepdims=True)
            none = ~np.isfinite(total)
            total = np.where(none, 0.0, total)
            shares = np.where(none, 1 / sizes[column], np.exp(joint - total))
            parts.append(Conditional(column, given, shares))
            factors.append((given, np.where(none, -np.inf, total)[..., 0]))
            left.remove(column)
        return cls(tuple(sizes), tuple(reversed(parts)))

    def draw(self, rows: int, random: Random) -> list[Integers]:
        """Return the group of each row, by column.

        Shares are met as nearly as whole rows can, within rows that agree in the columns given.
        """
        found: dict[int, Integers] = {}
        for part in self.parts:
            given = np.zeros(rows, np.int64)
            for i in part.given:
                given = given * self.sizes[i] + found[i]
            shares = part.shares.reshape(-1, self.sizes[part.column])
            found[part.column] = drawn(shares, given, random)
        return [found[i] for i in range(len(self.sizes))]

    def table(self, columns: Columns) -> Floats:
        """Return the share of each cell of a table, exactly."""
        factors = [((*part.given, part.column), part.shares) for part in self.parts]
        left = set(range(len(self.sizes))) - set(columns)
        while left:
            column = min(left, key=lambda i: (_clique(i, [f[0] for f in factors], self.sizes), i))
            mine = [each for each in factors if column in each[0]]
            factors = [each for each in factors if column not in each[0]]
            given = tuple(sorted({i for names, _ in mine for i in names} - {column}))
            factors.append((given, _product(mine, (*given, column)).sum(axis=-1)))
            left.remove(column)
        return _product(factors, columns)


def drawn(shares: Floats, given: Integers, random: Random) -> Integers:
    """Return a level for each row, by the row of `shares` that is given: equal ones are spread evenly."""
    ends = np.cumsum(shares, axis=1)
    ends = ends[:, :-1] / ends[:, -1:]
    order = random.permutation(len(given))
    order = order[np.argsort(given[order], kind="stable")]
    counts = np.bincount(given, minlength=len(shares))
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    ranks = np.arange(len(given)) - first[given[order]]
    places = (ranks + random.random(len(given))) / counts[given[order]]
    found = np.empty(len(given), np.int64)
    found[order] = (places[:, None] >= ends[given[order]]).sum(axis=1)
    return found


def _clique(column: int, scopes: Iterable[Columns], sizes: Sequence[int]) -> int:
    """Return how many cells summing out a column would take."""
    around = {column}.union(*(scope for scope in scopes if column in scope))
    return math.prod(sizes[i] for i in around)


def _spread(values: Floats, columns: Columns, over: Columns) -> Floats:
    """Return a table of some columns in the shape of one over more of them, whatever their order."""
    places = [columns.index(i) for i in over if i in columns]
    shape = [values.shape[columns.index(i)] if i in columns else 1 for i in over]
    return np.asarray(np.transpose(values, places).reshape(shape))


def _product(factors: Sequence[tuple[Columns, Floats]], over: Columns) -> Floats:
    found = np.ones((1,) * len(over))
    for columns, values in factors:
        found = found * _spread(values, columns, over)
    return found
