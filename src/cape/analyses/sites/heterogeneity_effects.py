"""What each site says of a mean, a share, a difference or a coefficient: which sums, and what follows.

Each class asks for the sums of one question by site, and turns them into estimates with the variances that
`synthesis` needs.

Claim. One person moves the sums of `query`, each divided by its scale, by at most its sensitivity.
Reason. *Means*: `moments` proves how far a row moves count, sum and squares of a column; at its own site it
moves those of one site, and public counts do not move (`site_sums`). A row of another group is a row that
leaves and one that comes: twice what one row holds. *Differences of means*: rows are grouped by site and
group, and may change the group at their site: twice what one row holds. *Shares* and *differences of shares*
are tables of counts: `one_hot`. *Coefficients*: `site_sums`.
Tested in tests/unit/analyses/test_sensitivity.py and tests/unit/analyses/sites/test_site_sums.py.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cape.analyses.compare.association import Association
from cape.analyses.compare.difference import Difference
from cape.analyses.describe.histogram import one_hot
from cape.analyses.describe.mean import Mean
from cape.analyses.describe.proportion import Proportion
from cape.analyses.moments import Weights, by_missing
from cape.analyses.regression.inference import coefficients, widest
from cape.analyses.regression.linear import LinearRegression
from cape.analyses.regression.moments import SecondMoments
from cape.analyses.sites.site_sums import PUBLIC, SiteSums, require_groups, site_query, stays
from cape.blocks import Axis, Block, Counts, GroupedProducts, Moments
from cape.blocks.units import Units
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Number, Schema
from cape.engine.query import Analysis, Answer, Neighbours, Query
from cape.stats.estimates import Estimate, unknown
from cape.stats.meta_analysis import Effect
from cape.stats.moments import Sums, enough
from cape.stats.proportions import Share
from cape.stats.welch import Group, Pair

__all__ = ["KINDS", "BySite", "SiteEffects", "by_site"]

_WEIGHTS = {"y": 0.4, "yy": 1.0, "x": 0.4, "xy": 0.75, "xx": 1.0}
_ADDED = {**_WEIGHTS, "yy": 0.3}  # under add-remove nothing is free


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


class BySite(ABC):
    """One question, asked of each site: the sums it needs, and the effects of all sites."""

    def __init__(self, by: str) -> None:
        self.by = by

    @abstractmethod
    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return the sums."""

    @abstractmethod
    def read(self, answer: Answer) -> Iterator[SiteEffects]:
        """Yield what is found, one quantity after the other."""

    def _label(self, what: str, site: object) -> str:
        return f"{what} | {self.by}={site}"


