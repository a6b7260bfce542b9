"""Typical rows, for plans: what a block's sums would be, before any row is read.

A number has the mean and the SD that people expect of it (`cape.data.expected`); cells follow the beta
distribution with these moments, which fills the bounds and can lean to either. Where nothing is stated, it
is taken to lie around the middle of its bounds with an SD of a sixth of their width: bounds that people
choose leave room on both sides, and rows spread evenly over them would make every plan that divides by a
variance too optimistic. A category has the shares that people expect, else all values are equally common.

Columns are independent of each other, but features of a regression explain half of the variance of a
target of which nothing is stated, each the same share of it. Steps of clipped scores find that they explain a
quarter (`targets`).

`plausible` says for what other rows a plan should hold: where nothing is stated, columns as they occur in
studies; where mean and SD are, cells that lie otherwise around them; and, for analyses of several columns
together, numbers that are moderately correlated, which nobody states. They are so by what they have in
common, one factor, so that the matrix of correlations is positive; and no more than bounds and means allow:
two columns that are mostly 0 can hardly go in opposite directions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincinv, ndtr, ndtri

from cape.blocks.basis import basis_of
from cape.blocks.design import Design
from cape.blocks.terms import quoted
from cape.core.arrays import Floats, Integers
from cape.data.expected import Expected, Form
from cape.data.schema import Category, Column, Number, Schema

__all__ = [
    "SUPPOSED",
    "Entries",
    "Shape",
    "correlated",
    "entries",
    "plausible",
    "power",
    "rows",
    "steepest",
    "targets",
    "together",
    "vectors",
]

_EXPLAINED = 0.5  # the part of a target's variance that features explain, where nothing is stated of it
FOLLOWED = 0.25  # the part of a target's variance that features explain, where steps look for it
_SD = 1 / 6  # of the bounds' width, where nothing is stated
_LEAST = 1e-9  # of alpha + beta, where all cells lie at the bounds
_CROWD = 0.97  # of the most cells that can lie at a bound
_SEPARATED = 4.0  # log-odds
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)  # multiples of their roots are evenly spread mod 1
_SAMPLED = 4096  # rows that stand for all, where entries are interactions or splines
_RANKS = 2048  # at which quantiles are kept: the last one is that of 0.02% of rows
_MODERATE = (0.3, 0.5)  # correlations: medium and large by Cohen's words
_RARE = 0.1  # the share of all values but the first, or of the first, where categories are rare

SUPPOSED = (
    # in words, mean above the lower bound, SD: in widths
    ("with an SD of a twentieth of the width", 0.5, 1 / 20),
    ("near a bound as costs are (mean and SD a tenth of the width)", 0.1, 0.1),
    ("mostly at a bound as counts are (mean a hundredth, SD a fortieth)", 0.01, 1 / 40),
)
"""Columns as they occur in studies, other than around the middle with an SD of a sixth of the width."""


@dataclass(frozen=True)
class Shape:
    """How the scaled cells t of a numeric column are planned to be distributed."""

    column: Number

    @property
    def expected(self) -> Expected:
        """The mean and SD, as stated or as assumed."""
        column = self.column
        return column.expected or Expected(column.middle, column.half * (2 * _SD))

    @property
    def mean(self) -> float:
        """The mean of t."""
        return (self.expected.mean - self.column.middle) / self.column.half

    @property
    def variance(self) -> float:
        """The variance of t."""
        return (self.expected.sd / self.column.half) ** 2

    @cached_property
    def _sides(self) -> tuple[float, float]:
        """The alpha and beta of (1 + t) / 2 that give its mean and variance."""
        mean = (1 + self.mean) / 2
        total = max(4 * mean * (1 - mean) / self.variance - 1, _LEAST)
        return mean * total, (1 - mean) * total

    def power(self, exponent: int) -> float:
        """Return the mean of t^exponent: from the stated moments for 1 and 2, beyond from the beta's."""
        if exponent < 3:
            return (1.0, self.mean, self.variance + self.mean**2)[exponent]
        alpha, beta = self._sides
        raw = [1.0]
        for i in range(exponent):
            raw.append(raw[-1] * (alpha + i) / (alpha + beta + i))
        signs = [(-1) ** (exponent - i) for i in range(len(raw))]
        return float(sum(math.comb(exponent, i) * 2**i * signs[i] * each for i, each in enumerate(raw)))

    def below(self, values: ArrayLike) -> Floats:
        """Return the part of the rows below each value, in the column's unit, strictly within the bounds."""
        x, column = np.asarray(values, np.float64), self.column
        form = self.expected.form
        if form == "few":  # values are an SD apart: one is below x if it was rounded from less than this
            mean, sd = self.expected.mean, self.expected.sd
            x = mean + sd * (np.ceil((x - mean) / sd) - 0.5)
        u = np.clip((x - column.low) / (2 * column.half), 0.0, 1.0)
        if form in ("crowded", "tailed"):
            part = {"crowded": _crowded, "tailed": _tailed}[form]
            mean, variance = (1 + self.mean) / 2, self.variance / 4
            return part(u, mean, variance) if mean <= 0.5 else 1 - part(1 - u, 1 - mean, variance)
        return np.asarray(betainc(*self._sides, u))

    def at(self, ranks: Floats) -> Floats:
        """Return the t of cells with these ranks, from 0 to 1, to within one of `_RANKS` steps."""
        known = _quantiles(self.expected, self.column.low, self.column.high)
        return known[np.clip((ranks * _RANKS).astype(np.int64), 0, _RANKS - 1)]

    def _at(self, ranks: Floats) -> Floats:
        mean, variance, form = (1 + self.mean) / 2, self.variance / 4, self.expected.form
        if form in ("crowded", "tailed"):
            part = {"crowded": _crowded_at, "tailed": _tailed_at}[form]
            u = part(ranks, mean, variance) if mean <= 0.5 else 1 - part(1 - ranks, 1 - mean, variance)
            return np.asarray(2 * u - 1)
        t = np.asarray(2 * betaincinv(*self._sides, ranks) - 1)
        if form == "few":  # as in `below`
            sd = math.sqrt(self.variance)
            t = np.clip(self.mean + sd * np.round((t - self.mean) / sd), -1.0, 1.0)
        return t


