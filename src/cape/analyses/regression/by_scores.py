"""Regressions by clipped score steps: what they have in common, whatever their target is like.

`scores` says what is asked for, how far one row moves it, and what is made of the answers. All that follows a
released sum is post-processing.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from cape.analyses.regression.fewer import fewer
from cape.analyses.regression.inference import Reach, ends, largest, unreliable, widest
from cape.analyses.regression.joint import Joint, rows_of
from cape.analyses.regression.score_query import check_few
from cape.analyses.regression.scores import LOGISTIC, Belief, Point, Scale, Step, left_of
from cape.blocks import Design
from cape.blocks.units import Units
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput, TooNoisyWarning, outside
from cape.data import Schema
from cape.engine.arguments import features_of, joined
from cape.engine.query import Analysis, AnalysisResult, Answer, Conversation, Neighbours, Noise, Query
from cape.stats.estimates import Estimate

__all__ = ["ROUNDS", "ByScores", "Fitted", "stepwise", "warn"]

# Choices, each halved and doubled on logistic regressions.
ROUNDS = 6  # for "auto"
LAST = 0.5  # the last step's share
INTERCEPT = 1.0  # what stands before x in (c, x) / sqrt(1 + c²), times the root of the number of features
SPREAD = 1.0  # the standard deviation of predictors over people that is expected before anything is seen
# An assumption, which results name: no column changes the predictor by more than 20 as it goes through its
# range. Odds of e^20 are 5e8 to 1, and no table has the rows to tell them from larger ones.
MOST_MOVED = 20.0
_MOST_ROUNDS = 20
_HIDDEN = 0.5  # of a coefficient: from there on noise hides it


def stepwise(
    target: Any, features: Any, *, rounds: Any, intercept: Any, norm: Any, least: int = 1
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
        else check.integer("rounds", rounds, least=least, most=_MOST_ROUNDS),
        "intercept": intercept,
        "norm": None if norm is None else check.real("norm", norm, above=0.0),
    }


@dataclass(frozen=True)
class Fitted:
    """What steps say about coefficients, in the columns' units.

    Attributes:
        units: between x and these units.
        steps: the steps, the last one last.
        weights: likely ones of (1, x), which noise draws to where steps started.
        estimates: likely coefficients, the intercept first, with the intervals of estimates that nothing
            draws.
        joint: estimates that nothing draws, with the covariances of their errors.
        hidden: which part of each coefficient noise hides.
        far: by how many standard errors the last step may have left estimates off.
    """

    units: Units
    steps: list[Step]
    weights: Floats
    estimates: tuple[Estimate, ...]
    joint: Joint
    hidden: Floats
    far: float


@dataclass(frozen=True, init=False)
class ByScores(Analysis):
    """A regression whose coefficients are found by steps of clipped scores.

    Attributes:
        predictor: what is linear in the features, in words.
    """

    slopes: ClassVar[bool] = True
    predictor: ClassVar[str] = "predictors"
    target: str
    features: tuple[str, ...]
    rounds: int | Literal["auto"]
    intercept: bool
    norm: float | None

    @property
    def steps(self) -> int:
        """How many steps there are, at most."""
        return ROUNDS if self.rounds == "auto" else int(self.rounds)

    def exactly(self) -> Self:
        """Return it with as many steps as it takes, unless their number was given."""
        return self.changed(rounds=_MOST_ROUNDS) if self.rounds == "auto" else self

    def stages(self) -> tuple[float, ...]:
        """Return the share of each step: half for the last, and the same for all others."""
        if self.steps == 1:
            return (1.0,)
        return (*[(1 - LAST) / (self.steps - 1)] * (self.steps - 1), LAST)

    @property
    def _first(self) -> float:
        """What stands before x: about as large as an entry of x."""
        return INTERCEPT / math.sqrt(len(self.features))

    @property
    def _constant(self) -> float:
        """The entry of x that is the same in all rows; 0 if there is none."""
        return self._first / math.hypot(1.0, self._first) if self.intercept else 0.0

    def _design(self, scores: bool) -> Design:
        """Return how a row becomes a vector: for scores it starts with the intercept."""
        return Design(
            self.features, self.target, self.norm, self._first if scores and self.intercept else 0.0
        )

    def _frame(self, width: int) -> Floats:
        """Return the matrix F that makes a vector for scores of (1, x): its weights w are F'w for (1, x)."""
        if not self.intercept:
            return np.eye(width + 1)[1:]
        return np.diag([self._first] + [1.0] * width) / math.hypot(1.0, self._first)

    def _check(self, schema: Schema) -> None:
        """Raise `InvalidInput` for a target that the regression does not fit."""
        raise NotImplementedError

    def _width(self, schema: Schema) -> int:
        """Return how many weights a predictor has, which must be few enough."""
        width = self._design(True).width(schema)
        check_few(width)
        return width

    def _begin(self, schema: Schema) -> Point:
        """Return where the first question is asked."""
        return Point.first(self._width(schema))

    def _read(self, answer: Answer, point: Point, steps: list[Step], schema: Schema) -> Step:
        """Return what an answer says, after these steps."""
        return Step.of(answer, self._design(True), point)

    def _scale(self, steps: list[Step], schema: Schema) -> Scale:
        """Return the scale of the next step."""
        return LOGISTIC

    def _move(self, step: Step, weights: Floats) -> Floats:
        """Return where to ask next, if these weights are likely."""
        return weights

    def _told(self, steps: list[Step], schema: Schema) -> AnalysisResult:
        """Return what these steps say."""
        raise NotImplementedError

    def _query(self, point: Point, schema: Schema, neighbours: Neighbours) -> Query:
        raise NotImplementedError

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return the first question; later ones differ only in where they are asked."""
        self._check(schema)
        return self._query(self._begin(schema), schema, neighbours)

    def finish(self, answer: Answer) -> AnalysisResult:
        """Return what the first step says by itself."""
        point = self._begin(answer.schema)
        return self._told([self._read(answer, point, [], answer.schema)], answer.schema)

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        """Ask for scores where nothing is known, and then at what was found, each time."""
        return self._told((yield from self._steps(schema, neighbours)), schema)

    def _steps(self, schema: Schema, neighbours: Neighbours) -> Generator[Query, Answer, list[Step]]:
        self._check(schema)
        shares, point = self.stages(), self._begin(schema)
        steps: list[Step] = []
        for share in shares:
            step = self._read((yield self._query(point, schema, neighbours)), point, steps, schema)
            steps.append(step)
            if step.settled:
                break
            point = self._next(steps, shares[-1] / share, schema)
        return steps

    def _next(self, steps: list[Step], share: float, schema: Schema) -> Point:
        """Return where to ask after these; the last of all has `share` times the share of the last here."""
        turn = steps[-1].trusting.turn(first=len(steps) == 1)
        weights = self._move(steps[-1], self._likely(steps, self._possible(schema)).mean)
        return steps[-1].next(weights, turn, share, self._scale(steps, schema))

    def _possible(self, schema: Schema) -> Floats:
        """Return the largest weights that are possible, if no column moves predictors further than that."""
        units = Units(self._design(False), schema)
        moved = self._moved(schema)
        most = np.concatenate([[moved], largest(units, moved)])
        return np.asarray(np.linalg.pinv(self._frame(len(units.names)).T) @ most)

    def _moved(self, schema: Schema) -> float:
        """Return by how much a column changes predictors at most as it goes through its range."""
        return MOST_MOVED

    def _middle(self, schema: Schema) -> float:
        """Return around what predictors are expected to be."""
        return 0.0

    def _spread(self, steps: list[Step]) -> float:
        """Return the standard deviation of predictors that is expected before anything is seen."""
        return SPREAD

    def _counted(self, steps: list[Step]) -> list[Step]:
        """Return the steps that say something about weights; without noise the last says all."""
        return steps[-1:] if steps[-1].silent else steps

    def _origin(self, steps: list[Step]) -> Floats | None:
        """Return the weights that noise draws to; None for 0."""
        return None

    def _likely(self, steps: list[Step], possible: Floats) -> Belief:
        """Return what steps say, if predictors are expected to vary by `SPREAD` over people."""
        trusting = [step.trusting for step in self._counted(steps)]
        return Belief.after(trusting, self._before(steps, possible), self._origin(steps))

    def _before(self, steps: list[Step], possible: Floats) -> Floats:
        """Return the covariance of weights before anything is seen of the target."""
        turn = steps[0].trusting.turn(first=True)
        spread = self._spread(steps)
        covariance = spread**2 / max(len(turn) - self.intercept, 1) * turn.T @ turn
        if self.intercept:
            covariance[0, 0] += spread**2 * (1 + self._first**-2)
        return np.linalg.inv(np.linalg.inv(covariance) + np.diag(possible**-2.0))

    def _fitted(self, steps: list[Step], schema: Schema) -> Fitted:
        """Return likely values, with the intervals of estimates that expect no more than what is possible."""
        last, units = steps[-1], Units(self._design(False), schema)
        frame = self._frame(len(units.names))
        to = units.matrix @ frame.T  # from weights of a step to coefficients
        possible = self._possible(schema)
        free = Belief.after(self._counted(steps), np.diag(possible**2), self._origin(steps))
        weights = frame.T @ self._likely(steps, possible).mean
        values, centres = units.values(weights), to @ free.mean
        sampling, noise = (
            np.sqrt(np.maximum(np.diag(to @ each @ to.T), 0.0)) for each in (last.sampling, free.noise)
        )
        off = left_of(steps)
        error, left = np.maximum(np.hypot(sampling, noise), 1e-150), np.abs(to @ off)
        drawn = np.abs(to @ free.pull) @ possible
        possible = np.maximum(possible, np.abs(free.mean))
        bias = np.abs(to @ free.pull) @ possible + left
        moved = self._moved(schema)
        within = ends(widest(units, moved, moved + abs(self._middle(schema))), values, drawn)
        estimates = [
            Estimate(
                label,
                float(values[i]),
                float(sampling[i]),
                math.hypot(noise[i], bias[i]),
                within[i],
                Reach(float(centres[i]), float(error[i]), float(bias[i])),
            )
            for i, label in enumerate(("intercept", *units.names))
        ]
        kept = slice(0 if self.intercept else 1, None)
        pulls = np.column_stack([to @ free.pull * possible, to @ off])
        joint = Joint(
            tuple(each.label for each in estimates[kept]),
            tuple(each.within for each in estimates[kept]),
            tuple(map(float, centres[kept])),
            rows_of((to @ free.noise @ to.T)[kept, kept]),
            rows_of((to @ last.sampling @ to.T)[kept, kept]),
            pulls=rows_of(pulls[kept]),
            owners=("", *units.owners)[kept],
        )
        hidden = np.clip(np.diag(free.pull)[int(self.intercept) :], 0.0, 1.0)
        far = float((left / error).max())
        return Fitted(units, steps, weights, tuple(estimates), joint, hidden, far)

    def _warn_of_left(self, fitted: Fitted) -> None:
        """Warn where the last step may have left estimates off."""
        if fitted.far > 1:
            warn(
                f"the last step still changed {self.predictor} by {fitted.steps[-1].moved:.2g}, and may have "
                f"left estimates off by {fitted.far:.2g} standard errors, which intervals count; more "
                "rounds, rows or epsilon would help"
            )

    def _note(self, fitted: Fitted) -> str:
        """Return what the estimates are, with a warning where noise hides some."""
        hidden, units, last = fitted.hidden, fitted.units, fitted.steps[-1]
        if hidden.max() >= _HIDDEN:
            warn(unreliable(units.names, hidden, noise=last.curvature_noise > 0))
            names = [name for name, part in zip(units.names, hidden, strict=True) if part >= _HIDDEN]
            return (
                f"Noise hides the effect of {joined(names)}: estimates are drawn to 0, and intervals count "
                f"on no column changing {self.predictor} by more than "
                f"{self._moved(units.schema):.3g} as it goes through "
                "its range."
            )
        if last.point.whole:
            return "Maximum-likelihood estimates, up to noise, which is counted."
        return "Rows far from the others count less than in the likelihood, which keeps noise small."

    def expected(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return the noise of each coefficient after all steps over typical rows, and what it draws to 0.

        That rows are clipped, and how they are whitened, follows from the noise as in a release, which counts
        the furthest that a coefficient could be drawn to 0; here it is a likely one.
        """
        to, free, before, _ = self._planned(schema, noise, rows, neighbours)
        errors = np.sqrt(np.diag(to @ (free.noise + free.pull @ before @ free.pull.T) @ to.T))
        labels = ("intercept", *self._design(False).names(schema))
        return {labels[i]: float(errors[i]) for i in range(0 if self.intercept else 1, len(labels))}

    def _steepest(self, schema: Schema) -> dict[str, float]:
        """Return how steep slopes can be."""
        return super().limits(schema, (), 0)

    def limits(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return how steep slopes can be, less the furthest that they could be drawn to 0.

        Nor can they be steeper than intervals take to be possible.
        """
        to, free, _, possible = self._planned(schema, noise, rows, neighbours)
        most, drawn = np.abs(to) @ possible, np.abs(to @ free.pull) @ possible
        places = {name: i for i, name in enumerate(self._design(False).names(schema), 1)}
        return {
            name: float(min(limit, most[places[name]]) - drawn[places[name]])
            for name, limit in self._steepest(schema).items()
        }

    def _planned(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours
    ) -> tuple[Floats, Belief, Floats, Floats]:
        """Return what steps over typical rows would say if the last one has this noise.

        That is: what makes coefficients of weights; what is known of weights that nothing draws to 0; their
        covariance before anything is seen; and the largest that are possible.
        """
        steps = self._over_typical(schema, noise, rows, neighbours)
        units, possible = Units(self._design(False), schema), self._possible(schema)
        return (
            units.matrix @ self._frame(len(units.names)).T,
            Belief.after(self._counted(steps), np.diag(possible**2), self._origin(steps)),
            self._before(steps, possible),
            possible,
        )

    def _over_typical(self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours) -> list[Step]:
        """Return steps over typical rows, if the last one has this noise."""
        talk, shares = self._steps(schema, neighbours), self.stages()
        query, public = next(talk), rows if neighbours == "replace-one" else None
        for share in shares:
            times = math.sqrt(shares[-1] / share)
            sums = tuple(block.typical(schema, max(rows, 1)) for block in query.blocks)
            stds = tuple(tuple(times * std for std in each) for each in noise)
            try:
                query = talk.send(Answer(sums, stds, public, schema))
            except StopIteration as told:
                return list(told.value)
        raise AssertionError("there are as many steps as shares")

    def smaller(self, schema: Schema) -> Iterator[Analysis]:
        """Yield regressions on fewer features, then on each alone, then the target by each category."""
        return fewer(self, schema, self.target, self.features)


def warn(text: str) -> None:
    """Warn that noise hides something."""
    warnings.warn(text, TooNoisyWarning, stacklevel=outside())
