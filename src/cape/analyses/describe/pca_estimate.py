"""Principal components of noisy second moments: variances, directions, errors, and influences of rows.

Noise pushes eigenvalues apart; what it adds, to second order, is subtracted (`matrices.without_repulsion`).
Tested in tests/unit/analyses/describe/test_pca.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cape.analyses.influence import Influence
from cape.blocks import Design, Form
from cape.core.arrays import Flags, Floats
from cape.engine.query import Answer
from cape.stats.estimates import Estimate
from cape.stats.matrices import spectral, symmetric, without_repulsion
from cape.stats.moments import likely

__all__ = ["Components", "NoisyMatrix", "component", "label"]


def label(i: int, what: str) -> str:
    """Return the label of an estimate of a component."""
    return f"component {i + 1} {what}"


@dataclass(frozen=True)
class NoisyMatrix:
    """The covariance of x (or its mean square), with noise that is the same in every direction."""

    count: float
    mean: Floats
    matrix: Floats
    count_noise: float
    mean_noise: float
    noise: float  # above the diagonal

    @classmethod
    def of(cls, answer: Answer, design: Design, center: bool) -> NoisyMatrix:
        """Return what sums of x and of xx' say."""
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
class Components:
    """Eigenvalues and eigenvectors of a noisy matrix, the largest first.

    Attributes:
        values: the eigenvalues as released; variances: without what noise adds to them.
        vectors: one a column; the largest entry of each is positive.
        edge: the largest eigenvalue of noise alone.
    """

    found: NoisyMatrix
    values: Floats
    variances: Floats
    vectors: Floats
    edge: float

    @classmethod
    def of(cls, found: NoisyMatrix) -> Components:
        """Return the components of a matrix."""
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


def component(
    i: int, parts: Components, total: float, unit: float, spread: tuple[float, float] | None
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
        Estimate(label(i, "variance"), unit * value, unit * sampling, unit * noise, (0.0, unit)),
        Estimate(label(i, "share"), share, of_share, hidden, (0.0, 1.0)),
    ]
