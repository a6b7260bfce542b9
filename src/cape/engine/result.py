"""What a release gives back: the value, its error, what was promised, and what it took."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from cape.core.errors import InvalidInput
from cape.data import Person, Schema
from cape.engine.arguments import joined
from cape.engine.outside_bounds import OutsideShare, sentences
from cape.engine.query import Analysis, Neighbours
from cape.engine.schemes import SCHEMES, Cost, Parties
from cape.privacy import gaussian, laplace
from cape.show import Figure, Shown, Table
from cape.show.noiseless import noiseless, noiseless_figure, noiseless_table
from cape.show.numbers import count
from cape.show.plain import plain
from cape.show.shown import SUMMARY_WIDTH
from cape.show.terminal import as_text, rendered
from cape.stats.estimates import Estimates, error_beside

__all__ = ["Release", "ReleaseGuarantee"]

_GREW = 1.001
_LARGEST = 700.0  # epsilon whose exponential is a float


@dataclass(frozen=True)
class ReleaseGuarantee:
    """The guarantee of one release: exact mu, epsilon at the study's delta, and what is assumed.

    A scheme without noise has mu = infinity: nothing is promised. With Laplace noise `pure` is the epsilon,
    which holds without delta, and mu a Gaussian's that dominates it.
    """

    mu: float
    delta: float
    scheme: str
    parties: Parties
    neighbours: Neighbours
    extra: float = 0.0  # what integers in place of reals, a sparse graph of masks and sampling add to delta
    person: Person | None = None  # who is protected, if not each row
    open: bool = False  # whether the numbers of rows that count are private under replace-one, too
    pure: float | None = None

    @property
    def epsilon(self) -> float:
        """The smallest epsilon at the study's delta; with Laplace noise, without any."""
        if self.pure is not None or self.mu == 0:
            return self.pure or 0.0
        if self.delta == 0:
            return math.inf
        return gaussian.epsilon(self.delta, self.mu)

    @property
    def bet(self) -> float:
        """The most often that anybody wins a bet, 1 to 1, on which of two adjacent tables is the real one."""
        if self.pure is not None:
            return laplace.bet(0.0, [self.pure], self.extra)
        return laplace.bet(self.mu, (), self.extra)

    @property
    def loss(self) -> str:
        """The privacy loss in a few characters, for the line below a table."""
        return f"mu = {self.mu:.4g}" if self.pure is None else f"epsilon = {self.pure:.4g}, no delta"

    @property
    def statement(self) -> str:
        """The guarantee to each person and its assumptions, in words."""
        if self.mu == float("inf"):
            return "There is no guarantee: no noise was added."
        if self.mu == 0:
            return "The answer is public: nothing was asked of the tables, and nothing is spent."
        p = self.parties
        scheme = SCHEMES[self.scheme]()
        may_be_lost = p.min_sites < p.sites and scheme.distributed
        return (
            f"When {self._change}, the view of {scheme.seen_by(p)} {self._changes} Assumed: "
            f"{self._assumed}, bounds given by people, fresh noise"
            + (", sizes of sites public" if self.neighbours == "replace-one" and not self.open else "")
            + (f", at least {p.min_sites} sites answering" if may_be_lost else "")
            + (f", {scheme.cryptography.replace(' or ', ' and ')} unbroken." if scheme.cryptography else ".")
            + (
                f" {self._beside} {self.extra:.1g}{' to delta' if self.pure is None else ''}."
                if self.extra
                else ""
            )
        )

    @property
    def _changes(self) -> str:
        """By how much a view changes."""
        if self.pure is None:
            return (
                f"changes by at most mu = {self.mu:.4g}: ({self.epsilon:.4g}, {self.delta:g})-differential "
                "privacy, exactly accounted."
            )
        times = f"{math.exp(self.pure):.4g}" if self.pure < _LARGEST else f"e^{self.pure:.4g}"
        return (
            f"becomes at most {times} times as likely, whatever it is: "
            f"{self.pure:.4g}-differential privacy with no delta, {self.sure}."
        )

    @property
    def sure(self) -> str:
        """What follows from a pure epsilon; a sparse graph of masks has a chance to fail."""
        return "but for the graph of masks" if self.extra else "so nobody can ever be sure"

    @property
    def _change(self) -> str:
        """How adjacent tables differ."""
        person, replaced = self.person, self.neighbours == "replace-one"
        if person is None:
            return "one person's row is " + ("replaced by any other row" if replaced else "added or left out")
        where = "" if person.sites == 1 else f" at {person.sites} sites"
        if person.rows == 1:
            what = "replaced by any other person" if replaced else "added or left out"
            return f"one person, with all rows{where}, is {what}"
        what = "replaced by any other person's" if replaced else "added or left out"
        return f"all of one person's rows{where} are {what} (at most {person.rows} count at a site)"

    @property
    def _beside(self) -> str:
        """What is added to delta, up to a number."""
        if self.pure is None:
            return "Sampling, or a random graph of masks, adds at most"
        return "The random graph of masks fails to hide a site with a chance of at most"

    @property
    def _assumed(self) -> str:
        if self.person is None:
            return "one row per person"
        sites = "one site" if self.person.sites == 1 else f"{self.person.sites} sites or fewer"
        return f"each person is at {sites}, under one id"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "mu": self.mu,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "pure": self.pure is not None,
            "neighbours": self.neighbours,
            "colluding": self.parties.colluding,
            "min_sites": self.parties.min_sites,
            "person": self.person and self.person.to_dict(),
            "statement": self.statement,
        }

    def __str__(self) -> str:
        return self.statement