@lru_cache(maxsize=256)
def _quantiles(expected: Expected, low: float, high: float) -> Floats:
    """Return the t of cells at evenly spread ranks; columns with the same shape share them."""
    found = Shape(Number(low, high, expected=expected))._at((np.arange(_RANKS) + 0.5) / _RANKS)
    found.setflags(write=False)
    return found


def _around(mean: float, variance: float) -> tuple[float, float, float]:
    """Return the part of cells that are 0, and the alpha and beta of the others, if many are 0.

    With a part q at 0 the others have the mean m / (1 - q) and the mean square (m² + v) / (1 - q): all are
    equal where q = v / (m² + v), which is the most.
    """
    at_bound = _CROWD * variance / (mean**2 + variance)
    others = mean / (1 - at_bound)
    spread = (mean**2 + variance) / (1 - at_bound) - others**2
    total = max(others * (1 - others) / spread - 1, _LEAST)
    return at_bound, others * total, (1 - others) * total


def _crowded(u: Floats, mean: float, variance: float) -> Floats:
    """Return the part of cells below u if many of them are 0, for a mean and a variance."""
    at_bound, *sides = _around(mean, variance)
    return np.asarray(np.where(u <= 0, 0.0, at_bound + (1 - at_bound) * betainc(*sides, u)))


def _crowded_at(ranks: Floats, mean: float, variance: float) -> Floats:
    at_bound, *sides = _around(mean, variance)
    inside = betaincinv(*sides, np.clip((ranks - at_bound) / (1 - at_bound), 0.0, 1.0))
    return np.asarray(np.where(ranks <= at_bound, 0.0, inside))


def _tailed(u: Floats, mean: float, variance: float) -> Floats:
    """Return the part of cells below u if they are lognormal, for a mean and a variance."""
    spread = math.log1p(variance / mean**2)
    with np.errstate(divide="ignore"):
        return np.asarray(ndtr((np.log(u / mean) + spread / 2) / math.sqrt(spread)))


