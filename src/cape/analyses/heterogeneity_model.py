"""How differences between sites are shown: a forest plot, tests, and the mean without each site."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cape.analyses.synthesis import Synthesis
from cape.data import Schema
from cape.engine.query import Estimate
from cape.show import Figure, Forest, Mark, Shown, Table
from cape.show.figures import KEY, extent, strip
from cape.show.numbers import LEVEL, between, number, p_value, rounded
from cape.show.plain import plain

__all__ = ["HeterogeneityModel", "Quantity", "forest_rows"]

_CAPTION = (
    f"Squares are sites, larger where they count for more, with {LEVEL:.0%} intervals; {KEY} marks the part "
    "of an interval that privacy noise makes. Diamonds are what all sites say together; the last line is the "
    "prediction interval for the effect at a new site."
)


@dataclass(frozen=True)
class Quantity:
    """One quantity: at each site, of all of them together, and without each in turn.

    Attributes:
        label: what it is.
        sites: the estimate of each site.
        synthesis: what they say together; None if fewer than two are known.
        combined: fixed effect, random effects, prediction, tau² and I².
        without: the mean of random effects without each site.
    """

    label: str
    sites: tuple[Estimate, ...]
    synthesis: Synthesis | None
    combined: tuple[Estimate, ...]
    without: tuple[Estimate, ...]

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """All of its numbers."""
        return (*self.sites, *self.combined, *self.without)

    @property
    def fixed(self) -> Estimate:
        """The effect that all sites share, if they agree."""
        return self.combined[0]

    @property
    def random(self) -> Estimate:
        """The mean of the effects of all sites that there could be."""
        return self.combined[1]

    @property
    def prediction(self) -> Estimate:
        """The effect at a new site."""
        return self.combined[2]

    @property
    def tau2(self) -> Estimate:
        """The variance between sites."""
        return self.combined[3]

    @property
    def i2(self) -> Estimate:
        """The part of the variance of sites' estimates, noise left out, that is due to differences."""
        return self.combined[4]

    @property
    def weights(self) -> tuple[float, ...]:
        """The part that each site has in the mean of random effects; 0 where noise hides it."""
        if self.synthesis is None:
            return (0.0,) * len(self.sites)
        tau2 = self.synthesis.tau2
        held = {each.site: 1 / (each.total + tau2) for each in self.synthesis.effects}
        total = sum(held.values())
        return tuple(held.get(_behind(each), 0.0) / total for each in self.sites)


@dataclass(frozen=True, repr=False)
class HeterogeneityModel(Shown):
    """Quantities of sites, and of all sites together."""

    by: str
    schema: Schema
    quantities: tuple[Quantity, ...]

    def __getitem__(self, label: str) -> Quantity:
        for each in self.quantities:
            if each.label == label:
                return each
        raise KeyError(label)

    def p_value(self, label: str | None = None) -> float | None:
        """Return the P value of Cochran's Q; None if noise hides it."""
        found = self.quantities[0] if label is None else self[label]
        return None if found.synthesis is None else found.synthesis.test.p_value

    def tables(self) -> Sequence[Table]:
        """Return the forest plot as text, and the mean without each site."""
        found = []
        for each in self.quantities:
            found.append(_forest_table(each, self._title(each)))
            if each.synthesis is not None and each.synthesis.many > 2:
                found.append(_without_table(each))
        return found

    def figures(self) -> Sequence[Figure]:
        """Return the forest plots."""
        return [Figure(tuple(_panel(each, self._title(each)) for each in self.quantities), _CAPTION)]

    def notes(self) -> Sequence[str]:
        """Return the tests, what was hidden, and what the numbers are."""
        found = []
        for each in self.quantities:
            found += _said(each)
        found.append("P counts privacy noise. Numbers of each site are public now, and so is whose they are.")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return plain({"by": self.by, "quantities": {each.label: _plainly(each) for each in self.quantities}})

    def _title(self, quantity: Quantity) -> str:
        return self.schema.title(quantity.label)


