"""What a plan can say of rows that it does not know, and of a question that will have no answer.

*Shapes.* Noise in a variance, a correlation or a coefficient depends on how cells lie within their bounds.
The plan is made again for other plausible shapes (`cape.blocks.typical`), and where columns are asked about
together also for columns that are correlated; where that changes the noise, it gives the range.

*No answer.* A number has none if the 95% interval of the noise alone is as wide as all values that are
possible: `Analysis.limits`. What would have one is found by planning it: the same question with a larger
share, smaller questions (`Analysis.smaller`), else more rows or epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from cape.blocks import Gram
from cape.blocks.typical import SUPPOSED, Shape, plausible, together
from cape.core.errors import InvalidInput
from cape.data import Category, Schema
from cape.data.schema import Column
from cape.engine.arguments import joined
from cape.engine.query import Analysis, Query
from cape.engine.stages import Setting
from cape.privacy import Budget

__all__ = ["LEGEND", "Answers", "Forecast", "Limits", "Shapes", "answers", "hidden", "shapes"]

Limits = Callable[[], dict[str, float]]
Forecast = Callable[[Analysis, Setting, float, float], tuple[dict[str, float], Limits]]
"""The noise of an analysis in a setting, for a share, with so many times the rows; and, on demand, limits."""

_Z = float(ndtri(0.975))
_MATTERS = 1.25  # how many times the least noise the largest must be to be worth a range
_NAMED = 3  # labels or columns in a sentence
LEGEND = (
    "Where nothing is expected of a column, it is planned for values around the middle of the bounds with an "
    "SD of a sixth of their width, and for equally common categories. The range is for columns as studies "
    f"have them: {'; '.join(words for words, *_ in SUPPOSED)}; rare categories. To narrow it, write "
    "expected = {mean = ..., sd = ...} or expected = {share = ...} in the schema."
)
"""What plausible shapes are."""

_STEP = 2**0.25  # between shares that are tried
_TIMES = tuple(2.0 ** (i / 2) for i in range(1, 41))  # the rows, or mu
_SHARES = 0.05  # shares are proposed in steps of


@dataclass(frozen=True)
class Shapes:
    """How much the noise depends on the shapes of columns.

    Attributes:
        ranges: label -> the least and the largest noise over plausible shapes; empty if all are the same.
        stated: the columns whose expected moments the plan has used.
        assumed: the columns of which nothing is stated, if that matters.
        forms: whether it matters how cells lie around a mean and SD that are stated.
        joint: whether columns are asked about together, and are planned to be uncorrelated.
        correlated: whether it matters that they are not.
    """

    ranges: dict[str, tuple[float, float]]
    stated: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    forms: bool = False
    joint: bool = False
    correlated: bool = False

    def sentences(self, schema: Schema) -> list[str]:
        """Return which shapes the plan is for, in words."""
        told = []
        if self.stated:
            expected = [f"{schema.label(name)} ({_expected(schema[name])})" for name in self.stated]
            told.append(f"Planned for what is expected of {_named(expected)}.")
        if self.assumed:
            unknown = _named([schema.label(name) for name in self.assumed])
            told.append(f"Nothing is expected of {unknown}: the range is for plausible shapes.")
        elif self.forms:
            told.append(
                "The range is for cells that lie otherwise around the same mean: in few values, with a long "
                "tail, or many of them at a bound."
            )
        if self.correlated:
            also = "also " if self.assumed or self.forms else ""
            told.append(
                f"Columns are taken to be uncorrelated; the range is {also}for moderately correlated ones."
            )
        elif self.joint:
            told.append("Columns are taken to be uncorrelated.")
        return told


def _expected(column: Column) -> str:
    if isinstance(column, Category):
        return f"{column.shares[1]:.3g} {column.values[1]}" if len(column.values) == 2 else "shares"
    known = Shape(column).expected
    return f"mean {known.mean:.4g}, SD {known.sd:.3g}"


def _named(columns: Sequence[str]) -> str:
    more = len(columns) - _NAMED
    return joined(columns) if more <= 0 else f"{', '.join(columns[:_NAMED])} and {more} more"


def shapes(
    analysis: Analysis,
    query: Query,
    setting: Setting,
    share: float,
    noise: Mapping[str, float],
    forecast: Forecast,
) -> Shapes:
    """Return how the planned noise depends on what the columns are like."""
    schema = setting.schema
    columns = tuple(dict.fromkeys(name for block in query.blocks for name in block.reads))

    def planned(other: Schema) -> dict[str, float]:
        return forecast(analysis, replace(setting, schema=other), share, 1.0)[0]

    stated = tuple(name for name in columns if schema[name].expected is not None)
    if stated:
        bare = schema.changed({name: replace(schema[name], expected=None) for name in stated})
        with suppress(InvalidInput):  # a question that needs to know what is expected
            stated = stated if _matters(_ends([noise, planned(bare)])) else ()
    by_shape = [noise, *map(planned, plausible(schema, columns))] if columns else [noise]
    joint = any(isinstance(block, Gram) or block.vectors is not None for block in query.blocks)
    joint = joint and len(columns) > 1
    by_correlation = [noise]
    for going in _going(query, columns) if joint else ():
        by_correlation += map(planned, together(schema, going))
    ranges: dict[str, tuple[float, float]] = {}
    forms, correlated = _matters(_ends(by_shape)), _matters(_ends(by_correlation))
    if forms or correlated:
        ranges = _ends(by_shape + by_correlation)
    steps = analysis.between(schema)
    if steps:
        forms, ranges = True, ranges or {label: (value, value) for label, value in noise.items()}
        ranges |= {
            k: (ranges[k][0], math.hypot(ranges[k][1], step)) for k, step in steps.items() if k in ranges
        }
    unknown = tuple(name for name in columns if schema[name].expected is None)
    return Shapes(ranges, stated, unknown if forms else (), forms, joint, correlated)


def _going(query: Query, columns: Sequence[str]) -> set[tuple[str, ...]]:
    """Return which columns may go together: all, and the features of a regression without its target."""
    designs = [block.vectors for block in query.blocks]
    return {tuple(columns), *(design.sources for design in designs if design is not None)}


def _ends(each: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """Return the least and the largest noise of each label."""
    columns = np.array([[n[label] for label in each[0]] for n in each])
    return dict(zip(each[0], zip(columns.min(0).tolist(), columns.max(0).tolist(), strict=True), strict=True))


def _matters(ranges: Mapping[str, tuple[float, float]]) -> bool:
    return any(high > _MATTERS * low for low, high in ranges.values())


def hidden(noise: Mapping[str, float], limits: Mapping[str, float]) -> tuple[str, ...]:
    """Return the labels that will have no answer: 95% intervals as wide as all that is possible."""
    return tuple(label for label, limit in limits.items() if _Z * noise[label] >= limit)


@dataclass(frozen=True)
class Answers:
    """Which numbers will have an answer.

    Attributes:
        hidden: the labels that will have none at this budget and size.
        instead: what an answer needs then, in words.
        doubtful: the labels that have none for some of the plausible shapes.
    """

    hidden: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()

    def sentence(self, title: Callable[[str], str]) -> str:
        """Return it in words, empty if all have an answer; `title` is how people call a label."""
        if not self.hidden + self.doubtful:
            return ""
        first, *others = self.hidden + self.doubtful
        more = f" and {len(others)} more" if others else ""
        about = f"the 95% interval of {title(first)}{more} would be all that is possible, from noise alone"
        if self.doubtful:
            return (
                f"Perhaps no answer at this budget and size: for some of the plausible shapes {about}. To "
                "know, state in the schema what you expect of the columns."
            )
        needed = f" An answer needs {', or '.join(self.instead)}." if self.instead else ""
        return f"No answer at this budget and size: {about}.{needed}"


def answers(
    analysis: Analysis,
    setting: Setting,
    share: float,
    left: float,
    rows: int,
    found: Shapes,
    forecast: Forecast,
) -> Answers:
    """Return which numbers will have an answer, given the range of their noise over plausible shapes."""
    noise, of_all = forecast(analysis, setting, share, 1.0)
    limits = of_all()
    concealed = hidden(noise, limits)
    if concealed:
        return Answers(concealed, tuple(_instead(analysis, setting, share, left, rows, forecast)))
    largest = {label: high for label, (_, high) in found.ranges.items()} if found.assumed else noise
    return Answers(doubtful=hidden(largest, limits))


def _instead(
    analysis: Analysis, setting: Setting, share: float, left: float, rows: int, forecast: Forecast
) -> list[str]:
    """Return what an answer needs, in words: a larger share, a smaller question, else rows or epsilon."""

    def answered(other: Analysis, setting: Setting, share: float, more: float) -> bool:
        noise, limits = forecast(other, setting, share, more)
        return not hidden(noise, limits())

    found: list[str] = []
    proposed = share
    while not found and (proposed := proposed * _STEP) <= left:
        if answered(analysis, setting, proposed, 1.0):
            found.append(f"a share of {min(_rounded(proposed), left):.3g}")
    for smaller in analysis.smaller(setting.schema):
        try:
            if answered(smaller, setting, share, 1.0):
                found.append(f"a smaller question: {smaller.sentence}")
                break
        except InvalidInput:  # a part of the question that is none by itself
            continue
    if found:
        return found
    for times in _TIMES:
        if answered(analysis, setting, share, times):
            found.append(f"about {float(f'{times * rows:.2g}'):,.0f} rows")
            break
    budget = setting.budget
    for times in _TIMES:
        if setting.noise == "laplace":
            epsilon = times * budget.epsilon
        else:
            epsilon = Budget.of(times * budget.mu, budget.delta).epsilon
        if answered(analysis, replace(setting, budget=Budget(epsilon, budget.delta)), share, 1.0):
            found.append(f"a total epsilon of {epsilon:.2g}")
            break
    return found


def _rounded(share: float) -> float:
    """Return a share that people would write, not below this one."""
    return -(-share // _SHARES) * _SHARES
