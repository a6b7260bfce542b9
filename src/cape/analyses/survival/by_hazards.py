"""Regressions of hazards by clipped martingale scores: what they have in common, whatever the baseline is.

`hazard_sensitivity` says how far one row moves what is asked for, `hazard_steps` what is made of the answers.
All that follows a released sum is post-processing.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from cape.analyses.regression.formula import expand
from cape.analyses.regression.inference import largest, unreliable, widest
from cape.analyses.regression.score_query import check_few
from cape.analyses.regression.scores import Belief
from cape.analyses.survival.baseline import Baseline
from cape.analyses.survival.hazard_estimate import Told
from cape.analyses.survival.hazard_sensitivity import exposure_query, martingale_query
from cape.analyses.survival.hazard_steps import HazardStep, Place, believed, clipping
from cape.blocks import Design, Exposure, FollowUp, Martingale
from cape.blocks.typical import steepest
from cape.blocks.units import Units
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput, TooNoisyWarning, outside
from cape.data import Schema
from cape.engine.arguments import features_of, joined
from cape.engine.query import Analysis, AnalysisResult, Answer, Conversation, Neighbours, Noise, Query

__all__ = ["Asked", "ByHazards", "checked_rounds", "terms"]

# Choices, measured by `python -m benchmarks.survival_cox choices`.
ROUNDS = 4  # steps for "auto", after the first question
FIRST, LAST = 0.2, 0.5  # shares of the first question, and of the last
SPREAD = 1.0  # the standard deviation of log-hazards over people that is expected before anything is seen
# An assumption, which results name: no column changes log-hazards by more than 10 as it goes through its
# range, which is a ratio of 22,000.
MOST_MOVED = 10.0
_MOST_ROUNDS = 20
_MOST_WEIGHTS = 1000  # matrices of all pairs are made, for every stage of a request
_HIDDEN = 0.5  # of a coefficient: from there on noise hides it


@dataclass(frozen=True)
class Asked:
    """All steps, with the last question's block and answer, and the baseline after it."""

    steps: list[HazardStep]
    block: Martingale
    answer: Answer
    place: Place