def _tailed_at(ranks: Floats, mean: float, variance: float) -> Floats:
    spread = math.log1p(variance / mean**2)
    return np.asarray(np.minimum(mean * np.exp(math.sqrt(spread) * ndtri(ranks) - spread / 2), 1.0))


def power(column: Column, exponent: int) -> float:
    """Return the mean of y^exponent of a target: t, or -1 and 1 for the values of a category."""
    if isinstance(column, Number):
        return Shape(column).power(exponent)
    return 1.0 if exponent % 2 == 0 else 2 * column.shares[-1] - 1


class Entries:
    """The entries that columns make: t of a number, 0 or 1 for each value of a category but the first.

    Attributes:
        powers: for each entry, the mean of its k-th power, k from 0 on.
        groups: for each entry, which column it stands for.
        loadings: how much of each entry is what columns have in common; 0 for categories.
    """

    def __init__(self, columns: Iterable[Column], most: int = 2, constant: float = 0.0) -> None:
        """Make them; a constant that is not 0 stands before all others."""
        powers = [[constant**k for k in range(most + 1)]] if constant else []
        groups, loadings = ([-1], [0.0]) if constant else ([], [])
        for group, column in enumerate(columns):
            if isinstance(column, Number):
                powers.append([Shape(column).power(k) for k in range(most + 1)])
                groups.append(group)
                loadings.append(Shape(column).expected.loading)
            else:
                powers += [[1.0] + [share] * most for share in column.shares[1:]]
                groups += [group] * (len(column.values) - 1)
                loadings += [0.0] * (len(column.values) - 1)
        self.powers = np.array(powers).reshape(len(powers), most + 1)
        self.groups = np.array(groups, np.int64)
        self.loadings = np.array(loadings)

    def products(self, places: Integers) -> Floats:
        """Return the mean of each product of entries, whose places rise along a row of `places`.

        Those of two count how columns go together; of more, as if columns were independent.
        """
        if places.shape[1] == 2:
            return np.asarray(self._second[places[:, 0], places[:, 1]])
        found = np.ones(len(places))
        many = places.shape[1]
        run = np.zeros(len(places), np.int64)
        for i in range(many):
            run = run + 1
            if i + 1 == many:
                return np.asarray(found * self.powers[places[:, i], run])
            same = places[:, i] == places[:, i + 1]
            other_value = ~same & (self.groups[places[:, i]] == self.groups[places[:, i + 1]])
            found = np.where(same, found, found * self.powers[places[:, i], run])
            found[other_value] = 0.0  # a row has one value of a category
            run = np.where(same, run, 0)
        return found

    @property
    def mean(self) -> Floats:
        """The mean of each entry."""
        return np.asarray(self.powers[:, 1])

    @property
    def covariance(self) -> Floats:
        """The covariance of the entries: of different columns 0, unless they go together."""
        return np.asarray(self._second - np.outer(self.mean, self.mean))

    @cached_property
    def _second(self) -> Floats:
        """The mean of each product of two entries."""
        same = self.groups[:, None] == self.groups
        second = np.where(same, 0.0, np.outer(self.mean, self.mean) + self._together)  # a row has one value
        np.fill_diagonal(second, self.powers[:, 2])
        return second

    @property
    def _together(self) -> Floats:
        """The covariance of entries of different columns that have something in common.

        For u = (1 + t) / 2, in [0, 1], with means m and m', E uu' lies between m + m' - 1 or 0 and the
        smaller of m and m'. Where that cuts correlations, the others are drawn to 0 until no combination of
        entries varies less than it would with loadings alone.
        """
        spread = np.sqrt(self.powers[:, 2] - self.mean**2)
        wanted = np.outer(self.loadings, self.loadings)
        np.fill_diagonal(wanted, 0.0)
        if not wanted.any():
            return wanted
        m, sizes = (1 + self.mean) / 2, np.outer(spread, spread)
        product = np.outer(m, m)
        low = 4 * (np.maximum(m[:, None] + m - 1, 0.0) - product)
        high = 4 * (np.minimum(m[:, None], m) - product)
        possible = np.where(wanted == 0, 0.0, np.clip(wanted * sizes, low, high) / np.fmax(sizes, 1e-300))
        least, now = (-float(np.linalg.eigvalsh(each)[0]) for each in (wanted, possible))
        return np.asarray(min(1.0, least / now) * possible * sizes if now > 0 else possible * sizes)


