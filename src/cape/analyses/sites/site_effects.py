"""What the sums of each site say of a mean, a share, a difference or a coefficient, for a meta-analysis.

Every effect comes with its variances from sampling and from noise, also under the hypothesis that sites
agree, as `stats/meta_analysis.py` needs them.
Tested in tests/unit/analyses/sites/test_heterogeneity.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cape.analyses.regression.inference import coefficients
from cape.analyses.regression.moments import SecondMoments
from cape.core.arrays import Floats
from cape.data import Number
from cape.stats.estimates import Estimate, unknown
from cape.stats.meta_analysis import Effect
from cape.stats.moments import Sums, enough
from cape.stats.proportions import Share
from cape.stats.welch import Group, Pair

__all__ = [
    "Groups",
    "SiteCoefficients",
    "SiteEffects",
    "coefficients_of",
    "differences",
    "means",
    "share_differences",
    "shares",
    "site_label",
]


@dataclass(frozen=True)
class SiteEffects:
    """One quantity at every site.

    Attributes:
        label: what it is.
        estimates: of each site, one that says nothing where noise hides it.
        effects: the same for a synthesis; None where noise hides it.
        columns: those of which a site must have enough rows.
        within: the smallest and the largest value that is possible.
    """

    label: str
    estimates: tuple[Estimate, ...]
    effects: tuple[Effect | None, ...]
    columns: tuple[str, ...]
    within: tuple[float, float] = (-math.inf, math.inf)


@dataclass(frozen=True)
class Groups:
    """A column of two groups, and their values."""

    name: str
    values: tuple[object, object]


def site_label(what: str, by: str, site: object) -> str:
    """Return the label of a quantity at a site."""
    return f"{what} | {by}={site}"


def means(by: str, name: str, column: Number, sites: Sequence[tuple[object, Sums]]) -> SiteEffects:
    """Return the means of a column at sites, from their sums."""
    label = f"{name} mean"
    known = [sums for _, sums in sites if sums.enough]
    total = sum(sums.count for sums in known)
    common = min(max(sum(sums.first for sums in known) / total, -1.0), 1.0) if known else 0.0
    effects: list[Effect | None] = []
    for site, sums in sites:
        if not sums.enough:
            effects.append(None)
            continue
        group = Group(sums)
        sampled = sums.likely_variance / sums.count
        agreed = sampled + Group(sums, common).blurred
        effect = Effect(str(site), group.mean, sampled, group.blurred, group.doubt, agreed)
        effects.append(effect.scaled(column.half, column.middle) if effect.total > 0 else None)
    estimates = tuple(sums.mean_estimate(site_label(label, by, site), column) for site, sums in sites)
    return SiteEffects(label, estimates, tuple(effects), (name,), (column.low, column.high))


def differences(
    by: str, name: str, column: Number, groups: Groups, sites: Sequence[tuple[object, tuple[Sums, ...]]]
) -> SiteEffects:
    """Return the differences of means between two groups at sites, from the sums of both."""
    first, second = groups.values
    label, half = f"{name} difference, {groups.name}: {second} - {first}", column.half
    effects: list[Effect | None] = []
    estimates: list[Estimate] = []
    for site, sums in sites:
        written, within = site_label(label, by, site), (-2 * half, 2 * half)
        pair = Pair(Group(sums[1]), Group(sums[0])) if all(each.enough for each in sums) else None
        if pair is None or pair.total <= 0:
            estimates.append(unknown(written, *within))
            effects.append(None)
            continue
        sampled = sum(each.likely_variance / each.count for each in sums)
        blurred, doubt = pair.one.blurred + pair.other.blurred, pair.one.doubt + pair.other.doubt
        effect = Effect(str(site), pair.value, sampled, blurred, doubt).scaled(half)
        effects.append(effect)
        errors = math.sqrt(effect.sampling), math.sqrt(effect.privacy)
        value = min(max(effect.value, within[0]), within[1])
        estimates.append(Estimate(written, value, *errors, within, _Scaled(pair, half)))
    columns = (name, groups.name)
    return SiteEffects(label, tuple(estimates), tuple(effects), columns, (-2 * half, 2 * half))


@dataclass(frozen=True)
class _Scaled:
    """The interval of a difference, in the column's unit."""

    pair: Pair
    unit: float

    def __call__(self, level: float) -> tuple[float, float]:
        low, high = self.pair.interval(level)
        return self.unit * low, self.unit * high