@dataclass(frozen=True, repr=False)
class Release(Shown):
    """The answer to one analysis. One number gives a float, several a dict by label."""

    analysis: Analysis
    estimates: Estimates
    guarantee: ReleaseGuarantee
    share: float
    scheme: str
    participants: tuple[str, ...]
    rows: int | None
    cost: Cost
    model: Any = None
    """What can do more than be looked at: predict, transform; None where the estimates are all there is."""
    schema: Schema = field(kw_only=True)
    growth: float = field(default=1.0, kw_only=True)
    """How many times as large the noise is as with all sites, in the stage where it is largest."""
    lost: tuple[str, ...] = field(default=(), kw_only=True)
    """The sites that were missing from a sum, or fell silent before their surplus noise was taken off."""
    outside: tuple[OutsideShare, ...] | None = field(default=None, kw_only=True)
    """Noisy shares of cells outside the bounds of each numeric column; None where they were not counted."""

    def describe(self) -> str:
        """Return what was asked, or what was done if that depended on what was released."""
        told, asked = getattr(self.model, "describe", None), self.analysis
        if not callable(told):
            return asked.sentence
        beside = [f"{what} {name}" for what in ("offset", "weights") if (name := getattr(asked, what, None))]
        with_ = f", with {joined(beside)}" if beside else ""
        return f"{told()}{with_}" + (f", where {asked.where}" if asked.where else "")

    @property
    def value(self) -> Any:
        """The released value or values."""
        return self._by_label(self.estimates.values.tolist())

    @property
    def standard_error(self) -> Any:
        """The standard error, sampling and privacy noise together."""
        return self._by_label(self.estimates.standard_errors.tolist())

    def interval(self, level: float = 0.95) -> Any:
        """Return the interval, or one by label, that counts sampling and privacy noise."""
        lows, highs = self.estimates.intervals(level)
        return self._by_label(list(zip(lows.tolist(), highs.tolist(), strict=True)))

    def _by_label(self, column: list[Any]) -> Any:
        return column[0] if len(column) == 1 else dict(zip(self.estimates.labels, column, strict=True))

    def table(self, *columns: str, **options: Any) -> Any:
        """Return a table of counts of these columns, if the release holds tables: see `TablesModel.table`."""
        made = getattr(self.model, "table", None)
        if not callable(made):
            raise InvalidInput(f"a release of {self.analysis.kind!r} holds no tables: ask for cape.Tables")
        return made(*columns, **options)

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return everything as plain data, for JSON; None for what is not a finite number."""
        return plain(
            {
                "analysis": self.analysis.to_dict(),
                "description": self.describe(),
                "scheme": self.scheme,
                "share": self.share,
                "estimates": [
                    {
                        "label": e.label,
                        "value": e.value,
                        "standard_error": error_beside(e.standard_error, e.interval(level)),
                        "sampling_error": e.sampling,
                        "privacy_error": e.privacy,
                        "interval": list(e.interval(level)),
                        "level": level,
                    }
                    for e in self.estimates
                ],
                "model": None if self.model is None else self.model.to_dict(),
                "notes": self.notes(),
                "guarantee": self.guarantee.to_dict(),
                "participants": self.participants,
                "lost": self.lost,
                "growth": self.growth,
                "rows": self.rows,
                "outside": None if self.outside is None else [each.to_dict() for each in self.outside],
                "cost": vars(self.cost),
            }
        )

    def portable(self) -> dict[str, Any]:
        """Return its model for other programs, with the guarantee; without a model, all of it."""
        if self.model is None:
            return self.to_dict()
        return {
            "kind": self.analysis.kind,
            **self.model.portable(),
            "guarantee": plain(self.guarantee.to_dict()),
        }

    def title(self, label: str) -> str:
        """Return how an estimate is named where people read it."""
        return self.analysis.title(label, self.schema)

    def tables(self) -> Sequence[Table]:
        """Return what the analysis and its model show of it as tables."""
        found = self.analysis.tables(self)
        return [noiseless_table(each) for each in found] if self._exact else found

    def figures(self) -> Sequence[Figure]:
        """Return what they show of it as figures."""
        found = self.analysis.figures(self)
        return [noiseless_figure(each) for each in found] if self._exact else found

    def notes(self) -> Sequence[str]:
        """Return what they say of it besides, in sentences, cells outside bounds, rows that are taken to be
        independent, and what lost sites did."""
        found = [
            *sentences(self.outside or (), self.schema),
            *self.analysis.notes(self),
            *self._independence(),
            *self._losses(),
        ]
        return [text for each in found if (text := noiseless(each))] if self._exact else found

    def findings(self) -> Sequence[str]:
        """Return its main numbers in words."""
        found = self.analysis.findings(self)
        return [noiseless(each) for each in found] if self._exact else found

    @property
    def _exact(self) -> bool:
        """Whether there is no noise."""
        return math.isinf(self.guarantee.mu)

    def _independence(self) -> list[str]:
        """Say so where several rows of a person count in sampling errors as rows of several persons.

        Sums over a person's k rows vary by at most k times as much as if these were independent.
        """
        person = self.guarantee.person
        if person is None or person.rows == 1 or not any(each.sampling > 0 for each in self.estimates):
            return []
        if self.analysis.clustered:
            return ["Standard errors are cluster-robust: rows of a person need not be independent."]
        return [
            f"Standard errors, intervals and tests take rows as independent, and up to {person.rows} rows a "
            "person count: if rows of a person are alike, sampling errors are up to "
            f"{person.rows**0.5:.2g} times as large. [person.row] makes one row of a person's."
        ]

    def _losses(self) -> list[str]:
        if self.growth <= _GREW:
            return []
        once = len(self.analysis.stages()) == 1
        names = [
            f"{name} (after its rows were counted)" if once and name in self.participants else name
            for name in self.lost
        ]
        up_to = "" if once else "up to "
        told = f"the noise of the sums is {up_to}{self.growth:.3g} times as large as with all sites"
        who = f"Lost: {', '.join(names)}; {told}" if names else told.capitalize()
        return [who + (", and the intervals count it." if len(self.estimates) else ".")]

    def __rich__(self) -> RenderableType:
        who = f"{self.scheme}: {', '.join(self.participants)}"
        took = (
            f"{self.cost.bytes / 1e3:,.1f} kB, {count(self.cost.rounds, 'round')}, {self.cost.seconds:.2f} s"
        )
        paid = f"share {self.share:g} of the budget; {self.guarantee.loss}"
        title = Text(self.describe(), style="italic")
        return Group(title, rendered(self), Text(f"{who}; {took}; {paid}", style="dim"))

    def summary(self) -> str:
        """Return the tables that one would paste into a report, and the guarantee in words."""
        parts = Group(Text(self.describe()), rendered(self), Text(str(self.guarantee)))
        return as_text(parts, SUMMARY_WIDTH)

    def __str__(self) -> str:
        return as_text(self)

    __repr__ = __str__  # in a notebook one wants the table
