"""Weibull and exponential regression of times to an event, from clipped martingale scores.

Questions, steps and sensitivities are those of `Cox` (`by_hazards`, `hazard_sensitivity`), on an axis of time
that is cut finely enough for hazards to be constant within a cell. The baseline follows its law: a level and,
for Weibull, a shape, whose score is that of the block's tilt. All that follows a released sum is
post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from cape.analyses.survival.baseline import Baseline
from cape.analyses.survival.by_hazards import Asked, ByHazards, checked_rounds, terms
from cape.analyses.survival.hazard_steps import HazardStep, Place, tilt_noise
from cape.analyses.survival.parametric_model import Law, SurvivalRegressionModel
from cape.blocks import Design, Exposure, FollowUp, Martingale, Times
from cape.blocks.martingale import STEEP
from cape.core import check
from cape.core.arrays import Floats
from cape.core.check import hint
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.arguments import joined, names
from cape.engine.query import AnalysisResult, Answer
from cape.show.numbers import count
from cape.stats.estimates import Estimate

__all__ = ["DISTRIBUTIONS", "SurvivalRegression"]

DISTRIBUTIONS = ("weibull", "exponential")
COARSE = 10  # equal bins of the first question
SHAPED = 0.5  # the SD of the logarithm of the shape that is expected before anything is seen
LONGER = 0.7  # the most by which one step changes that
EARLY = 0.05  # of the events: before these the tilt no longer falls
_FINE, _ROUGH = 256, 48  # cells of the last doublings of the time, and of those before
_LATE = 8.0  # doublings that are cut finely, at most
_SMALL = 18.0  # doublings of the cumulative hazard until the end: before these there is one cell
_NARROWEST, _WIDEST = 0.05, 20.0  # of a shape
_ROUNDS = 50


@dataclass(frozen=True)
class _Shaped(Place):
    """A place whose baseline follows a law. The tilt is `unit` times what the law's hazards change by as the
    logarithm of its shape does, less `middle`. `coarse` has the people at risk, by equal bins."""

    law: Law = Law(0.0, 1.0)  # noqa: RUF009
    unit: float = 1.0
    middle: float = 0.0
    coarse: Baseline | None = None


@dataclass(frozen=True, init=False)
class SurvivalRegression(ByHazards):
    """Times to an event that follow Weibull's law or an exponential one, hazards proportional to e^(b·x).

    >>> SurvivalRegression("years", "died", ["age", "sex"])
    >>> SurvivalRegression("years", "died", formula="age * sex", distribution="exponential")

    Until t the cumulative hazard is c t^k e^(b·x), with the shape k, which is 1 for "exponential". This is
    the accelerated failure time model too: a unit of x multiplies times by e^(-b/k). A law needs less of the
    data than `Cox`, whose baseline may have any shape, and predicts beyond the last event.

    Steps are those of `Cox`: scores of the level, of the shape and of the weights, clipped in a way that
    leaves their mean at 0 where the law is true. Intervals count noise, sampling by a sandwich estimate
    (robust errors), and what the last step leaves.

    Rows are complete ones; times are counted from the lower bound of the column. With `entry` a row is at
    risk only after it.

    **Sensitivity**: `hazard_sensitivity` has the proofs.

    Args:
        time: a numeric column: when a row leaves.
        event: a category; the first value is a row that was censored, the second the event.
        features: numeric columns, or categories: one 0 or 1 for each value but the first.
        distribution: "weibull" or "exponential". Piecewise exponential regression is `Cox`.
        formula: terms in place of features, as in "age * sex + spline(bmi, 4)".
        entry: a numeric column: when a row enters.
        rounds: how many steps, or "auto" for four.
        norm: the length that rows are shortened to, in units of half their bounds; by default none is.
    """

    kind: ClassVar[str] = "survival-regression"
    example: ClassVar[dict[str, Any]] = {
        "time": "chol",
        "event": "disease",
        "features": ["age", "sex"],
        "rounds": 2,
    }
    distribution: str

    def __init__(
        self,
        time: str,
        event: str,
        features: Sequence[str] | str | None = None,
        distribution: str = "weibull",
        *,
        formula: str | None = None,
        entry: str | None = None,
        rounds: int | Literal["auto"] = "auto",
        norm: float | None = None,
    ) -> None:
        if not isinstance(distribution, str) or distribution not in DISTRIBUTIONS:
            more = "; piecewise exponential regression is cape.Cox" if distribution == "piecewise" else ""
            raise InvalidInput(
                f"distribution must be 'weibull' or 'exponential', not {distribution!r}"
                f"{more or hint(distribution, DISTRIBUTIONS)}"
            )
        found = terms("a survival regression", features, formula)
        names([time, event, *([] if entry is None else [entry]), *found])
        for name in Design(found).sources:
            if name in (time, event, entry):
                raise InvalidInput(f"the feature {name!r} must not be time, event or entry as well")
        self._set(
            time=time,
            event=event,
            features=found,
            distribution=distribution,
            entry=entry,
            rounds=checked_rounds(rounds),
            norm=None if norm is None else check.real("norm", norm, above=0.0),
        )

    @property
    def _weibull(self) -> bool:
        return self.distribution == "weibull"

    def _times(self, schema: Schema, ends: Floats) -> FollowUp:
        column = schema.number(self.time)
        edges = column.low + (column.high - column.low) * ends
        edges[-1] = column.high
        return FollowUp(Times.of(schema, self.time, self.event, entry=self.entry, edges=edges.tolist()))

    def _follow_up(self, schema: Schema) -> FollowUp:
        return self._times(schema, _ends(1.0) if self._weibull else np.ones(1))

    def _followed(self, place: Place, schema: Schema) -> FollowUp:
        assert isinstance(place, _Shaped)
        return self._times(schema, _ends(place.law.shape)) if self._weibull else self._follow_up(schema)

    def _exposure(self, schema: Schema) -> Exposure:
        ends = np.arange(1, COARSE + 1) / COARSE if self._weibull else np.ones(1)
        return Exposure(self._design, self._times(schema, ends))

    def _supposed(self, schema: Schema) -> Place:
        width = self._design.width(schema)
        one = np.ones(COARSE if self._weibull else 1)
        zero = np.zeros((len(one), width))
        even = Baseline(
            one, one, zero, np.zeros(len(one)), np.zeros(width), np.eye(width), np.eye(width), one, one, 1.0,
            np.zeros(0),
        )  # fmt: skip
        return self._place(even, Law(0.0, 1.0), 0.0, np.zeros(width), noise=1.0)

    def _begun(self, answer: Answer, block: Exposure) -> Place:
        coarse = Baseline.first(answer, block)
        edges = np.arange(COARSE + 1) / COARSE if self._weibull else np.array([0.0, 1.0])
        law = _fitted(coarse, edges, fixed=not self._weibull)
        return self._place(coarse, law, 0.0, np.zeros(len(coarse.centre)), noise=answer.noise[0][2])

    def _place(self, coarse: Baseline, law: Law, level: float, weights: Floats, noise: float) -> _Shaped:
        """Return a place with hazards of this law, with the people of a baseline by equal bins."""
        if not self._weibull:
            one = replace(coarse, hazards=law.hazards(np.array([0.0, 1.0])))
            return _Shaped(one, level, weights, None, law, coarse=coarse)
        ends = np.concatenate([[0.0], _ends(law.shape)])
        hazards, middles = law.hazards(ends), (ends[1:] + ends[:-1]) / 2
        bins = len(coarse.at_risk)
        at_risk = np.interp(middles, (np.arange(bins) + 0.5) / bins, coarse.at_risk)
        events = at_risk * hazards
        events = events * (coarse.total / float(events.sum()))
        slope = law.slopes(ends)
        if noise:
            early = int(np.searchsorted(np.cumsum(events), EARLY * coarse.total))
            slope = np.maximum(slope, slope[min(early, len(slope) - 1)])
        middle = float(events @ slope) / coarse.total
        unit = STEEP / float(np.abs(slope - middle).max())
        cells, width = len(hazards), len(weights)
        baseline = replace(
            coarse,
            hazards=hazards,
            doubt=np.zeros(cells),
            means=np.zeros((cells, width)),
            unsure=np.zeros(cells),
            events=events,
            at_risk=at_risk,
            tilt=(unit * (slope - middle)).clip(-STEEP, STEEP),
        )
        return _Shaped(baseline, level, weights, None, law, unit, middle, coarse)

    def _moved(
        self, place: Place, steps: list[HazardStep], block: Martingale, answer: Answer, schema: Schema
    ) -> Place:
        """Return where to ask next: likely weights, and the law that goes with them."""
        assert isinstance(place, _Shaped)
        last, baseline = steps[-1], place.baseline
        mean = self._likely(steps, baseline, schema).mean
        change = mean - np.array([place.level, *place.weights])
        curved = float(change[1:] @ baseline.spread @ change[1:]) / 2
        drawn = len(steps) < self.steps  # but for the last one, which is the estimate
        before = (SHAPED / place.unit) ** 2 if drawn else math.inf
        longer = place.unit * last.tilted(change, before, LONGER / place.unit)
        log = place.law.log + float(change[0]) - curved - longer * place.middle
        shape = min(max(place.law.shape * math.exp(longer), _NARROWEST), _WIDEST)
        law = Law(min(max(log, -50.0), 50.0), shape)
        assert place.coarse is not None
        white = place.coarse.whitened(last.curvature, last.curvature_noise)
        return self._place(white, law, float(mean[0]), mean[1:], answer.noise[0][1])

    def _told(self, asked: Asked, schema: Schema) -> AnalysisResult:
        told, note = self._said(asked, schema)
        place = asked.place
        assert isinstance(place, _Shaped)
        column = schema.number(self.time)
        shape: tuple[Estimate, ...] = ()
        if self._weibull:
            last = asked.steps[-1]
            sampling, noise = (
                place.law.shape * place.unit * math.sqrt(each)
                for each in (last.shape, tilt_noise(last, told.likely))
            )
            shape = (Estimate("shape", place.law.shape, sampling, noise, (0.0, math.inf)),)
        model = SurvivalRegressionModel(
            self.time,
            self.event,
            schema.category(self.event).values[1],
            self.distribution,
            told.units.design,
            schema,
            told.estimates,
            shape,
            tuple(map(float, told.likely.mean[1:])),
            tuple(map(float, place.baseline.centre)),
            place.law,
            (column.low, column.high),
            told.joint,
            len(asked.steps),
            place.baseline.total,
            note,
        )
        return AnalysisResult((*told.estimates, *shape), model)

    def keys(self) -> dict[str, Any]:
        return {**super().keys(), "features": list(self.features)}

    def describe(self) -> str:
        """Return one line that an ethics board can read."""
        entry = f", at risk from {self.entry}" if self.entry else ""
        return (
            f"{self.distribution} regression of {self.event} by {self.time} on {joined(self.features)}"
            f"{entry}, in {count(self.steps + 1, 'step')}"
        )


def _ends(shape: float) -> Floats:
    """Return the ends of cells, in parts of the whole time: as many as always, for each doubling the same."""
    doublings = min(max(_SMALL / shape, 3.0), 20.0)
    late = min(_LATE, doublings * 2 / 3)
    early = 2.0 ** (-doublings + (doublings - late) * np.arange(_ROUGH) / _ROUGH)
    return np.concatenate([early, 2.0 ** (-late + late * np.arange(_FINE + 1) / _FINE)])


def _fitted(coarse: Baseline, edges: Floats, *, fixed: bool) -> Law:
    """Return the law that expects as many events in all, and whose shape fits them by bin.

    The logarithm of the shape is drawn to 0 as a normal variable with SD `SHAPED` is.
    """
    total = coarse.total

    def level(shape: float) -> Law:
        law = Law(0.0, shape)
        return Law(math.log(total / float(coarse.at_risk @ law.hazards(edges))), shape)

    if fixed:
        return level(1.0)
    log = 0.0
    for _ in range(_ROUNDS):
        law = level(math.exp(log))
        slope = law.slopes(edges)
        expected = coarse.at_risk * law.hazards(edges)
        away = slope - float(expected @ slope) / total
        doubt = 1 + float((coarse.doubt * coarse.events).mean())  # noise, in the variance of a count
        score = float((coarse.events - expected) @ away) / doubt - log / SHAPED**2
        change = score / (float(expected @ away**2) / doubt + SHAPED**-2.0)
        log = min(max(log + min(max(change, -0.5), 0.5), math.log(_NARROWEST)), math.log(_WIDEST))
    return level(math.exp(log))
