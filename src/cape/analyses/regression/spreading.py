"""Whether scores spread as a model says they do: their spread S beside their curvature H, from the last step.

Where a model holds, the mean of a row's ss' given its features is its curvature, or, with a dispersion,
a multiple of it (White 1982, the information matrix equality). Both sums are released with every step, so
nothing more is asked for. Of D = S - c H, with c = 1 or the multiple tr S / tr H, the eigenvalue that is
furthest from 0 is compared with all that could have made it where the model holds:

- sampling. Given features, rows of D are independent with mean 0, so that the mean of the squared Frobenius
  norm of D is at most the sum of |s|⁴, which the histogram of lengths says, less that of the squared norms of
  their means, which is at least (c tr H)² over the number of rows (Cauchy). Whatever the directions of
  scores are, the norm of D exceeds `_SURE` of its roots in less than 1 of 100 (a sum of weighted squares
  of normal numbers has its longest tail where one weight is all). Where few rows are nearly all of it,
  that does not hold, and nothing is said;
- noise in S and H, which has a known size: `_SURE_NOISE` beyond its largest eigenvalue;
- clipping. Scores that are shortened take from S, and noise may hide how many are: then nothing is said of
  a spread that is too small. The curvature of a row that is cut takes from H: under the model at most what
  is cut off squared lengths at the same height (Jensen);
- weights that the last step still moved, which changes D by about that part of H.

What is left of the ratio of S to c H along that direction is said to be at least, or at most, so much. Rows
that count in unequal shares, and what several rows of a person add up to, have no such equality.
Tested in tests/unit/analyses/regression/test_spreading.py, on models that hold and on ones that do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cape.stats.score_norms import Lengths
from cape.stats.score_steps import ScoreStep

__all__ = ["Spreading", "spreading"]

_SURE = 3.0
_SURE_NOISE = 2.0  # of an entry, beyond 2 sqrt(width)
_FEWEST = 5.0  # rows with scores as long as the longest
_LEAST = 0.1  # of the sum of fourth powers: sampling is no less
_UNEVEN = 1.1  # times as large is the mean of fourth powers over a bin as at its middle, and a little
_INSIDE = 2**0.25  # the longest score of a bin over a typical one
_NEAR = 0.3  # the SD of predictors that the last step moves: further off S and H are those of other weights
_WHOLE = 0.5  # of what the model says
_FLAT = 1e-6  # of the mean curvature: features do not vary along such a direction
_KNOWN = 4.0  # times what hides them: curvatures along a direction that are known


@dataclass(frozen=True)
class Spreading:
    """How far scores spread along one direction of the weights, beside what the model says.

    Attributes:
        ratio: the squared spread over what the model says: 1 where it holds.
        sure: the end of the ratio that is nearest to 1, for certain; 1 if nothing is certain.
    """

    ratio: float
    sure: float


def spreading(steps: Sequence[ScoreStep], falls: float, *, dispersed: bool = False) -> Spreading | None:
    """Return how scores spread; None where that is not seen.

    `falls` is how fast rows get fewer with the length of their scores, and `dispersed` says that the model
    has a dispersion of its own.
    """
    last = steps[-1]
    lengths = next((each.lengths for each in reversed(steps) if each.lengths is not None), None)
    if last.persons > 1 or lengths is None or last.endless or last.moved(last.change) > _NEAR:
        return None
    found, curvature = float(np.trace(last.spread)), float(np.trace(last.curvature))
    if not curvature > 0 or not found > (0.0 if dispersed else _WHOLE) * curvature:
        return None  # most of what scores spread was cut, as where the rows that matter are few
    times = found / curvature if dispersed else 1.0
    values, vectors = np.linalg.eigh(last.spread - times * last.curvature)
    most = int(np.argmax(values if dispersed else np.abs(values)))
    along = times * float(vectors[:, most] @ last.curvature @ vectors[:, most])
    noise = math.hypot(last.spread_noise, times * last.curvature_noise)
    hidden = (2 * math.sqrt(last.width) + _SURE_NOISE) * noise
    sampling = _sampling(lengths, last, falls, times * curvature)
    least = max(_KNOWN * last.curvature_noise, _FLAT * curvature / last.width)
    if sampling is None or not along > times * least:
        return None
    away = float(values[most])
    clipped = _clipped(lengths, last, falls, times, more=away > 0)
    could = math.hypot(_SURE * sampling, hidden) + clipped + last.moved(last.change) * along
    sure = math.copysign(max(abs(away) - could, 0.0), away)
    return Spreading(1 + away / along, 1 + sure / along)


def _sampling(lengths: Lengths, last: ScoreStep, falls: float, means: float) -> float | None:
    """Return how large sampling may make D; None where few rows are nearly all of it.

    `means` is the sum of what the squared lengths of scores are on average.
    """
    tops = np.append(lengths.edges, math.sqrt(2) * lengths.edges[-1])
    rows, squares = lengths.rows(falls), np.minimum(tops / _INSIDE, last.point.bound) ** 2
    fourth = _UNEVEN * float(rows @ squares**2)
    longest = float(np.max(np.where(rows >= 1, squares, 0.0), initial=0.0))
    if fourth <= _FEWEST * longest**2:
        return None
    return math.sqrt(max(fourth - means**2 / last.count, _LEAST * fourth))


def _clipped(lengths: Lengths, last: ScoreStep, falls: float, times: float, *, more: bool) -> float:
    """Return what clipping may have taken of the curvature, or of the spread."""
    if more:
        return lengths.beyond(math.sqrt(times * last.point.curve), falls).spread
    if last.score_noise and last.point.bound < lengths.longest:
        return math.inf  # noise may hide the rows that have the longest scores
    return 0.0