class Sampled(Entries):
    """The entries that interactions and splines make: those of rows, in units of t."""

    def __init__(self, rows: Floats, groups: Sequence[int], loadings: Sequence[float], most: int) -> None:
        self.powers = np.stack([(rows**k).mean(axis=0) for k in range(most + 1)], axis=1)
        self.groups, self.loadings = np.array(groups, np.int64), np.array(loadings)
        self._rows = rows

    def products(self, places: Integers) -> Floats:
        if places.shape[1] == 2:
            return np.asarray(self._second[places[:, 0], places[:, 1]])
        return np.array([self._rows[:, list(each)].prod(axis=1).mean() for each in places.tolist()])

    @cached_property
    def _second(self) -> Floats:
        return np.asarray(self._rows.T @ self._rows / len(self._rows))


def entries(design: Design, schema: Schema, most: int = 2) -> tuple[Entries, float]:
    """Return the entries of a design's vectors in units of t, and the unit that they are divided by."""
    length = design.length(schema)
    unit = length * math.hypot(1.0, design.intercept)
    if design.plain:
        columns = [schema[name] for name in design.sources]
        return Entries(columns, most, design.intercept * length), unit
    return _sampled(design, schema, most), unit


def _sampled(design: Design, schema: Schema, most: int = 2) -> Sampled:
    """Return the entries of a design with interactions or splines: a mean over typical rows."""
    basis, x = design.basis(schema), _in_t(design, schema, _SAMPLED)
    owners, loadings = list(basis.owners), _loadings(design, schema).tolist()
    if design.intercept:
        x = np.column_stack([np.full(len(x), design.intercept * design.length(schema)), x])
        owners, loadings = [-1, *owners], [0.0, *loadings]
    return Sampled(x, owners, loadings, most)


def _loadings(design: Design, schema: Schema) -> Floats:
    """Return how much of each entry is what columns have in common."""
    basis = design.basis(schema)
    found = np.zeros(len(basis.labels))
    for part in basis.parts:
        if part.plain is not None and isinstance(part.plain[1], Number):
            found[part.places[0]] = Shape(schema.number(part.plain[0])).expected.loading
    return found


def vectors(design: Design, schema: Schema) -> tuple[Floats, Floats]:
    """Return the mean and the covariance of a design's vectors."""
    found, unit = entries(design, schema)
    return found.mean / unit, found.covariance / unit**2


def rows(design: Design, schema: Schema, many: int) -> Floats:
    """Return the vectors of so many typical rows: the same ones at every call, evenly spread over ranks.

    Numbers that go together do so by the ranks of a normal factor that they have in common.
    """
    x = _in_t(design, schema, many) / design.length(schema)
    if not design.cube:
        x = x / np.fmax(np.linalg.norm(x, axis=1, keepdims=True), 1.0)
    if design.intercept:
        x = np.column_stack([np.full(many, design.intercept), x]) / math.hypot(1.0, design.intercept)
    return np.asarray(x)


