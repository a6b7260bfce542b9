"""Regressions by clipped scores: the conversation that all of them have in common.

A first stage counts the rows of each column (`marginals`): that gives caps and a start. Each step after it
asks for clipped scores at the weights found so far (`score_query` has the proof of how far one row moves
them), and `cape.stats.score_steps` says what an answer means. A family is a declaration (`Likelihood`).
All that follows a released sum is post-processing.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from cape.analyses.regression.faults import (
    by_feature,
    empty_values,
    sentence,
    separated,
    target_fault,
    together,
    unvaried,
)
from cape.analyses.regression.fewer import fewer
from cape.analyses.regression.inference import largest, unreliable
from cape.analyses.regression.joint import Joint, rows_of
from cape.analyses.regression.limited import Capped, Limited
from cape.analyses.regression.marginals import Cap, Marginals, check_cap, checked_cap, marginals_query
from cape.analyses.regression.score_query import MOST_WEIGHTS, Parts, check_few, score_query
from cape.blocks import Choices, Design, LawScores, Scores, typical
from cape.blocks.families import Family
from cape.blocks.units import Units
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput, TooNoisyWarning, outside
from cape.data import Number, Schema
from cape.data.schema import Column
from cape.engine.arguments import features_of, joined
from cape.engine.query import Analysis, AnalysisResult, Answer, Conversation, Neighbours, Noise, Query
from cape.stats.estimates import Estimate
from cape.stats.matrices import symmetric
from cape.stats.score_norms import FALLS, FALLS_UNCAPPED, Lengths
from cape.stats.score_steps import (
    BENT,
    BENT_SECOND,
    Errors,
    Point,
    ScoreStep,
    errors,
    for_predictions,
    next_point,
)

__all__ = [
    "HIDDEN",
    "Fitted",
    "Named",
    "ScoreRegression",
    "Scored",
    "plain_design",
    "score_arguments",
    "warn",
]

# Chosen as `cape.stats.score_steps` says.
ROUNDS = 5  # for "auto"
MARGINALS = 0.06  # the share of the first stage
# An assumption, which results name where it matters: no column changes the predictor by more than 20 as it
# goes through its range. Odds of e^20 are 5e8 to 1, and no table has the rows to tell them from larger ones.
MOST_MOVED = 20.0
_MOST_ROUNDS = 30
HIDDEN = 0.45  # of a coefficient: from there on noise hides it, or another column that repeats it
_ODDS = ("log-odds", "probits")  # predictors whose ends are probabilities of 0 and 1
_ALONE = Parts(1.0, 1.0, 0.3, 0.5)
_FIRST, _MIDDLE = Parts(0.08, 1.0, 0.3, 0.5), Parts(0.06, 1.0, 0.3, 0.5)
_LOOK, _LAST = Parts(0.14, 0.5, 0.5, 0.8), Parts(0.60, 0.2, 0.5, 0.0)

Scored = Scores | Choices | LawScores


def score_arguments(
    target: Any, features: Any, *, rounds: Any, intercept: Any, norm: Any, cap: Any
) -> dict[str, Any]:
    """Return the arguments that these regressions have in common, or raise `InvalidInput`."""
    if not isinstance(target, str):
        raise InvalidInput(f"target must be a column's name, not {target!r}")
    if not isinstance(intercept, bool):
        raise InvalidInput(f"intercept must be True or False, not {intercept!r}")
    return {
        "target": target,
        "features": features_of(features, intercept),
        "rounds": rounds
        if isinstance(rounds, str) and rounds == "auto"
        else check.integer("rounds", rounds, least=1, most=_MOST_ROUNDS),
        "intercept": intercept,
        "norm": None if norm is None else check.real("norm", norm, above=0.0),
        "cap": checked_cap(cap),
    }


@dataclass(frozen=True)
class Named:
    """What the weights of a step stand for.

    Attributes:
        to: makes coefficients, in the columns' units, of weights.
        labels: what the coefficients are called.
        owners: which feature each belongs to; empty for none.
        slopes: the label of each weight that belongs to a feature, by its place among the weights.
    """

    to: Floats
    labels: tuple[str, ...]
    owners: tuple[str, ...]
    slopes: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Fitted:
    """What the steps say, in the columns' units.

    Attributes:
        units: between x and these units.
        steps: the steps, the last one last.
        weights: of (1, x), to predict with; of several predictors a row for each.
        estimated: the same, as they are estimated.
        kept: which part of the estimates the weights to predict with keep.
        estimates: the intercept and the coefficients.
        joint: the same, with the covariances of their errors.
        limited: what was capped and shortened.
        means: released means of numeric columns, to two digits of their SDs.
        hidden: which part of each slope noise hides, with its label.
        left: by how many standard errors steps that had not arrived may have left estimates off.
    """

    units: Units
    steps: list[ScoreStep]
    marginals: Marginals | None
    weights: Floats
    estimated: Floats
    kept: float
    estimates: tuple[Estimate, ...]
    joint: Joint
    limited: Limited
    means: tuple[tuple[str, float], ...]
    hidden: tuple[tuple[str, float], ...]
    left: float


@dataclass(frozen=True, init=False)
class ScoreRegression(Analysis):
    """A regression whose coefficients are found by steps of clipped scores.

    Attributes:
        predictor: what is linear in the features, in words.
        falls: how fast rows get fewer with the length of their scores, with caps and without.
        slower: whether they may get fewer more slowly, as a histogram shows.
        bent: how far the curvature may leave the last step off, in parts of it.
        unsettled: standard errors that a last step may leave: more are worth a warning.
        gathers: whether earlier scores count in where a step asks next.
    """

    slopes: ClassVar[bool] = True
    predictor: ClassVar[str] = "predictors"
    falls: ClassVar[tuple[float, float]] = (FALLS, FALLS_UNCAPPED)
    bent: ClassVar[float] = BENT
    unsettled: ClassVar[float] = 0.5
    gathers: ClassVar[bool] = False
    slower: ClassVar[bool] = False
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
        return self.changed(rounds=_MOST_ROUNDS) if self.rounds == "auto" else self

    @property
    def _parts(self) -> list[Parts]:
        """The steps: the last is asked most, and the one before says how to clip it."""
        if self.steps == 1:
            return [_ALONE]
        if self.steps == 2:
            return [Parts(0.25, 1.0, 0.3, 0.5), Parts(0.75, 0.5, 0.3, 0.0)]
        return [_FIRST, *[_MIDDLE] * (self.steps - 3), _LOOK, _LAST]

    def stages(self) -> tuple[float, ...]:
        """Return the share of each stage: more than half for the last."""
        shares = [part.share for part in self._parts]
        rest = (1 - MARGINALS) / sum(shares)
        return (MARGINALS, *(share * rest for share in shares))

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
        column = schema[self.target]
        if not isinstance(column, Number):
            return np.arange(len(column.values), dtype=float), np.array(column.shares)
        t = typical.Shape(column).at((np.arange(64) + 0.5) / 64)
        return np.asarray(column.middle + column.half * t), np.full(64, 1 / 64)

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
        uneven = math.sqrt(max(float(chance @ (h * h)) / max(float(chance @ h), 1e-300) ** 2 - 1, 0.0))
        width = design.width(schema)
        weights = np.zeros(width)
        if self.intercept:
            weights[0] = constant * math.hypot(1.0, self._first) / self._first
        turn = _typical_turn(design, schema) if marginals is None else marginals.turn(design, schema)
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

    def finish(self, answer: Answer) -> AnalysisResult:
        """Return what one step where nothing is known says by itself."""
        schema = answer.schema
        point, design, family = self._supposed(schema)
        step = self._read(answer, self._scores(point, design, family, None, schema), point)
        return self._result([step], None, design, family, schema)

    def _refuse(self, schema: Schema) -> None:
        self._check(schema)
        check_cap(self.cap, self._columns(), schema)
        check_few(self._many(schema))

    def _many(self, schema: Schema) -> int:
        """Return how many weights there are."""
        return self._design(scores=True).width(schema)

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        """Ask how rows are spread over columns, and then for scores at what was found, each time."""
        return self._result(*(yield from self._steps(schema, neighbours)), schema)

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
        _, score, square, cross, spread, beside, *more = answer.sums[0]
        _, score_noise, _, curvature_noise, _, spread_noise, *more_noise = answer.noise[0]
        if len(score) == 1:  # a matrix of one number has nothing above its diagonal
            curvature_noise = answer.noise[0][2] / math.sqrt(2)
            spread_noise = answer.noise[0][4] / math.sqrt(2)
        count, count_noise = answer.complete_rows(block.reads)
        lengths = None
        if block.lengths:
            counts, edges = np.asarray(more[0], float), np.array(block.lengths)
            lengths = Lengths.possible(
                edges, counts, more_noise[0], max(count, 1.0), block.longest(answer.schema)
            )
        limit = block.deviance
        return ScoreStep(
            point,
            max(count, 1.0),
            point.bound * score,
            point.curve * symmetric(square, cross),
            (block.persons * point.bound) ** 2 * symmetric(spread, beside),
            point.bound * score_noise,
            point.curve * curvature_noise,
            (block.persons * point.bound) ** 2 * spread_noise,
            lengths,
            self._curved,
            limit * float(more[-1][0]) if limit else math.nan,
            limit * more_noise[-1] if limit else math.nan,
            blocks=self._blocks(answer.schema),
            count_noise=count_noise,
            persons=block.persons,
        )

    @property
    def _curved(self) -> bool:
        """Whether the curvature of scores changes with the weights."""
        return True

    def _result(
        self,
        steps: list[ScoreStep],
        marginals: Marginals | None,
        design: Design,
        family: Any,
        schema: Schema,
    ) -> AnalysisResult:
        """Return the model of what these steps say."""
        raise NotImplementedError

    def _moved(self, schema: Schema) -> float:
        """Return by how much a column changes predictors at most as it goes through its range."""
        return MOST_MOVED

    def _middle(self, schema: Schema) -> float:
        """Return around what predictors are expected to be."""
        return 0.0

    def _possible(self, design: Design, schema: Schema) -> Floats:
        """Return the largest weights that are possible, if no column moves predictors further than that."""
        units = Units(plain_design(design), schema)
        moved = self._moved(schema)
        most = np.concatenate([[moved + abs(self._middle(schema))], largest(units, moved)])
        return np.asarray(np.linalg.pinv(self._frame(len(units.names)).T) @ most)

    def _named(self, units: Units) -> Named:
        """Return what weights stand for; without an intercept the first coefficient is not one."""
        first = int(self.intercept)
        return Named(
            units.matrix @ self._frame(len(units.names)).T,
            ("intercept", *units.names),
            ("", *units.owners),
            tuple((first + i, name) for i, name in enumerate(units.names)),
        )

    def _by_x(self, weights: Floats, units: Units) -> Floats:
        """Return weights of (1, x)."""
        return np.asarray(self._frame(len(units.names)).T @ weights)

    @property
    def _kept(self) -> slice:
        """Which coefficients are estimates."""
        return slice(0 if self.intercept else 1, None)

    def _fitted(
        self, steps: list[ScoreStep], marginals: Marginals | None, design: Design, schema: Schema
    ) -> Fitted:
        """Return the estimates with their errors."""
        units = Units(plain_design(design), schema)
        named = self._named(units)
        to = named.to
        bent = max(BENT_SECOND, self.bent) if len(steps) == 2 else self.bent
        found = errors(steps[-1], self._possible(design, schema), bent)
        weights = self._allowed(found.weights, steps[-1], schema)
        values = to @ weights
        sampling = to @ found.sampling @ to.T
        privacy = to @ (found.noise + found.clipped + found.unsettled + found.hidden) @ to.T
        labels = named.labels
        estimates = tuple(
            Estimate(
                label,
                float(values[i]),
                math.sqrt(max(sampling[i, i], 0.0)),
                math.sqrt(max(privacy[i, i], 0.0)),
            )
            for i, label in enumerate(labels)
        )
        predicting, share = for_predictions(steps[-1], steps[0].point.weights)
        predicting = weights if share == 1.0 else self._allowed(predicting, steps[-1], schema)
        kept = self._kept
        joint = Joint(
            labels[kept],
            ((-math.inf, math.inf),) * len(labels[kept]),
            tuple(map(float, values[kept])),
            rows_of(privacy[kept, kept]),
            rows_of(sampling[kept, kept]),
            owners=named.owners[kept],
        )
        error = np.maximum(np.sqrt(np.maximum(np.diag(sampling + privacy), 0.0)), 1e-150)
        left = np.sqrt(np.maximum(np.diag(to @ found.unsettled @ to.T), 0.0)) / error
        hidden = np.clip(np.abs(np.diag(found.pull)), 0.0, 1.0)
        if steps[-1].score_noise and not steps[-1].endless:  # an error as large as all that is possible
            private = np.diag(found.noise + found.clipped + found.unsettled + found.hidden)
            hidden = np.where(np.sqrt(private) >= self._possible(design, schema), 1.0, hidden)
        return Fitted(
            units,
            steps,
            marginals,
            self._by_x(predicting, units),
            self._by_x(weights, units),
            share,
            estimates,
            joint,
            self._limited(steps[-1], marginals, design, found, to, error, labels),
            () if marginals is None else marginals.means(design.sources),
            tuple((label, float(hidden[place])) for place, label in named.slopes),
            float(left[kept].max()),
        )

    def _limited(
        self,
        step: ScoreStep,
        marginals: Marginals | None,
        design: Design,
        found: Errors,
        to: Floats,
        error: Floats,
        labels: tuple[str, ...],
    ) -> Limited:
        """Return what was capped and shortened."""
        beyond = step.point.beyond
        moved = np.sqrt(np.maximum(np.diag(to @ found.clipped @ to.T), 0.0)) / error
        names = (*design.sources, self.target)
        capped = (
            ()
            if marginals is None
            else tuple(
                Capped.of(name, marginals.numbers[name])
                for name in names
                if name in marginals.numbers and any(marginals.numbers[name].capped)
            )
        )
        return Limited(
            capped,
            0.0 if beyond is None else beyond.rows,
            tuple((label, float(each)) for label, each in zip(labels, moved, strict=True))[self._kept],
        )

    def _faults(self, fitted: Fitted, empty: str = "") -> tuple[str, ...]:
        """Return what is wrong with the data, or the fit, as sentences; with a warning of what spoils it.

        `empty` is what is said already of categories in which nobody is.
        """
        last, schema, found = fitted.steps[-1], fitted.units.schema, []
        same = [] if empty else target_fault(fitted.marginals, self.target, schema)
        apart = None if same or empty else self._separated(fitted)
        if apart is not None:
            found.append(apart)
        elif fitted.left > self.unsettled and not (same or empty):
            found.append(
                f"steps had not converged: the last one changed {self.predictor} by an SD of "
                f"{last.moved(last.change):.2g}; intervals include it. More rounds, rows or epsilon would "
                "help"
            )
        parts = by_feature(dict(fitted.hidden), fitted.units.names)
        hidden = [name for name, part in parts.items() if part >= HIDDEN]
        if hidden and apart is None:  # where rows are separated, curvature fades
            every = np.array([*parts.values()])
            found.append(unreliable([*parts], every, noise=last.curvature_noise > 0))
        for text in found:
            warn(text)
        features, plain = fitted.units.design.sources, set(fitted.units.design.features)
        every_hidden = {*hidden, *(label for label, part in fitted.hidden if part >= HIDDEN)}
        return (
            *(sentence(text, fitted.units.names) for text in found),
            *same,
            *empty_values(fitted.marginals, features, schema),
            *unvaried(fitted.marginals, features, fitted.joint, schema, hidden),
            *together(fitted.joint, plain, schema, every_hidden),
        )

    def _slopes_of(self, weights: Floats, width: int) -> Floats:
        """Return the weights of features, a row for each predictor, among those of (1, x) of this width."""
        return weights.reshape(-1, width)[:, 1:]

    def _separated(self, fitted: Fitted) -> str | None:
        """Return a text on features that separate rows with one target from all others, or nearly so."""
        last, units = fitted.steps[-1], fitted.units
        if not last.endless and not (self.predictor in _ODDS and fitted.left > self.unsettled):
            return None
        width = 1 + len(units.names)
        change = self._slopes_of(self._by_x(last.point.turn.T @ last.change, units), width)
        weights = self._slopes_of(fitted.estimated, width)
        if fitted.marginals is None:
            return separated(np.zeros(width - 1), units.names, self.predictor, 0.0, last.endless)
        x = fitted.marginals.rows(units.design, units.schema)
        moved = np.abs(change).max(axis=0) * x.std(axis=0)
        spread = float((x @ weights.T).std(axis=0).max())
        return separated(moved, units.names, self.predictor, spread, last.endless)

    def _note(self, fitted: Fitted) -> str:
        """Return what the estimates are."""
        hidden, units, last = dict(fitted.hidden), fitted.units, fitted.steps[-1]
        names = [name for name, part in hidden.items() if part >= HIDDEN]
        if names:
            budget = " at this budget" if last.curvature_noise else ""
            return (
                f"Not identified{budget}: {joined(names)}. Intervals assume that "
                f"{self._assumed(units.schema)}. {self._drawn(fitted)}"
            ).rstrip()
        if last.score_noise == 0:
            return "Maximum-likelihood estimates."
        note = "Maximum-likelihood estimates, up to noise and clipping, which intervals count."
        return f"{note} {self._drawn(fitted)}".rstrip()

    def _assumed(self, schema: Schema) -> str:
        """Return what is taken to be possible where noise hides everything."""
        most = f"{self._moved(schema):.3g}"
        return f"no column changes {self.predictor} by more than {most} as it goes through its range"

    def _drawn(self, fitted: Fitted) -> str:
        """Return how far predictions are from what the estimates say, if they are."""
        if fitted.kept == 1.0:
            return ""
        if fitted.kept == 0.0:
            return "Predictions count no feature, because noise hides whether any matters."
        return f"Predictions count {fitted.kept:.0%} of each effect, because noise hides the rest."

    def expected(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return the error of each coefficient beside sampling, after all steps over typical rows.

        How far the last step may end from where scores add up to 0 is left out: a release counts the most.
        """
        steps, _, design, _ = self._over_typical(schema, noise, rows, neighbours)
        named = self._named(Units(plain_design(design), schema))
        found = errors(steps[-1], self._possible(design, schema))
        privacy = named.to @ (found.noise + found.clipped + found.hidden) @ named.to.T
        each = zip(named.labels, np.sqrt(np.maximum(np.diag(privacy), 0.0)).tolist(), strict=True)
        return dict(list(each)[self._kept])

    def _steepest(self, schema: Schema) -> dict[str, float]:
        """Return how steep slopes can be."""
        return typical.steepest(schema, self.target, self.features)

    def limits(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return how steep slopes can be."""
        return self._steepest(schema)

    def _over_typical(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours
    ) -> tuple[list[ScoreStep], Marginals | None, Design, Any]:
        """Return steps over typical rows, if the last one has this noise."""
        schema = _crowded(schema, self._columns())
        talk, shares = self._steps(schema, neighbours), self.stages()
        public = rows if neighbours == "replace-one" and not schema.open else None
        planned = self.query(schema, neighbours)
        unit = noise[0][1] / planned.flat_scales[1] / planned.sensitivity * math.sqrt(shares[-1])
        query = next(talk)
        for share in shares:
            sums = tuple(block.typical(schema, max(rows, 1)) for block in query.blocks)
            std = unit * query.sensitivity / math.sqrt(share)
            stds = tuple(tuple(std * scale for scale in each) for each in query.scales)
            try:
                query = talk.send(Answer(sums, stds, public, schema))
            except StopIteration as stop:
                found: tuple[list[ScoreStep], Marginals | None, Design, Any] = stop.value
                return found
        raise AssertionError("there are as many steps as shares")

    def effort(self, schema: Schema, results: Sequence[int]) -> float:
        """Return a bound on the seconds until the next question, with what `query` decomposes."""
        many = self._many(schema)
        asked = (
            1e-7 * many**2 + 1.5e-10 * many**3 if many <= MOST_WEIGHTS else 0.0
        )  # more are refused at once
        return super().effort(schema, results) + asked

    def smaller(self, schema: Schema) -> Iterator[Analysis]:
        """Yield regressions on fewer features, then on each alone, then the target by each category."""
        return fewer(self, schema, self.target, self.features)

    def keys(self) -> dict[str, Any]:
        found = dict(super().keys())
        if self.cap == "auto":
            del found["cap"]
        elif not isinstance(self.cap, str):
            found["cap"] = {name: list(ends) for name, ends in self.cap}
        return found


def plain_design(design: Design) -> Design:
    """Return the design of features alone: without an intercept before them."""
    return replace(design, intercept=0.0, beside=())


def _crowded(schema: Schema, columns: Sequence[str]) -> Schema:
    """Return the schema with columns that lie within an SD of a bound crowding there, as counts do.

    Where they lie decides on caps, which mean and SD alone do not.
    """
    changed: dict[str, Column] = {}
    for name in columns:
        column = schema[name]
        if not isinstance(column, Number) or column.expected is None or column.expected.form != "smooth":
            continue
        mean, sd = column.expected.mean, column.expected.sd
        if min(mean - column.low, column.high - mean) < sd:
            changed[name] = replace(column, expected=column.expected.taking("crowded"))
    return schema.changed(changed)


def _typical_turn(design: Design, schema: Schema) -> Floats:
    """Return what whitens typical rows."""
    x = typical.rows(design, schema, 1024)
    second = x.T @ x / len(x)
    values, vectors = np.linalg.eigh(second)
    return np.asarray((vectors / np.sqrt(np.maximum(values, 1e-9 * values[-1]))) @ vectors.T)


def warn(text: str) -> None:
    """Warn that noise hides something."""
    warnings.warn(text, TooNoisyWarning, stacklevel=outside())
