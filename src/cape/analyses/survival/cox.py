"""Cox regression: ratios of hazards, from clipped martingale scores.

`cox_sensitivity` says how far one row moves what is asked for, `baseline` and `cox_steps` what is made of the
answers. All that follows a released sum is post-processing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from cape.analyses.survival.baseline import Baseline
from cape.analyses.survival.by_hazards import Asked, ByHazards, checked_rounds, terms
from cape.analyses.survival.cox_model import CoxModel
from cape.analyses.survival.cox_steps import HazardStep, Place
from cape.blocks import Design, Exposure, FollowUp, Martingale, Times
from cape.blocks.exposure import middles
from cape.blocks.martingale import STEEP
from cape.blocks.times import checked_edges
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.arguments import joined, names
from cape.engine.query import Analysis, AnalysisResult, Answer, Neighbours, Noise
from cape.show import Table
from cape.show.numbers import count, number

__all__ = ["Cox"]

TILTED = 0.5  # the SD of what steps change the tilt by, before they are seen


@dataclass(frozen=True, init=False)
class Cox(ByHazards):
    """The ratio of hazards for each feature: Cox's proportional hazards, with a baseline by bins of time.

    >>> Cox("years", "died", ["age", "sex"]), Cox("years", "died", formula="age * sex", strata="site")

    Times are cut at public edges. Within a bin the baseline hazard is constant, and a row counts for as long
    as it is at risk: the likelihood is that of a piecewise exponential model. Where all times are edges, its
    estimates are those of Cox's partial likelihood with Breslow's ties.

    The first question is who is at risk when, events by bin, and what the features of rows with an event are
    like: that makes a first baseline, and whitens the features. Each of `rounds` steps then asks for the sum
    over rows of martingale scores at the hazards found so far, with its curvature and its spread, and for
    events less what was expected by bin, which corrects the baseline. Its level, and its slope in time, are
    found together with the coefficients; noise in the rest of its shape moves these to second order only,
    and as far as those at risk change otherwise than along a line in time. Rows far from the others count
    less, and rows that expect many events are followed until they expect a public number of them, as far as
    noise makes that worth while, in a way that leaves the mean of scores at 0. All steps are combined, by how
    much each tells.

    Coefficients are drawn to 0 as far as noise hides them. Intervals are not; they count noise, sampling by a
    sandwich estimate (robust errors), and what the last step leaves.

    Rows are complete ones. With `entry` a row is at risk only after it (left truncation); a person with
    several rows, each from a start to a stop, has features that vary in time. Rows that leave by another
    event than the second category are censored then.

    **Sensitivity**: `cox_sensitivity` has the proofs.

    Args:
        time: a numeric column: when a row leaves.
        event: a category; the first value is a row that was censored, the second the event.
        features: numeric columns, or categories: one 0 or 1 for each value but the first.
        strata: a category whose values have baselines of their own, such as "site", or several.
        formula: terms in place of features, as in "age * sex + spline(bmi, 4)".
        entry: a numeric column: when a row enters.
        edges: the times at which bins end; rows are followed until the last of them.
        bins: the number of equal bins between the bounds of the time instead, 20 by default.
        rounds: how many steps, or "auto" for four.
        norm: the length that rows are shortened to, in units of half their bounds; by default none is.
        proportional: whether to test, with part of the last step, that hazards are proportional.
    """

    kind: ClassVar[str] = "cox"
    example: ClassVar[dict[str, Any]] = {
        "time": "chol",
        "event": "disease",
        "features": ["age", "sex"],
        "bins": 4,
        "rounds": 2,
    }
    strata: tuple[str, ...]
    edges: tuple[float, ...] | None
    bins: int
    proportional: bool

    def __init__(
        self,
        time: str,
        event: str,
        features: Sequence[str] | str | None = None,
        *,
        formula: str | None = None,
        strata: Iterable[str] | str = (),
        entry: str | None = None,
        edges: Sequence[float] | None = None,
        bins: int | None = None,
        rounds: int | Literal["auto"] = "auto",
        norm: float | None = None,
        proportional: bool = False,
    ) -> None:
        found = terms("a Cox regression", features, formula)
        if not isinstance(strata, Iterable):
            raise InvalidInput(f"strata must be a column or a list of columns, not {strata!r}")
        within = (strata,) if isinstance(strata, str) else tuple(strata)
        names([time, event, *([] if entry is None else [entry]), *within, *found])
        for name in Design(found).sources:
            if name in (time, event, entry, *within):
                raise InvalidInput(f"the feature {name!r} must not be time, event, entry or strata as well")
        if not isinstance(proportional, bool):
            raise InvalidInput(f"proportional must be True or False, not {proportional!r}")
        cut, many = checked_edges(time, edges, bins)
        self._set(
            time=time,
            event=event,
            features=found,
            strata=within,
            entry=entry,
            edges=cut,
            bins=many,
            rounds=checked_rounds(rounds),
            norm=None if norm is None else check.real("norm", norm, above=0.0),
            proportional=proportional,
        )

    def _follow_up(self, schema: Schema) -> FollowUp:
        cut = {"bins": self.bins} if self.edges is None else {"edges": self.edges}
        return FollowUp(Times.of(schema, self.time, self.event, entry=self.entry, **cut), self.strata)

    def _supposed(self, schema: Schema) -> Place:
        return Place(self._even(schema), 0.0, np.zeros(self._design.width(schema)))

    def _even(self, schema: Schema) -> Baseline:
        width, cells = self._design.width(schema), self._follow_up(schema).cells(schema)
        zero = np.zeros((cells, width))
        tilt = np.tile(STEEP * middles(self.bins), cells // self.bins) if self.bins > 1 else np.zeros(0)
        return Baseline(
            np.full(cells, 1 / cells), np.ones(cells), zero, np.zeros(cells), np.zeros(width), np.eye(width),
            np.eye(width), np.ones(cells), np.ones(cells), 1.0, tilt,
        )  # fmt: skip

    def _trend(self, baseline: Baseline, step: int) -> Floats | None:
        """Return how a departure from proportional hazards goes over time: with the part of events so far."""
        if not self.proportional or step != self.steps - 1:
            return None
        events = baseline.events.reshape(-1, self.bins)
        by_bin = events.sum(axis=0)
        place = (np.cumsum(by_bin) - by_bin / 2) / by_bin.sum()
        g = np.tile(place, len(events))
        g = g - float(baseline.events @ g) / baseline.total
        return np.asarray(g / max(float(np.abs(g).max()), 1e-9)).clip(-1.0, 1.0)

    def _begun(self, answer: Answer, block: Exposure) -> Place:
        baseline = Baseline.first(answer, block)
        return Place(baseline, 0.0, np.zeros(len(baseline.centre)))

    def _moved(
        self, place: Place, steps: list[HazardStep], block: Martingale, answer: Answer, schema: Schema
    ) -> Place:
        """Return where to ask next: likely weights, and the baseline that goes with them."""
        mean = self._likely(steps, place.baseline, schema).mean
        last = steps[-1]
        edge = max(last.curvature_noise, 1e-6 * last.count)
        kept = min(max(float(last.curvature[0, 0]), edge) / last.count, 1.0)
        moved, noise = block.reach * answer.sums[0][6], block.reach * answer.noise[0][6]
        change = mean - np.array([place.level, *place.weights])
        along = float(change[0]), last.tilted(change, TILTED**2)
        baseline = place.baseline.after(moved, noise, kept, along, change[1:])
        baseline = baseline.whitened(last.curvature, last.curvature_noise)
        drift = (
            None if last.lean is None else baseline.turn @ np.linalg.solve(place.baseline.turn, last.lean[1:])
        )
        return Place(baseline, float(mean[0]), mean[1:], drift)

    def _told(self, asked: Asked, schema: Schema) -> AnalysisResult:
        told, note = self._said(asked, schema)
        units = told.units
        times = self._follow_up(schema).times
        model = CoxModel(
            self.time,
            self.event,
            schema.category(self.event).values[1],
            self.strata,
            units.design,
            schema,
            told.estimates,
            tuple(map(float, told.likely.mean[1:])),
            tuple(map(float, asked.place.baseline.centre)),
            times.edges,
            told.baseline(asked.place.baseline),
            told.joint,
            told.concordance(asked.place.baseline),
            told.proportional(asked.block, asked.answer, asked.place.baseline),
            len(asked.steps),
            asked.place.baseline.total,
            note,
        )
        return AnalysisResult(told.estimates, model)

    def outlook(self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours) -> Sequence[Table]:
        """Return what strata cost, if there are any: the noise of coefficients with and without them."""
        if not self.strata:
            return ()
        plain = self.changed(strata=())
        both = [each.expected(schema, noise, rows, neighbours) for each in (self, plain)]
        lines = tuple((schema.title(name), *(number(each[name]) for each in both)) for name in both[0])
        title = "Privacy noise (SD) of coefficients, per unit of each feature"
        return (Table(("", f"within {joined(self.strata)}", "one baseline for all"), lines, title),)

    def smaller(self, schema: Schema) -> Iterator[Analysis]:
        """Yield the same without strata, then regressions on fewer features, then on one alone."""
        if self.strata:
            yield self.changed(strata=())
        yield from super().smaller(schema)

    def keys(self) -> dict[str, Any]:
        cut = {"bins": self.bins} if self.edges is None else {"edges": list(self.edges)}
        found = {key: value for key, value in super().keys().items() if key not in ("edges", "bins")}
        found |= {"features": list(self.features), "strata": list(self.strata)}
        for key in ("proportional", "strata"):
            if not found[key]:
                del found[key]
        return {**found, **cut}

    def describe(self) -> str:
        """Return one line that an ethics board can read."""
        within = f", within {joined(self.strata)}" if self.strata else ""
        entry = f", at risk from {self.entry}" if self.entry else ""
        return (
            f"Cox regression of {self.event} by {self.time} on {joined(self.features)}{within}{entry}, in "
            f"{count(self.steps + 1, 'step')}"
        )