def targets(design: Design, schema: Schema, many: int, shares: Sequence[float]) -> Floats:
    """Return, for so many typical rows, the chance of each target: (rows, targets).

    `shares` are those of all rows, in the order of the targets. A target follows its features as far as
    `FOLLOWED` says: by the ranks of two normal variables, one of them what standardised features add up to.
    """
    x = _in_t(design, schema, many)
    deviations = x.std(axis=0)
    varied = deviations > 1e-9
    signs = np.where(_loadings(design, schema) < 0, -1.0, 1.0)  # or those that go together would cancel out
    moved = ((x - x.mean(axis=0))[:, varied] / deviations[varied]) @ signs[varied]
    if not varied.any():
        return np.tile(np.asarray(shares, np.float64), (many, 1))
    ranks = np.empty(many)
    ranks[np.argsort(moved, kind="stable")] = (np.arange(many) + 0.5) / many
    ends = ndtri(np.clip(np.concatenate([[0.0], np.cumsum(shares)[:-1], [1.0]]), 0.0, 1.0))
    below = ndtr((ends - math.sqrt(FOLLOWED) * ndtri(ranks)[:, None]) / math.sqrt(1 - FOLLOWED))
    return np.asarray(np.diff(below, axis=1))


def _in_t(design: Design, schema: Schema, many: int) -> Floats:
    """Return the entries of so many typical rows, in units of t."""
    columns = tuple((name, schema[name], schema[name].expected) for name in design.sources)
    return _entries_in_t(design.features, columns, design.cut, many)


@lru_cache(maxsize=16)
def _entries_in_t(
    features: tuple[str, ...],
    columns: tuple[tuple[str, Column, object], ...],
    cut: tuple[tuple[str, Number], ...],
    many: int,
) -> Floats:
    """Return them; what is expected of columns stands beside them, because equal ones may differ in it."""
    cells = _cells([column for _, column, _ in columns], many)
    by_name = {name: each for (name, *_), each in zip(columns, cells, strict=True)}
    basis = basis_of(features, {name: column for name, column, _ in columns}, dict(cut))
    found = basis.evaluate(by_name, many)
    found.setflags(write=False)
    return found


def _cells(columns: Sequence[Column], many: int) -> list[NDArray[Any]]:
    """Return the cells of so many typical rows: numbers in their units, categories as codes."""
    common = ndtri(_ranks(many, len(columns)))
    found: list[NDArray[Any]] = []
    for i, column in enumerate(columns):
        ranks = _ranks(many, i)
        if isinstance(column, Number):
            shape = Shape(column)
            loading = shape.expected.loading
            if loading:
                ranks = ndtr(loading * common + math.sqrt(1 - loading**2) * ndtri(ranks))
            found.append(column.middle + column.half * shape.at(ranks))
        else:
            found.append(np.searchsorted(np.cumsum(column.shares)[:-1], ranks, side="right"))
    return found


def _ranks(many: int, place: int) -> Floats:
    """Return ranks of rows, from 0 to 1, as independent of those at other places as may be."""
    steps = np.arange(many, dtype=np.float64) * math.sqrt(_PRIMES[place % len(_PRIMES)])
    return np.asarray((0.5 + steps) % 1.0, np.float64)


def correlated(design: Design, schema: Schema, found: Entries) -> Floats:
    """Return the covariance of each entry of a design's vectors with its target."""
    target = None if design.target is None else schema[design.target]
    if target is not None and target.expected is None:
        spread = power(target, 2) - power(target, 1) ** 2
        deviations = np.sqrt(np.diag(found.covariance))
        varied = max(1, int(np.count_nonzero(deviations)))
        signs = np.where(found.loadings < 0, -1.0, 1.0)  # or features that go together would explain it all
        if not design.plain:
            return math.sqrt(spread * _EXPLAINED) * _with_main_effects(design, schema)
        return np.asarray(signs * deviations * math.sqrt(spread * _EXPLAINED / varied))
    if not isinstance(target, Number):
        return np.zeros(len(found.mean))
    columns = [*(schema[name] for name in design.sources), target]
    if not design.plain:
        x = _in_t(design, schema, _SAMPLED)
        y = (_cells(columns, _SAMPLED)[-1] - target.middle) / target.half
        with_y = (x - x.mean(axis=0)).T @ y / len(y)
        return np.concatenate([[0.0], with_y]) if design.intercept else np.asarray(with_y)
    return Entries(columns, constant=design.intercept * design.length(schema)).covariance[:-1, -1]


