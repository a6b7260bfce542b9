"""How differences between sites are shown: a forest plot, tests, and the mean without each site."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cape.analyses.regression.effects import Effect, effects
from cape.analyses.sites.heterogeneity_estimate import Quantity, site_of
from cape.data import Schema
from cape.data.schema import SITE
from cape.engine.arguments import joined
from cape.show import Figure, Forest, Mark, Shown, Table
from cape.show.figures import KEY, extent, strip
from cape.show.numbers import LEVEL, between, number, p_said, rounded
from cape.show.plain import plain
from cape.show.tables import Estimated
from cape.stats.estimates import is_unknown

__all__ = ["HeterogeneityModel", "forest_rows", "published"]

_CAPTION = (
    f"Squares are sites, larger where they count for more, with {LEVEL:.0%} intervals; {KEY} marks the part "
    "of an interval that privacy noise makes. Diamonds are what all sites say together; the last line is the "
    "prediction interval for the effect at a new site."
)


@dataclass(frozen=True, repr=False)
class HeterogeneityModel(Shown):
    """Quantities of sites, and of all sites together; `slopes` says that they are coefficients."""

    by: str
    schema: Schema
    quantities: tuple[Quantity, ...]
    slopes: bool = False

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
            found.append(_forest_table(each, *self._shown(each)))
            if each.synthesis is not None and each.synthesis.many > 2:
                found.append(_without_table(each, self._shown(each)[1]))
        return found

    def figures(self) -> Sequence[Figure]:
        """Return the forest plots."""
        return [Figure(tuple(_panel(each, *self._shown(each)) for each in self.quantities), _CAPTION)]

    def notes(self) -> Sequence[str]:
        """Return the tests, what was hidden, and what the numbers are."""
        found = []
        for each in self.quantities:
            found += self._said(each)
        if any(each.synthesis is not None for each in self.quantities):
            found.append("P counts privacy noise.")
        found.append(published("numbers", self.by))
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return plain({"by": self.by, "quantities": {each.label: _plainly(each) for each in self.quantities}})

    def _shown(self, quantity: Quantity) -> tuple[str, dict[str, Effect]]:
        """Return its title, and its numbers by label, per what the schema says of a coefficient's column."""
        if not self.slopes:
            return self.schema.title(quantity.label), {
                e.label: Effect("", 1.0, e) for e in quantity.estimates
            }
        shown = effects(quantity.estimates, self.schema)
        return self.schema.change(quantity.label)[0], {each.label: each for each in shown}

    def _said(self, each: Quantity) -> list[str]:
        """Return the test of one quantity, and of which sites nothing is known."""
        title = self._shown(each)[0]
        hidden = [site_of(site) for site, weight in zip(each.sites, each.weights, strict=True) if weight == 0]
        needed = f"with {joined([self.schema.label(name) for name in each.columns])}"
        varied = ", or too little variation in them" if self.slopes else ""
        too_few = f"{joined(hidden)}: too few rows {needed} to be told from noise, or none{varied}"
        if each.synthesis is None:
            return [f"{title}: nothing can be said of differences between {self._sites}. {too_few}."]
        test = each.synthesis.test
        many = test.freedom[1]
        second = "" if many >= 1e8 else f" and {many:,.0f}"
        degrees = "degree" if not second and test.freedom[0] == 1 else "degrees"
        found = [
            f"Test that all {self._sites} agree in {title}: Cochran's Q = {number(test.statistic)} on "
            f"{test.freedom[0]:.0f}{second} {degrees} of freedom, {p_said(test.p_value)}."
        ]
        if hidden:
            found.append(f"{too_few}; the pooled estimates leave {'it' if len(hidden) == 1 else 'them'} out.")
        return found

    @property
    def _sites(self) -> str:
        return "sites" if self.by == SITE else f"values of {self.schema.label(self.by)}"


def published(what: str, by: str) -> str:
    """Return that what each site released is public, in a sentence."""
    if by == SITE:
        return f"Each site's own {what} are now public, under its name."
    return f"The {what} of each value of {by} are now public, under its name."


def _after(estimate: Estimated) -> str:
    return estimate.label.rpartition(" | ")[2]


def forest_rows(
    marks: Sequence[tuple[Mark, Effect, str]], weights: Sequence[float | None]
) -> list[tuple[str, ...]]:
    """Return rows of name, value, interval, weight and a line of text, all lines on one axis."""
    clear = [mark for (mark, _, _), weight in zip(marks, weights, strict=True) if weight != 0]
    finite = extent(clear or [mark for mark, _, _ in marks])
    ends = (min(finite, default=0.0), max(finite, default=1.0))
    rows: list[tuple[str, ...]] = []
    for (mark, estimate, symbol), weight in zip(marks, weights, strict=True):
        error = estimate.standard_error
        value = _value(estimate) if symbol else ""
        shown = between((mark.low, mark.high), error) if math.isfinite(mark.low) else "not known"
        part = "" if weight is None else "-" if weight == 0 else f"{weight:.0%}"
        rows.append((mark.label, value, shown, part, "" if weight == 0 else strip(mark, ends, symbol)))
    return rows


def _value(each: Effect) -> str:
    return "-" if is_unknown(each.released) else rounded(each.value, each.standard_error)


def _forest_table(each: Quantity, title: str, shown: Mapping[str, Effect]) -> Table:
    marks = [(Mark.of(shown[site.label], site_of(site)), shown[site.label], "■") for site in each.sites]
    marks += [(Mark.of(shown[e.label], _after(e)), shown[e.label], "◆") for e in (each.fixed, each.random)]
    new = shown[each.prediction.label]
    marks.append((Mark.of(new, _after(new)), new, ""))
    rows = forest_rows(marks, [*each.weights, None, None, None])
    for e in (shown[each.tau2.label], shown[each.i2.label]):
        error = e.standard_error
        rows.append((_after(e), _value(e), between(e.interval(LEVEL), error), "", ""))
    heads = ("", "value", f"{LEVEL:.0%} interval", "weight", "")
    return Table(heads, tuple(rows), title=title, drop=(3, 4), drawn=4)


def _without_table(each: Quantity, shown: Mapping[str, Effect]) -> Table:
    marks = [(Mark.of(shown[e.label], _after(e)), shown[e.label], "◆") for e in each.without]
    rows = [
        (name, value, ends, line) for name, value, ends, _, line in forest_rows(marks, [None] * len(marks))
    ]
    heads = ("random effects", "value", f"{LEVEL:.0%} interval", "")
    return Table(heads, tuple(rows), title="Leaving out one site", drop=(3,), drawn=3)


def _panel(each: Quantity, title: str, shown: Mapping[str, Effect]) -> Forest:
    return Forest(
        tuple(Mark.of(shown[site.label], site_of(site)) for site in each.sites),
        each.weights,
        tuple(Mark.of(shown[e.label], _after(e)) for e in (each.fixed, each.random)),
        title,
        line=shown[each.random.label].value,
        range=Mark.of(shown[each.prediction.label], _after(each.prediction)),
    )


def _plainly(each: Quantity) -> dict[str, Any]:
    test = None if each.synthesis is None else each.synthesis.test
    return {
        "q": None if test is None else test.statistic,
        "freedom": None if test is None else list(test.freedom),
        "p": None if test is None else test.p_value,
        "weights": {site_of(site): part for site, part in zip(each.sites, each.weights, strict=True)},
        "tau2": each.tau2.value,
        "i2": each.i2.value,
    }
