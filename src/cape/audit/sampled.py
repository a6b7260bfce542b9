"""Steps over a sample of the rows: the likelihood ratio of two mixtures.

Claim. Let the adversary know every row but one, and which of the others took part in a step. By the design
its standardised view z of the step has the density

    (1 - q) N(0, I) + q N(first, I)    or    (1 - q) N(0, I) + q N(second, I)

around what the others add, where `first` and `second` are what the row at stake adds in either table and q is
the rate. Steps have coins and noise of their own, so log-ratios add up, and the test that compares their sum
with 0, fixed before any run, has the least sum of both errors that any test has.
Reason. Whether the row at stake took part is a coin of its own, which nobody but its site sees; given the
coin, the view is that of `cape.audit.likelihood`. At q = 1 the ratio is the one there. The adversary of the
amplification theorem is this one (`cape.privacy.subsampling`): whoever does not know the other rows' coins
knows less.

How close the bound can come. A run with sampling claims the mu of a Gaussian mechanism that dominates it at
every epsilon, even where only one run in 1e8 gets to. Its privacy loss has a longer tail than a Gaussian
one, so in the middle, where a test with few runs looks, the claim is loose. `apart` says by how much: it is
the difference between the means of the log-ratio under both tables, which is mu² for a Gaussian mechanism
and, up to the slack, at most the mu² of a dominating one; its square root is what the audit shows as
attained. More steps and a higher rate bring it closer to the claim; a larger delta hardly does, because the
bulk of the runs stays where it is.
Tested in tests/unit/audit/test_sampled.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Draw", "apart", "log_ratio"]

Int64 = NDArray[np.int64]
Floats = NDArray[np.float64]

_NODES = 24


@dataclass(frozen=True)
class Draw:
    """What the target's site drew in one training step; vectors are in steps of the grid.

    Attributes:
        rate: the probability that a row takes part, according to the design.
        taken: whether the target row took part.
        row: what that row adds when it takes part.
        other: what its replacement in the neighbouring table adds; 0 if there is none.
    """

    rate: float
    taken: bool
    row: Int64
    other: Int64


def log_ratio(z: Floats, first: Floats, second: Floats, rate: float) -> Floats:
    """Return the log-likelihood ratio for the second table; z may have a view in each of its rows."""
    return _log_density(z, second, rate) - _log_density(z, first, rate)


def _log_density(z: Floats, moved: Floats, rate: float) -> Floats:
    """Return the log-density of the mixture over that of N(0, I)."""
    tilt = z @ moved - moved @ moved / 2
    if rate == 1:
        return np.asarray(tilt)
    return np.logaddexp(math.log1p(-rate), math.log(rate) + tilt)


def apart(first: Floats, second: Floats, rate: float) -> float:
    """Return the mean of the log-ratio under the second table less that under the first.

    The part without the row is the same under both, so what is left is rate times the difference of the
    means under N(second, I) and N(first, I). The ratio depends on z in the plane of the two shifts only:
    Gauss and Hermite's rule in two dimensions.
    """
    _, plane = np.linalg.qr(np.column_stack([first, second]))
    one, two = plane[:, 0], plane[:, 1]
    told = [_GRID_WEIGHTS @ log_ratio(_GRID + at, one, two, rate) for at in (one, two)]
    return max(0.0, rate * float(told[1] - told[0]))


def _grid() -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    weights = weights / weights.sum()
    points = np.array([(x, y) for x in nodes for y in nodes])
    return points, np.outer(weights, weights).reshape(-1)


_GRID, _GRID_WEIGHTS = _grid()
