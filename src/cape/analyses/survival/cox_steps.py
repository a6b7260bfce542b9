"""The conversation of a Cox regression: where each step asks for scores, and what it makes of the answers.

The steps are those of other regressions by whole scores (`cape.stats.score_steps`), with the baseline beside
them (`cape.analyses.survival.cox_baseline`). All that follows a released sum is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field, replace

import numpy as np

from cape.analyses.regression.marginals import Cap, Marginals
from cape.analyses.survival.cox_baseline import REACH, Hazards, Left
from cape.analyses.survival.cox_coarse import coarse
from cape.analyses.survival.cox_query import Parts, hazard_query, leaving_query
from cape.blocks import Design, FollowUp, HazardScores, Leaving
from cape.blocks.block import T_BITS
from cape.blocks.steps import ONE
from cape.blocks.typical import rows as typical_rows
from cape.core.arrays import Floats
from cape.data import Schema
from cape.engine.query import Answer, Neighbours, Query
from cape.stats.matrices import symmetric
from cape.stats.score_norms import Lengths
from cape.stats.score_steps import ENDLESS, Point, ScoreStep, next_point

__all__ = ["MARGINALS", "Fit", "Scored", "Steps", "Supposed", "parts_of"]

MARGINALS = 0.1  # the share of the first question
EXACT_REACH = 64.0  # events by which a row moves the baseline at most, without noise
# How fast rows get fewer with the length of their scores, with caps and without: more slowly than in other
# regressions, chosen after a feature on which the spread of log times depends was covered in .6 of the runs.
FALLS = (0.3, 0.36)
FAR = 3.0  # typical lengths: what an event adds to means at most
_EXACT = 1e3  # the same without noise
_ROUNDED = 5.0  # times the squared rounding of what an event adds: what that shows of curvature
_NOTHING = 1e-8  # of the largest curvature: a direction in which features do not vary
_SETTLED = 5e-6  # of the events: what is expected may be off by, without noise
_LACKING = 0.1  # of the variance: with more left unknown by bins, hidden axes are not taken to be short
_LONG, _ENDS = 8, 1.0  # steps without noise, and lengths of the last one left after them: there is no end
_STEEPEST = 5.0  # of the log-hazard of a made-up row
_ROUND, _APART = 0.3, 0.5  # of the events: what curvature, and spread, are off by where they are guessed
_ALONE = Parts(1.0, 1.0, 0.3, 0.5, 0.2, 0.2, 0.2, 0.25)
_FIRST = Parts(0.08, 1.0, 0.3, 0.5, 0.2, 0.2, 0.2, 0.25)
_MIDDLE = Parts(0.06, 1.0, 0.3, 0.5, 0.2, 0.2, 0.2, 0.25)
_LOOK = Parts(0.22, 0.5, 0.5, 2.0, 0.1, 0.1, 0.1, 0.25)
_LAST = Parts(0.60, 0.2, 0.5, 0.0, 0.05, 0.05, 0.0, 0.15)


def parts_of(steps: int) -> list[Parts]:
    """Return the steps: the last is asked most, and the one before says how to clip it."""
    if steps == 1:
        return [_ALONE]
    if steps == 2:
        return [replace(_LOOK, share=0.3, curvature=1.0), replace(_LAST, share=0.7)]
    return [_FIRST, *[_MIDDLE] * (steps - 3), _LOOK, _LAST]


@dataclass(frozen=True)
class Scored:
    """A step as it was asked: the block, the answer, and the hazards that went with it."""

    step: ScoreStep
    hazards: Hazards
    block: HazardScores
    answer: Answer

    def array(self, name: str) -> tuple[Floats, float]:
        """Return one of the arrays, with its noise."""
        names = [each.name for each in self.block.arrays(self.answer.schema)]
        place = names.index(name)
        return np.asarray(self.answer.sums[0][place], float), self.answer.noise[0][place]


@dataclass(frozen=True)
class Fit:
    """All steps, the columns' marginals, the design with its caps, its centre, and the hazards at the end.

    `clear` says whether noise leaves it known, about, how many events there are; `made` are made-up rows
    about the centre.
    """

    scored: list[Scored]
    marginals: Marginals | None
    design: Design
    centre: Floats
    hazards: Hazards
    clear: bool = True
    made: Floats = field(default_factory=lambda: np.zeros((0, 0)))


@dataclass(frozen=True)
class Supposed:
    """What is taken for granted where nothing is known."""

    point: Point
    hazards: Hazards
    centre: Floats


@dataclass(frozen=True)
class Steps:
    """How scores of one analysis are asked for."""

    design: Design
    follow_up: FollowUp
    parts: tuple[Parts, ...]
    shares: tuple[float, ...]
    cap: Cap
    proportional: bool
    persons: int = 1

    def block(
        self,
        design: Design,
        point: Point,
        hazards: Hazards,
        centre: Floats,
        *,
        exact: bool,
        last: bool,
        reach: float = REACH,
    ) -> HazardScores:
        """Return the scores to ask for."""
        unit = float(hazards.rates.max())
        whole = np.clip(np.rint(hazards.rates * (ONE / unit)), 1, ONE).astype(np.int64)
        width = len(point.weights)
        return HazardScores(
            design,
            self.follow_up,
            _numbers(point.weights),
            _numbers(centre),
            tuple(_numbers(row) for row in point.turn),
            tuple(int(each) for each in whole),
            unit,
            tuple(_numbers(row) for row in hazards.offsets @ point.turn.T),
            float(point.bound),
            float(point.curve),
            EXACT_REACH if exact else reach,
            (_EXACT if exact else FAR) * math.sqrt(width),
            () if last and len(self.parts) > 1 else tuple(int(each) for each in hazards.groups),
            _numbers(self._trend(hazards)) if (last or exact) and self.proportional else (),
            point.edges,
            self.persons,
        )

    def _trend(self, hazards: Hazards) -> Floats:
        """Return how a departure from proportional hazards goes over time: with the part of events so far."""
        events = hazards.events.reshape(hazards.strata, -1)
        by_bin = events.sum(axis=0)
        place = (np.cumsum(by_bin) - by_bin / 2) / by_bin.sum()
        g = np.tile(place, len(events))
        g = g - float(hazards.events @ g) / hazards.total
        return np.asarray(g / max(float(np.abs(g).max()), 1e-9)).clip(-1.0, 1.0)

    def supposed(self, schema: Schema) -> Supposed:
        """Return where scores are asked for if nothing is known: half of typical rows have the event."""
        x = typical_rows(self.design, schema, 1024)
        width, cells = x.shape[1], self.follow_up.cells(schema)
        strata = self.follow_up.many(schema)
        bins = cells // strata
        turn = np.diag(1 / np.maximum(x.std(axis=0), 1e-3))
        point = Point.first(np.zeros(width), turn, 0.7, 0.5, noise=0.01, count=1e4)
        point = point if len(self.parts) == 1 else replace(point, edges=())
        even = Left(
            np.full((strata, bins), 5000 / cells),
            np.full((strata, bins), 5000 / cells),
            np.zeros(strata),
            np.full(strata, 5000 / strata),
            None,
            0.0,
            0.0,
            1e4,
        )
        return Supposed(point, Hazards.first(even, np.ones(bins), turn), x.mean(axis=0))

    def conversation(self, schema: Schema, neighbours: Neighbours) -> Generator[Query, Answer, Fit]:
        """Ask how rows are spread and leave, and then for scores at what was found, each time."""
        columns, leaving = self.design.sources, Leaving(self.design, self.follow_up)
        asked = leaving_query(columns, leaving, schema, neighbours)
        answer = yield asked
        features = Answer(answer.sums[:-1], answer.noise[:-1], answer.rows, schema)
        marginals = Marginals.of(features, columns, self.cap)
        unit = answer.noise[0][0] / asked.sensitivity * math.sqrt(self.shares[0])
        exact = unit == 0
        least = falls = FALLS[self.cap != "auto"]
        count = max(float(np.mean([float(sums[0].sum()) for sums in features.sums])), 1.0)
        if answer.rows is not None:
            count = min(count, float(answer.rows)) if count > 1 else float(answer.rows)
        design = replace(self.design, cut=marginals.cut(columns))
        centre, turn = marginals.centred(design, schema)
        left = self._left(answer, leaving, count, schema)
        lumped = coarse(marginals, design, schema)
        lacking = float(np.linalg.norm(turn @ lumped @ turn.T, 2))
        narrow = lacking > _LACKING or any(one.only is not None for one in marginals.numbers.values())
        hazards = Hazards.first(left, np.diff(self.follow_up.times.edges), turn, lumped)
        events = min(max(hazards.total / count, 1e-3), 1.0)

        def query(block: HazardScores, place: int) -> Query:
            return hazard_query(block, self.parts[place], neighbours)

        def noise(place: int) -> float:
            """That of a sum of rows of length 1."""
            last = place + 1 == len(self.parts)
            at = replace(point, edges=()) if last and place > 0 else point
            block = self.block(design, at, hazards, centre, exact=exact, last=last)
            return unit * query(block, place).sensitivity / math.sqrt(self.shares[place + 1])

        point = Point.first(np.zeros(len(turn)), turn, math.sqrt(events), events, noise=1.0, count=count)
        point = Point.first(np.zeros(len(turn)), turn, math.sqrt(events), events, noise=noise(0), count=count)
        made = marginals.rows(design, schema) - centre
        if not exact:
            lengths = Lengths(np.array(point.edges), _expected(point, hazards, made), 0.0)
            best = lengths.best(noise(0), len(turn), falls).bound
            point = replace(point, bound=max(point.bound, best))
        scored: list[Scored] = []
        known: ScoreStep | None = None
        moved = 0.0
        for i in range(len(self.parts)):
            last = i + 1 == len(self.parts)
            if last and i > 0:
                point = replace(point, edges=())
            risk = np.exp(np.clip(made @ point.weights, -_STEEPEST, _STEEPEST))
            per_event = noise(i) / math.sqrt(self.parts[i].level)
            reach, lost = left.reach(hazards.rates, risk, per_event)
            block = self.block(design, point, hazards, centre, exact=exact, last=last, reach=reach)
            answer = yield query(block, i)
            one = _read(answer, block, point, hazards, count)
            if block.groups and not one.step.score_noise:
                one = replace(one, step=_without_flat(one, hazards))
            level, level_noise = one.array("level")
            cells, cell_noise = one.array("cells")
            hazards, found = hazards.seen(
                block.reach * level, block.reach * level_noise, block.reach * cells, block.reach * cell_noise
            )
            step = one.step
            if step.score_noise:
                hazards = hazards.doubted(lost)
                beyond = replace(one.hazards, doubt=hazards.doubt).misled(found)
                step = replace(step, score_noise=math.hypot(step.score_noise, beyond))
            if step.lengths is not None and not exact:
                expected = _expected(point, hazards, made)
                lengths = replace(step.lengths, expected=expected)
                step = replace(step, lengths=lengths)
                falls = lengths.falling(least)
            if block.groups:
                sums, sum_noise = one.array("means")
                shape = (block.many, len(turn))
                hazards = hazards.with_means(
                    block.far * sums.reshape(shape), block.far * sum_noise, point.turn
                )
            if step.score_noise and narrow:
                step = _about_means(step, one.hazards, hazards)
            if scored:
                step = step.with_earlier(scored[-1].step, moved)
            else:
                step = _expecting(step, hazards.total, math.hypot(left.total_noise, lacking * hazards.total))
            step = _with_likely_spread(step, hazards.total)
            scored.append(replace(one, step=step))
            settled = step.settled and float(np.abs(found).sum()) < _SETTLED * hazards.total
            if exact and i >= _LONG:
                far = step.after([each.step for each in scored[:-1]])
                if far.left > _ENDS:
                    scored[-1] = replace(one, step=replace(far, left=ENDLESS))
                    settled = True
            if last or settled:
                change = point.turn.T @ step.change
                hazards = hazards.after(change, step.moved(step.change))
                break
            if not exact and narrow:
                hazards, away = hazards.centred(point.weights)
                centre, made = centre + away, made - away
            then = i + 2 == len(self.parts)
            was = point.weights
            known = step if known is None else step.beside(known, moved)
            hides = narrow and float(np.linalg.norm(known.pull, 2)) > 0.5
            point, moved = next_point(
                known, whiten=not then and not hides, lengths=not then, noise=noise(i + 1), falls=falls
            )
            hazards = hazards.after(point.weights - was, moved)
        if len(self.parts) == 1 and step.lengths is not None:
            beyond_bound = step.lengths.beyond(step.point.bound, falls)
            step = replace(step, point=replace(step.point, beyond=beyond_bound))
            scored[-1] = replace(scored[-1], step=step)
        return Fit(scored, marginals, design, centre, hazards, left.clear, made)

    def _left(self, answer: Answer, block: Leaving, count: float, schema: Schema) -> Left:
        censored, events, staying, totals, *late = answer.sums[-1]
        noise, _, _, total_noise, *_ = answer.noise[-1]
        shape = (block.follow_up.many(schema), block.follow_up.times.bins)
        return Left(
            np.asarray(censored, float).reshape(shape),
            np.asarray(events, float).reshape(shape),
            np.asarray(staying, float),
            np.asarray(totals, float),
            np.asarray(late[0], float).reshape(shape) if late else None,
            noise,
            total_noise,
            count,
        )

    def alone(self, answer: Answer) -> Fit:
        """Return what one step where nothing is known says by itself."""
        supposed = self.supposed(answer.schema)
        block = self.block(
            self.design, supposed.point, supposed.hazards, supposed.centre, exact=False, last=True
        )
        one = _read(answer, block, supposed.point, supposed.hazards, 1e4)
        return Fit([one], None, self.design, supposed.centre, supposed.hazards)


def _read(answer: Answer, block: HazardScores, point: Point, hazards: Hazards, count: float) -> Scored:
    """Return what an answer holds."""
    _, score, square, cross, spread, beside = answer.sums[0][:6]
    _, score_noise, diagonal, curvature_noise, spread_diagonal, spread_noise = answer.noise[0][:6]
    if len(score) == 1:  # a matrix of one number has nothing above its diagonal
        curvature_noise, spread_noise = diagonal / math.sqrt(2), spread_diagonal / math.sqrt(2)
    rows, _ = answer.complete_rows(block.reads)
    lengths = None
    if block.lengths:
        lengths = Lengths(np.array(block.lengths), np.asarray(answer.sums[0][-1], float), answer.noise[0][-1])
    step = ScoreStep(
        point,
        max(rows, 1.0),
        point.bound * score,
        point.curve * symmetric(square, cross),
        (block.persons * point.bound) ** 2 * symmetric(spread, beside),
        point.bound * score_noise,
        point.curve * curvature_noise,
        (block.persons * point.bound) ** 2 * spread_noise,
        lengths,
        True,
        # means at risk, of which curvatures are, are rounded by group of cells: with noise that is nothing
        rounding=0.0 if score_noise else _ROUNDED * max(block.many, 1) * math.ldexp(block.far, -T_BITS) ** 2,
        persons=block.persons,
    )
    return Scored(step, hazards, block, answer)


def _without_flat(one: Scored, hazards: Hazards) -> ScoreStep:
    """Return a step, made without noise, with no curvature along what does not vary among those at risk.

    There the first steps see only that offsets are not yet the means at risk: beside these nothing is left.
    """
    block, step = one.block, one.step
    groups, offsets = np.array(block.groups), np.array(block.offsets)
    events = np.maximum(np.bincount(groups, hazards.events, block.many), 1e-6)
    at = np.stack([np.bincount(groups, hazards.events * each, block.many) for each in offsets.T], axis=1)
    away = (block.far * one.array("means")[0].reshape(at.shape) - at) / events[:, None]
    values, vectors = np.linalg.eigh(step.curvature - (away * events[:, None]).T @ away)
    kept = vectors[:, np.abs(values) > max(_NOTHING * float(np.abs(values).max()), step.rounding)]
    return replace(step, curvature=kept @ kept.T @ step.curvature @ kept @ kept.T)


def _about_means(step: ScoreStep, before: Hazards, after: Hazards) -> ScoreStep:
    """Return a step whose curvature is that about means at risk, as far as these are known, not offsets."""
    wrong, doubt = after.mistaken(before, step.score, step.point.turn)
    noise = math.hypot(step.curvature_noise, doubt)
    return replace(step, curvature=step.curvature - wrong, curvature_noise=noise)


def _expected(point: Point, hazards: Hazards, made: Floats) -> Floats:
    """Return how many events are expected to have scores of each length, from made-up rows of x - centre."""
    risk = np.exp(np.clip(made @ point.weights, -_STEEPEST, _STEEPEST))
    middle = hazards.events @ hazards.offsets / hazards.total
    lengths = np.sqrt((((made - middle) @ point.turn.T) ** 2).sum(axis=1))
    places = np.searchsorted(np.array(point.edges), lengths, side="right")
    found = np.bincount(places, risk, len(point.edges) + 1)
    return np.asarray(hazards.total * found / found.sum())


def _expecting(step: ScoreStep, events: float, noise: float) -> ScoreStep:
    """Return a first step in which the curvature of whitened features, as many as events, counts."""
    if not step.curvature_noise:
        return step
    doubt = math.hypot(_ROUND * events, noise)
    here, there = step.curvature_noise**-2, doubt**-2
    mixed = (here * step.curvature + there * events * np.eye(step.width)) / (here + there)
    return replace(step, curvature=mixed, curvature_noise=(here + there) ** -0.5)


def _with_likely_spread(step: ScoreStep, events: float) -> ScoreStep:
    """Return a step in which the spread that scores have where the model is true, the curvature, counts."""
    if not step.spread_noise or step.persons > 1:  # rows of a person add up whether the model is true or not
        return step
    here, there = step.spread_noise**-2, (_APART * events) ** -2
    mixed = (here * step.spread + there * step.likely) / (here + there)
    return replace(step, spread=mixed, spread_noise=(here + there) ** -0.5)


def _numbers(values: Floats) -> tuple[float, ...]:
    return tuple(map(float, values))
