"""Weibull and exponential regression of times to an event, from whole clipped scores.

Steps are those of `cape.analyses.regression.score_stages`, beside whose first stage rows are counted by
event and time (`parametric_start`); scores are those of `cape.blocks.law_scores`. All that follows a released
sum is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from cape.analyses.regression.faults import no_events, sentence, warn
from cape.analyses.regression.inference import largest
from cape.analyses.regression.joint import rows_of
from cape.analyses.regression.marginals import Marginals, marginals_query
from cape.analyses.regression.multinomial_query import choice_query, moved
from cape.analyses.regression.score_arguments import score_arguments
from cape.analyses.regression.score_query import Parts, check_few
from cape.analyses.regression.score_regression import ScoreRegression
from cape.analyses.regression.score_regression_estimate import Fitted, Named, Scored
from cape.analyses.survival.cox_separated import LOWER, Separated, opened
from cape.analyses.survival.parametric_model import Law, SurvivalRegressionModel
from cape.analyses.survival.parametric_separated import values_without_events
from cape.analyses.survival.parametric_start import (
    Looked,
    TimesSeen,
    blocks_of,
    clear,
    events_of,
)
from cape.analyses.survival.proportional import MOST_MOVED, MOST_WEIGHTS, terms
from cape.blocks import Design, LawScores, Times, typical
from cape.blocks.law_scores import LEAST, LEAST_SHAPE, MOST_SHAPE
from cape.blocks.units import Units
from cape.core.arrays import Floats
from cape.core.check import hint
from cape.core.errors import InvalidInput
from cape.data import Number, Schema
from cape.engine.arguments import joined, names
from cape.engine.query import Analysis, AnalysisResult, Answer, Neighbours, Query
from cape.show.numbers import count as counted
from cape.stats.estimates import Estimate
from cape.stats.score_norms import Lengths
from cape.stats.score_steps import Point, ScoreStep

__all__ = ["DISTRIBUTIONS", "SurvivalRegression"]

DISTRIBUTIONS = ("weibull", "exponential")
# What follows, and the fields of the class that say how steps are made, was chosen on half of the settings of
# `python -m benchmarks truth.survival`, as `cape.stats.score_steps` says.
_STEEPEST = 20.0  # a shape that is possible where noise hides it
_LEVEL = 40.0  # the logarithm of what a row expects until the upper bound, likewise
_NEARER, _FURTHER = 0.3, 4.0  # times the shape: what a step leaves of it at least, and makes of it at most
_UNEVEN = 2.0  # the SD of curvatures of rows, in their mean, about
_LOOK, _LENGTHS = 0.22, 2.0  # the share of the step before the last, and of lengths in it
_ROUND = 0.3  # of the events: what the curvature is off by where it is guessed
_TYPICAL = 1e4  # rows, where nothing is known


@dataclass(frozen=True, init=False)
class SurvivalRegression(ScoreRegression):
    """Times to an event that follow Weibull's law or an exponential one, hazards proportional to e^(b·x).

    >>> SurvivalRegression("years", "died", ["age", "sex"])
    >>> SurvivalRegression("years", "died", formula="age * sex", distribution="exponential")

    Until t the cumulative hazard is c t^k e^(b·x), with the shape k, which is 1 for "exponential". This is
    the accelerated failure time model too: a unit of x multiplies times by e^(-b/k). A law needs less of the
    data than `Cox`, whose baseline may have any shape, and predicts beyond the last event.

    A first stage looks at each feature by itself, and at events by time: numeric features are capped at
    released quantiles where their bounds are much wider than the data (`cap`), and steps start at the law
    that fits events without features. Each of `rounds` steps then asks for the sum over rows of scores, the
    gradient of the log-likelihood in level, log-hazards and shape, with its curvature and its spread. Scores
    that are longer than a bound are shortened to it; a histogram of their lengths says which bound makes the
    whole error smallest, and what it left out counts in intervals.

    Estimates are those of the same model without privacy, on the capped columns, whether the law is true or
    not; sampling errors are those of a sandwich (robust errors).

    Rows are complete ones; times are counted from the lower bound of the column. With `entry` a row is at
    risk only after it. The logarithm of a time near the lower bound may be anything: where the first stage
    sees rows there, they count as leaving a little later, which is said.

    **Sensitivity** of each step: see `multinomial_query`; of the first stage sqrt(2 k) for k columns, times
    with events and entries under replace-one, sqrt(k) under add-remove: a row is in one bin of each.

    Args:
        time: a numeric column: when a row leaves.
        event: a category; the first value is a row that was censored, the second the event.
        features: numeric columns, or categories: one 0 or 1 for each value but the first.
        distribution: "weibull" or "exponential". Piecewise exponential regression is `Cox`.
        formula: terms in place of features, as in "age * sex + spline(bmi, 4)".
        entry: a numeric column: when a row enters.
        rounds: how many steps, or "auto" for five.
        norm: the length that rows are shortened to, in units of half their bounds; by default none is.
        cap: "auto", "none", or where columns are cut, as in {"nodes": (0, 24)}; ends of the time are those
            between which it is cut.
    """

    kind: ClassVar[str] = "survival-regression"
    example: ClassVar[dict[str, Any]] = {
        "time": "chol",
        "event": "disease",
        "features": ["age", "sex"],
        "rounds": 2,
    }
    predictor: ClassVar[str] = "log-hazards"
    falls: ClassVar[tuple[float, float]] = (0.33, 0.42)
    bent: ClassVar[float] = 0.5
    unsettled: ClassVar[float] = 0.9
    gathers: ClassVar[bool] = True
    slower: ClassVar[bool] = True
    time: str
    event: str
    entry: str | None
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
        cap: Any = "auto",
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
        given = score_arguments(time, found, rounds=rounds, intercept=False, norm=norm, cap=cap)
        self._set(**given | {"intercept": True}, time=time, event=event)
        self._set(entry=entry, distribution=distribution)

    @property
    def _shaped(self) -> bool:
        return self.distribution == "weibull"

    def _times(self, schema: Schema) -> Times:
        return Times.of(schema, self.time, self.event, entry=self.entry, bins=1)

    def _design(self, cut: tuple[tuple[str, Number], ...] = (), *, scores: bool = False) -> Design:
        return Design(self.features, None, self.norm, cut=cut)

    def _columns(self) -> tuple[str, ...]:
        return (*self._design().sources, self.time)

    def _check(self, schema: Schema) -> None:
        blocks_of(self._times(schema), schema)
        check_few(self._design().width(schema), MOST_WEIGHTS)

    def _looking(self, schema: Schema, neighbours: Neighbours) -> Query:
        asked = marginals_query(self._design().sources, schema, neighbours)
        blocks = blocks_of(self._times(schema), schema)
        one = 2 if neighbours == "replace-one" else 1
        sensitivity = math.sqrt(one * (len(asked.blocks) + len(blocks)))
        return Query((*asked.blocks, *blocks), (*asked.scales, *((1.0,),) * len(blocks)), sensitivity)

    def _looked(self, answer: Answer) -> Marginals:
        sources, schema = self._design().sources, answer.schema
        many = len(sources)
        of = replace(answer, sums=answer.sums[:many], noise=answer.noise[:many])
        found = Marginals.of(of, sources, self.cap)
        blocks = blocks_of(self._times(schema), schema)
        times = TimesSeen.of(blocks, answer.sums[many:], answer.noise[many][0], schema)
        cap = self.cap == "auto" if isinstance(self.cap, str) else dict(self.cap).get(self.time, False)
        time = times.marginal(schema, self.time, cap)
        return Looked(
            found.schema,
            {**found.numbers, self.time: time},
            found.shares,
            found.doubts,
            found.counts,
            times,
        )

    @property
    def _parts(self) -> list[Parts]:
        parts = super()._parts
        if len(parts) > 1:
            parts[-2] = replace(parts[-2], share=max(parts[-2].share, _LOOK), lengths=_LENGTHS)
        return parts

    def _change(self, parts: Parts, neighbours: Neighbours, persons: int) -> float:
        return moved(parts, neighbours)

    def _family(
        self, marginals: Marginals | None, steps: list[ScoreStep], schema: Schema, last: Any = None
    ) -> Times:
        """Return when rows leave and enter, and by what."""
        return self._times(schema)

    def _block(self, point: Point, design: Design, family: Times, marginals: Marginals | None) -> LawScores:
        block = LawScores(
            design,
            family,
            tuple(map(float, point.weights)),
            tuple(tuple(map(float, row)) for row in point.turn),
            float(point.bound),
            float(point.curve),
            self._shaped,
            point.edges,
        )
        if marginals is None or not any(marginals.numbers[self.time].capped):
            return block
        of, column = marginals.numbers[self.time], marginals.schema.number(self.time)
        low, high = ((end - column.low) / (column.high - column.low) for end in (of.low, of.high))
        return replace(block, least=max(low, LEAST), most=min(max(high, LEAST), 1.0))

    def _asked(self, block: Scored, parts: Parts, schema: Schema, neighbours: Neighbours) -> Query:
        assert isinstance(block, LawScores)
        return choice_query(block, parts, neighbours)

    def _begin(
        self, marginals: Marginals | None, schema: Schema, noise: float, count: float
    ) -> tuple[Point, Design, Times]:
        """Return the law without features, in coordinates that whiten what it expects."""
        cut = () if marginals is None else marginals.cut(self._design().sources)
        design, times = self._design(cut), self._times(schema)
        if marginals is None:
            count, blocks = _TYPICAL, blocks_of(times, schema)
            seen = TimesSeen.of(
                blocks, tuple(block.typical(schema, int(count)) for block in blocks), 0.0, schema
            )
            x = typical.rows(design, schema, 1024)
            middle = x.mean(axis=0)
            white = np.diag(1 / np.maximum(x.std(axis=0), 1e-3))
        else:
            assert isinstance(marginals, Looked)
            seen = marginals.times
            middle, white = marginals.centred(design, schema)
        begun = seen.begun(count, shaped=self._shaped)
        width = len(middle)
        weights = np.zeros(1 + width + self._shaped)
        turn = np.eye(len(weights))
        weights[0] = begun.level
        turn[1 : 1 + width, 1 : 1 + width] = white
        turn[1 : 1 + width, 0] = -white @ middle
        if self._shaped:
            weights[-1] = begun.shape
            spread = math.sqrt(begun.spread)
            turn[-1, -1], turn[-1, 0] = 1 / spread, -(begun.mean + 1 / begun.shape) / spread
        share = min(max(begun.events / max(count, 1.0), 1e-4), 1.0)
        point = Point.first(weights, turn, math.sqrt(share), share, uneven=_UNEVEN, noise=noise, count=count)
        return point, design, times

    def _expecting(self, step: ScoreStep, marginals: Marginals) -> ScoreStep:
        """Return the first step with the curvature that coordinates were chosen to have: that of as many
        whitened rows as there are events."""
        if not step.curvature_noise:
            return step
        assert isinstance(marginals, Looked)
        begun = marginals.times.begun(step.count, shaped=False)
        doubt = math.hypot(_ROUND * begun.events, min(begun.doubt, step.count))
        here, there = step.curvature_noise**-2, doubt**-2
        likely = (here * step.curvature + there * begun.events * np.eye(step.width)) / (here + there)
        return replace(step, curvature=likely, curvature_noise=(here + there) ** -0.5)

    def _supposing(self, lengths: Lengths, block: Scored, marginals: Marginals, count: float) -> Lengths:
        """Return lengths with those of made-up rows that follow the law at the present weights."""
        assert isinstance(block, LawScores)
        assert isinstance(marginals, Looked)
        x = marginals.rows(block.design, marginals.schema)
        followed = marginals.times.made_up(len(x), block.weights[0] + x @ np.array(block.slopes), block.shape)
        found = np.linalg.norm(block.at(np.ascontiguousarray(x.T), followed, 1.0)[0], axis=1)
        events = marginals.times.begun(count, shaped=False).events
        had = followed.event > 0
        each = np.where(
            had, events / max(int(had.sum()), 1), max(count - events, 0.0) / max(int((~had).sum()), 1)
        )
        places = np.searchsorted(lengths.edges, found, side="right")
        expected = np.bincount(places, each, len(lengths.edges) + 1)
        return replace(lengths, expected=np.asarray(expected, np.float64))

    def _allowed(self, weights: Floats, step: ScoreStep, schema: Schema) -> Floats:
        """Return weights whose shape is not far from the step's: the most likely ones, as the step has it."""
        if not self._shaped:
            return weights
        before = float(step.point.weights[-1])
        low, high = max(_NEARER * before, 2 * LEAST_SHAPE), min(_FURTHER * before, MOST_SHAPE / 2)
        wanted = min(max(float(weights[-1]), low), high)
        if wanted == weights[-1]:
            return weights
        back = np.linalg.inv(step.point.turn)
        moves = np.linalg.inv(back @ step.likely @ back.T)[:, -1]
        found = np.asarray(weights + moves * ((wanted - weights[-1]) / moves[-1]))
        found[-1] = wanted
        return found

    def _moved(self, schema: Schema) -> float:
        return MOST_MOVED

    def _possible(self, design: Design, schema: Schema) -> Floats:
        shape = [_STEEPEST] if self._shaped else []
        return np.array([_LEVEL, *largest(Units(design, schema), MOST_MOVED), *shape])

    def _assumed(self, schema: Schema) -> str:
        shape = f", and of a shape of at most {_STEEPEST:.0f}" if self._shaped else ""
        return super()._assumed(schema) + shape

    def _named(self, units: Units) -> Named:
        many = 1 + len(units.names)
        to = np.eye(many + self._shaped)
        to[:many, :many] = units.matrix
        labels, owners = ("level", *units.names), ("", *units.owners)
        slopes = tuple((1 + i, name) for i, name in enumerate(units.names))
        if self._shaped:
            labels, owners, slopes = (*labels, "shape"), (*owners, ""), (*slopes, (many, "shape"))
        return Named(to, labels, owners, slopes)

    def _by_x(self, weights: Floats, units: Units) -> Floats:
        return weights

    def _slopes_of(self, weights: Floats, width: int) -> Floats:
        return weights[None, 1:width]

    @property
    def _kept(self) -> slice:
        """The slopes: what tests are of, and what plans are about."""
        return slice(1, -1 if self._shaped else None)

    def _fitted(
        self, steps: list[ScoreStep], marginals: Marginals | None, design: Design, schema: Schema
    ) -> Fitted:
        """Return the estimates with their errors: all that is possible where there may be no events."""
        found = super()._fitted(steps, marginals, design, schema)
        if isinstance(marginals, Looked) and not clear(steps[-1], marginals.times):
            found = self._opened(found, design, schema)
        found = self._going_on(found, design, schema)
        return found if steps[-1].score_noise else _without_privacy(found)

    def _separated_values(self, found: Fitted) -> list[Separated]:
        """Return the values at which noise hides whether there are events, if it shows that there are any."""
        last, looked = found.steps[-1], found.marginals
        if not isinstance(looked, Looked) or not last.score_noise or not clear(last, looked.times):
            return []
        values = {each.label: each.value for each in found.estimates}
        return [
            one
            for one in values_without_events(last, looked, found.units, found.units.schema)
            if all(side * values[label] > LOWER for label, side in one.sides)
        ]

    def _going_on(self, found: Fitted, design: Design, schema: Schema) -> Fitted:
        """Return estimates whose intervals go on where values have no events."""
        sides = {label: side for each in self._separated_values(found) for label, side in each.sides}
        if not sides:
            return found
        named = self._named(found.units)
        most = np.abs(named.to) @ self._possible(design, schema)
        ends = {
            name: sides[name] * float(far)
            for name, far in zip(named.labels, most, strict=True)
            if name in sides
        }
        estimates = tuple(opened(e, ends[e.label]) if e.label in ends else e for e in found.estimates)
        joint, kept = found.joint, self._kept
        privacy = np.array(joint.privacy)
        for place, each in enumerate(estimates[kept]):
            if each.label in ends:
                privacy[place, place] = each.privacy**2
        return replace(found, estimates=estimates, joint=replace(joint, privacy=rows_of(privacy)))

    def _opened(self, found: Fitted, design: Design, schema: Schema) -> Fitted:
        """Return estimates with all that is possible as their error."""
        named = self._named(found.units)
        far = np.linalg.norm(named.to * self._possible(design, schema), axis=1)
        kept, joint = self._kept, found.joint
        return replace(
            found,
            estimates=tuple(
                replace(each, privacy=math.hypot(each.privacy, most))
                for each, most in zip(found.estimates, far.tolist(), strict=True)
            ),
            joint=replace(joint, privacy=rows_of(np.array(joint.privacy) + np.diag(far[kept] ** 2))),
            hidden=tuple((label, 1.0) for _, label in named.slopes),
        )

    def _result(
        self,
        steps: list[ScoreStep],
        marginals: Marginals | None,
        design: Design,
        family: Times,
        schema: Schema,
    ) -> AnalysisResult:
        """Return the model of what these steps say."""
        fitted = self._fitted(steps, marginals, design, schema)
        slopes, shape = fitted.estimates[self._kept], tuple[Estimate, ...]()
        if self._shaped:
            last = fitted.estimates[-1]
            shape = (Estimate("shape", last.value, last.sampling, last.privacy, (0.0, math.inf)),)
        width = len(fitted.units.names)
        centre, events, doubt = np.zeros(width), steps[-1].count * steps[-1].point.bend, 0.0
        if isinstance(marginals, Looked):
            centre = marginals.centred(fitted.units.design, schema)[0]
            events, doubt = events_of(steps[-1], marginals.times)
        level, weights = float(fitted.weights[0]), fitted.weights[1 : 1 + width]
        column = schema.number(self.time)
        model = SurvivalRegressionModel(
            self.time,
            self.event,
            schema.category(self.event).values[1],
            self.distribution,
            fitted.units.design,
            schema,
            slopes,
            shape,
            tuple(map(float, weights)),
            tuple(map(float, centre)),
            Law(level + float(weights @ centre), float(fitted.weights[-1]) if self._shaped else 1.0),
            (column.low, column.high),
            fitted.joint,
            len(steps),
            events,
            steps[-1].count,
            fitted.limited,
            f"{self._note(fitted)} {self._early(marginals)}".rstrip(),
            self._faults(fitted),
            doubt,
        )
        return AnalysisResult((*slopes, *shape), model)

    def _faults(self, fitted: Fitted, empty: str = "") -> tuple[str, ...]:
        """Return what is wrong with the data, or the fit, as sentences; with a warning of what spoils it."""
        marginals, last = fitted.marginals, fitted.steps[-1]
        if isinstance(marginals, Looked) and not clear(last, marginals.times):
            text = no_events(self.event, fitted.units.schema, noise=last.score_noise > 0)
            warn(text)
            return (sentence(text),)
        texts = [each.text(fitted.units.schema) for each in self._separated_values(fitted)]
        for text in texts:
            warn(text)
        return (*map(sentence, texts), *super()._faults(fitted, empty))

    def _early(self, marginals: Marginals | None) -> str:
        """Return what is to be known of rows at the lower bound of times, if they are not cut."""
        if not (self._shaped and isinstance(marginals, Looked) and marginals.times.crowded):
            return ""
        if marginals.numbers[self.time].capped[0]:
            return ""
        return (
            f"Rows are seen at the lower bound of {self.time}, which weigh heavily in the shape: they count "
            "as leaving after 2^-40 of the bounds. A cap of the time says what they count as instead."
        )

    def effort(self, schema: Schema, results: Sequence[int]) -> float:
        """Return a bound on the seconds that steps take, with rows made up for each."""
        return super().effort(schema, results) + 0.02 * len(results)

    def _steepest(self, schema: Schema) -> dict[str, float]:
        return typical.steepest(schema, self.event, self.features)

    def smaller(self, schema: Schema) -> Iterator[Analysis]:
        """Yield regressions on fewer features, then on one alone."""
        for many in range(len(self.features) - 1, 0, -1):
            yield self.changed(features=self.features[:many])

    def keys(self) -> dict[str, Any]:
        found = super().keys()
        del found["target"], found["intercept"]
        return {**found, "features": list(self.features)}

    def describe(self) -> str:
        """Return one line that an ethics board can read."""
        entry = f", at risk from {self.entry}" if self.entry else ""
        return (
            f"{self.distribution} regression of {self.event} by {self.time} on {joined(self.features)}"
            f"{entry}, in {counted(self.steps + 1, 'step')}"
        )


def _without_privacy(found: Fitted) -> Fitted:
    """Return estimates made without noise: what they are off by is no error from privacy."""
    joint = found.joint
    both = np.array(joint.sampling) + np.array(joint.privacy)
    return replace(
        found,
        estimates=tuple(replace(e, sampling=e.standard_error, privacy=0.0) for e in found.estimates),
        joint=replace(joint, sampling=rows_of(both), privacy=rows_of(np.zeros_like(both))),
    )
