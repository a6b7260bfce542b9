"""Cox regression: ratios of hazards, from clipped martingale scores.

`cox_sensitivity` says how far one row moves what is asked for, `baseline` and `cox_steps` what is made of the
answers. All that follows a released sum is post-processing.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from cape import check
from cape.analyses.regression.formula import expand
from cape.analyses.regression.inference import largest, unreliable, widest
from cape.analyses.regression.scores import Belief
from cape.analyses.survival.baseline import Baseline
from cape.analyses.survival.cox_model import CoxModel
from cape.analyses.survival.cox_sensitivity import exposure_query, martingale_query
from cape.analyses.survival.cox_steps import HazardStep, Place, believed, clipping
from cape.analyses.survival.cox_told import Told
from cape.arrays import Floats
from cape.blocks import Design, Exposure, FollowUp, Martingale, Times
from cape.blocks.exposure import middles
from cape.blocks.martingale import STEEP
from cape.blocks.times import checked_edges
from cape.blocks.typical import steepest
from cape.blocks.units import Units
from cape.data import Schema
from cape.engine.arguments import features_of, joined, names
from cape.engine.query import Analysis, AnalysisResult, Answer, Conversation, Neighbours, Noise, Query
from cape.errors import InvalidInput, TooNoisyWarning
from cape.show import Table
from cape.show.numbers import count, number

__all__ = ["Cox"]

# Choices, measured by `python -m benchmarks.survival_cox choices`.
ROUNDS = 4  # steps for "auto", after the first question
FIRST, LAST = 0.2, 0.5  # shares of the first question, and of the last
TILTED = 0.5  # the SD of what steps change the tilt by, before they are seen
SPREAD = 1.0  # the standard deviation of log-hazards over people that is expected before anything is seen
# An assumption, which results name: no column changes log-hazards by more than 10 as it goes through its
# range, which is a ratio of 22,000.
MOST_MOVED = 10.0
_MOST_ROUNDS = 20
_HIDDEN = 0.5  # of a coefficient: from there on noise hides it


@dataclass(frozen=True)
class _Asked:
    """All steps, with the last question's block and answer, and the baseline after it."""

    steps: list[HazardStep]
    block: Martingale
    answer: Answer
    place: Place


