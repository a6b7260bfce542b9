"""Sampling errors without a model: the squares of influences, asked for in a last stage.

A row moves an estimate that is smooth in the mean and the second moments by psi(row) / n, to first order in
1 / n; psi is the estimate's influence function, and the sampling variance is Var(psi) / n, whatever the rows'
distribution: skewed, zero-inflated or normal. For variances, covariances, correlations and the variances of
principal components psi is a quadratic form of the row about the mean, known from the numbers that are
released first. The second and last stage therefore asks for the sum of psi² of each estimate (`Squares`).

Claim. `squares` moves by at most the root of the number of its forms, under both adjacencies.
Reason. A row adds a number in [0, 1] to each entry, or nothing; entries differ by at most 1 each.
Tested in tests/unit/analyses/test_sensitivity.py.

*Choice.* The last stage gets 9% of the share, so that noise in the estimates is 1 / sqrt(0.91), 4.8%, larger
than without it. What is hidden by noise in a sum of squares counts with its likely size (`likely`), which
widens the interval: noise in it falls with 1 / mu, the privacy variance of the estimate itself with 1 / mu².
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cape.blocks import Design, Form, Squares
from cape.engine.query import Answer, Query
from cape.stats.moments import likely

__all__ = ["STAGES", "Influence", "product_bound", "spreads", "squares"]

STAGES = (0.91, 0.09)


@dataclass(frozen=True)
class Influence:
    """The influence of a row on one estimate: its form, the mean of the form, and a bound on its mean size.

    `mean_size` is a bound on E|psi|, so that E psi² is at most the form's bound times it.
    """

    form: Form
    mean: float
    mean_size: float


def squares(designs: Sequence[tuple[Design, Sequence[float], Sequence[Influence]]]) -> Query:
    """Return the query for the squares of influences about a centre, for each design that has some."""
    blocks = tuple(
        Squares(design, tuple(map(float, centre)), tuple(each.form for each in influences))
        for design, centre, influences in designs
    )
    many = sum(len(block.forms) for block in blocks)
    return Query(blocks, ((1.0,),) * len(blocks), math.sqrt(many))


def spreads(answer: Answer, block: int, influences: Sequence[Influence], count: float) -> list[float]:
    """Return the likely variance of each influence, over `count` rows."""
    (sums,), (noise,) = answer.sums[block], answer.noise[block]
    found = []
    for each, total in zip(influences, sums, strict=True):
        unit = each.form.bound**2 / count
        most = max(each.form.bound * each.mean_size - each.mean**2, 0.0)
        found.append(likely(float(total) * unit - each.mean**2, noise * unit, most))
    return found


def product_bound(form: tuple[float, float, float], boxes: Sequence[tuple[float, float]]) -> float:
    """Return the largest |a x² + b x y + c y²| with x and y in two intervals around 0.

    A quadratic form has its extremes in a box at corners, or on edges where its slope along the edge is 0;
    inside it is 0 at its only other critical point, 0.
    """
    a, b, c = form
    (left, right), (low, high) = boxes
    points = [(x, y) for x in (left, right) for y in (low, high)]
    for x in (left, right):
        if c and low < (y := -b * x / (2 * c)) < high:
            points.append((x, y))
    for y in (low, high):
        if a and left < (x := -b * y / (2 * a)) < right:
            points.append((x, y))
    return max(abs(a * x * x + b * x * y + c * y * y) for x, y in points)
