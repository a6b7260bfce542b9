"""Linear regression by steps of clipped scores, after second moments: what `LinearRegression` goes on with.

All of it is post-processing of released sums, but the questions, which are those of `scores`.
Tested in tests/analyses/regression/test_linear_steps.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from cape.analyses.matrices import nearest_positive, spectral
from cape.analyses.regression.diagnostics import explained
from cape.analyses.regression.glm import GLM
from cape.analyses.regression.joint import Joint, rows_of
from cape.analyses.regression.likelihoods import Numbers
from cape.analyses.regression.moments import SecondMoments
from cape.analyses.regression.scores import Point, Step
from cape.arrays import Floats
from cape.data import Schema
from cape.engine.query import Answer, Neighbours, Query

__all__ = ["LinearSteps", "Told"]

SMALL = 0.05  # of an error: how far estimates may be drawn before that is an assumption


@dataclass(frozen=True)
class Told:
    """What steps say: estimates together, weights of (1, x) for predictions, and how well they fit."""

    joint: Joint
    weights: Floats
    rows: float
    squared: float
    r_squared: float
    noise: float


class LinearSteps(GLM):
    """The steps of a linear regression after second moments."""

    @classmethod
    def of(cls, target: str, features: tuple[str, ...], intercept: bool, norm: float | None) -> LinearSteps:
        """Return the steps of a regression."""
        return cls(target, features, intercept=intercept, norm=norm)

    def first(self, sums: SecondMoments, residual: float, schema: Schema) -> Step:
        """Return second moments as the first step; `residual` is the variance of residuals, in units of y."""
        column, width, likelihood = schema.number(self.target), self._width(schema), self.likelihood
        assert isinstance(likelihood, Numbers)
        half, n = column.half, sums.count
        frame = self._frame(sums.width)
        both = np.block([[np.full((1, 1), n), sums.x[None, :]], [sums.x[:, None], sums.xx]])
        curvature = frame @ both @ frame.T
        score = -half * frame @ np.concatenate([[sums.y], sums.xy])
        scale = np.abs(frame).max(axis=1)  # of each entry
        noises = [half * sums.y_noise, half * sums.xy_noise], [sums.x_noise, sums.xx_noise / math.sqrt(2)]
        if self.intercept:
            score_noise = max(scale[0] * noises[0][0], scale[1] * noises[0][1])
            curvature_noise = max(scale[0] * scale[1] * noises[1][0], scale[1] ** 2 * noises[1][1])
        else:
            score_noise, curvature_noise = noises[0][1], noises[1][1]
        square = half**2 * max(sums.yy / n, 0.0)
        size = max(float(np.trace(curvature)), 0.01 * n)
        step = Step(
            likelihood.start(column, width), score, curvature, square * curvature, score_noise,
            curvature_noise, n, half**2 * sums.yy_noise / n * size / math.sqrt(width),
        )  # fmt: skip
        step = likelihood.started(step, self._constant, 0.0)
        return replace(step, after=likelihood.spread_by(half**2 * residual))

    def point(self, steps: list[Step], share: float, schema: Schema) -> Point:
        """Return where to ask after these steps."""
        return self._next(steps, share, schema)

    def question(self, point: Point, schema: Schema, neighbours: Neighbours) -> Query:
        """Return the question at a point."""
        return self._query(point, schema, neighbours)

    def step(self, answer: Answer, point: Point) -> Step:
        """Return what an answer to it says."""
        return self._measured(Step.of(answer, self._design(True), point))

    def expected_square(self, step: Step, share: float) -> float:
        """Return the mean square by which predictions will be wrong, if the last step is like this one.

        It has `share` times the share.
        """
        wrong = (step.score_noise**2 / share + step.cut**2) * np.eye(len(step.score))
        curvature = nearest_positive(step.trusting.curvature) + 1e-9 * step.count * np.eye(len(wrong))
        return float(np.trace(np.linalg.solve(curvature, wrong))) / step.count

    def summed_up(self, steps: list[Step], schema: Schema) -> Told:
        """Return what all steps say."""
        fitted, last = self._fitted(steps, schema), steps[-1]
        self._warn_of_left(fitted)
        # the spread of scores says more about residuals than deviances, of which one row may be most
        noise = last.spread_noise / math.sqrt(len(last.score))
        squares = replace(last, deviance=last.count * last.deviation**2, deviance_noise=noise)
        deviance, share = explained([*steps[:-1], squares], self.likelihood, self._constant)
        edge = spectral(len(last.score), last.curvature_noise)
        smallest = float(np.linalg.eigvalsh(last.curvature)[0])
        joint, pulls = fitted.joint, np.array(fitted.joint.pulls)
        left = pulls[:, -1]  # second order in the last change: no more than noise
        privacy = np.array(joint.privacy) + np.outer(left, left)
        drawn = np.abs(pulls[:, :-1]).sum(axis=1)
        if (drawn < SMALL * np.sqrt(np.diag(privacy + np.array(joint.sampling)))).all():
            joint = replace(joint, privacy=rows_of(privacy + np.diag(drawn**2)), pulls=())
        else:
            joint = replace(joint, privacy=rows_of(privacy), pulls=rows_of(pulls[:, :-1]))
        self._note(fitted)
        return Told(
            joint,
            fitted.weights,
            last.count,
            deviance.value / last.count,
            share.value if share.at is None else math.nan,
            edge / max(smallest, 1e-300),
        )
