"""How a Table One is shown: as a paper prints it, with P values, standardised differences, missing cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cape.analyses.empty import empty_groups
from cape.data import Number, Schema
from cape.show import Figure, Intervals, Mark, Shown, Table
from cape.show.figures import DOTS, extent
from cape.show.numbers import between, p_value, rounded
from cape.show.plain import plain
from cape.show.tables import listed
from cape.stats.balance import Balance
from cape.stats.estimates import Estimate, is_hidden

__all__ = ["TableOneModel"]

_NUMBERS = ("mean", "SD", "Q1", "median", "Q3")
_MOST_FOUND = 5  # of its numbers, in words


@dataclass(frozen=True, repr=False)
class TableOneModel(Shown):
    """A Table One.

    Attributes:
        balances: how groups differ in each column; none without groups.
    """

    columns: tuple[str, ...]
    by: str | None
    schema: Schema
    estimates: tuple[Estimate, ...]
    balances: tuple[Balance, ...]

    def tables(self) -> Sequence[Table]:
        """Return the table as a paper prints it, and all numbers with their errors."""
        return [self.layout(), listed(self.estimates, self.schema.title, folded=True)]

    def layout(self) -> Table:
        """Return the table as a paper prints it.

        Digits that the standard error makes meaningless are left out, but for counts: these add up. An SD
        whose interval starts at 0 is given by its end, as in "< 12"; "-" stands for what noise hides.
        """
        schema, found = self.schema, {estimate.label: estimate for estimate in self.estimates}
        groups = [label[4:] for label in found if label.startswith("n | ")] if self.by else [""]
        ends = [f" | {group}" if group else "" for group in groups]
        columns = [""]
        for group, end in zip(groups, ends, strict=True):
            columns.append(f"{schema.title(group) or 'overall'} (n = {_count(found['n' + end])})")
        compared = {each.column: (_p(each), _smd(each)) for each in self.balances}
        columns += ["P", "SMD"] if compared else []
        rows: list[tuple[str, ...]] = []
        sizes = [found["n" + end] for end in ends]
        if any(size.privacy and not is_hidden(size) for size in sizes):
            rows.append(("n (95% interval)", *map(_sized, sizes), *("",) * (2 if compared else 0)))
        for name in self.columns:
            column, beside = schema[name], compared.get(name, ())
            below = ("",) * len(beside)
            if isinstance(column, Number):
                ours = [[found[f"{name} {stem}{end}"] for stem in _NUMBERS] for end in ends]
                middle = [_quartiles(quartiles) for _, _, *quartiles in ours]
                rows.append((schema.title(name),))
                rows.append(("mean (SD)", *(_mean(m, sd) for m, sd, *_ in ours), *beside))
                rows.append(("median [IQR]", *middle, *below))
            else:
                rows.append((f"{schema.label(name)}, n (%)",))
                for place, value in enumerate(column.values):
                    stem = f"{name}={value}"
                    shares = (_share(found[f"{stem} n{end}"], found[f"{stem} %{end}"]) for end in ends)
                    rows.append((str(value), *shares, *(beside if place == 0 else below)))
            if f"{name} missing n{ends[0]}" in found:
                rows.append(("missing", *(_count(found[f"{name} missing n{end}"]) for end in ends), *below))
        many = len(columns)
        return Table(tuple(columns), tuple(rows), drop=(many - 1,) if compared else ())

    def findings(self) -> Sequence[str]:
        """Return the means and percentages of everybody, of as many columns as one reads."""
        found = []
        for e in self.estimates:
            label, _, group = e.label.partition(" | ")
            told = label.endswith((" mean", " %")) and group in ("", "overall") and not is_hidden(e)
            if told and not self._mirrored(label):
                stem, _, kind = label.rpartition(" ")
                ends = between(e.interval(), e.standard_error)
                unit = "%" if kind == "%" else ""
                mean = "mean " if kind == "mean" else ""
                found.append(f"{self.schema.title(stem)}: {mean}{_shown(e)}{unit} (95% CI {ends})")
        return found[:_MOST_FOUND]

    def _mirrored(self, stem: str) -> bool:
        """Whether a percentage says the same as that of the other value of its column."""
        name, sign, value = stem.removesuffix(" %").partition("=")
        if not sign or name not in self.schema:
            return False
        values = self.schema.category(name).values
        return len(values) == 2 and value == str(values[0])

    def figures(self) -> Sequence[Figure]:
        """Return means and percentages of each group below each other; of two values, the second's."""
        panels: dict[str, list[Mark]] = {}
        for e in self.estimates:
            stem, _, group = e.label.partition(" | ")
            if stem.endswith((" mean", " %")) and not self._mirrored(stem):
                panels.setdefault(stem, []).append(Mark.of(e, self.schema.title(group) or "everyone"))
        percent = extent([m for stem, marks in panels.items() if stem.endswith(" %") for m in marks])
        drawn = tuple(
            Intervals(
                tuple(marks), self.schema.title(stem), ends=tuple(percent) if stem.endswith(" %") else None
            )
            for stem, marks in panels.items()
        )
        return [Figure(drawn, DOTS)]

    def notes(self) -> Sequence[str]:
        """Return what P and SMD are."""
        noisy = any(e.privacy > 0 for e in self.estimates if _is_count(e.label))
        left = [*self._empty, *([self._left_out] if self._left_out else [])]
        left += ["Counts of rows have privacy noise."] if noisy else []
        if not self.balances:
            return left
        tests = {each.test: isinstance(self.schema[each.column], Number) for each in self.balances}
        named = [f"{test} for {'numbers' if number else 'categories'}" for test, number in tests.items()]
        groups = "" if self.two else ", the largest of each two groups"
        found = [
            f"P: {' and '.join(named)}; privacy noise is counted.",
            f"SMD: standardised mean difference without its sign{groups}, with its 95% interval.",
            *left,
        ]
        hidden = [self.schema.label(each.column) for each in self.balances if each.p_value is None]
        if hidden:
            found.append(f"There is too much noise, or nothing varies, for a test of {', '.join(hidden)}.")
        return found

    @property
    def _empty(self) -> list[str]:
        """What is to be said of groups in which nobody is."""
        if self.by is None:
            return []
        found = {e.label: e for e in self.estimates}
        sizes = {}
        for value in self.schema.category(self.by).values:
            if (size := found.get(f"n | {self.by}={value}")) is not None:
                sizes[value] = size.value, size.privacy
        return empty_groups(self.by, sizes, self.schema)

    @property
    def _left_out(self) -> str:
        """What is to be said of rows that miss their group, where it is known how many rows there are."""
        found = [e for e in self.estimates if self.by is not None and e.label == f"{self.by} missing n"]
        if not found or self.by is None:
            return ""
        if _count(found[0]) == "-":
            return f"Rows that miss {self.schema.label(self.by)} are left out; noise hides how many they are."
        label = self.schema.label(self.by)
        return f"Rows that miss {label} are left out: {_sized(found[0])}."

    @property
    def two(self) -> bool:
        """Whether two groups are compared."""
        return self.by is not None and len(self.schema.category(self.by).values) == 2

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return plain({"by": self.by, "balance": {each.column: vars(each) for each in self.balances}})

    def portable(self) -> dict[str, Any]:
        """Return the comparisons and all numbers of the table, as plain data."""
        numbers = [
            {"label": e.label, "value": e.value, "standard_error": e.standard_error, "interval": e.interval()}
            for e in self.estimates
        ]
        return self.to_dict() | plain({"estimates": numbers})


