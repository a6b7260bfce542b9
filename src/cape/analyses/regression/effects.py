"""Coefficients as people read them: per so many units of a column, with tests, ratios, tables and figures."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cape.analyses.regression.inference import z_and_p
from cape.analyses.regression.reference import INTERCEPT, Reference
from cape.data import Number, Schema
from cape.show import Figure, Intervals, Mark, Table
from cape.show.figures import DOTS, MOST_MARKS
from cape.show.numbers import LEVEL, between, p_value, rounded
from cape.stats.estimates import Estimate

__all__ = ["Effect", "effect_table", "effects", "forest", "plainly", "ratios_of", "tested"]


_OF_INTERVALS = (
    "P is 1 minus the level at which the interval would end at 0. It is not that of coef over std err, "
    "because these may be off by more than a normal error, and intervals count it."
)
_MOST_LOG = 700.0  # whose exponential is a number
_MOST_RATIO = 1000


@dataclass(frozen=True)
class Effect:
    """What `per` units more of a column do, or a category against the first one; `released` is for one."""

    title: str
    per: float
    released: Estimate

    @property
    def label(self) -> str:
        return self.released.label

    @property
    def value(self) -> float:
        return self.per * self.released.value

    @property
    def standard_error(self) -> float:
        """Its error, from sampling and noise together."""
        return self.per * self.released.standard_error

    @property
    def privacy(self) -> float:
        """Its error from noise."""
        return self.per * self.released.privacy

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        low, high = self.released.interval(level)
        return self.per * low, self.per * high

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The coefficient, its interval, its error and what of it is noise, as text."""
        error, noise = self.standard_error, self.privacy
        ends = between(self.interval(), error)
        return rounded(self.value, error), ends, rounded(error, error), rounded(noise, noise)

    @property
    def test(self) -> tuple[str, str]:
        """z and P as text."""
        z, p = z_and_p(self.released)
        return "-" if z != z else f"{z:.2f}", p_value(p)

    @property
    def ratio(self) -> tuple[str, str]:
        """The ratio whose logarithm the coefficient is, and its interval, as text."""
        _, least, most = self._ratio
        together = most < 10 * least  # as precise as the lower end; else each end as it is itself
        error = self.standard_error
        value, low, high = (_bounded(each, error * (least if together else each)) for each in self._ratio)
        return value, f"{low} to {high}" if least == least and most == most else "not known"

    @property
    def _ratio(self) -> tuple[float, float, float]:
        value, low, high = map(_exponential, (self.value, *self.interval()))
        return value, low, high

    def to_dict(self) -> dict[str, Any]:
        z, p = z_and_p(self.released)
        return {
            "title": self.title,
            "per": self.per,
            "value": self.value,
            "standard_error": self.standard_error,
            "privacy_error": self.privacy,
            "interval": self.interval(),
            "level": LEVEL,
            "z": z,
            "p": p,
        }

    def ratio_to_dict(self) -> dict[str, Any]:
        """Return the ratio as plain data."""
        value, *ends = self._ratio
        return {"per": self.per, "value": value, "interval": ends, "level": LEVEL}


def plainly(estimates: Sequence[Estimate], names: Container[str], schema: Schema) -> dict[str, Any]:
    """Return coefficients of these names by name, and the intercept if there is one, as plain data."""
    found = {each.label: each.to_dict() for each in effects(estimates, schema)}
    intercept = next((effect for name, effect in found.items() if name not in names), None)
    return {
        "intercept": intercept,
        "coefficients": {name: effect for name, effect in found.items() if name in names},
    }


def effects(estimates: Sequence[Estimate], schema: Schema, *, drawn: bool = False) -> list[Effect]:
    """Return estimates per what the schema says, else per unit.

    If they are `drawn` on one axis, a column without a `per` is taken per a round number of units,
    at most half the width of its bounds: as far as a category goes.
    """
    found, columns = [], dict(schema)
    for each in estimates:
        column = columns.get(each.label)
        round_ = _round_below(column.half) if drawn and isinstance(column, Number) else 1.0
        found.append(Effect(*schema.change(each.label, round_), each))
    return found


def effect_table(
    estimates: Sequence[Estimate],
    slopes: Container[str],
    schema: Schema,
    title: str,
    ratio: str = "",
    at: Reference | None = None,
) -> Table:
    """Return coefficients with errors and tests; if they are logarithms of a `ratio`, that comes first.

    The intercept, which is not among the slopes, is the logarithm of no ratio, and that it is 0 is no
    hypothesis. It is shown where people are, `at` reference values, if these can be said.
    """
    rows = []
    for each in effects(estimates, schema):
        if at is not None and each.label == INTERCEPT:
            rows.append(("at reference", *("",) * (4 if ratio else 2), *Effect("", 1.0, at.estimate).cells))
            continue
        of = (each.ratio if each.label in slopes else ("", "")) if ratio else ()
        rows.append((each.title, *of, *each.test[::-1], *each.cells))
    columns = (
        *("", *((ratio, "95% interval") if ratio else ()), "P>|z|", "z"),
        *("coef", "95% interval", "std err", "from privacy"),
    )
    return tested(Table(columns, tuple(rows), title, drop=(4, 8, 6, 7, 5) if ratio else (2, 6, 5)), estimates)


def tested(table: Table, estimates: Sequence[Estimate]) -> Table:
    """Return a table of these estimates without z, and with what P comes from, where P is not that of z."""
    tests = [z_and_p(each) for each in estimates]
    if not any(math.isnan(z) and not math.isnan(p) for z, p in tests):
        return table
    columns = tuple("P" if name == "P>|z|" else name for name in table.columns)
    return replace(table, columns=columns, caption=_OF_INTERVALS).without(columns.index("z"))


def ratios_of(coefficients: Mapping[str, float]) -> dict[str, float]:
    """Return the ratios whose logarithms these are."""
    return {label: _exponential(value) for label, value in coefficients.items()}


def _exponential(value: float) -> float:
    return math.exp(min(value, _MOST_LOG))


def forest(estimates: Sequence[Estimate], schema: Schema, what: str, *, ratios: bool = False) -> list[Figure]:
    """Return coefficients, the intercept not among them, around 0, or ratios around 1, on one axis."""
    marks = [Mark.of(each, each.title) for each in effects(estimates[:MOST_MARKS], schema, drawn=True)]
    if ratios:
        marks = [mark.exponential() for mark in marks]
    line = 1.0 if ratios else 0.0
    caption = (
        "Each label says for which change; a category is compared with the first one. An interval "
        f"that excludes {line:g} indicates an effect. {DOTS}"
    )
    return [Figure((Intervals(tuple(marks), axis=what, line=line, log=ratios),), caption)]


def _bounded(ratio: float, error: float) -> str:
    """Return a ratio with this error; one that says no more than on which side of 1 it is, by a bound."""
    if not 1 / _MOST_RATIO <= ratio <= _MOST_RATIO:
        return f">{_MOST_RATIO:,}" if ratio > 1 else f"<{1 / _MOST_RATIO:g}"
    return rounded(ratio, error)


def _round_below(value: float) -> float:
    """Return the largest of 1, 2 or 5 times a power of ten that is not above a value."""
    size = 10.0 ** math.floor(math.log10(value))
    return next(size * times for times in (5, 2, 1, 0.5) if size * times <= value * (1 + 1e-9))
