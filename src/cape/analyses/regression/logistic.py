"""Logistic regression: log-odds of the second of two categories, from clipped scores.

`scores` says what is asked for, how far one row moves it, and what is made of the answers. All that follows a
released sum is post-processing.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from cape import check
from cape.analyses.matrices import CLEAR
from cape.analyses.regression.fewer import fewer
from cape.analyses.regression.formula import target_and_features
from cape.analyses.regression.inference import Reach, largest, unreliable, widest
from cape.analyses.regression.logistic_model import LogisticModel
from cape.analyses.regression.scores import Belief, Point, Step, score_query
from cape.arrays import Floats
from cape.blocks import Design
from cape.blocks.units import Units
from cape.data import Number, Schema
from cape.engine.arguments import features_of, joined
from cape.engine.query import (
    Analysis,
    AnalysisResult,
    Answer,
    Conversation,
    Estimate,
    Neighbours,
    Noise,
    Query,
)
from cape.errors import InvalidInput, TooNoisyWarning
from cape.show.numbers import count

__all__ = ["LogisticRegression"]

# Choices, measured by `python -m benchmarks.logistic_choices`, which halves and doubles each.
ROUNDS = 6  # for "auto"
LAST = 0.5  # the last step's share
INTERCEPT = 1.0  # what stands before x in (c, x) / sqrt(1 + c²), times the root of the number of features
SPREAD = 1.0  # the standard deviation of log-odds over people that is expected before anything is seen
# An assumption, which results name: no column changes log-odds by more than 20 as it goes through its range.
# Odds of e^20 are 5e8 to 1, and no table has the rows to tell them from larger ones.
MOST_MOVED = 20.0
_MOST_ROUNDS = 20
_RARE = 3.0  # rows: 95% of samples have none of a category of which 3 are expected
_HIDDEN = 0.5  # of a coefficient: from there on noise hides it


@dataclass(frozen=True, init=False)
class LogisticRegression(Analysis):
    """The log-odds of the second category of `target`, linear in the features.

    Each of `rounds` steps asks for the sum over rows of scores, the gradient of the log-likelihood, at the
    weights found so far, with its curvature and its spread. The first is at log-odds of 0. What it tells of
    the features whitens them for the next: there a row counts by how far it is from the middle of the data,
    not of its bounds, and noise is as small for a column that hardly varies as for any other. Scores of rows
    that are far from it are clipped, as far as noise makes that worth while, in a way that leaves their mean
    at 0: estimates are the maximum-likelihood ones where none is clipped, and those of a likelihood in which
    far rows count less where some are. All steps are combined, by how much each tells.

    Coefficients are drawn to 0 as far as noise hides them. Intervals are not: they are those of estimates
    that nothing draws, and count noise, sampling by a sandwich estimate, and what the last step leaves.

    Rows are complete ones. A row whose features are longer than `norm`, in units of half their bounds, is
    shortened to it, here and in predictions; by default none is.

    **Sensitivity** sqrt(5) for each step under replace-one, in units of the bound on scores: see `scores`.

    Args:
        target: a column with two categories; log-odds are those of the second.
        features: numeric columns, or categories: one 0 or 1 for each value but the first; interactions such
            as "age:sex" and splines such as "spline(bmi, 4)" (`cape.blocks.terms`).
        formula: target and features in one text, as in "ill ~ age * sex + spline(bmi, 4) + site".
        rounds: how many steps, or "auto" for six.
        intercept: whether log-odds may be other than 0 where all features are in the middle of their bounds
            (or in their first category).
        norm: the length that rows are shortened to.
        threshold: the probability from which on a prediction is the second category.
    """

    kind: ClassVar[str] = "logistic-regression"
    example: ClassVar[dict[str, Any]] = {"target": "disease", "features": ["age", "chol"], "rounds": 2}
    slopes: ClassVar[bool] = True
    target: str
    features: tuple[str, ...]
    rounds: int | Literal["auto"]
    intercept: bool
    norm: float | None
    threshold: float

    def __init__(
        self,
        target: str | None = None,
        features: Sequence[str] | str | None = None,
        *,
        formula: str | None = None,
        rounds: int | Literal["auto"] = "auto",
        intercept: bool = True,
        norm: float | None = None,
        threshold: float = 0.5,
    ) -> None:
        target, features = target_and_features(target, features, formula)
        if not isinstance(target, str):
            raise InvalidInput(f"target must be a column's name, not {target!r}")
        if not isinstance(intercept, bool):
            raise InvalidInput(f"intercept must be True or False, not {intercept!r}")
        given = {
            "target": target,
            "features": features_of(features, intercept),
            "rounds": rounds
            if isinstance(rounds, str) and rounds == "auto"
            else check.integer("rounds", rounds, least=1, most=_MOST_ROUNDS),
            "intercept": intercept,
            "norm": None if norm is None else check.real("norm", norm, above=0.0),
            "threshold": check.probability("threshold", threshold),
        }
        for name, value in given.items():
            object.__setattr__(self, name, value)
        self._design(False)  # refuses a target among the features

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return ROUNDS if self.rounds == "auto" else int(self.rounds)

    def stages(self) -> tuple[float, ...]:
        """Return the share of each step: half for the last, and the same for all others."""
        if self.steps == 1:
            return (1.0,)
        return (*[(1 - LAST) / (self.steps - 1)] * (self.steps - 1), LAST)

    @property
    def _first(self) -> float:
        """What stands before x: about as large as an entry of x."""
        return INTERCEPT / math.sqrt(len(self.features))

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
        column = schema[self.target]
        if isinstance(column, Number) or len(column.values) != 2:
            found = "bounds" if isinstance(column, Number) else f"{len(column.values)}"
            raise InvalidInput(
                f"target {self.target!r} must have two categories for a logistic regression; "
                f"the schema gives it {found}"
            )

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return the first question; later ones differ only in where they are asked."""
        self._check(schema)
        design = self._design(True)
        return score_query(design, Point.first(design.width(schema)), schema, neighbours)

    def finish(self, answer: Answer) -> AnalysisResult:
        """Return what the first step says by itself."""
        design = self._design(True)
        return self._told([Step.of(answer, design, Point.first(design.width(answer.schema)))], answer.schema)

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        """Ask for scores at log-odds of 0, and then at what was found, each time."""
        return self._told((yield from self._steps(schema, neighbours)), schema)

    def _steps(self, schema: Schema, neighbours: Neighbours) -> Generator[Query, Answer, list[Step]]:
        self._check(schema)
        design, shares = self._design(True), self.stages()
        point, possible = Point.first(design.width(schema)), self._possible(schema)
        steps: list[Step] = []
        for share in shares:
            step = Step.of((yield score_query(design, point, schema, neighbours)), design, point)
            steps.append(step)
            turn = step.trusting.turn(first=len(steps) == 1)
            point = step.next(self._likely(steps, possible).mean, turn, shares[-1] / share)
        return steps

    def _possible(self, schema: Schema) -> Floats:
        """Return the largest weights that are possible, if no column moves log-odds by more than 20."""
        units = Units(self._design(False), schema)
        most = np.concatenate([[MOST_MOVED], largest(units, MOST_MOVED)])
        return np.asarray(np.linalg.pinv(self._frame(len(units.names)).T) @ most)

    def _likely(self, steps: list[Step], possible: Floats) -> Belief:
        """Return what steps say, if log-odds are expected to vary by `SPREAD` over people."""
        return Belief.after([step.trusting for step in steps], self._before(steps, possible))

    def _before(self, steps: list[Step], possible: Floats) -> Floats:
        """Return the covariance of weights before anything is seen of the target."""
        turn = steps[0].trusting.turn(first=True)
        covariance = SPREAD**2 / max(len(turn) - self.intercept, 1) * turn.T @ turn
        if self.intercept:
            covariance[0, 0] += 1 + self._first**-2
        return np.linalg.inv(np.linalg.inv(covariance) + np.diag(possible**-2.0))

    def _told(self, steps: list[Step], schema: Schema) -> AnalysisResult:
        """Return likely values, with the intervals of estimates that expect no more than what is possible."""
        last, units = steps[-1], Units(self._design(False), schema)
        frame = self._frame(len(units.names))
        to = units.matrix @ frame.T  # from weights of a step to coefficients
        possible = self._possible(schema)
        free = Belief.after(steps, np.diag(possible**2))
        weights = frame.T @ self._likely(steps, possible).mean
        values, centres = units.values(weights), to @ free.mean
        sampling, noise = (
            np.sqrt(np.maximum(np.diag(to @ each @ to.T), 0.0)) for each in (last.sampling, free.noise)
        )
        error, left = np.maximum(np.hypot(sampling, noise), 1e-150), np.abs(to @ last.left)
        bias = np.abs(to @ free.pull) @ possible + left
        limit = np.maximum(widest(units, MOST_MOVED, MOST_MOVED), np.abs(values))
        estimates = [
            Estimate(
                label,
                float(values[i]),
                float(sampling[i]),
                math.hypot(noise[i], bias[i]),
                (-float(limit[i]), float(limit[i])),
                Reach(float(centres[i]), float(error[i]), float(bias[i])),
            )
            for i, label in enumerate(("intercept", *units.names))
        ]
        far = float((left / error).max())
        if far > 1:
            _warn(
                f"the last step still changed log-odds by {last.moved:.2g}, and may have left "
                f"estimates off by {far:.2g} standard errors, which intervals count; more rounds, rows or "
                "epsilon would help"
            )
        hidden = np.clip(np.diag(free.pull)[int(self.intercept) :], 0.0, 1.0)
        note = self._note(last.point, units, hidden, noisy=last.curvature_noise > 0)
        if self.intercept:
            note = f"{self._share(steps[0], schema)} {note}"
        kept = tuple(estimates if self.intercept else estimates[1:])
        model = LogisticModel(
            self.target,
            self._classes(schema),
            units.design,
            schema,
            kept,
            tuple(float(w) for w in weights),
            estimates[0].value,
            self.threshold,
            len(steps),
            last.count,
            note,
        )
        return AnalysisResult(kept, model)

    def _note(self, point: Point, units: Units, hidden: Floats, *, noisy: bool) -> str:
        """Return what the estimates are, with a warning where noise hides some."""
        if hidden.max() >= _HIDDEN:
            _warn(unreliable(units.names, hidden, noise=noisy))
            names = [name for name, part in zip(units.names, hidden, strict=True) if part >= _HIDDEN]
            return (
                f"Noise hides the effect of {joined(names)}: estimates are drawn to 0, and intervals count "
                f"on no column changing log-odds by more than {MOST_MOVED:.0f} as it goes through its range."
            )
        if point.whole:
            return "Maximum-likelihood estimates, up to noise, which is counted."
        return "Rows far from the others count less than in the likelihood, which keeps noise small."

    def _share(self, first: Step, schema: Schema) -> str:
        """Return the share of the second category, with a warning if one of the two is rare."""
        unit = 2 * math.hypot(1.0, self._first) / self._first
        mean, noise = -unit * float(first.score[0]) / first.count, unit * first.score_noise / first.count
        share = min(max((1 + mean) / 2, 0.0), 1.0)
        rare, doubt = min(share, 1 - share) * first.count, noise / 2 * first.count
        if rare < max(_RARE, CLEAR * doubt):
            _warn(
                f"at most {rare + CLEAR * doubt:.3g} of {first.count:.0f} rows can be told to be in one of "
                f"the categories of {self.target!r}: what sets it apart is not known"
            )
        return f"Released share of {self._classes(schema)[1]!r}: {share:.3f} (noise {noise / 2:.2g})."

    def _classes(self, schema: Schema) -> tuple[Any, ...]:
        return schema.category(self.target).values

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

    def limits(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return how steep slopes can be, less the furthest that they could be drawn to 0.

        Nor can they be steeper than intervals take to be possible.
        """
        to, free, _, possible = self._planned(schema, noise, rows, neighbours)
        most, drawn = np.abs(to) @ possible, np.abs(to @ free.pull) @ possible
        places = {name: i for i, name in enumerate(self._design(False).names(schema), 1)}
        steep = super().limits(schema, noise, rows, neighbours)
        return {
            name: float(min(limit, most[places[name]]) - drawn[places[name]]) for name, limit in steep.items()
        }

    def _planned(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours
    ) -> tuple[Floats, Belief, Floats, Floats]:
        """Return what steps over typical rows would say if the last one has this noise.

        That is: what makes coefficients of weights; what is known of weights that nothing draws to 0; their
        covariance before anything is seen; and the largest that are possible.
        """
        talk, shares = self._steps(schema, neighbours), self.stages()
        query, public = next(talk), rows if neighbours == "replace-one" else None
        steps: list[Step] = []
        for share in shares:
            times = math.sqrt(shares[-1] / share)
            sums = tuple(block.typical(schema, max(rows, 1)) for block in query.blocks)
            stds = tuple(tuple(times * std for std in each) for each in noise)
            try:
                query = talk.send(Answer(sums, stds, public, schema))
            except StopIteration as told:
                steps = told.value
        units, possible = Units(self._design(False), schema), self._possible(schema)
        return (
            units.matrix @ self._frame(len(units.names)).T,
            Belief.after(steps, np.diag(possible**2)),
            self._before(steps, possible),
            possible,
        )

    def smaller(self, schema: Schema) -> Iterator[Analysis]:
        """Yield regressions on fewer features, then on each alone, then the target by each category."""
        return fewer(self, schema, self.target, self.features)

    def describe(self) -> str:
        """Return one line that an ethics board can read."""
        return (
            f"logistic regression of {self.target} on {joined(self.features)}, in {count(self.steps, 'step')}"
        )


def _warn(text: str) -> None:
    warnings.warn(text, TooNoisyWarning, stacklevel=4)