@dataclass(frozen=True, init=False)
class Cox(Analysis):
    """The ratio of hazards for each feature: Cox's proportional hazards, with a baseline by bins of time.

    >>> Cox("years", "died", ["age", "sex"]), Cox("years", "died", formula="age * sex", strata="site")

    Times are cut at public edges. Within a bin the baseline hazard is constant, and a row counts for as long
    as it is at risk: the likelihood is that of a piecewise exponential model. Where all times are edges, its
    estimates are those of Cox's partial likelihood with Breslow's ties.

    The first question is who is at risk when, events by bin, and what the features of rows with an event are
    like: that makes a first baseline, and whitens the features. Each of `rounds` steps then asks for the sum
    over rows of martingale scores at the hazards found so far, with its curvature and its spread, and for
    events less what was expected by bin, which corrects the baseline. A score is orthogonal to the baseline:
    noise in that moves coefficients to second order only. Rows far from the others count less, and rows that
    expect many events are followed until they expect a public number of them, as far as noise makes that
    worth while, in a way that leaves the mean of scores at 0. All steps are combined, by how much each tells.

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
    slopes: ClassVar[bool] = True
    time: str
    event: str
    features: tuple[str, ...]
    strata: tuple[str, ...]
    entry: str | None
    edges: tuple[float, ...] | None
    bins: int
    rounds: int | Literal["auto"]
    norm: float | None
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
        found = features_of(_terms(features, formula), False)
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
            rounds=rounds
            if isinstance(rounds, str) and rounds == "auto"
            else check.integer("rounds", rounds, least=1, most=_MOST_ROUNDS),
            norm=None if norm is None else check.real("norm", norm, above=0.0),
            proportional=proportional,
        )

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
        cut = {"bins": self.bins} if self.edges is None else {"edges": self.edges}
        return FollowUp(Times.of(schema, self.time, self.event, entry=self.entry, **cut), self.strata)

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return a question like the last one, at a constant hazard that does not depend on the features."""
        return martingale_query(self._supposed(schema), neighbours)

    def _supposed(self, schema: Schema) -> Martingale:
        design, follow_up = self._design, self._follow_up(schema)
        follow_up.check(schema, design)
        place = Place(
            self._even(design.width(schema), follow_up.cells(schema)), 0.0, np.zeros(design.width(schema))
        )
        return place.block(design, follow_up, trend=self._trend(place.baseline, self._last))

    def _even(self, width: int, cells: int) -> Baseline:
        zero = np.zeros((cells, width))
        tilt = np.tile(STEEP * middles(self.bins), cells // self.bins) if self.bins > 1 else np.zeros(0)
        return Baseline(
            np.full(cells, 1 / cells), np.ones(cells), zero, np.zeros(cells), np.zeros(width), np.eye(width),
            np.eye(width), np.ones(cells), np.ones(cells), 1.0, tilt,
        )  # fmt: skip

    @property
    def _last(self) -> int:
        return self.steps - 1

    def _trend(self, baseline: Baseline, step: int) -> Floats | None:
        """Return how a departure from proportional hazards goes over time: with the part of events so far."""
        if not self.proportional or step != self._last:
            return None
        events = baseline.events.reshape(-1, self.bins)
        by_bin = events.sum(axis=0)
        place = (np.cumsum(by_bin) - by_bin / 2) / by_bin.sum()
        g = np.tile(place, len(events))
        g = g - float(baseline.events @ g) / baseline.total
        return np.asarray(g / max(float(np.abs(g).max()), 1e-9)).clip(-1.0, 1.0)

    def finish(self, answer: Answer) -> AnalysisResult:
        """Return what one step at a constant hazard says by itself."""
        block, schema = self._supposed(answer.schema), answer.schema
        width = self._design.width(schema)
        place = Place(self._even(width, len(block.hazards)), 0.0, np.zeros(width))
        asked = _Asked([HazardStep.at(answer, block, place)], block, answer, place)
        return self._told(asked, schema)

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        """Ask who is at risk when, and then for scores at what was found, each time."""
        return self._told((yield from self._steps(schema, neighbours)), schema)

    def _steps(self, schema: Schema, neighbours: Neighbours) -> Generator[Query, Answer, _Asked]:
        design, follow_up, shares = self._design, self._follow_up(schema), self.stages()
        first = Exposure(design, follow_up)
        query = exposure_query(first, schema, neighbours)
        answer = yield query
        baseline = Baseline.first(answer, first)
        # the noise per unit of sensitivity in the last step
        unit = (
            answer.noise[0][6] / query.flat_scales[6] / query.sensitivity * math.sqrt(shares[0] / shares[-1])
        )
        place = Place(baseline, 0.0, np.zeros(len(baseline.centre)))
        steps: list[HazardStep] = []
        for i in range(len(shares) - 1):
            trend = self._trend(place.baseline, i)
            sensitivity = martingale_query(place.block(design, follow_up), neighbours).sensitivity
            block = place.block(design, follow_up, clipping(place, unit * sensitivity), trend)
            answer = yield martingale_query(block, neighbours)
            steps.append(HazardStep.at(answer, block, place))
            place = self._moved(place, steps, block, answer, schema)
        return _Asked(steps, block, answer, place)

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

    def _told(self, asked: _Asked, schema: Schema) -> AnalysisResult:
        units, possible = Units(self._design, schema), self._possible(schema)
        likely = self._likely(asked.steps, asked.place.baseline, schema)
        free = believed(asked.steps, np.diag(possible**2))
        limits = widest(units, MOST_MOVED, MOST_MOVED)[1:]
        told = Told(units, asked.steps[-1], likely, free, possible, limits)
        hidden = np.clip(np.diag(free.pull)[1:], 0.0, 1.0)
        noisy = asked.steps[-1].curvature_noise > 0
        note = ""
        if hidden.max() >= _HIDDEN:
            _warn(unreliable(units.names, hidden, noise=noisy))
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
        times = self._follow_up(schema).times
        model = CoxModel(
            self.time,
            self.event,
            schema.category(self.event).values[1],
            self.strata,
            units.design,
            schema,
            told.estimates,
            tuple(map(float, likely.mean[1:])),
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

    def outlook(self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours) -> Sequence[Table]:
        """Return what strata cost, if there are any: the noise of coefficients with and without them."""
        if not self.strata:
            return ()
        plain = self.changed(strata=())
        both = [each.expected(schema, noise, rows, neighbours) for each in (self, plain)]
        lines = tuple((schema.title(name), *(number(each[name]) for each in both)) for name in both[0])
        title = "Privacy noise (SD) of coefficients, per unit of each feature"
        return (Table(("", f"within {joined(self.strata)}", "one baseline for all"), lines, title),)

    def _planned(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours
    ) -> tuple[Floats, Belief, Floats, Floats]:
        """Return what steps over typical rows would say if the last one has this noise.

        That is: what makes coefficients of level and weights; what is known of these if nothing draws them to
        0; their covariance before anything is seen; and the largest that are possible.
        """
        talk, shares = self._steps(schema, neighbours), self.stages()
        public = rows if neighbours == "replace-one" and not schema.open else None
        planned = self.query(schema, neighbours)
        unit = noise[0][1] / planned.flat_scales[1] / planned.sensitivity * math.sqrt(shares[-1])
        query = next(talk)
        asked: _Asked | None = None
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
        """Yield the same without strata, then regressions on fewer features, then on each alone."""
        if self.strata:
            yield self.changed(strata=())
        for many in range(len(self.features) - 1, 0, -1):
            yield self.changed(features=self.features[:many])

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


def _terms(features: Any, formula: Any) -> Any:
    """Return the features, which a formula may say instead: it has no left side, since time and event do."""
    if formula is None:
        if features is None:
            raise InvalidInput("a Cox regression must have features, or a formula, as in 'age * sex'")
        return features
    if features is not None:
        raise InvalidInput("a formula says features: give either the formula or these")
    target, terms = expand(formula)
    if target is not None:
        raise InvalidInput(
            "the formula of a Cox regression has no target, since time and event are it: leave out "
            f"{target!r} and '~'"
        )
    return terms


def _warn(text: str) -> None:
    warnings.warn(text, TooNoisyWarning, stacklevel=4)