def _behind(estimate: Estimate) -> str:
    """Return the site that a label names."""
    return estimate.label.rpartition(" | ")[2].partition("=")[2]


def _after(estimate: Estimate) -> str:
    return estimate.label.rpartition(" | ")[2]


def forest_rows(
    marks: Sequence[tuple[Mark, Estimate, str]], weights: Sequence[float | None]
) -> list[tuple[str, ...]]:
    """Return rows of name, value, interval, weight and a line of text, all lines on one axis."""
    clear = [mark for (mark, _, _), weight in zip(marks, weights, strict=True) if weight != 0]
    finite = extent(clear or [mark for mark, _, _ in marks])
    ends = (min(finite, default=0.0), max(finite, default=1.0))
    rows: list[tuple[str, ...]] = []
    for (mark, estimate, symbol), weight in zip(marks, weights, strict=True):
        error = estimate.standard_error
        value = rounded(mark.value, error) if symbol else ""
        shown = between((mark.low, mark.high), error) if math.isfinite(mark.low) else "not known"
        part = "" if weight is None else "-" if weight == 0 else f"{weight:.0%}"
        rows.append((mark.label, value, shown, part, "" if weight == 0 else strip(mark, ends, symbol)))
    return rows


def _forest_table(each: Quantity, title: str) -> Table:
    marks = [(Mark.of(site, _behind(site)), site, "■") for site in each.sites]
    marks += [(Mark.of(e, _after(e)), e, "◆") for e in (each.fixed, each.random)]
    marks.append((Mark.of(each.prediction, _after(each.prediction)), each.prediction, ""))
    rows = forest_rows(marks, [*each.weights, None, None, None])
    for e in (each.tau2, each.i2):
        error = e.standard_error
        rows.append((_after(e), rounded(e.value, error), between(e.interval(LEVEL), error), "", ""))
    heads = ("", "value", f"{LEVEL:.0%} interval", "weight", "")
    return Table(heads, tuple(rows), title=title, drop=(3, 4), drawn=4)


def _without_table(each: Quantity) -> Table:
    marks = [(Mark.of(e, _after(e)), e, "◆") for e in each.without]
    rows = [
        (name, value, ends, line) for name, value, ends, _, line in forest_rows(marks, [None] * len(marks))
    ]
    heads = ("random effects", "value", f"{LEVEL:.0%} interval", "")
    return Table(heads, tuple(rows), title="Leaving out one site", drop=(3,), drawn=3)


def _panel(each: Quantity, title: str) -> Forest:
    return Forest(
        tuple(Mark.of(site, _behind(site)) for site in each.sites),
        each.weights,
        tuple(Mark.of(e, _after(e)) for e in (each.fixed, each.random)),
        title,
        line=each.random.value,
        range=Mark.of(each.prediction, _after(each.prediction)),
    )


def _said(each: Quantity) -> list[str]:
    if each.synthesis is None:
        return [f"{each.label}: noise hides all sites but one, and nothing can be said of differences."]
    test = each.synthesis.test
    sign = "" if test.p_value < 0.001 else "= "
    many = test.freedom[1]
    second = "" if many >= 1e8 else f" and {many:,.0f}"
    found = [
        f"{each.label}: Cochran's Q = {number(test.statistic)} on {test.freedom[0]:.0f}{second} degrees of "
        f"freedom, P {sign}{p_value(test.p_value)} that all sites agree."
    ]
    hidden = [_behind(site) for site, weight in zip(each.sites, each.weights, strict=True) if weight == 0]
    if hidden:
        found.append(f"Noise hides {', '.join(hidden)}: left out of what sites say together.")
    return found


def _plainly(each: Quantity) -> dict[str, Any]:
    test = None if each.synthesis is None else each.synthesis.test
    return {
        "q": None if test is None else test.statistic,
        "freedom": None if test is None else list(test.freedom),
        "p": None if test is None else test.p_value,
        "weights": {_behind(site): part for site, part in zip(each.sites, each.weights, strict=True)},
        "tau2": each.tau2.value,
        "i2": each.i2.value,
    }
