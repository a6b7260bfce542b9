"""What a release will do to privacy and to accuracy, before any row is read.

A plan is made from the schema, the budget and the number of rows that people expect; it opens no table.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.bounds_price import BoundsPrice, price_of_bounds
from cape.engine.outlook import LEGEND, Answers, Limits, Shapes, answers, shapes
from cape.engine.query import Analysis, Noise, Query
from cape.engine.result import ReleaseGuarantee
from cape.engine.schemes import SCHEMES, CapeGaussian, Parties, Scheme, make_scheme
from cape.engine.stages import Setting, Stages
from cape.engine.steady import Grid, steady
from cape.noise import Kind
from cape.noise.parts import KINDS
from cape.privacy import Budget
from cape.show import Shown, Table
from cape.show.numbers import count, number
from cape.stats.law import GAUSSIAN, Law

__all__ = ["BESIDE", "Plan", "expected_noise", "make_plan", "noise_ratio"]

Times = Callable[[Setting, Mapping[str, int]], float]

BESIDE = ("cape", "conventional", "local", "pooled")
_MOST = 12  # numbers in a plan's table
_DROPPED = ("local", "expected error", "pooled")  # where the screen is narrow
_MOST_SITES = 20  # times as many sites as there are, that are thought of
_HALF = 0.5 * (1 + 1e-9)
_SAME = 5e-4


@dataclass(frozen=True, repr=False)
class Plan(Shown):
    """Noise in each column's own unit, for the chosen scheme and beside it the others.

    Attributes:
        shapes: the range of the noise over plausible columns, and what was assumed of them.
        noise: label -> scheme -> standard deviation of the privacy noise.
        halving: what would halve the error: total epsilon, rows, sites; None where nothing of that
            kind would.
        answers: which numbers will have no answer at this budget and size, and what would.
        outlook: what the analysis says besides of typical rows, as tables.
        law: the law of the noise.
        other: label -> the noise of the scheme with the other kind of noise, Laplace for Gaussian; empty
            where that cannot be had.
        size: how many numbers its decisive stage releases, counts of cells outside bounds among them.
        bounds: what wide bounds cost, and what tighter ones would.
        lost: a number of lost sites -> how many times as large the noise of the median number is then as
            with nobody lost, over the same rows; for 1, 2, 3 and the most that a release is made to survive.
    """

    analysis: Analysis
    schema: Schema
    shapes: Shapes
    scheme: str
    share: float
    rows: int
    assumed_rows: bool
    noise: dict[str, dict[str, float]]
    guarantee: ReleaseGuarantee
    halving: dict[str, float | None]
    size: int
    left: float
    answers: Answers
    lost: dict[int, float]
    outlook: tuple[Table, ...] = ()
    bounds: tuple[BoundsPrice, ...] = ()
    law: Law = GAUSSIAN
    other: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """How many times as large the median number's noise would be with the other kind of noise."""
        times = sorted(self.other[label] / self.noise[label][self.scheme] for label in self.other)
        return times[(len(times) - 1) // 2] if times else None

    @property
    def expected_error(self) -> dict[str, float]:
        """The expected absolute error from privacy noise, by label."""
        return {label: by[self.scheme] * self.law.mean_absolute for label, by in self.noise.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return {
            "analysis": self.analysis.to_dict(),
            "description": self.analysis.sentence,
            "scheme": self.scheme,
            "share": self.share,
            "rows": self.rows,
            "rows_assumed": self.assumed_rows,
            "numbers": self.size,
            "noise": self.noise,
            "expected_error": self.expected_error,
            "guarantee": self.guarantee.to_dict(),
            "halving": self.halving,
            "range": {label: list(ends) for label, ends in self.shapes.ranges.items()},
            "expected_of": list(self.shapes.stated),
            "nothing_expected_of": list(self.shapes.assumed),
            "no_answer": list(self.answers.hidden),
            "perhaps_no_answer": list(self.answers.doubtful),
            "an_answer_needs": list(self.answers.instead),
            "noise_kind": "gaussian" if self.law.gaussian else "laplace",
            "other_noise": self.other,
            "bounds": [price.to_dict() for price in self.bounds],
            "lost": {str(sites): times for sites, times in self.lost.items()},
            "outlook": [{"title": t.title, "columns": t.columns, "rows": t.rows} for t in self.outlook],
        }

    def table(self) -> Table:
        """Return the noise under each scheme and the expected error, for at most twelve numbers."""
        schemes, ranges = list(next(iter(self.noise.values()), {})), self.shapes.ranges
        rows = []
        for label, by in list(self.noise.items())[:_MOST]:
            title, per = self.analysis.title(label, self.schema), 1.0
            if self.analysis.slopes:
                title, per = self.schema.change(label)
            cells = [number(per * cell) for cell in (*by.values(), self.expected_error[label])]
            if ranges:
                ends = [number(per * end) for end in ranges[label]]
                cells.insert(1, " to ".join(dict.fromkeys(ends)))
            rows.append((title, *cells))
        columns = ["privacy noise (SD)", *schemes, "expected error"]
        if ranges:
            columns.insert(2, "range")
        return Table(
            tuple(columns),
            tuple(rows),
            f"{self.analysis.sentence} (share {self.share:g})",
            drop=tuple(columns.index(name) for name in _DROPPED if name in columns),
            more=len(self.noise) - len(rows),
        )

    def tables(self) -> list[Table]:
        """Return its table, and what the analysis says besides."""
        return [self.table(), *self.outlook]

    def notes(self) -> list[str]:
        """Return what it was planned for, the guarantee, and what would halve the error."""
        assumed = " (assumed; give the sizes of your sites)" if self.assumed_rows else ""
        rows = f"For {self.rows:,} rows{assumed}; local is the largest site alone, scaled up to all rows."
        if self.schema.where is not None:
            rows += (
                " Planned as if all of them met the condition: if one in k does, means are k times as noisy."
            )
        legend = LEGEND if self.shapes.assumed else ""
        return [note for note in (self.no_answer, f"{rows} {self.guarantee}", self.advice, legend) if note]

    @property
    def no_answer(self) -> str:
        """Which numbers will have no answer, and what one needs, in words; empty if all have one."""
        return self.answers.sentence(lambda label: self.analysis.title(label, self.schema))

    @property
    def advice(self) -> str:
        """What would halve the error, in words."""
        words = {"epsilon": "a total epsilon of {:.3g}", "rows": "{:,.0f} rows", "sites": "{:.0f} such sites"}
        ways = [words[way].format(value) for way, value in self.halving.items() if value is not None]
        if self.answers.hidden:  # which needs more than half the error
            ways = []
        told = [f"The error would halve with {', or '.join(ways)}."] if ways else []
        if 0 < self.guarantee.mu < math.inf:
            told += self._losses()
        if self.ratio is not None:
            kind = "Laplace" if self.law.gaussian else "Gaussian"
            told.append(f"With {kind} noise it would be {self.ratio:.3g} times as large.")
        told += [price.sentence(self.schema.label(price.column)) for price in self.bounds]
        told += self.shapes.sentences(self.schema)
        if self.share > self.left:
            told.append(f"Only {self.left:.3g} of the budget is left.")
        return " ".join(told)

    def _losses(self) -> list[str]:
        """Return what losing sites does, in words."""
        parties, scheme = self.guarantee.parties, SCHEMES[self.scheme]()
        if not scheme.distributed:
            return []
        if parties.min_sites == parties.sites:
            fewest = scheme.default_min_sites(parties.sites, parties.colluding)
            allowed = f"; min_sites = {fewest} would allow {parties.sites - fewest}, at no cost until then"
            return ["A lost site ends the release" + (allowed if fewest < parties.sites else "") + "."]
        if all(abs(times - 1) < _SAME for times in self.lost.values()):
            many = scheme.bears(parties)
            sends, who = ("they send their", "up to ") if many > 1 else ("it sends its", "")
            early = f" before {sends} sums" if scheme.masked else ""
            return [f"With {who}{count(many, 'site')} lost{early} the noise stays the same."]
        (_, first), *others = self.lost.items()
        most = "at most " if isinstance(scheme, CapeGaussian) else ""  # it matters when a site is lost
        told = f"the noise is {most}{first:.3g} times as large"
        told += "".join(f", with {sites} lost {times:.3g} times" for sites, times in others)
        with_it = "A lost site takes its own noise with it: with" if first < 1 else "With"
        early = " before it sends its sums" if scheme.masked else ""  # later it leaves all its surplus
        return [f"{with_it} 1 site lost{early} {told}, over the same rows."]


def make_plan(
    analysis: Analysis,
    setting: Setting,
    scheme: Scheme,
    share: float,
    sizes: Mapping[str, int] | None,
    left: float | Fraction = 1.0,
) -> Plan:
    """Return the plan of one analysis; `sizes` are the rows that people expect at each site.

    `left` is what is left of the budget, as a share.
    """
    analysis = setting.asked(setting.sized(analysis, scheme, sizes, share))
    setting, parties = setting.of(analysis), setting.parties
    given = dict(sizes) if sizes else {str(i): 1000 for i in range(parties.sites)}
    if len(given) != parties.sites:
        raise InvalidInput(f"sizes must be given for each of the {parties.sites} sites, not for {len(given)}")
    query = analysis.query(setting.schema, setting.neighbours)
    names = dict.fromkeys([scheme.name, *BESIDE])
    noise: dict[str, dict[str, float]] = {}
    known: Grid = {}
    for name in names:
        kind = scheme if name == scheme.name else make_scheme(name, setting.noise)
        for label, value in expected_noise(analysis, query, setting, kind, share, given, known).items():
            noise.setdefault(label, {})[name] = value
    as_is = _expected(analysis, query, setting, scheme, share, given)
    now = {label: value for label, value in as_is.items() if 0 < value < math.inf}

    def times(setting: Setting, sizes: Mapping[str, int], lost: int = 0) -> float:
        """Return how many times as noisy the median number would be."""
        then = _expected(analysis, query, setting, scheme, share, sizes, lost)
        return sorted(then[label] / now[label] for label in now)[(len(now) - 1) // 2]

    def forecast(
        analysis: Analysis, setting: Setting, share: float, more: float
    ) -> tuple[dict[str, float], Limits]:
        analysis, setting = setting.asked(analysis), setting.of(analysis)
        query = analysis.query(setting.schema, setting.neighbours)
        larger = {name: round(more * rows) for name, rows in given.items()}

        def limits() -> dict[str, float]:
            by_block, rows = _noise(analysis, query, setting, scheme, share), scheme.rows(larger)
            return analysis.limits(setting.schema, by_block, rows, setting.neighbours) if by_block else {}

        return _expected(analysis, query, setting, scheme, share, larger), limits

    planned = {label: by[scheme.name] for label, by in noise.items()}
    stages = Stages.of(analysis, setting, scheme, share)
    counting = query if analysis.decisive % len(stages) else stages.first(query)
    found = shapes(analysis, query, setting, share, planned, forecast)
    return Plan(
        analysis,
        setting.schema,
        found,
        scheme.name,
        share,
        scheme.rows(given),
        not sizes,
        noise,
        setting.guarantee(scheme, share, query, stages.slack),
        _halving(times, setting, given) if now else dict.fromkeys(("epsilon", "rows", "sites")),
        sum(array.size for array in counting.arrays(setting.schema)),
        float(left),
        answers(analysis, setting, share, float(left), scheme.rows(given), found, forecast),
        {sites: times(setting, given, sites) for sites in _losses(parties, scheme)} if now else {},
        _outlook(analysis, query, setting, scheme, share, given),
        _prices(analysis, query, setting, scheme, share, given, as_is),
        _law(setting, scheme) if query.blocks else GAUSSIAN,
        _other(analysis, query, setting, scheme, share, given, now),
    )


def noise_ratio(
    analysis: Analysis, setting: Setting, scheme: str, share: float, sizes: Mapping[str, int] | None
) -> float | None:
    """Return how many times the median number's Gaussian noise its Laplace noise is; None of public facts.

    Raises `InvalidInput` where there is no Laplace noise for this analysis or scheme.
    """
    setting = setting.of(analysis)
    given = dict(sizes) if sizes else {str(i): 1000 for i in range(setting.parties.sites)}
    found = []
    for kind in KINDS:
        there, made = replace(setting, noise=kind), make_scheme(scheme, kind)
        asked = there.asked(analysis)
        query = asked.query(setting.schema, setting.neighbours)
        Stages.of(asked, there, made, share)
        found.append(_expected(asked, query, there, made, share, given))
    one, other = found
    times = sorted(other[label] / one[label] for label in other if 0 < one.get(label, 0.0) < math.inf)
    return times[(len(times) - 1) // 2] if times else None


def _prices(
    analysis: Analysis,
    query: Query,
    setting: Setting,
    scheme: Scheme,
    share: float,
    sizes: Mapping[str, int],
    noise: Mapping[str, float],
) -> tuple[BoundsPrice, ...]:
    """Return what wide bounds cost, where the answer has a sampling error."""
    if not query.blocks or not 0 < max(noise.values(), default=0.0) < math.inf:
        return ()

    def planned(schema: Schema) -> dict[str, float]:
        there = replace(setting, schema=schema)
        return _expected(analysis, analysis.query(schema, setting.neighbours), there, scheme, share, sizes)

    def drawn() -> dict[str, float]:
        by_block = _noise(analysis, query, setting, scheme, share)
        return analysis.drawn(setting.schema, by_block, sum(sizes.values()), setting.neighbours)

    columns = tuple(dict.fromkeys(name for block in query.blocks for name in block.reads))
    return price_of_bounds(setting.schema, columns, noise, drawn, planned)


def _law(setting: Setting, scheme: Scheme) -> Law:
    """Return the law of the noise in a total over all sites."""
    parties = setting.parties
    everyone = scheme.noise_in_total(parties.sites, parties)
    return scheme.part(parties).law(everyone) if everyone else GAUSSIAN


def _other(
    analysis: Analysis,
    query: Query,
    setting: Setting,
    scheme: Scheme,
    share: float,
    sizes: Mapping[str, int],
    labels: Iterable[str],
) -> dict[str, float]:
    """Return the noise with the other kind of noise, where budget, scheme and analysis allow it."""
    if not query.blocks or not scheme.private or setting.budget.pure:
        return {}
    kind: Kind = "laplace" if setting.noise == "gaussian" else "gaussian"
    try:
        there, made = replace(setting, noise=kind), make_scheme(scheme.name, kind)
        asked = there.asked(analysis)
        Stages.of(asked, there, made, share)
        found = _expected(asked, asked.query(setting.schema, setting.neighbours), there, made, share, sizes)
    except InvalidInput:
        return {}
    return {label: found[label] for label in labels if label in found}


def _outlook(
    analysis: Analysis,
    query: Query,
    setting: Setting,
    scheme: Scheme,
    share: float,
    sizes: Mapping[str, int],
) -> tuple[Table, ...]:
    """Return what the analysis says of typical rows with the noise of the scheme."""
    noise = _noise(analysis, query, setting, scheme, share) if query.blocks else None
    if noise is None:
        return ()
    return tuple(analysis.outlook(setting.schema, noise, scheme.rows(sizes), setting.neighbours))


def expected_noise(
    analysis: Analysis,
    query: Query,
    setting: Setting,
    scheme: Scheme,
    share: float,
    sizes: Mapping[str, int],
    known: Grid | None = None,
) -> dict[str, float]:
    """Return the noise in each label that a scheme would leave, without the jumps of single plans.

    `known` is what other schemes have found out for the same analysis and setting.
    """
    grid = {} if known is None else known
    return _expected(analysis, query, setting, scheme, share, sizes, grid=grid)


def _expected(
    analysis: Analysis,
    query: Query,
    setting: Setting,
    scheme: Scheme,
    share: float,
    sizes: Mapping[str, int],
    lost: int = 0,
    *,
    grid: Grid | None = None,
) -> dict[str, float]:
    """Return the noise in each label that a scheme would leave; sites may be lost, over the same rows."""
    schema, neighbours = setting.schema, setting.neighbours
    if not query.blocks:
        return analysis.expected(schema, [], scheme.rows(sizes), neighbours)
    by_block = _noise(analysis, query, setting, scheme, share, lost)
    rows, everyone = scheme.rows(sizes), sum(sizes.values())
    expected = analysis.expected(schema, by_block, rows, neighbours)
    if grid is not None and len(analysis.stages()) > 1:
        expected = steady(
            lambda n, many: analysis.expected(schema, n, many, neighbours), by_block, rows, grid
        )
    if rows == everyone:
        return expected
    # A total over fewer rows (the scheme `local`) has to be scaled up to all rows. It is a total if more
    # rows leave its noise as it is; the noise of a mean would halve.
    twice = analysis.expected(schema, by_block, 2 * rows, neighbours)
    return {
        label: value * (everyone / rows if twice[label] > 0.75 * value else 1.0)
        for label, value in expected.items()
    }


def _noise(
    analysis: Analysis, query: Query, setting: Setting, scheme: Scheme, share: float, lost: int = 0
) -> Noise:
    """Return the noise in each array of the query's sums."""
    if not query.blocks:
        return []
    stages = Stages.of(analysis, setting, scheme, share)
    stage = analysis.decisive % len(stages)
    asked = query if stage else stages.first(query)
    calibration, local_std = stages.calibrate(stage, asked)
    total = scheme.total_std(calibration.local_noise, setting.parties) if local_std else 0.0
    if lost:
        total *= scheme.growth(lost, setting.parties, local_std)
    flat = iter(total * scale for scale in query.flat_scales)
    return [[next(flat) for _ in scales] for scales in query.scales]


def _halving(times: Times, setting: Setting, sizes: Mapping[str, int]) -> dict[str, float | None]:
    """Return what would halve the noise."""
    doubled = {name: 2 * rows for name, rows in sizes.items()}
    more_rows = sum(doubled.values()) if times(setting, doubled) <= _HALF else None
    budget = setting.budget
    laplace = setting.noise == "laplace"
    epsilon = 2 * budget.epsilon if laplace else Budget.of(2 * budget.mu, budget.delta).epsilon
    return {"epsilon": epsilon, "rows": more_rows, "sites": _more_sites(times, setting, sizes)}


def _losses(parties: Parties, scheme: Scheme) -> list[int]:
    """Return for which numbers of lost sites the noise is told."""
    most = scheme.bears(parties) if scheme.distributed else 0
    return sorted({lost for lost in (1, 2, 3, most) if 0 < lost <= most})


def _more_sites(times: Times, setting: Setting, sizes: Mapping[str, int]) -> float | None:
    """Return how many sites of the average size would do, with as many colluding and as many lost."""
    average = max(1, round(sum(sizes.values()) / len(sizes)))
    p = setting.parties

    def enough(sites: int) -> bool:
        larger = replace(setting, parties=Parties(sites, p.colluding, p.min_sites + sites - p.sites))
        return times(larger, {str(i): average for i in range(sites)}) <= _HALF

    many = range(p.sites + 1, _MOST_SITES * p.sites + 1)  # noise falls with the number of sites
    return float(many[bisect_left(many, True, key=enough)]) if enough(many[-1]) else None
