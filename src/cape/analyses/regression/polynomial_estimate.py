"""The polynomial that noisy sums make, and what its minimiser says with its errors.

Errors count the noise in the gradient at the minimiser, and how far the ridge may pull it. Tested in
tests/unit/analyses/regression/test_polynomial.py.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np

from cape.analyses.regression.inference import Reach
from cape.analyses.regression.minimise import Minimum, Objective, dense
from cape.blocks.design import Design
from cape.blocks.tensors import Term, entries
from cape.core.arrays import Floats
from cape.core.errors import TooNoisyWarning, outside
from cape.engine.query import Answer
from cape.stats.estimates import Estimate, unknown

__all__ = ["estimates_of", "objective_of", "spread_of", "warn"]


def objective_of(
    answer: Answer, design: Design, terms: Sequence[tuple[Term, float]]
) -> tuple[Objective, float]:
    """Return the noisy polynomial and the number of rows; terms come with what they were divided by."""
    width = design.width(answer.schema)
    (_, *arrays), (_, *stds) = answer.sums[0], answer.noise[0]
    rows, _ = answer.complete_rows(design.columns)
    tensors, noise, at = [], [], 0
    for term, size in terms:
        parts = []
        noise.append(abs(size) * stds[at])  # entries that occur once, as x_i^degree does
        for multiplicity in term.multiplicities(width):
            places = np.array(entries(term.degree, multiplicity, width), np.int64)
            parts.append((places.reshape(-1, term.degree), size * arrays[at]))
            at += 1
        tensors.append((term.degree, dense(term.degree, width, parts)))
    return Objective(tuple(tensors), tuple(noise), width), rows


def estimates_of(
    objective: Objective, found: Minimum, turn: Floats, labels: Sequence[str], radius: float
) -> list[Estimate]:
    """Return w in other units, `turn` times it: unknown where noise and ridge leave all of |w| <= radius."""
    reach = radius * np.linalg.norm(turn, axis=1)
    if found.hidden:
        return [unknown(label, -float(r), float(r)) for label, r in zip(labels, reach, strict=True)]
    values = turn @ found.weights
    across, errors = turn @ found.inverse, spread_of(objective, found, turn)
    bias = 2 * found.ridge * radius * np.linalg.norm(across, axis=1)
    estimates = []
    for label, value, error, pull, most in zip(labels, values, errors, bias, reach, strict=True):
        if pull + error >= most:
            estimates.append(unknown(label, -float(most), float(most)))
            continue
        interval = None if pull <= 1e-3 * error else Reach(float(value), float(error), float(pull))
        noise = float(error) if interval is None else math.hypot(float(error), float(pull))
        estimates.append(Estimate(label, float(value), 0.0, noise, (-float(most), float(most)), interval))
    return estimates


def spread_of(objective: Objective, found: Minimum, turn: Floats) -> Floats:
    """Return what noise alone does to `turn` times the minimiser."""
    across = turn @ found.inverse
    covariance = across @ _gradient_noise(objective, found.weights) @ across.T
    return np.asarray(np.sqrt(np.maximum(np.diag(covariance), 0.0)))


def warn(objective: Objective, found: Minimum, rows: float, target: str) -> None:
    """Warn of a minimum that noise hides."""
    if not found.hidden:
        return
    size = float(np.linalg.norm(objective.part(1)))
    noise = objective.noise_of(1) * math.sqrt(objective.width)
    more = f"the sums that a minimiser follows are {size:.3g} long, their noise {noise:.3g}"
    warnings.warn(
        f"noise hides what {target!r} has to do with its features, and w is 0: {more}, over "
        f"{max(rows, 0.0):.0f} rows",
        TooNoisyWarning,
        stacklevel=outside(),
    )


def _gradient_noise(objective: Objective, w: Floats) -> Floats:
    """Return the covariance of the noise in the gradient at w."""
    square = float(w @ w)
    total = np.zeros((len(w), len(w)))
    for (j, _), noise in zip(objective.tensors, objective.noise, strict=True):
        part = square ** (j - 1) * np.eye(len(w))
        if j > 1:
            part = part + (j - 1) * square ** (j - 2) * np.outer(w, w)
        total += noise**2 * j * part
    return total
