"""Whether two columns of categories go together, and how strongly: from one private table of counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cape.analyses.columns import OfColumns
from cape.analyses.describe.histogram import one_hot
from cape.blocks import Axis, Counts
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.arguments import names
from cape.engine.query import AnalysisResult, Answer, Neighbours, Query
from cape.show import Figure, Intervals, Mark, Shown, Table
from cape.show.figures import DOTS
from cape.show.numbers import count, p_said
from cape.show.plain import plain
from cape.show.tables import listed
from cape.stats.estimates import Estimate, unknown, warn_of_unknown
from cape.stats.independence import Contrasts, Independence, contrasts
from cape.stats.moments import enough
from cape.stats.proportions import Share, apart

__all__ = ["Association", "AssociationModel"]

_STRENGTH = "Cramer's V"  # in results
_SHOWN = {_STRENGTH: "Cramér's V"}
_LEAST_CELL = 0.5


@dataclass(frozen=True, init=False)
class Association(OfColumns):
    """Whether two columns of categories are independent, and how strongly they go together.

    >>> Association("sex", "ill"), Association("stage", "ill", trend=True)

    A chi-square test whose P value counts the noise, Cramér's V, and for two columns of two categories the
    risk difference, the risk ratio and the odds ratio: of the second category of the second column, for the
    second category of the first compared with its first. `trend` adds a test over categories in the order
    of the schema: that of Cochran and Armitage if one column has two. Rows that miss a cell are left out.

    **Sensitivity** sqrt(2) under replace-one, 1 under add-remove: `one_hot` has the proof.
    """

    kind: ClassVar[str] = "association"
    example: ClassVar[dict[str, Any]] = {"columns": ["sex", "disease"]}
    least: ClassVar[int] = 2
    trend: bool

    def __init__(self, *columns: str, trend: bool = False) -> None:
        found = names(columns, least=2)
        if len(found) > 2:
            raise InvalidInput(f"an association must be asked of two columns, not of {len(found)}")
        if not isinstance(trend, bool):
            raise InvalidInput(f"trend must be True or False, not {check.show(trend)}")
        self._set(columns=found, trend=trend)

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        for name in self.columns:
            if len(schema.category(name).values) < 2:
                raise InvalidInput(
                    f"column {name!r} has one category in the schema, and an association needs two or more"
                )
        block = Counts(tuple(Axis(name) for name in self.columns))
        return Query((block,), ((1.0,),), math.sqrt(one_hot(neighbours, block.arrays(schema)[0].size)))

    def finish(self, answer: Answer) -> AnalysisResult:
        ((table,),), ((noise,),) = answer.sums, answer.noise
        counts = np.asarray(table, np.float64)
        found = contrasts(counts, noise)
        estimates = [_strength(found)]
        if counts.shape == (2, 2):
            estimates += _risks(counts, noise)
        warn_of_unknown(estimates)
        trend = contrasts(counts, noise, trend=True) if self.trend else None
        model = AssociationModel(
            self.columns,
            answer.schema,
            tuple(estimates),
            counts,
            noise,
            None if found is None else found.test,
            self.trend,
            None if trend is None else trend.test,
        )
        return AnalysisResult(estimates, model)

    def describe(self) -> str:
        return f"association of {' and '.join(self.columns)}" + (", with a trend" if self.trend else "")

    def title(self, label: str, schema: Schema) -> str:
        return label

    def keys(self) -> dict[str, Any]:
        return {"columns": list(self.columns), **({"trend": True} if self.trend else {})}


def _strength(found: Contrasts | None) -> Estimate:
    """Return Cramér's V; errors are those of one contrast."""
    if found is None:
        return unknown(_STRENGTH, 0.0, 1.0)
    unit = 1 / math.sqrt(found.count * found.least)
    noise = unit * math.sqrt(float(np.trace(found.noise)) / found.z.size)
    return Estimate(_STRENGTH, found.strength, unit, noise, (0.0, 1.0), found.interval)


def _risks(table: Floats, noise: float) -> list[Estimate]:
    """Return the risk difference, the risk ratio and the odds ratio of the second row against the first."""
    known = all(enough(float(row.sum()), noise * math.sqrt(2)) for row in table)
    if not known:
        ratios = [replace(unknown(label, 0.0, math.inf, 1.0), privacy=1.0) for label in _RATIOS]
        return [unknown("risk difference", -1.0, 1.0), *ratios]
    control, exposed = (Share.of(float(row[1]), float(row.sum()), noise, 2) for row in table)
    value = exposed.value - control.value
    estimates = [
        Estimate(
            "risk difference",
            value,
            math.hypot(exposed.sampling, control.sampling),
            math.hypot(exposed.noise, control.noise),
            (-1.0, 1.0),
            _Difference(exposed, control),
        )
    ]
    cells = np.maximum(table, max(noise, _LEAST_CELL))  # a ratio of counts that noise or chance made 0
    control, exposed = (Share.of(float(row[1]), float(row.sum()), noise, 2) for row in cells)
    for label, (of, slope, drawn) in _RATIOS.items():
        ratio = math.exp(of(exposed.value) - of(control.value))
        sampling = math.sqrt(drawn(exposed) + drawn(control))
        blurred = math.hypot(*(slope(each.value) * each.noise for each in (exposed, control)))
        empty = bool((table <= 0).any())
        at = _Ratio(exposed, control, label, empty)
        estimates.append(Estimate(label, ratio, ratio * sampling, ratio * blurred, (0.0, math.inf), at))
    return estimates