def _p(balance: Balance) -> str:
    return "-" if balance.p_value is None else p_value(balance.p_value)


def _smd(balance: Balance) -> str:
    if balance.smd is None or balance.error is None:
        return "-"
    value = rounded(balance.smd, balance.error)
    return value if balance.interval is None else f"{value} ({between(balance.interval, balance.error)})"


def _count(estimate: Estimate) -> str:
    return "-" if is_hidden(estimate) else f"{estimate.value:,.0f}"


def _sized(estimate: Estimate) -> str:
    """Return a count with its interval, if it has noise: whole numbers that are possible."""
    if is_hidden(estimate) or not estimate.privacy:
        return _count(estimate)
    low, high = estimate.interval()
    return f"{_count(estimate)} ({math.floor(low):,} to {math.ceil(high):,})"


def _shown(estimate: Estimate) -> str:
    """Return the value with the digits that its error leaves meaningful; "-" where noise hides it."""
    return "-" if is_hidden(estimate) else rounded(estimate.value, estimate.standard_error)


def _sd(estimate: Estimate) -> str:
    low, high = estimate.interval()
    known = low > 0 or high == 0 or is_hidden(estimate)  # 0 of a column that does not vary
    return _shown(estimate) if known else f"< {rounded(high, estimate.standard_error)}"


def _mean(mean: Estimate, deviation: Estimate) -> str:
    return "-" if is_hidden(mean) else f"{_shown(mean)} ({_sd(deviation)})"


def _quartiles(estimates: Sequence[Estimate]) -> str:
    """Return the median and the quartiles, all to the place of the least precise."""
    if any(is_hidden(estimate) for estimate in estimates):
        return "-"
    error = max(estimate.standard_error for estimate in estimates)
    low, median, high = (rounded(estimate.value, error) for estimate in estimates)
    return f"{median} [{low}, {high}]"


def _share(count: Estimate, percent: Estimate) -> str:
    return "-" if is_hidden(percent) else f"{_count(count)} ({_shown(percent)}%)"


def _is_count(label: str) -> bool:
    """Return whether an estimate counts rows: "n", "sex=male n", "age missing n"."""
    return label.partition(" | ")[0].rpartition(" ")[2] == "n"
