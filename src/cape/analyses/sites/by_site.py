"""What each site says of a mean, a share, a difference or a coefficient: which sums, and what follows.

Each class asks for the sums of one question by site; `site_effects` turns them into estimates.

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
from collections.abc import Iterator

import numpy as np

from cape.analyses.compare.association import Association
from cape.analyses.compare.difference import Difference
from cape.analyses.describe.histogram import one_hot
from cape.analyses.describe.mean import Mean
from cape.analyses.describe.proportion import Proportion
from cape.analyses.moments import Weights, by_missing
from cape.analyses.regression.inference import widest
from cape.analyses.regression.linear import LinearRegression
from cape.analyses.sites.site_effects import (
    Groups,
    SiteEffects,
    coefficients_of,
    differences,
    means,
    share_differences,
    shares,
    site_label,
)
from cape.analyses.sites.site_sums import PUBLIC, SiteSums, require_groups, site_query, stays
from cape.blocks import Axis, Block, Counts, GroupedProducts, Moments
from cape.blocks.units import Units
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.query import Analysis, Answer, Neighbours, Query
from cape.stats.estimates import Estimate, unknown
from cape.stats.meta_analysis import Effect
from cape.stats.moments import Sums

__all__ = ["KINDS", "BySite", "by_site"]

_WEIGHTS = {"y": 0.4, "yy": 1.0, "x": 0.4, "xy": 0.75, "xx": 1.0}
_ADDED = {**_WEIGHTS, "yy": 0.3}  # under add-remove nothing is free


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
                yield means(self.by, name, column, [(s, Sums(*map(float, row), *noise)) for s, row in each])
            else:
                pairs = [(s, tuple(Sums(*map(float, row), *noise) for row in rows)) for s, rows in each]
                yield differences(self.by, name, column, _two(schema, self.groups), pairs)


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
                yield shares(self.by, name, of, sites, counts, noise)
            else:
                yield share_differences(
                    self.by, name, of, _two(answer.schema, self.groups), sites, counts, noise
                )


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
        found = [coefficients_of(group, sums.group_noise) for group in sums.groups]
        limits = half * widest(units, 2.0, 1.0)
        columns = tuple(self.block.design.columns)
        for name, row, limit in zip(units.names, half * units.matrix[1:], limits[1:], strict=True):
            most = float(limit)
            effects: list[Effect | None] = []
            estimates: list[Estimate] = []
            for site, each in zip(sites, found, strict=True):
                label = site_label(name, self.by, site)
                if each is None:
                    effects.append(None)
                    estimates.append(unknown(label, -most, most))
                    continue
                effect = each(str(site), row)
                errors = math.sqrt(effect.sampling), math.sqrt(effect.privacy)
                effects.append(effect)
                estimates.append(Estimate(label, effect.value, *errors))
            yield SiteEffects(name, tuple(estimates), tuple(effects), columns)


def _two(schema: Schema, name: str) -> Groups:
    first, second = schema.category(name).values
    return Groups(name, (first, second))


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
