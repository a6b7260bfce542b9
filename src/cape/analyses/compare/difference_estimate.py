"""Differences, standardised differences and contrasts of the means of groups, in a column's units."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cape.data import Number
from cape.stats.estimates import Estimate, unknown
from cape.stats.moments import Sums, present
from cape.stats.welch import Contrast, Group, MeansTest, Pair, equal

__all__ = ["Comparison", "comparison"]


@dataclass(frozen=True)
class Comparison:
    """One column: the mean of each group, and the difference of each two with its test.

    `overall` tests that all means are equal. A test is None where noise hides a group.
    """

    column: str
    means: tuple[Estimate, ...]
    differences: tuple[Estimate, ...]
    standardised: tuple[Estimate, ...]
    tests: tuple[MeansTest | None, ...]
    overall: MeansTest | None
    contrasts: tuple[tuple[Estimate, MeansTest | None], ...] = ()

    @property
    def estimates(self) -> list[Estimate]:
        """All estimates of the column."""
        found = (estimate for estimate, _ in self.contrasts)
        return [*self.means, *self.differences, *self.standardised, *found]

    @property
    def adjusted(self) -> tuple[float | None, ...]:
        """The P values of the differences, adjusted for their number (Holm); those that are hidden count."""
        found: list[float | None] = [None] * len(self.tests)
        known = sorted((test.p_value, place) for place, test in enumerate(self.tests) if test is not None)
        most = 0.0
        for rank, (p, place) in enumerate(known):
            most = max(most, min((len(self.tests) - rank) * p, 1.0))
            found[place] = most
        return tuple(found)


def comparison(
    name: str,
    by: str,
    column: Number,
    values: Sequence[object],
    sums: Sequence[Sums],
    contrasted: Sequence[tuple[str, Sequence[float]]],
) -> Comparison:
    """Return what the sums of a column say of its groups, which have these values of `by`.

    `contrasted` are the weights of groups in each contrast, by its name.
    """
    groups = [Group(each) if present(each.count, each.count_noise) else None for each in sums]
    means = [
        each.mean_estimate(f"{name} mean | {by}={value}", column)
        for value, each in zip(values, sums, strict=True)
    ]
    differences, ratios, tests = [], [], []
    for i, j in itertools.combinations(range(len(values)), 2):
        end = f"| {by}: {values[j]} - {values[i]}"
        one, other = groups[j], groups[i]
        pair = None if one is None or other is None else Pair(one, other)
        clear = pair if sums[i].enough and sums[j].enough else None
        differences.append(_difference(f"{name} difference {end}", column, clear))
        ratios.append(_standardised(f"{name} SMD {end}", clear))
        tests.append(None if pair is None else pair.test)
    contrasts = [
        _contrast(f"{name} contrast | {by}: {title}", column, weights, groups, sums)
        for title, weights in contrasted
    ]
    known = [group for group in groups if group is not None]
    overall = equal(known) if len(known) == len(groups) else None
    return Comparison(
        name, tuple(means), tuple(differences), tuple(ratios), tuple(tests), overall, tuple(contrasts)
    )


def _contrast(
    label: str, column: Number, weights: Sequence[float], groups: Sequence[Group | None], sums: Sequence[Sums]
) -> tuple[Estimate, MeansTest | None]:
    """Return a contrast and its test: unknown where noise hides a group that has a weight."""
    parts, clear = [], True
    for weight, group, each in zip(weights, groups, sums, strict=True):
        if weight and group is not None:
            parts.append((weight, group))
            clear = clear and each.enough
        clear = clear and (group is not None or not weight)
    found = Contrast(tuple(parts)) if len(parts) == sum(weight != 0 for weight in weights) else None
    largest = sum(abs(weight) for weight in weights)  # times half the width: all of one sign at one bound
    estimate = _difference(label, column, found if clear else None, largest)
    return estimate, None if found is None else found.test


def _difference(label: str, column: Number, found: Pair | Contrast | None, largest: float = 2.0) -> Estimate:
    half, most = column.half, largest * column.half
    if found is None:
        return unknown(label, -most, most)
    value = min(max(found.value, -largest), largest)
    errors = half * math.sqrt(found.sampled), half * math.sqrt(found.blurred)
    return Estimate(label, half * value, *errors, (-most, most), _InUnits(found, half))


def _standardised(label: str, pair: Pair | None) -> Estimate:
    ratio = None if pair is None else pair.standardised
    if ratio is None or ratio(0.95)[1] == math.inf:
        return replace(unknown(label, -math.inf, math.inf, 0.0), privacy=1.0)
    return Estimate(
        label,
        ratio.value,
        ratio.error(ratio.sampled, ratio.drawn),
        ratio.error(ratio.blurred, ratio.noise),
        at=ratio,
    )


@dataclass(frozen=True)
class _InUnits:
    """The interval of a difference, in the column's unit."""

    of: Pair | Contrast
    unit: float

    def __call__(self, level: float) -> tuple[float, float]:
        low, high = self.of.interval(level)
        return self.unit * low, self.unit * high
