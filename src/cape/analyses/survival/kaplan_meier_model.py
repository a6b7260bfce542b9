"""What survival curves show: the picture with numbers at risk, what is read off it, and tables behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cape.analyses.empty import nobody
from cape.analyses.survival.curve import SurvivalCurve
from cape.analyses.survival.hazard import Hazard
from cape.analyses.survival.incidence import Incidence
from cape.core.arrays import Floats
from cape.data import Schema
from cape.show import Curves, Figure, Mark, Shown, Table
from cape.show.findings import findings
from cape.show.numbers import LEVEL, between, number, rounded, seen
from cape.show.plain import plain
from cape.show.tables import listed
from cape.stats.estimates import Estimate, is_unknown

__all__ = ["Group", "KaplanMeierModel", "titled"]

_LATER = "not reached"
_BELOW = 6  # columns of numbers at risk


def titled(label: str, schema: Schema) -> str:
    """Return a label such as "arm=new - arm=old, years mean to 10" as people read it."""
    parts = (" - ".join(map(schema.title, part.split(" - "))) for part in label.split(", "))
    told = ", ".join(parts)
    return told.replace(" quantile 0.5", " median") if told.endswith(" quantile 0.5") else told


def _with_interval(estimate: Estimate) -> str:
    error = estimate.standard_error
    if is_unknown(estimate):
        return "-"
    return f"{rounded(estimate.value, error, 3)} ({between(estimate.interval(LEVEL), error, 3)})"


@dataclass(frozen=True)
class Group:
    """One curve with what is read off it."""

    label: str
    curve: SurvivalCurve
    survival: tuple[Estimate, ...]
    quantiles: tuple[Estimate, ...]
    means: tuple[Estimate, ...]
    incidences: tuple[Estimate, ...]


@dataclass(frozen=True, repr=False)
class KaplanMeierModel(Shown):
    """Survival curves.

    Attributes:
        groups: the curve of each group, with its quantiles, restricted mean and incidences.
        differences: of restricted means to the first group's.
        horizon: until when restricted means count.
        causes: the events.
    """

    time: str
    event: str
    schema: Schema
    groups: tuple[Group, ...]
    differences: tuple[Estimate, ...]
    horizon: float
    causes: tuple[str, ...]

    @property
    def edges(self) -> Floats:
        """The times at which curves are known, the first of which is their start."""
        return self.groups[0].curve.edges

    def band(self, place: int = 0, level: float = LEVEL) -> tuple[Floats, Floats]:
        """Return bounds within which a whole curve lies at this level, at each edge."""
        return self.groups[place].curve.band(level)

    def nelson_aalen(self, place: int = 0) -> Hazard:
        """Return Nelson and Aalen's cumulative hazard of a group: `values`, `errors` and `reach`."""
        return Hazard(self.groups[place].curve.table, "sum")

    def incidence(self, cause: int, place: int = 0) -> Incidence:
        """Return the cumulative incidence of one of the events, by its place among them."""
        return Incidence(self.groups[place].curve, cause)

    def predict(self, times: Any, place: int = 0) -> Floats:
        """Return the survival of a group at any times up to the last edge."""
        curve, wanted = self.groups[place].curve, np.asarray(times, np.float64)
        if curve.table.at_edges:
            found = curve.survival[np.clip(np.searchsorted(self.edges, wanted, side="right") - 1, 0, None)]
        else:
            logs = np.log(np.maximum(curve.survival, 1e-300))
            found = np.exp(np.interp(wanted, self.edges, logs))
        return np.where(wanted > self.edges[-1], np.nan, np.asarray(found))

    def tables(self) -> Sequence[Table]:
        """Return quantiles and restricted means, and behind them everything by edge."""
        first = [e for group in self.groups for e in (*group.quantiles, *group.means)]
        several = [e for group in self.groups for e in group.incidences]
        return [
            self._summed_up([*first, *self.differences]),
            *([self._incidences()] if several else []),
            *(self._by_edge(group) for group in self.groups),
            *([listed(several, self._title, folded=True)] if several else []),
        ]

    def findings(self) -> Sequence[str]:
        """Return the differences between groups, then what was found in each."""
        first = [*self.differences, *(e for group in self.groups for e in (*group.means, *group.quantiles))]
        return findings([self._summed_up(first)])

    def _summed_up(self, estimates: Sequence[Estimate]) -> Table:
        """Return estimates as rows, in words where a curve does not fall as far as a quantile.

        Intervals of quantiles end at edges: they have no standard error.
        """
        known = {e.label: self.edges[group.curve.known] for group in self.groups for e in group.quantiles}
        made = listed(estimates, self._title)
        rows: list[tuple[str, ...]] = []
        for e, row in zip(estimates, made.rows, strict=False):
            if e.label not in known:
                rows.append(row)
                continue
            low, high = e.interval()
            hidden = low <= self.edges[0] or e.value > known[e.label]
            value = "-" if math.isinf(high) and hidden else row[1]
            value = _LATER if e.value >= self.edges[-1] else value
            rows.append((row[0], value, self._from_to(low, high), "", ""))
        return replace(made, rows=tuple(rows))

    def _from_to(self, low: float, high: float) -> str:
        """Return an interval whose ends are edges, to the digits that edges have."""
        most = max(1 - math.floor(math.log10(float(np.diff(self.edges).min()))), 0)
        places = min(max(len(f"{edge:.9g}".partition(".")[2]) for edge in self.edges), most)
        return " to ".join(f"{end:,.{places}f}" if math.isfinite(end) else _LATER for end in (low, high))

    def _incidences(self) -> Table:
        """Return how many have had each event by some of the edges: the others are folded."""
        many = len(self.edges) - 1
        chosen = sorted({round(place) for place in np.linspace(0, many - 1, min(many, _BELOW))})
        rows: list[tuple[str, ...]] = []
        for group in self.groups:
            if group.label:
                rows.append((self._title(group.label),))
            for place in chosen:
                cells = [_with_interval(group.incidences[i * many + place]) for i in range(len(self.causes))]
                rows.append((f"by {self.edges[place + 1]:g}", *cells))
        heads = (self.schema.title(f"{self.event}={cause}") for cause in self.causes)
        told = f"Cumulative incidence: the share with each event, with {LEVEL:.0%} intervals"
        return Table((self.schema.title(self.time), *heads), tuple(rows), told)

    def _title(self, label: str) -> str:
        return titled(label, self.schema)

    def _by_edge(self, group: Group) -> Table:
        """Return numbers at risk, events and survival with intervals, band and cumulative hazard."""
        curve = group.curve
        table, hazard = curve.table, Hazard(curve.table, "sum")
        lows, highs = curve.band(LEVEL)
        rows = []
        for i, each in enumerate(group.survival):
            error = each.standard_error
            rows.append(
                (
                    f"{self.edges[i + 1]:g}",
                    f"{table.at_risk[i]:,.0f}",
                    f"{table.deaths[i]:,.0f}",
                    rounded(each.value, error, 3),
                    between(each.interval(LEVEL), error, 3),
                    between((float(lows[i + 1]), float(highs[i + 1])), error, 3),
                    number(float(hazard.values[i])),
                )
            )
        columns = (
            self.schema.title(self.time),
            "at risk",
            "events",
            "survival",
            f"{LEVEL:.0%} interval",
            f"{LEVEL:.0%} band",
            "cumulative hazard",
        )
        noise = table.blur.noise
        caption = "Numbers at risk are those at the start of the bin that ends here." + (
            f" They have noise, of standard deviation {self._blurred(curve)}, and events have noise too."
            if noise
            else ""
        )
        title = self._title(group.label) if group.label else "Survival by time"
        return Table(columns, tuple(rows), title, caption, drop=(6, 5), folded=len(self.groups) > 1)

    def _blurred(self, curve: SurvivalCurve) -> str:
        noise = curve.table.exposure_noise
        return " to ".join(dict.fromkeys(f"{end:.2g}" for end in (noise.min(), noise.max())))

    def figures(self) -> Sequence[Figure]:
        """Return the curves with numbers at risk below, and incidences of events that compete."""
        figures = [Figure((self._panel(),), self._caption())]
        for i, cause in enumerate(self.causes if len(self.causes) > 1 else ()):
            lines = []
            for group in self.groups:
                many = len(self.edges) - 1
                marks = [
                    Mark.of(e, self._title(e.label)) for e in group.incidences[i * many : (i + 1) * many]
                ]
                lines.append((self._title(group.label), (Mark.exact("", 0.0), *marks)))
            panel = self._drawn(tuple(lines), f"share with {self.schema.title(f'{self.event}={cause}')}")
            told = f"Cumulative incidence, with {LEVEL:.0%} intervals at each time."
            figures.append(Figure((panel,), told))
        return figures

    def _panel(self) -> Curves:
        lines = []
        for group in self.groups:
            marks = (Mark.exact("", 1.0), *(Mark.of(e, self._title(e.label)) for e in group.survival))
            lines.append((self._title(group.label), marks))
        return self._drawn(tuple(lines), "survival")

    def _drawn(self, lines: tuple[tuple[str, tuple[Mark, ...]], ...], up: str) -> Curves:
        evenly = np.linspace(self.edges[0], self.edges[-1], _BELOW)
        nearest = {int(np.abs(self.edges - time).argmin()) for time in evenly}
        chosen, apart = [0], (self.edges[-1] - self.edges[0]) / (_BELOW + 1)
        for i in sorted(nearest):
            if self.edges[i] - self.edges[chosen[-1]] >= apart:
                chosen.append(i)
        below = []
        for group in self.groups:
            table = group.curve.table
            so_far = np.append(0.0, np.cumsum(table.deaths))
            noise, of_events = np.append(table.exposure_noise, table.exposure_noise[-1]), table.seen_events[1]
            cells = tuple(
                f"{seen(float(table.at_risk[i]), float(noise[i]))} "
                f"({seen(float(so_far[i]), of_events if i else 0.0)})"  # none have had it at the start
                for i in chosen
            )
            below.append((self._title(group.label) if group.label else "All", cells))
        return Curves(
            tuple(self.edges.tolist()),
            lines,
            self.schema.title(self.time),
            up,
            steps=self.groups[0].curve.table.at_edges,
            below_at=tuple(float(self.edges[i]) for i in chosen),
            below=tuple(below),
            below_title="Number at risk (events until then)",
        )

    @property
    def _noisy(self) -> str:
        """How much noise numbers at risk have, if they have any."""
        noise = [group.curve.table.exposure_noise for group in self.groups]
        least, most = min(float(each.min()) for each in noise), max(float(each.max()) for each in noise)
        if not most:
            return ""
        sizes = " to ".join(dict.fromkeys(f"{end:.2g}" for end in (least, most)))
        return f" Numbers at risk come with noise of standard deviation {sizes}; - where it hides them."

    def _caption(self) -> str:
        return (
            f"Lines are survival curves, and areas their {LEVEL:.0%} intervals at each time, from sampling "
            f"and privacy noise.{self._noisy}"
        )

    def notes(self) -> Sequence[str]:
        """Return which rows had an event, and until when curves are known."""
        censored, *events = self.schema.category(self.event).values
        label = self.schema.label(self.event)
        told = [f"Events are {label} = {' or '.join(map(str, events))}; {label} = {censored} is censored."]
        told += self._empty
        for group in self.groups:
            known = group.curve.known
            if 0 < known < len(self.edges) - 1:
                who = f" in {self._title(group.label)}" if group.label else ""
                after = f"After {self.edges[known]:g}"
                told.append(
                    f"{after} the number at risk{who} is not clear of the noise: from there on the interval "
                    "says only that the curve goes on falling."
                    if group.curve.table.blur.noise
                    else f"{after} nobody{who} is at risk: from there on the curve may go on falling."
                )
        least = min(float(self.edges[group.curve.known]) for group in self.groups)
        if self.edges[0] < least < self.horizon:
            told.append(
                f"Intervals of means to {self.horizon:g} hold whatever happens where a curve is not known: "
                f"horizon = {least:g} would make them narrower."
            )
        if any(math.isinf(e.interval()[1]) for group in self.groups for e in group.quantiles):
            told.append(f"{_LATER.capitalize()}: not by {self.edges[-1]:g}, the last edge.")
        if any(math.isfinite(e.interval()[1]) for group in self.groups for e in group.quantiles):
            told.append("Intervals of medians and other quantiles end at edges: they have no standard error.")
        return told

    @property
    def _empty(self) -> list[str]:
        """What is to be said of groups in which nobody is, and of those without events."""
        found = []
        for group in self.groups:
            table, who = group.curve.table, f" in {self._title(group.label)}" if group.label else ""
            noisy = table.blur.noise > 0
            if nobody(table.total, float(table.exposure_noise.max())):
                start = f"{'Noise hides whether anybody' if noisy else 'Nobody'} is{who or ' there'}"
                found.append(f"{start}: {'little' if noisy else 'nothing'} can be said of the curve.")
            elif nobody(*table.seen_events):
                found.append(
                    f"Noise hides whether there are any events{who}."
                    if noisy
                    else f"There are no events{who}."
                )
        return found

    def widths(self) -> Table:
        """Return how wide intervals are at each edge: for plans, from typical rows."""
        rows: list[tuple[str, ...]] = []
        for group in self.groups:
            if group.label:
                rows.append((self._title(group.label),))
            for i, each in enumerate(group.survival):
                low, high = each.interval(LEVEL)
                error = each.standard_error
                part = (each.privacy / error) ** 2 if error > 0 else 0.0
                cells = f"{group.curve.table.at_risk[i]:,.0f}", number(high - low), f"{part:.0%}"
                rows.append((f"{self.edges[i + 1]:g}", *cells))
        columns = (
            self.schema.title(self.time),
            "expected at risk",
            f"width of the {LEVEL:.0%} interval",
            "of its variance from noise",
        )
        return Table(columns, tuple(rows), "The curve's interval at each edge, for typical rows")

    def to_dict(self) -> dict[str, Any]:
        """Return curves, bands, numbers at risk and cumulative hazards as plain data."""
        return plain(
            {
                "time": self.time,
                "event": self.event,
                "edges": self.edges.tolist(),
                "horizon": self.horizon,
                "groups": [self._plain(group) for group in self.groups],
            }
        )

    def _plain(self, group: Group) -> dict[str, Any]:
        curve = group.curve
        table, hazard = curve.table, Hazard(curve.table, "sum")
        band, interval, reach = curve.band(LEVEL), curve.intervals(LEVEL), hazard.reach(1.959964)
        return {
            "group": group.label,
            "incidence": {
                cause: Incidence(curve, i).values.tolist()
                for i, cause in enumerate(self.causes if len(self.causes) > 1 else ())
            },
            "at_risk": table.at_risk[:-1].tolist(),
            "events": table.events.tolist(),
            "censored": table.censored.tolist(),
            "noise": table.blur.noise,
            "survival": curve.survival.tolist(),
            "interval": [ends.tolist() for ends in interval],
            "band": [ends.tolist() for ends in band],
            "known_edges": curve.known,
            "nelson_aalen": {
                "values": hazard.values.tolist(),
                "interval": [ends.tolist() for ends in reach],
            },
            "level": LEVEL,
        }
