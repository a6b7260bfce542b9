"""The stages of a regression by scores: what each of them asks, and the conversation that they make.

A first stage counts the rows of each column (`marginals`): that gives caps and a start. Each step after it
asks for clipped scores at the weights found so far (`score_query` has the proof of how far one row moves
them), and `cape.stats.score_steps` says what an answer means. A family is a declaration (`Likelihood`).
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from cape.analyses.regression.marginals import Cap, Marginals, check_cap, marginals_query
from cape.analyses.regression.score_query import Parts, check_few, score_query
from cape.analyses.regression.score_regression_estimate import Scored, step_of
from cape.analyses.regression.score_rounds import MOST_ROUNDS, ROUNDS, parts_of, shares_of
from cape.analyses.regression.score_typical import typical_target, typical_turn
from cape.blocks import Design, Scores
from cape.blocks.families import Family
from cape.core.arrays import Floats
from cape.data import Number, Schema
from cape.engine.query import Analysis, Answer, Neighbours, Query
from cape.stats.score_norms import FALLS, FALLS_UNCAPPED, Lengths
from cape.stats.score_steps import Point, ScoreStep, next_point

__all__ = ["ScoreStages"]


@dataclass(frozen=True, init=False)
class ScoreStages(Analysis):
    """What a regression by scores asks, stage by stage.

    Attributes:
        falls: how fast rows get fewer with the length of their scores, with caps and without.
        slower: whether they may get fewer more slowly, as a histogram shows.
        gathers: whether earlier scores count in where a step asks next.
    """

    falls: ClassVar[tuple[float, float]] = (FALLS, FALLS_UNCAPPED)
    slower: ClassVar[bool] = False
    gathers: ClassVar[bool] = False
    clustered: ClassVar[bool] = True
    target: str
    features: tuple[str, ...]
    rounds: int | Literal["auto"]
    intercept: bool
    norm: float | None
    cap: Cap

    @property
    def steps(self) -> int:
        """How many steps there are, at most."""
        return ROUNDS if self.rounds == "auto" else int(self.rounds)

    def exactly(self) -> Self:
        """Return it with as many steps as it takes, unless their number was given."""
        return self.changed(rounds=MOST_ROUNDS) if self.rounds == "auto" else self

    @property
    def _parts(self) -> list[Parts]:
        """The steps: the last is asked most, and the one before says how to clip it."""
        return parts_of(self.steps)

    def stages(self) -> tuple[float, ...]:
        """Return the share of each stage: more than half for the last."""
        return shares_of(self._parts)

    @property
    def _first(self) -> float:
        """What stands before x: about as large as an entry of x."""
        return 1 / math.sqrt(len(self.features))

    def _design(self, cut: tuple[tuple[str, Number], ...] = (), *, scores: bool = False) -> Design:
        """Return how a row becomes a vector: for scores it starts with the intercept."""
        return Design(
            self.features,
            self.target,
            self.norm,
            self._first if scores and self.intercept else 0.0,
            cut=cut,
            beside=self._beside if scores else (),
        )

    @property
    def _beside(self) -> tuple[str, ...]:
        """The columns beside the target: an offset, weights."""
        return ()

    def _frame(self, width: int) -> Floats:
        """Return the matrix F that makes a vector for scores of (1, x): its weights w are F'w for (1, x)."""
        if not self.intercept:
            return np.eye(width + 1)[1:]
        return np.diag([self._first] + [1.0] * width) / math.hypot(1.0, self._first)

    def _check(self, schema: Schema) -> None:
        """Raise `InvalidInput` for a target that the regression does not fit."""
        raise NotImplementedError

    def _family(
        self, marginals: Marginals | None, steps: list[ScoreStep], schema: Schema, last: Any = None
    ) -> Any:
        """Return the family of the next step; `last` is that of the last one."""
        raise NotImplementedError

    def _block(self, point: Point, design: Design, family: Any, marginals: Marginals | None) -> Scored:
        """Return the scores to ask for at a point."""
        cap = None
        if marginals is not None and self.target in marginals.numbers:
            of = marginals.numbers[self.target]
            cap = (of.low, of.high) if any(of.capped) else None
        return Scores(
            design,
            tuple(map(float, point.weights)),
            tuple(tuple(map(float, row)) for row in point.turn),
            float(point.bound),
            float(point.curve),
            family,
            point.edges,
            self._most_deviance(point, family),
            cap=cap,
        )

    def _scores(
        self, point: Point, design: Design, family: Any, marginals: Marginals | None, schema: Schema
    ) -> Scored:
        """Return the same, with the spread between persons where these have several rows."""
        return replace(self._block(point, design, family, marginals), persons=schema.rows_of_person)

    def _asked(self, block: Scored, parts: Parts, schema: Schema, neighbours: Neighbours) -> Query:
        """Return the question for these scores."""
        assert isinstance(block, Scores)
        return score_query(block, parts, schema, neighbours)

    def _change(self, parts: Parts, neighbours: Neighbours, persons: int) -> float:
        """Return by how much one row changes all of a step, without deviances."""
        return parts.moved(neighbours, persons)

    def _blocks(self, schema: Schema) -> int:
        """Return how many predictors of the same features there are, whose curvatures are likely alike.

        0 for one predictor, of whose curvature all noise counts.
        """
        return 0

    def _expected(
        self, point: Point, before: Floats, marginals: Marginals, design: Design, schema: Schema
    ) -> Floats | None:
        """Return what the curvature at a point is expected to be, whose coordinates whiten it at the weights
        before; None for the same."""
        return None

    def _expecting(self, step: ScoreStep, marginals: Marginals) -> ScoreStep:
        """Return the first step with what is known of its curvature beforehand."""
        return step

    def _supposing(self, lengths: Lengths, block: Scored, marginals: Marginals, count: float) -> Lengths:
        """Return lengths with how many are expected beyond what is seen, if that is known."""
        return lengths

    def _allowed(self, weights: Floats, step: ScoreStep, schema: Schema) -> Floats:
        """Return these weights, or those nearest to them at which scores can be asked for."""
        return weights

    def _most_deviance(self, point: Point, family: Family) -> float:
        """Return the largest deviance of a row that counts; 0 if none is asked for."""
        return 0.0

    def _shift(self, marginals: Marginals | None, schema: Schema) -> float:
        """What the predictor typically has beside w·x."""
        return 0.0

    def _share(self, marginals: Marginals | None, schema: Schema) -> float:
        """How much a row typically counts."""
        return 1.0

    def _likely(self, marginals: Marginals | None, schema: Schema) -> tuple[Floats, Floats]:
        """Return likely targets and their probabilities."""
        if marginals is not None:
            return marginals.target(self.target)
        return typical_target(schema, self.target)

    def _begin(
        self, marginals: Marginals | None, schema: Schema, noise: float, count: float
    ) -> tuple[Point, Design, Any]:
        """Return where to ask first: every feature's coefficient 0, in whitened coordinates."""
        cut = () if marginals is None else marginals.cut(self._design().sources)
        design = self._design(cut, scores=True)
        family = self._family(marginals, [], schema)
        y, chance = self._likely(marginals, schema)
        mean = float(y @ chance)
        if family.binary:
            mean = min(max(mean, 0.02), 0.98)
        shift, share = self._shift(marginals, schema), self._share(marginals, schema)
        constant = family.link(mean) - shift if self.intercept else 0.0
        g, h = family.at(np.full(len(y), constant + shift), y)
        size = share * math.sqrt(max(float(chance @ (g * g)), 1e-300))
        bend = share * max(float(chance @ h), 1e-300)
        uneven = math.sqrt(max(float(chance @ (h * h)) / max(float(chance @ h), 1e-150) ** 2 - 1, 0.0))
        width = design.width(schema)
        weights = np.zeros(width)
        if self.intercept:
            weights[0] = constant * math.hypot(1.0, self._first) / self._first
        turn = typical_turn(design, schema) if marginals is None else marginals.turn(design, schema)
        point = Point.first(weights, turn, size, bend, uneven=uneven, noise=noise, count=count)
        return point, design, family

    def _columns(self) -> tuple[str, ...]:
        """Return the columns that the first stage looks at."""
        return self._design(scores=True).columns

    def _looking(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return the question of the first stage."""
        return marginals_query(self._columns(), schema, neighbours)

    def _looked(self, answer: Answer) -> Marginals:
        """Return what the first stage says."""
        return Marginals.of(answer, self._columns(), self.cap)

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return a question like the last one, where nothing is known yet."""
        self._refuse(schema)
        point, design, family = self._supposed(schema)
        block = self._scores(point, design, family, None, schema)
        return self._asked(block, self._parts[-1], schema, neighbours)

    def _supposed(self, schema: Schema) -> tuple[Point, Design, Any]:
        """Return where the last question would be asked if nothing were known."""
        point, design, family = self._begin(None, schema, 0.01, 1e4)
        return point if self._parts[-1].lengths else replace(point, edges=()), design, family

    def _refuse(self, schema: Schema) -> None:
        self._check(schema)
        check_cap(self.cap, self._columns(), schema)
        check_few(self._many(schema))

    def _many(self, schema: Schema) -> int:
        """Return how many weights there are."""
        return self._design(scores=True).width(schema)

    def _steps(
        self, schema: Schema, neighbours: Neighbours
    ) -> Generator[Query, Answer, tuple[list[ScoreStep], Marginals | None, Design, Any]]:
        self._refuse(schema)
        shares, parts = self.stages(), self._parts
        asked = self._looking(schema, neighbours)
        answer = yield asked
        marginals = self._looked(answer)
        unit = answer.noise[0][0] / asked.sensitivity * math.sqrt(shares[0])  # noise for the whole share
        falls = self.falls[self.cap != "auto"]
        count = max(float(np.mean([float(sums[0].sum()) for sums in answer.sums])), 1.0)
        if answer.rows is not None:
            count = min(count, float(answer.rows)) if count > 1 else float(answer.rows)

        def noise(place: int) -> float:
            return (
                unit
                * self._change(parts[place], neighbours, schema.rows_of_person)
                / math.sqrt(shares[place + 1])
            )

        point, design, family = self._begin(marginals, schema, noise(0), count)
        steps: list[ScoreStep] = []
        known: ScoreStep | None = None
        moved, asked_of = 0.0, family
        for i, part in enumerate(parts):
            if i == len(parts) - 1 and len(parts) > 1:
                point = replace(point, edges=())
            block = self._scores(point, design, family, marginals, schema)
            answer = yield self._asked(block, part, schema, neighbours)
            step = self._read(answer, block, point)
            if step.lengths is not None and step.score_noise:
                lengths = self._supposing(step.lengths, block, marginals, step.count)
                step = replace(step, lengths=lengths)
                if self.slower:
                    falls = lengths.falling(self.falls[self.cap != "auto"])
            if not steps:
                step = self._expecting(step, marginals)
            elif asked_of == family:
                expected = self._expected(point, steps[-1].point.weights, marginals, design, schema)
                step = replace(step, expected=expected).with_earlier(steps[-1], moved)
            asked_of = family
            steps.append(step)
            if i == len(parts) - 1 or step.settled:
                break
            last = i + 1 == len(parts) - 1
            known = step.beside(known, moved) if self.gathers and known is not None else step
            point, moved = next_point(
                known, whiten=not last, lengths=not last, noise=noise(i + 1), falls=falls
            )
            point = replace(point, weights=self._allowed(point.weights, step, schema))
            if last and step.lengths is not None and point.bound == step.lengths.longest:
                longest = self._block(point, design, family, marginals).longest(schema)
                point = point.unclipped(longest, step.lengths, noise(i + 1), falls)
            if i < len(parts) - 3:  # what a histogram of lengths says holds for one family
                family = self._family(marginals, steps, schema, family)
        if len(parts) == 1 and step.lengths is not None:
            beyond = step.lengths.beyond(step.point.bound, falls)
            steps[-1] = replace(step, point=replace(step.point, beyond=beyond))
        steps[-1] = steps[-1].after(steps[:-1])
        return steps, marginals, design, family

    def _read(self, answer: Answer, block: Scored, point: Point) -> ScoreStep:
        """Return what an answer holds."""
        return step_of(answer, block, point, curved=self._curved, blocks=self._blocks(answer.schema))

    @property
    def _curved(self) -> bool:
        """Whether the curvature of scores changes with the weights."""
        return True