@dataclass(frozen=True)
class _Difference:
    """Newcombe's interval of a difference of shares, of intervals that count noise."""

    one: Share
    other: Share

    def __call__(self, level: float) -> tuple[float, float]:
        (low, high), (other_low, other_high) = self.one(level), self.other(level)
        p, q = self.one.value, self.other.value
        return p - q - math.hypot(p - low, other_high - q), p - q + math.hypot(high - p, q - other_low)


def _logit(p: float) -> float:
    return math.log(p / (1 - p))


def _of_risk(share: Share) -> float:
    return 1 / share.part - 1 / share.whole


def _of_odds(share: Share) -> float:
    return 1 / share.part + 1 / (share.whole - share.part)


_Form = tuple[Callable[[float], float], Callable[[float], float], Callable[[Share], float]]
_RATIOS: dict[str, _Form] = {  # the logarithm that is compared, its derivative, its variance from sampling
    "risk ratio": (math.log, lambda p: 1 / p, _of_risk),
    "odds ratio": (_logit, lambda p: 1 / (p * (1 - p)), _of_odds),
}


@dataclass(frozen=True)
class _Ratio:
    """The interval of a ratio: the usual one of its logarithm, in which noise counts too.

    If a cell is empty, or noise could have made it so, it is open on the side that this leaves open.
    """

    one: Share
    other: Share
    label: str
    empty: bool

    def __call__(self, level: float) -> tuple[float, float]:
        of, _, drawn = _RATIOS[self.label]
        if self.empty:
            return 0.0, math.inf
        low, high = apart(self.one, self.other, level, of, drawn)
        return math.exp(max(low, -700.0)) if low > -math.inf else 0.0, (
            math.exp(high) if high < 700.0 else math.inf
        )


@dataclass(frozen=True, repr=False)
class AssociationModel(Shown):
    """What a private table says of two columns: tests and measures of association.

    Attributes:
        counts: the released table, with noise of the standard deviation `noise` in each cell.
        test: of independence; None if noise hides a margin of the table.
        by_order: whether a test for trend was asked for.
        trend: that test, None if noise hides it.
    """

    columns: tuple[str, ...]
    schema: Schema
    estimates: tuple[Estimate, ...]
    counts: Floats
    noise: float
    test: Independence | None
    by_order: bool = False
    trend: Independence | None = None

    @property
    def p_value(self) -> float | None:
        """The P value of the test of independence, which counts the noise."""
        return None if self.test is None else self.test.p_value

    def tables(self) -> Sequence[Table]:
        """Return the estimates, and the released counts."""
        down, across = (self.schema.category(name).values for name in self.columns)
        titles = [self.schema.title(f"{self.columns[0]}={value}") for value in down]
        rows = [
            (title, *(f"{cell:,.0f}" for cell in row)) for title, row in zip(titles, self.counts, strict=True)
        ]
        head = ("", *(self.schema.title(f"{self.columns[1]}={value}") for value in across))
        caption = f"Each count has noise with a standard deviation of {self.noise:.3g}." if self.noise else ""
        counts = Table(head, tuple(rows), "Released counts", caption, folded=True)
        return [listed(self.estimates, _title), counts]

    def figures(self) -> Sequence[Figure]:
        """Return measures about 0 on one axis, and ratios about 1 on a logarithmic one."""
        marks = {e.label: Mark.of(e, _title(e.label)) for e in self.estimates}
        panels = [Intervals((mark,), line=0.0) for label, mark in marks.items() if label not in _RATIOS]
        bounded = [
            mark for label, mark in marks.items() if label in _RATIOS and 0 < mark.low <= mark.high < math.inf
        ]
        if bounded:
            panels.append(Intervals(tuple(bounded), line=1.0, log=True))
        return [Figure(tuple(panels), DOTS)]

    def notes(self) -> Sequence[str]:
        """Return the tests, and which categories are compared."""
        found = [_said("Test of independence", self.test)]
        if self.by_order:
            found.append(_said("Test for trend over the order of categories", self.trend))
        if len(self.estimates) > 1:
            (first, second), (_, event) = (self.schema.category(name).values for name in self.columns)
            down, across = self.columns
            compared = (self.schema.title(f"{down}={value}") for value in (second, first))
            found.append(
                f"Risks and odds are those of {self.schema.title(f'{across}={event}')}, for "
                f"{' compared with '.join(compared)}."
            )
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        tests = {"independence": self.test, **({"trend": self.trend} if self.by_order else {})}
        return plain(
            {
                "columns": list(self.columns),
                "counts": self.counts.tolist(),
                "noise": self.noise,
                "tests": {name: None if test is None else vars(test) for name, test in tests.items()},
            }
        )


def _title(label: str) -> str:
    return _SHOWN.get(label, label)


def _said(what: str, test: Independence | None) -> str:
    if test is None:
        return f"There is too much noise for a {what[0].lower()}{what[1:]}."
    return (
        f"{what}, privacy noise counted: chi-square = {test.statistic:.2f} with "
        f"{count(test.freedom, 'degree')} of freedom, {p_said(test.p_value)}."
    )