@dataclass(frozen=True, init=False)
class ByHazards(Analysis):
    """A regression of hazards that are proportional to a baseline."""

    slopes: ClassVar[bool] = True
    time: str
    event: str
    features: tuple[str, ...]
    entry: str | None
    rounds: int | Literal["auto"]
    norm: float | None

    @property
    def steps(self) -> int:
        """How many steps there are after the first question."""
        return ROUNDS if self.rounds == "auto" else int(self.rounds)

    def stages(self) -> tuple[float, ...]:
        """Return the share of each question: half for the last, a fifth for the first."""
        if self.steps == 1:
            return (FIRST, 1 - FIRST)
        return (FIRST, *[(1 - FIRST - LAST) / (self.steps - 1)] * (self.steps - 1), LAST)

    @property
    def _design(self) -> Design:
        return Design(self.features, None, self.norm)

    def _follow_up(self, schema: Schema) -> FollowUp:
        """Return the axis of time of the steps."""
        raise NotImplementedError

    def _followed(self, place: Place, schema: Schema) -> FollowUp:
        """Return the axis of time at a place."""
        return self._follow_up(schema)

    def _exposure(self, schema: Schema) -> Exposure:
        """Return the first question."""
        return Exposure(self._design, self._follow_up(schema))

    def _supposed(self, schema: Schema) -> Place:
        """Return a place before anything is known."""
        raise NotImplementedError

    def _begun(self, answer: Answer, block: Exposure) -> Place:
        """Return where to ask first, by the first answer."""
        raise NotImplementedError

    def _moved(
        self, place: Place, steps: list[HazardStep], block: Martingale, answer: Answer, schema: Schema
    ) -> Place:
        """Return where to ask next."""
        raise NotImplementedError

    def _told(self, asked: Asked, schema: Schema) -> AnalysisResult:
        """Return what the steps say."""
        raise NotImplementedError

    def _trend(self, baseline: Baseline, step: int) -> Floats | None:
        """Return how scores are weighted in time for a test, if this step has one."""
        return None

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return a question like the last one, at a hazard that does not depend on the features."""
        return martingale_query(self._supposed_block(schema), neighbours)

    def _check(self, follow_up: FollowUp, schema: Schema) -> None:
        """Raise `InvalidInput` unless times and features are what can be asked for."""
        follow_up.check(schema, self._design)
        check_few(self._design.width(schema), _MOST_WEIGHTS)

    def _supposed_block(self, schema: Schema) -> Martingale:
        follow_up = self._follow_up(schema)
        self._check(follow_up, schema)
        place = self._supposed(schema)
        return place.block(self._design, follow_up, trend=self._trend(place.baseline, self.steps - 1))

    def finish(self, answer: Answer) -> AnalysisResult:
        """Return what one step at such a hazard says by itself."""
        block, place = self._supposed_block(answer.schema), self._supposed(answer.schema)
        step = HazardStep.at(answer, block, place)
        return self._told(Asked([step], block, answer, place), answer.schema)

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        """Ask who is at risk when, and then for scores at what was found, each time."""
        return self._told((yield from self._asked(schema, neighbours)), schema)

    def _asked(self, schema: Schema, neighbours: Neighbours) -> Generator[Query, Answer, Asked]:
        design, shares = self._design, self.stages()
        self._check(self._follow_up(schema), schema)
        first = self._exposure(schema)
        query = exposure_query(first, schema, neighbours)
        answer = yield query
        # the noise per unit of sensitivity in the last step
        unit = (
            answer.noise[0][6] / query.flat_scales[6] / query.sensitivity * math.sqrt(shares[0] / shares[-1])
        )
        place = self._begun(answer, first)
        steps: list[HazardStep] = []
        for i in range(len(shares) - 1):
            trend, follow_up = self._trend(place.baseline, i), self._followed(place, schema)
            sensitivity = martingale_query(place.block(design, follow_up), neighbours).sensitivity
            block = place.block(design, follow_up, clipping(place, unit * sensitivity), trend)
            answer = yield martingale_query(block, neighbours)
            steps.append(HazardStep.at(answer, block, place))
            place = self._moved(place, steps, block, answer, schema)
        return Asked(steps, block, answer, place)

    def _possible(self, schema: Schema) -> Floats:
        """Return the largest level and weights that are possible, if no column moves log-hazards by more."""
        return np.concatenate([[MOST_MOVED], largest(Units(self._design, schema), MOST_MOVED)])

    def _likely(self, steps: list[HazardStep], baseline: Baseline, schema: Schema) -> Belief:
        """Return what steps say, if log-hazards are expected to vary by `SPREAD` over people."""
        return believed([step.trusting for step in steps], self._before(baseline, schema))

    def _before(self, baseline: Baseline, schema: Schema) -> Floats:
        """Return the covariance of level and weights before anything is seen of them."""
        width = len(baseline.centre)
        covariance = np.eye(width + 1)
        covariance[1:, 1:] = SPREAD**2 / width * baseline.turn.T @ baseline.turn
        return np.linalg.inv(np.linalg.inv(covariance) + np.diag(self._possible(schema) ** -2.0))

    def _said(self, asked: Asked, schema: Schema) -> tuple[Told, str]:
        """Return coefficients with their errors, and a note where noise hides some, with warnings."""
        units, possible = Units(self._design, schema), self._possible(schema)
        likely = self._likely(asked.steps, asked.place.baseline, schema)
        free = believed(asked.steps, np.diag(possible**2))
        limits = widest(units, MOST_MOVED, MOST_MOVED)[1:]
        told = Told(units, asked.steps[-1], likely, free, possible, limits)
        hidden = np.clip(np.diag(free.pull)[1:], 0.0, 1.0)
        note = ""
        if hidden.max() >= _HIDDEN:
            _warn(unreliable(units.names, hidden, noise=asked.steps[-1].curvature_noise > 0))
            unclear = [name for name, part in zip(units.names, hidden, strict=True) if part >= _HIDDEN]
            note = (
                f"Noise hides the effect of {joined(unclear)}: estimates are drawn to 0, and intervals count "
                f"on no column changing log-hazards by more than {MOST_MOVED:.0f} as it goes through its "
                "range."
            )
        if told.far > 1:
            _warn(
                f"the last step may have left estimates off by {told.far:.2g} standard errors, which "
                "intervals count; more rounds, rows or epsilon would help"
            )
        return told, note

    def expected(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return the noise of each coefficient after all steps over typical rows, and what it draws to 0."""
        to, free, before, _ = self._planned(schema, noise, rows, neighbours)
        errors = np.sqrt(np.diag(to @ (free.noise + free.pull @ before @ free.pull.T) @ to.T))
        return dict(zip(self._design.names(schema), map(float, errors), strict=True))

    def limits(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return how steep slopes can be, less the furthest that they could be drawn to 0."""
        to, free, _, possible = self._planned(schema, noise, rows, neighbours)
        most, drawn = np.abs(to) @ possible, np.abs(to @ free.pull) @ possible
        steep = steepest(schema, self.event, self.features)
        found = zip(self._design.names(schema), most, drawn, strict=True)
        return {name: float(min(steep[name], each) - less) for name, each, less in found}

    def _planned(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours
    ) -> tuple[Floats, Belief, Floats, Floats]:
        """Return what steps over typical rows would say if the last one has this noise.

        That is: what makes coefficients of level and weights; what is known of these if nothing draws them to
        0; their covariance before anything is seen; and the largest that are possible.
        """
        talk, shares = self._asked(schema, neighbours), self.stages()
        public = rows if neighbours == "replace-one" and not schema.open else None
        planned = self.query(schema, neighbours)
        unit = noise[0][1] / planned.flat_scales[1] / planned.sensitivity * math.sqrt(shares[-1])
        query = next(talk)
        asked: Asked | None = None
        for share in shares:
            sums = tuple(block.typical(schema, max(rows, 1)) for block in query.blocks)
            std = unit * query.sensitivity / math.sqrt(share)
            stds = tuple(tuple(std * scale for scale in each) for each in query.scales)
            try:
                query = talk.send(Answer(sums, stds, public, schema))
            except StopIteration as told:
                asked = told.value
        assert asked is not None  # there are as many questions as stages
        units, possible = Units(self._design, schema), self._possible(schema)
        return (
            np.column_stack([np.zeros(len(units.names)), units.matrix[1:, 1:]]),
            believed(asked.steps, np.diag(possible**2)),
            self._before(asked.place.baseline, schema),
            possible,
        )

    def smaller(self, schema: Schema) -> Iterator[Analysis]:
        """Yield regressions on fewer features, then on one alone."""
        for many in range(len(self.features) - 1, 0, -1):
            yield self.changed(features=self.features[:many])


def checked_rounds(rounds: Any) -> int | Literal["auto"]:
    """Return how many steps there are, or raise `InvalidInput`."""
    if isinstance(rounds, str) and rounds == "auto":
        return "auto"
    return check.integer("rounds", rounds, least=1, most=_MOST_ROUNDS)


def terms(what: str, features: Any, formula: Any) -> tuple[str, ...]:
    """Return the features, which a formula may say instead: it has no left side, since time and event do."""
    if formula is None:
        if features is None:
            raise InvalidInput(f"{what} must have features, or a formula, as in 'age * sex'")
        return features_of(features, False)
    if features is not None:
        raise InvalidInput("a formula says features: give either the formula or these")
    target, found = expand(formula)
    if target is not None:
        raise InvalidInput(
            f"the formula of {what} has no target, since time and event are it: leave out {target!r} and '~'"
        )
    return features_of(found, False)


def _warn(text: str) -> None:
    warnings.warn(text, TooNoisyWarning, stacklevel=outside())
