"""How far least squares moves by sampling, without a model of residuals: the last stage of a regression.

With e the residual at the released coefficients and u = (1, x), they move by G^-1 times the sum of e u: their
covariance is G^-1 M G^-1, M the sum of e² uu' (White 1980), times n / (n - coefficients) for the residuals
being those of the fit (HC1). No residual variance is assumed to be the same for all rows, and no shape.

*Directions.* G^-1 = A'A is known by then. What is asked for is the sum of w w', w = e A u / R, cut to a length
of 1: in these directions all coefficients have sampling errors of the same size, and so has any combination
a of them: a'G^-1 M G^-1 a gets noise of R² s a'G^-1 a, s the noise of the sum, for every a.

*Length.* R is where rows are cut, so that one row counts for R² at most. A larger R has more noise, a
smaller R cuts more rows, and a sum of cut rows is too small. R² s is set to 3/10 of the smallest squared
error of a coefficient, as classical theory has it (sampling and noise together), relative to G^-1: noise then
makes intervals 5% wider. With more rows R grows, as sqrt(n), and what is cut goes to 0 whatever the
distribution. No row is cut where no possible one is longer.

*Noise in b and G.* Residuals at b differ from those at the true coefficients by u·(b - true): M becomes larger
by the sum of (u·(b - true))² uu', which relative to M is (number of coefficients) / n times the squared
privacy error over the squared sampling error: nothing where sampling matters. What noise in G and g does to
b is counted by itself (`inference`), and is independent of the noise here.

Claim. One row changes the sum of w w', with entries off the diagonal counted twice, by at most sqrt(2) under
replace-one (1 if there is one direction), and by 1 under add-remove, whatever was released before.
Reason. The block gives ||w|| <= 1 certainly. ||ww' - zz'||² = |w|⁴ + |z|⁴ - 2 (w·z)² <= 2, attained by two
orthogonal ones of length 1; |w² - z²| <= 1 in one dimension; ||ww'|| <= 1. An incomplete row adds nothing.
Tested in tests/analyses/regression/test_sandwich.py, where a search attains the bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from cape.analyses.matrices import shrunk, symmetric
from cape.analyses.regression.inference import Coefficients
from cape.arrays import Floats
from cape.blocks import Design, Sandwich
from cape.blocks.units import Units
from cape.data import Schema
from cape.engine.query import Answer, Neighbours, Query

__all__ = ["Meat", "sandwich_query", "sensitivity"]

DOUBT = 0.3  # the noise of a squared error that R allows, as a part of it
_FLOAT = 1 + 1e-12


def sandwich_query(
    design: Design,
    weights: Floats,
    directions: Floats,
    schema: Schema,
    neighbours: Neighbours,
) -> Query:
    """Return the sum of w w' for residuals at these weights of (1, x): proof at the head of the module."""
    block = Sandwich(
        design, tuple(map(float, weights)), tuple(tuple(map(float, direction)) for direction in directions)
    )
    return Query((block,), ((1.0, math.sqrt(0.5)),), sensitivity(len(directions), neighbours))


def sensitivity(directions: int, neighbours: Neighbours) -> float:
    """Return how far one row moves the sum: proof at the head of the module."""
    return 1.0 if neighbours == "add-remove" or directions == 1 else math.sqrt(2) * _FLOAT


@dataclass(frozen=True)
class Meat:
    """What is asked for to learn how sampling moves known coefficients, and what the answer says.

    Attributes:
        known: the coefficients, with classical errors.
        directions: A, with G^-1 = A'A.
        length: R.
    """

    known: Coefficients
    directions: Floats
    length: float

    @classmethod
    def of(
        cls, known: Coefficients, units: Units, unit: float, neighbours: Neighbours, *, centred: bool
    ) -> Meat:
        """Return it; `unit` is the noise that the last stage will have, per unit of sensitivity."""
        first = int(not centred)
        inner = known.inverse[first:, first:]
        directions = np.hstack([np.zeros((len(inner), first)), _root(inner)])
        privacy, inverse = (np.diag(units.covariance(m))[first:] for m in (known.privacy, known.inverse))
        noise, allowed = unit * sensitivity(len(inner), neighbours), math.inf
        if noise > 0:
            error = known.residual + float(np.min(privacy / np.maximum(inverse, 1e-300)))
            allowed = math.sqrt(DOUBT * error / noise)
        return cls(known, directions, min(allowed, _longest(known.values, directions)))

    def query(self, design: Design, schema: Schema, neighbours: Neighbours) -> Query:
        """Return the last question."""
        return sandwich_query(design, self.known.values, self.directions / self.length, schema, neighbours)

    def read(self, answer: Answer, rows: float) -> Coefficients:
        """Return the coefficients with errors that hold whatever residuals are like."""
        (square, cross), (noise, above) = answer.sums[0], answer.noise[0]
        found = symmetric(square, cross)
        many = len(found)
        unit = self.length**2 * rows / max(rows - many, 1.0)
        turn = self.directions
        return replace(
            self.known,
            sampling=unit * turn.T @ found @ turn,
            clear=unit * turn.T @ shrunk(found, above)[0] @ turn,
            doubt=unit * noise,
        )


def _root(matrix: Floats) -> Floats:
    """Return A with A'A = the matrix, which is positive."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T)


def _longest(weights: Floats, directions: Floats) -> float:
    """Return the longest that e A u can be for |y| <= 1 and ||x|| <= 1."""
    residual = 1 + abs(float(weights[0])) + float(np.linalg.norm(weights[1:]))
    reach = float(np.linalg.norm(directions[:, 0])) + float(np.linalg.norm(directions[:, 1:], 2))
    return max(residual * reach, 1e-300)
