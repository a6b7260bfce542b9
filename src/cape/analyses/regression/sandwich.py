"""How far least squares moves by sampling, without a model of residuals: the last stages of a regression.

With u = (1, x), and e the residual at the released coefficients, one row moves them by i = G^-1 u e, and all
rows together with the covariance S = sum of ii' (White 1980), times n / (n - coefficients) because the
residuals are those of the fit (HC1). No spread of residuals is assumed, nor that it is the same for all rows.

*Units.* Let C be a guess at the whole covariance of the coefficients, S and that of noise. What is asked for
is the sum of ww', w = C^-1/2 i / R, cut to a length of 1. A combination a of coefficients then has a squared
sampling error with noise of R² s a'C a, s the noise of the sum: the same part of its squared error, for every
a. R is where rows are cut. With a larger R there is more noise; with a smaller R more rows are cut, and S
comes out too small. R² s = 1/4 makes intervals 4% wider. With n rows R grows as sqrt(n), so that the part
that is cut goes to 0 whatever the distribution. Where no possible row is longer, no row is cut.

*A guess, and a better one.* Classical theory guesses C first. Where residuals are large in the very rows that
decide, S is many times what it says, and its R cuts the rows that matter. So a small part of the share asks
with that C, and the rest asks again with the C that comes out, and with an R that is larger by as much.

*Noise in b and G.* Residuals at b differ from those at the true coefficients by u·(b - true): S becomes
larger by a part of (coefficients) / n times the squared privacy error over the squared sampling error:
nothing where sampling matters. What noise in G and g does to b is counted by itself (`inference`), and is
independent of the noise here. To first order nothing else depends on it.

Claim. One row changes the sum of ww', with entries off the diagonal counted twice, by at most sqrt(2) under
replace-one (1 if there is one coefficient), and by 1 under add-remove, whatever was released before.
Reason. The block gives ||w|| <= 1 certainly. ||ww' - zz'||² = |w|⁴ + |z|⁴ - 2 (w·z)² <= 2, attained by two
orthogonal ones of length 1; |w² - z²| <= 1 in one dimension; ||ww'|| <= 1. An incomplete row adds nothing.

*Persons.* Where k > 1 rows of a person count, the sum is that of tt' over persons, t what the w of a person
add up to, over k: no longer than 1 either, so that a person moves the sum by as much as a row did, and S is
k² times the sum. S says how far sampling of persons moves coefficients (Liang and Zeger 1986).
Tested in tests/unit/analyses/regression/test_sandwich.py, where a search attains the bounds, and in
test_clustered.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from cape.analyses.regression.inference import Coefficients
from cape.blocks import Design, Sandwich
from cape.core.arrays import Floats
from cape.data import Schema
from cape.engine.query import Answer, Neighbours, Query
from cape.stats.matrices import shrunk, symmetric

__all__ = ["Meat", "sandwich_query", "sensitivity"]

_FLOAT = 1 + 1e-12
_FLOOR, _SMALLEST = 1e-12, 1e-24  # eigenvalues of a guess: beside the largest, and at all


def sandwich_query(
    design: Design, weights: Floats, directions: Floats, schema: Schema, neighbours: Neighbours
) -> Query:
    """Return the sum of ww' for residuals at these weights of (1, x): proof at the head of the module."""
    rows = tuple(tuple(map(float, direction)) for direction in directions)
    moved, persons = sensitivity(len(directions), neighbours), schema.rows_of_person
    block = Sandwich(design, tuple(map(float, weights)), rows, persons)
    return Query((block,), ((1.0, math.sqrt(0.5)),), moved, of_person=moved if persons > 1 else None)


def sensitivity(directions: int, neighbours: Neighbours) -> float:
    """Return how far one row moves the sum: proof at the head of the module."""
    return 1.0 if neighbours == "add-remove" or directions == 1 else math.sqrt(2) * _FLOAT


@dataclass(frozen=True)
class Meat:
    """What is asked for to learn how sampling moves known coefficients, and what the answer says.

    Attributes:
        known: the coefficients.
        first: 0, or 1 if there is no intercept.
        root: C^1/2.
        directions: C^-1/2 G^-1.
        length: R.
        whole: whether no row can be cut.
        persons: how many rows of a person count at most.
    """

    known: Coefficients
    first: int
    root: Floats
    directions: Floats
    length: float
    whole: bool
    persons: int = 1

    @classmethod
    def of(cls, known: Coefficients, noise: float, doubt: float, *, centred: bool, persons: int = 1) -> Meat:
        """Return it, with a guess from errors as they are known.

        `noise` is s, what the diagonal of S / R² will have, and `doubt` is R² s.
        """
        first = int(not centred)
        values, vectors = np.linalg.eigh((known.clear + known.privacy)[first:, first:])
        values = np.maximum(values, max(_FLOOR * float(values[-1]), _SMALLEST))
        root, inverse = ((vectors * values**power) @ vectors.T for power in (0.5, -0.5))
        directions = inverse @ known.inverse[first:]
        longest = _longest(known.values, directions)
        allowed = math.sqrt(doubt / noise) if noise > 0 else math.inf
        return cls(known, first, root, directions, min(allowed, longest), allowed >= longest, persons)

    def query(self, design: Design, schema: Schema, neighbours: Neighbours) -> Query:
        """Return the question."""
        return sandwich_query(design, self.known.values, self.directions / self.length, schema, neighbours)

    def read(self, answer: Answer, rows: float) -> Coefficients:
        """Return the coefficients with errors that hold whatever residuals are like."""
        (square, cross), (noise, above) = answer.sums[0], answer.noise[0]
        found = symmetric(square, cross)
        many = len(found)
        unit = (self.persons * self.length) ** 2 * rows / max(rows - many, 1.0)

        def turned(matrix: Floats) -> Floats:
            return np.pad(unit * self.root @ matrix @ self.root, (self.first, 0))

        return replace(
            self.known,
            sampling=turned(found),
            clear=turned(shrunk(found, above)[0]),
            doubt=turned(noise * np.eye(many)),
        )


def _longest(weights: Floats, directions: Floats) -> float:
    """Return the longest that e D u can be for |y| <= 1 and ||x|| <= 1."""
    residual = 1 + abs(float(weights[0])) + float(np.linalg.norm(weights[1:]))
    reach = float(np.linalg.norm(directions[:, 0])) + float(np.linalg.norm(directions[:, 1:], 2))
    return max(residual * reach, 1e-300)