class _Means(BySite):
    """Means of columns, or their differences between the two values of a category."""

    def __init__(self, by: str, columns: tuple[str, ...], groups: str | None = None) -> None:
        super().__init__(by)
        self.columns, self.groups = columns, groups

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        require_groups(schema, self.by)
        if self.groups is not None:
            _require_two(schema, self.groups)
        blocks: list[Block] = []
        scales: list[tuple[float, ...]] = []
        moved = 0.0
        by = self.by if self.groups is None else (self.by, self.groups)
        for part in by_missing(self.columns, schema):
            missing = schema.number(part[0]).missing or schema.category(self.by).missing
            same = neighbours == "replace-one" and self.groups is None and stays(schema, self.by)
            weights = Weights(1.0, 0.25, 0.75)
            if same:
                weights = Weights(1.0, 1.0, 2.0 if missing else PUBLIC)
            blocks.append(Moments(part, by=by))
            scales.append(weights.scales)
            each = weights.moved(neighbours, missing)
            if neighbours == "replace-one" and not same:
                each = max(each, 2 * weights.norm)
            moved += len(part) * each
        return Query(tuple(blocks), tuple(scales), math.sqrt(moved))

    def read(self, answer: Answer) -> Iterator[SiteEffects]:
        schema = answer.schema
        found: dict[str, tuple[Floats, tuple[float, ...]]] = {}
        blocks = zip(by_missing(self.columns, schema), answer.sums, answer.noise, strict=True)
        for part, arrays, noise in blocks:
            for i, name in enumerate(part):
                found[name] = np.stack([array[..., i] for array in arrays], axis=-1), noise
        for name in self.columns:
            column, (sums, noise) = schema.number(name), found[name]
            each = zip(schema.category(self.by).values, sums, strict=True)
            if self.groups is None:
                yield self._means(name, column, [(s, Sums(*map(float, row), *noise)) for s, row in each])
            else:
                pairs = [(s, tuple(Sums(*map(float, row), *noise) for row in rows)) for s, rows in each]
                yield self._differences(name, column, schema, pairs)

    def _means(self, name: str, column: Number, sites: Sequence[tuple[object, Sums]]) -> SiteEffects:
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
        estimates = tuple(sums.mean_estimate(self._label(label, site), column) for site, sums in sites)
        return SiteEffects(label, estimates, tuple(effects), (name,), (column.low, column.high))

    def _differences(
        self, name: str, column: Number, schema: Schema, sites: Sequence[tuple[object, tuple[Sums, ...]]]
    ) -> SiteEffects:
        first, second = schema.category(str(self.groups)).values
        label, half = f"{name} difference, {self.groups}: {second} - {first}", column.half
        effects: list[Effect | None] = []
        estimates: list[Estimate] = []
        for site, sums in sites:
            written, within = self._label(label, site), (-2 * half, 2 * half)
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
        columns = (name, str(self.groups))
        return SiteEffects(label, tuple(estimates), tuple(effects), columns, (-2 * half, 2 * half))


@dataclass(frozen=True)
class _Scaled:
    """The interval of a difference, in the column's unit."""

    pair: Pair
    unit: float

    def __call__(self, level: float) -> tuple[float, float]:
        low, high = self.pair.interval(level)
        return self.unit * low, self.unit * high


class _Shares(BySite):
    """The share of the second of two categories; between groups, the difference of these shares."""

    def __init__(self, by: str, columns: tuple[str, ...], groups: str | None = None) -> None:
        super().__init__(by)
        self.columns, self.groups = columns, groups

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        require_groups(schema, self.by)
        for name in (*self.columns, *(() if self.groups is None else (self.groups,))):
            _require_two(schema, name)
        axes = (Axis(self.by), *(() if self.groups is None else (Axis(self.groups),)))
        blocks = tuple(Counts((*axes, Axis(name))) for name in self.columns)
        moved = sum(one_hot(neighbours, block.arrays(schema)[0].size) for block in blocks)
        return Query(blocks, tuple((1.0,) for _ in blocks), math.sqrt(moved))

    def read(self, answer: Answer) -> Iterator[SiteEffects]:
        sites = answer.schema.category(self.by).values
        for name, (table,), (noise,) in zip(self.columns, answer.sums, answer.noise, strict=True):
            counts = np.asarray(table, np.float64)
            of = f"{name}={answer.schema.category(name).values[1]}"
            if self.groups is None:
                yield self._shares(name, of, sites, counts, noise)
            else:
                yield self._differences(name, of, sites, counts, noise, answer.schema)

    def _shares(
        self, name: str, label: str, sites: Sequence[object], counts: Floats, noise: float
    ) -> SiteEffects:
        known = [row for row in counts if _clear(row, noise)]
        total = np.sum(known, axis=0) if known else np.ones(2)
        common = min(max(float(total[1] / total.sum()), 0.0), 1.0) if total.sum() > 0 else 0.5
        effects: list[Effect | None] = []
        estimates: list[Estimate] = []
        for site, row in zip(sites, counts, strict=True):
            written = self._label(label, site)
            if not _clear(row, noise):
                estimates.append(unknown(written, 0.0, 1.0))
                effects.append(None)
                continue
            share = Share.of(float(row[1]), float(row.sum()), noise, 2)
            estimates.append(Estimate(written, share.value, share.sampling, share.noise, (0.0, 1.0), share))
            effect = _of_share(str(site), row, noise, common)
            effects.append(effect if effect.total > 0 else None)
        return SiteEffects(label, tuple(estimates), tuple(effects), (name,), (0.0, 1.0))

    def _differences(
        self, name: str, of: str, sites: Sequence[object], counts: Floats, noise: float, schema: Schema
    ) -> SiteEffects:
        groups = str(self.groups)
        first, other = schema.category(groups).values
        label = f"{of} risk difference, {groups}: {other} - {first}"
        effects: list[Effect | None] = []
        estimates: list[Estimate] = []
        commons = [float(np.clip(_ratio(counts[:, g].sum(axis=0)), 0.0, 1.0)) for g in (0, 1)]
        for site, table in zip(sites, counts, strict=True):
            written = self._label(label, site)
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
        return SiteEffects(label, tuple(estimates), tuple(effects), (name, groups), (-1.0, 1.0))


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


