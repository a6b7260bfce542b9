"""What a release gives back: the value, its error, what was promised, and what it took."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from cape.engine.query import Analysis, Estimate, Neighbours
from cape.engine.schemes import SCHEMES, Cost, Parties
from cape.privacy import gaussian

__all__ = ["Promise", "Release", "as_text", "between", "count", "number"]


@dataclass(frozen=True)
class Promise:
    """The guarantee of one release: exact mu, epsilon at the study's delta, and what is assumed.

    A scheme without noise has mu = infinity: nothing is promised.
    """

    mu: float
    delta: float
    scheme: str
    parties: Parties
    neighbours: Neighbours
    extra: float = 0.0  # what integers in place of reals, a sparse graph of masks and sampling add to delta

    @property
    def epsilon(self) -> float:
        """The smallest epsilon at the study's delta."""
        return gaussian.epsilon(self.delta, self.mu)

    @property
    def loss(self) -> str:
        """The privacy loss in a few characters, for the line below a table."""
        return f"mu = {self.mu:.4g}"

    @property
    def statement(self) -> str:
        """What is promised to each person, and on what it rests, in words."""
        if self.mu == float("inf"):
            return "Nothing is promised: no noise was added."
        if self.mu == 0:
            return "The answer is public: nothing was asked of the tables, and nothing is spent."
        p = self.parties
        change = (
            "one person's row is replaced by any other"
            if self.neighbours == "replace-one"
            else "one person's row is added or left out"
        )
        scheme = SCHEMES[self.scheme]()
        may_be_lost = p.min_sites < p.sites and scheme.distributed
        return (
            f"When {change}, what is seen by {scheme.seen_by(p)} changes by at most mu = {self.mu:.4g}: "
            f"({self.epsilon:.4g}, {self.delta:g})-differential privacy, exactly accounted. Assumed: one row "
            "per person, bounds given by people, fresh noise"
            + (", sizes of sites public" if self.neighbours == "replace-one" else "")
            + (f", at least {p.min_sites} sites answering" if may_be_lost else "")
            + f"{scheme.assumes}."
            + (
                f" Sampling, or a random graph of masks, adds at most {self.extra:.1g} to delta."
                if self.extra
                else ""
            )
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "mu": self.mu,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighbours": self.neighbours,
            "colluding": self.parties.colluding,
            "min_sites": self.parties.min_sites,
            "statement": self.statement,
        }

    def __str__(self) -> str:
        return self.statement


@dataclass(frozen=True, repr=False)
class Release:
    """The answer to one analysis. One number gives a float, several a dict by label."""

    analysis: Analysis
    estimates: tuple[Estimate, ...]
    guarantee: Promise
    share: float
    scheme: str
    participants: tuple[str, ...]
    rows: int | None
    cost: Cost
    model: Any = None
    """What can do more than be looked at: predict, transform; None where the estimates are all there is."""

    def describe(self) -> str:
        """Return what was asked, or, where that left a choice to what was released, what was done."""
        told = getattr(self.model, "describe", None)
        return str(told()) if callable(told) else self.analysis.describe()

    def summary(self) -> str:
        """Return the table that one would paste into a report, and the guarantee in words."""
        told = getattr(self.model, "summary", None)
        body = told() if callable(told) else as_text(self.table())
        return f"{body}\n{as_text(Text(str(self.guarantee)))}"

    @property
    def value(self) -> Any:
        """The released value or values."""
        return self._each(lambda estimate: estimate.value)

    @property
    def standard_error(self) -> Any:
        """The standard error, sampling and privacy noise together."""
        return self._each(lambda estimate: estimate.standard_error)

    def interval(self, level: float = 0.95) -> Any:
        """Return the interval, or one by label, that counts sampling and privacy noise."""
        return self._each(lambda estimate: estimate.interval(level))

    def _each(self, pick: Any) -> Any:
        if len(self.estimates) == 1:
            return pick(self.estimates[0])
        return {estimate.label: pick(estimate) for estimate in self.estimates}

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return everything as plain data, for JSON; a model as far as it has a `to_dict`."""
        model = getattr(self.model, "to_dict", None)
        return {
            "analysis": self.analysis.to_dict(),
            "description": self.describe(),
            "scheme": self.scheme,
            "share": self.share,
            "estimates": [
                {
                    "label": e.label,
                    "value": e.value,
                    "standard_error": e.standard_error,
                    "sampling_error": e.sampling,
                    "privacy_error": e.privacy,
                    "interval": list(e.interval(level)),
                    "level": level,
                }
                for e in self.estimates
            ],
            "model": model() if callable(model) else None,
            "guarantee": self.guarantee.to_dict(),
            "participants": list(self.participants),
            "rows": self.rows,
            "cost": vars(self.cost).copy(),
        }

    def table(self, most: int | None = None) -> Table:
        """Return the estimates with their errors, at most so many of them."""
        table = Table(title=escape(self.describe()), title_justify="left")
        table.add_column("")
        for title in ("value", "standard error", "of it privacy", "95% interval"):
            table.add_column(title, justify="right")
        for e in self.estimates[:most]:
            table.add_row(
                escape(e.label),
                number(e.value),
                number(e.standard_error),
                number(e.privacy),
                between(e.interval(0.95)),
            )
        if most is not None and len(self.estimates) > most:
            table.add_row(f"... and {len(self.estimates) - most} more", *[""] * 4)
        return table

    def __rich__(self) -> Group:
        who = f"{self.scheme}: {', '.join(self.participants)}"
        took = (
            f"{self.cost.bytes / 1e3:,.1f} kB, {count(self.cost.rounds, 'round')}, {self.cost.seconds:.2f} s"
        )
        paid = f"share {self.share:g} of the budget; {self.guarantee.loss}"
        return Group(self.table(), Text(f"{who}; {took}; {paid}", style="dim"))

    def __str__(self) -> str:
        return as_text(self)

    __repr__ = __str__  # in a notebook one wants the table


def number(value: float) -> str:
    """Return a number as a person would write it: four digits, no exponent where it can be helped."""
    if value != value or abs(value) == float("inf"):
        return "-" if value != value else ("∞" if value > 0 else "-∞")
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e7:
        digits = max(0, 4 - len(str(int(abs(value)))))
        return f"{value:,.{digits}f}" if digits else f"{value:,.0f}"
    return f"{value:.3e}"


def between(ends: tuple[float, float]) -> str:
    """Return an interval, or that it is not known."""
    low, high = ends
    return "not known" if low != low or high != high else f"{number(low)} to {number(high)}"


def count(number: int, what: str) -> str:
    """Return '1 site' or '4 sites'."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def as_text(shown: Any, width: int = 110) -> str:
    """Return what rich would print, without colours."""
    console = Console(file=io.StringIO(), width=width, color_system=None, record=False)
    console.print(shown)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().rstrip("\n")