def shares(
    by: str, name: str, label: str, sites: Sequence[object], counts: Floats, noise: float
) -> SiteEffects:
    """Return the shares of the second of two categories at sites, from their counts."""
    known = [row for row in counts if _clear(row, noise)]
    total = np.sum(known, axis=0) if known else np.ones(2)
    common = min(max(float(total[1] / total.sum()), 0.0), 1.0) if total.sum() > 0 else 0.5
    effects: list[Effect | None] = []
    estimates: list[Estimate] = []
    for site, row in zip(sites, counts, strict=True):
        written = site_label(label, by, site)
        if not _clear(row, noise):
            estimates.append(unknown(written, 0.0, 1.0))
            effects.append(None)
            continue
        share = Share.of(float(row[1]), float(row.sum()), noise, 2)
        estimates.append(Estimate(written, share.value, share.sampling, share.noise, (0.0, 1.0), share))
        effect = _of_share(str(site), row, noise, common)
        effects.append(effect if effect.total > 0 else None)
    return SiteEffects(label, tuple(estimates), tuple(effects), (name,), (0.0, 1.0))


def share_differences(
    by: str, name: str, of: str, groups: Groups, sites: Sequence[object], counts: Floats, noise: float
) -> SiteEffects:
    """Return the differences of shares between two groups at sites, from their counts."""
    first, other = groups.values
    label = f"{of} risk difference, {groups.name}: {other} - {first}"
    effects: list[Effect | None] = []
    estimates: list[Estimate] = []
    commons = [float(np.clip(_ratio(counts[:, g].sum(axis=0)), 0.0, 1.0)) for g in (0, 1)]
    for site, table in zip(sites, counts, strict=True):
        written = site_label(label, by, site)
        if not all(_clear(row, noise) for row in table):
            estimates.append(unknown(written, -1.0, 1.0))
            effects.append(None)
            continue
        control, exposed = (
            _of_share(str(site), row, noise, common) for row, common in zip(table, commons, strict=True)
        )
        effect = Effect(
            str(site),
            exposed.value - control.value,
            exposed.sampling + control.sampling,
            exposed.privacy + control.privacy,
        )
        errors = math.sqrt(effect.sampling), math.sqrt(effect.privacy)
        estimates.append(Estimate(written, effect.value, *errors, (-1.0, 1.0)))
        effects.append(effect if effect.total > 0 else None)
    return SiteEffects(label, tuple(estimates), tuple(effects), (name, groups.name), (-1.0, 1.0))


def _of_share(site: str, row: Floats, noise: float, common: float) -> Effect:
    """Return a share whose variance is that of a share drawn by four rows to the common one.

    A site without cases would otherwise have no variance at all, and outweigh all others.
    """
    whole = float(row.sum())
    drawn = (min(max(float(row[1]), 0.0), whole) + 4 * common) / (whole + 4)

    def blurred(p: float) -> float:
        return noise**2 * (p * p + (1 - p) ** 2) / whole**2

    agreed = common * (1 - common) / whole + blurred(common)
    return Effect(
        site,
        float(row[1]) / whole,
        drawn * (1 - drawn) / whole,
        blurred(drawn),
        0.0,
        agreed if agreed > 0 else None,
    )


def _ratio(row: Floats) -> float:
    return float(row[1] / row.sum()) if row.sum() > 0 else 0.5


def _clear(row: Floats, noise: float) -> bool:
    return enough(float(row.sum()), noise * math.sqrt(2))


@dataclass(frozen=True)
class SiteCoefficients:
    """The coefficients of one site, and their covariances from sampling and from noise."""

    values: Floats
    sampling: Floats
    privacy: Floats
    relative: float  # the error of the residual variance, over it, squared

    def __call__(self, site: str, row: Floats) -> Effect:
        """Return a combination of the coefficients."""
        sampling, privacy = (max(float(row @ each @ row), 0.0) for each in (self.sampling, self.privacy))
        return Effect(site, float(row @ self.values), sampling, privacy, sampling**2 * self.relative)


def coefficients_of(group: Floats, noise: Floats) -> SiteCoefficients | None:
    """Return the regression of one site; None if noise hides a direction of its features."""
    n, last = float(group[0, 0]), len(group) - 1
    root = np.sqrt(noise)
    sums = SecondMoments(
        n, float(group[0, last]), float(group[last, last]), group[0, 1:last], group[1:last, last],
        group[1:last, 1:last], float(root[0, 0]), float(root[0, last]), float(root[last, last]),
        float(root[0, 1]), float(root[1, last]), float(root[1, 1]),
    )  # fmt: skip
    if not sums.enough or n <= last + 1:
        return None
    found = coefficients(sums, centred=True, loss=1.0)
    if found.pull.any():
        return None
    b, w = float(found.values[0]), found.values[1:]
    square = float(w @ w)
    unsure = math.hypot(
        sums.yy_noise, 2 * b * sums.y_noise, 2 * math.sqrt(square) * sums.xy_noise, square * sums.xx_noise
    )
    relative = 2 / (n - last) + (unsure / n / found.residual) ** 2 if found.residual > 0 else 0.0
    return SiteCoefficients(found.values, found.clear, found.privacy, relative)