def _with_main_effects(design: Design, schema: Schema) -> Floats:
    """Return the covariance of entries with a variable of variance 1: columns move it alike, and straight."""
    columns = Design(tuple(map(quoted, design.sources)))
    x, z = _in_t(design, schema, _SAMPLED), _in_t(columns, schema, _SAMPLED)
    deviations = z.std(axis=0)
    moved = (z[:, deviations > 0] / deviations[deviations > 0]).sum(axis=1)
    moved = (moved - moved.mean()) / max(float(moved.std()), 1e-300)
    found = x.T @ moved / len(moved)
    return np.concatenate([[0.0], found]) if design.intercept else np.asarray(found)


def steepest(schema: Schema, target: str, features: Sequence[str]) -> dict[str, float]:
    """Return the largest slope of a target on each entry of its features, if that explained it alone.

    As many SDs of the target as of the entry; or, for a target of two values, log-odds that change by 4 over
    one SD: from even odds to 55 to 1.
    """
    column = schema[target]
    most = math.sqrt(Shape(column).variance) * column.half if isinstance(column, Number) else _SEPARATED
    design, found = Design(tuple(features)), {}
    if not design.plain:
        raw = _in_t(design, schema, _SAMPLED) @ np.linalg.inv(design.basis(schema).matrix)[1:, 1:]
        spread = raw.std(axis=0)
        return dict(zip(design.names(schema), (most / np.fmax(spread, 1e-300)).tolist(), strict=True))
    for name in design.sources:
        feature = schema[name]
        if isinstance(feature, Number):
            found[name] = most / (math.sqrt(Shape(feature).variance) * feature.half)
        else:
            for value, share in zip(feature.values[1:], feature.shares[1:], strict=True):
                found[f"{name}={value}"] = most / math.sqrt(share * (1 - share))
    return found


def plausible(schema: Schema, columns: Sequence[str]) -> list[Schema]:
    """Return the schema with other shapes of these columns that a plan should hold for.

    Each schema states a mean and SD, or shares, for every column of which people state none; where they do,
    only the form differs.
    """
    found = []
    for form in get_args(Form)[1:]:
        changed = {
            name: replace(column, expected=Shape(column).expected.taking(form))
            for name in columns
            if isinstance(column := schema[name], Number)
        }
        found.append(schema.changed(changed))
    if any(schema[name].expected is None for name in columns):
        for _, mean, sd in SUPPOSED:
            found.append(schema.changed({name: _supposed(schema[name], mean, sd) for name in columns}))
        rare = {name: _rare_first(column) for name in columns if isinstance(column := schema[name], Category)}
        if rare:
            numbers = {name: _supposed(schema[name], 0.5, _SD) for name in columns if name not in rare}
            found.append(schema.changed({**numbers, **rare}))
    return found


def together(schema: Schema, columns: Sequence[str]) -> list[Schema]:
    """Return the schema with those of these columns that are numbers correlated .3 and .5.

    First all in the same direction, then every other one in the opposite.
    """
    numbers = [name for name in columns if isinstance(schema[name], Number)]
    found = []
    for correlation in _MODERATE if len(numbers) > 1 else ():
        for sign in (1, -1):
            changed: dict[str, Column] = {}
            for i, name in enumerate(numbers):
                column = schema.number(name)
                loading = math.sqrt(correlation) * sign ** (i % 2)
                changed[name] = replace(column, expected=replace(Shape(column).expected, loading=loading))
            found.append(schema.changed(changed))
    return found


def _rare_first(column: Category) -> Category:
    """Return a category of which nothing is stated with few of its first value."""
    if column.expected is not None or len(column.values) < 2:
        return column
    others = len(column.values) - 1
    return replace(column, expected=(_RARE, *[(1 - _RARE) / others] * others))


def _supposed(column: Column, mean: float, sd: float) -> Column:
    if column.expected is not None:
        return column
    if isinstance(column, Number):
        width = 2 * column.half
        return replace(column, expected=Expected(column.low + mean * width, sd * width))
    if mean == SUPPOSED[0][1] or len(column.values) < 2:
        return column
    others = len(column.values) - 1
    return replace(column, expected=(1 - _RARE, *[_RARE / others] * others))
