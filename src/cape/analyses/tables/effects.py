"""Statistics of released tables that count privacy noise: shares, ratios, means, correlations, tests.

Each is made of unbiased counts whose noise has a known covariance (`Marginal`). Sampling errors are those of
the usual statistic; noise is added to first order, or as `shares` and `independence` have it exactly.
Tested in tests/unit/analyses/tables/test_tables.py and by tables.coverage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from cape.analyses.tables.marginals import Marginal
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.stats.estimates import Estimate, unknown
from cape.stats.independence import Contrasts, contrasts
from cape.stats.moments import enough
from cape.stats.proportions import Share, quantile
from cape.stats.risks import LEAST_CELL, RATIOS, Ratio

__all__ = ["conditional", "correlation", "interaction", "mean", "ratios"]


def conditional(table: Marginal) -> list[Estimate]:
    """Return the shares of the last column's values within each combination of the others'."""
    found = []
    for at in np.ndindex(*table.values.shape[:-1]):
        given = ", ".join(each.label(i) for each, i in zip(table.levels, at, strict=False))
        for place in range(table.values.shape[-1]):
            label = f"{table.levels[-1].label(place)} | {given}" if given else table.levels[-1].label(place)
            share = _share(table, at, place)
            if share is None:
                found.append(unknown(label, 0.0, 1.0))
            else:
                found.append(Estimate(label, share.value, share.sampling, share.noise, (0.0, 1.0), share))
    return found


def _share(table: Marginal, at: tuple[int, ...], place: int) -> Share | None:
    """Return the share of one cell in its line; None if noise leaves the line without a clear count."""
    one, line = np.zeros(table.values.shape), np.zeros(table.values.shape)
    one[(*at, place)], line[at] = 1.0, 1.0
    whole = float(table.values[at].sum())
    of_whole = table.variance_of(line)
    if not enough(whole, math.sqrt(max(of_whole, 0.0))):
        return None
    part = min(max(float(table.values[(*at, place)]), 0.0), whole)
    return Share(part, whole, table.variance_of(one), table.variance_of(one, line), of_whole)


def ratios(table: Marginal) -> list[Estimate]:
    """Return the risk ratio and the odds ratio of the second column's second value, second row over first.

    Noise in the two rows goes together: most of it takes from one cell what it gives to another. The
    correlation of the noise in the two shares is known.
    """
    if table.values.shape != (2, 2):
        raise InvalidInput(f"ratios need a table of two by two values, not {table.values.shape}")
    least = max(float(table.noise.max()), LEAST_CELL)
    floored = replace(table, values=np.maximum(table.values, least))
    control, exposed = (_share(floored, (i,), 1) for i in (0, 1))
    clear = all(_share(table, (i,), 1) is not None for i in (0, 1))
    found = []
    for label, (of, slope, drawn) in RATIOS.items():
        if control is None or exposed is None or not clear:
            found.append(replace(unknown(label, 0.0, math.inf, 1.0), privacy=1.0))
            continue
        together = _correlation(floored, control.value, exposed.value)
        ratio = math.exp(of(exposed.value) - of(control.value))
        sampled = math.sqrt(drawn(exposed) + drawn(control))
        x, y = (slope(each.value) * each.noise for each in (exposed, control))
        blurred = math.sqrt(max(x * x + y * y - 2 * together * x * y, 0.0))
        at = Ratio(exposed, control, label, bool((table.values <= 0).any()), together)
        found.append(Estimate(label, ratio, ratio * sampled, ratio * blurred, (0.0, math.inf), at))
    return found


def _correlation(table: Marginal, control: float, exposed: float) -> float:
    """Return the correlation of the noise in the shares of the two rows."""
    one, other = np.zeros((2, 2)), np.zeros((2, 2))
    other[0] = -control, 1 - control
    one[1] = -exposed, 1 - exposed
    scale = math.sqrt(max(table.variance_of(one) * table.variance_of(other), 0.0))
    return min(max(table.variance_of(one, other) / scale, -1.0), 1.0) if scale > 0 else 0.0


def mean(table: Marginal) -> Estimate:
    """Return the mean of a column: of the middles of its bins, or of the places 0, 1, ... of its values."""
    (levels,), scores = table.levels, table.levels[0].middles
    label, within = f"{levels.column} mean", (float(scores.min()), float(scores.max()))
    count = float(table.values.sum())
    if not enough(count, math.sqrt(max(table.variance_of(np.ones(len(scores))), 0.0))):
        return unknown(label, *within)
    value = min(max(float(scores @ table.values) / count, within[0]), within[1])
    spread = max(float((scores - value) ** 2 @ table.values) / count, 0.0)
    noise = math.sqrt(max(table.variance_of(scores - value), 0.0)) / count
    return Estimate(label, value, math.sqrt(spread / count), noise, within)


def correlation(table: Marginal) -> Estimate:
    """Return the correlation of two columns, of the middles of bins or of places 0, 1, ... of values.

    With standardised scores a and b, a row moves it by (a b - r (a² + b²) / 2) / n: that gives the error from
    sampling and from noise. The interval is Fisher's.
    """
    down, across = (each.middles for each in table.levels)
    label = f"{table.levels[0].column}, {table.levels[1].column}"
    count, standard = float(table.values.sum()), []
    if enough(count, math.sqrt(max(table.variance_of(np.ones(table.values.shape)), 0.0))):
        for scores, margin in ((down, table.values.sum(axis=1)), (across, table.values.sum(axis=0))):
            centred = scores - float(scores @ margin) / count
            square = float(centred**2 @ margin) / count
            if square > 0:
                standard.append(centred / math.sqrt(square))
    if len(standard) < 2:
        return unknown(label, -1.0, 1.0)
    a, b = standard
    value = min(max(float(a @ table.values @ b) / count, -1.0), 1.0)
    moved = np.multiply.outer(a, b) - value / 2 * np.add.outer(a**2, b**2)
    sampling = math.sqrt(max(float((table.values * moved**2).sum()), 0.0)) / count
    noise = math.sqrt(max(table.variance_of(moved), 0.0)) / count
    return Estimate(label, value, sampling, noise, (-1.0, 1.0), _Fisher(value, math.hypot(sampling, noise)))


@dataclass(frozen=True)
class _Fisher:
    """An interval that is normal for the inverse hyperbolic tangent of a correlation."""

    value: float
    error: float

    def __call__(self, level: float) -> tuple[float, float]:
        rest = 1 - self.value**2
        if rest <= 0:
            return -1.0, 1.0
        reach = quantile(level) * self.error / rest
        middle = math.atanh(self.value)
        return math.tanh(middle - reach), math.tanh(middle + reach)


def interaction(table: Marginal, *, trend: bool = False) -> Contrasts | None:
    """Return what a table of two columns says of independence; None if noise hides one of its margins."""
    terms: list[tuple[Floats, Floats]] = [(square * down, across) for square, (down, across) in table.terms]
    return contrasts(table.values, terms, trend=trend)