class _Slopes(BySite):
    """The coefficients of a linear regression of each site, with classical sampling errors."""

    def __init__(self, by: str, regression: LinearRegression) -> None:
        super().__init__(by)
        self.block = GroupedProducts(regression.design, by)

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        weights = _ADDED if neighbours == "add-remove" else _WEIGHTS
        return site_query(self.block, weights, schema, neighbours)

    def read(self, answer: Answer) -> Iterator[SiteEffects]:
        schema, sums = answer.schema, SiteSums.of(answer, self.block)
        units = Units(self.block.design, schema)
        half = schema.number(str(self.block.design.target)).half
        sites = schema.category(self.by).values
        found = [_coefficients(group, sums.group_noise) for group in sums.groups]
        limits = half * widest(units, 2.0, 1.0)
        columns = tuple(self.block.design.columns)
        for name, row, limit in zip(units.names, half * units.matrix[1:], limits[1:], strict=True):
            most = float(limit)
            effects: list[Effect | None] = []
            estimates: list[Estimate] = []
            for site, each in zip(sites, found, strict=True):
                label = self._label(name, site)
                if each is None:
                    effects.append(None)
                    estimates.append(unknown(label, -most, most))
                    continue
                effect = each(str(site), row)
                errors = math.sqrt(effect.sampling), math.sqrt(effect.privacy)
                effects.append(effect)
                estimates.append(Estimate(label, effect.value, *errors))
            yield SiteEffects(name, tuple(estimates), tuple(effects), columns)


@dataclass(frozen=True)
class _SiteCoefficients:
    values: Floats
    sampling: Floats
    privacy: Floats
    relative: float  # the error of the residual variance, over it, squared

    def __call__(self, site: str, row: Floats) -> Effect:
        """Return a combination of the coefficients."""
        sampling, privacy = (max(float(row @ each @ row), 0.0) for each in (self.sampling, self.privacy))
        return Effect(site, float(row @ self.values), sampling, privacy, sampling**2 * self.relative)


def _coefficients(group: Floats, noise: Floats) -> _SiteCoefficients | None:
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
    return _SiteCoefficients(found.values, found.clear, found.privacy, relative)


def _require_two(schema: Schema, name: str) -> None:
    many = len(schema.category(name).values)
    if many != 2:
        raise InvalidInput(
            f"column {name!r} must have two categories to be compared between sites, not {many}; derive one "
            f"that has, as in {{sql = \"{name} = '{schema.category(name).values[0]}'\"}}"
        )


KINDS: dict[str, type[Analysis]] = {
    each.kind: each for each in (Mean, Proportion, Difference, Association, LinearRegression)
}
"""What can be compared between sites."""


def by_site(of: Analysis, by: str) -> BySite:
    """Return the question of an analysis, asked of each site."""
    if isinstance(of, Difference):
        return _Means(by, of.columns, of.by)
    if isinstance(of, Mean):
        return _Means(by, of.columns)
    if isinstance(of, Proportion):
        return _Shares(by, of.columns)
    if isinstance(of, Association):
        return _Shares(by, of.columns[1:], of.columns[0])
    if isinstance(of, LinearRegression):
        return _Slopes(by, of)
    raise InvalidInput(f"of must be one of {', '.join(KINDS)}, not {of!r}")
