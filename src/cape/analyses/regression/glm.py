"""Generalised linear models: a target of one of several families, whose mean is linear in the features by a
link.

`scores` says what is asked for, how far one row moves it, and what is made of the answers; `families` what a
row's target says, and how it is clipped; `likelihoods` what is made of a family between steps. All that
follows a released sum is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from cape.analyses.regression.by_scores import ByScores, Fitted, stepwise
from cape.analyses.regression.diagnostics import dispersion, explained, score_test
from cape.analyses.regression.formula import target_and_features
from cape.analyses.regression.glm_model import GLMModel
from cape.analyses.regression.joint import WaldTest
from cape.analyses.regression.likelihoods import LIKELIHOODS, Binary, Likelihood, Numbers
from cape.analyses.regression.multinomial import ChoiceRegression
from cape.analyses.regression.scores import ASYMMETRIC, Point, Scale, Step, score_query
from cape.blocks import Design
from cape.blocks.typical import Shape, steepest
from cape.core.arrays import Floats
from cape.core.check import hint
from cape.core.errors import InvalidInput
from cape.data import Category, Schema
from cape.engine.arguments import joined
from cape.engine.query import AnalysisResult, Answer, Conversation, Neighbours, Noise, Query
from cape.show.numbers import count
from cape.stats.estimates import Estimate

__all__ = ["GLM"]

LARGEST_OFFSET = 20.0
WIDE = 5.0  # an identity: half the width of the target's bounds, in SDs of what features predict of it
WIDER = 4.0  # times the bound on scores, after a step that showed it
FURTHEST = 2.0  # the SD over people by which a step may change predictors
CHOICES = ("multinomial", "ordinal")


@dataclass(frozen=True, init=False)
class GLM(ByScores):
    """A target of a family of distributions, whose mean, by a link, is linear in the features.

    >>> fitted = consortium.release(GLM("chol", ["age", "sex"], family="gamma"), share=0.2)
    >>> fitted.model.ratios, fitted.model.test("age", "sex=male").p

    Each of `rounds` steps asks for the sum over rows of scores, the gradient of the log-likelihood, with its
    curvature and its spread, as `LogisticRegression` does, which is one of its families. Scores are clipped
    as far as noise makes that worth while, in a way that leaves their mean at 0 where the family is right:
    see `families`. A family of numbers starts from a linear regression of its target, or of a logarithm of
    it. `LinearRegression` starts from second moments, and goes on by steps of the family "gaussian" or by
    more second moments, whichever has less noise.

    Sampling errors are robust: those of a sandwich, whatever the variance of the target is. Intervals count
    noise, sampling, and what the last step leaves.

    **Sensitivity** sqrt(5.02) for each step under replace-one, in units of the bound on scores: see `scores`.

    Args:
        target: for "binomial" a column with two categories, whose second is what probabilities are of;
            for "multinomial" and "ordinal" one of three or more, which for "ordinal" rise in their order;
            otherwise a number: at least 0 for "poisson" and "negative-binomial", above 0 for "gamma". Cells
            outside their bounds are cut to them.
        features: numeric columns, or categories: one 0 or 1 for each value but the first; interactions such
            as "age:sex" and splines such as "spline(bmi, 4)" (`cape.blocks.terms`).
        family: "gaussian", "binomial", "poisson", "negative-binomial", "gamma", "multinomial" or
            "ordinal" (proportional odds).
        link: "logit", "probit" or "cloglog" for "binomial"; others have one link, "identity" for "gaussian",
            "logit" for
            "multinomial" and "ordinal", else "log".
        formula: target and features in one text, as in "visits ~ age * sex + spline(bmi, 4) + site".
        offset: a numeric column that is added to the predictor as it is: the logarithm of a time at risk.
        weights: a numeric column of at least 0: how much each row counts, in shares of its upper bound.
        rounds: how many steps, or "auto" for six.
        intercept: whether the predictor may be other than 0 where all features are in the middle of their
            bounds (or in their first category).
        norm: the length that rows are shortened to, in units of half their bounds.
    """

    kind: ClassVar[str] = "glm"
    example: ClassVar[dict[str, Any]] = {
        "target": "chol",
        "features": ["age"],
        "family": "poisson",
        "rounds": 2,
    }
    family: str
    link: str
    offset: str | None
    weights: str | None

    def __init__(
        self,
        target: str | None = None,
        features: Sequence[str] | str | None = None,
        family: str = "gaussian",
        link: str | None = None,
        *,
        formula: str | None = None,
        offset: str | None = None,
        weights: str | None = None,
        rounds: int | Literal["auto"] = "auto",
        intercept: bool = True,
        norm: float | None = None,
    ) -> None:
        target, features = target_and_features(target, features, formula)
        families = [*dict.fromkeys(name for name, _ in LIKELIHOODS), *CHOICES]
        if not isinstance(family, str) or family not in families:
            raise InvalidInput(
                f"family must be one of {joined(families)}, not {family!r}{hint(family, families)}"
            )
        links = [name for of, name in LIKELIHOODS if of == family] or ["logit"]
        link = links[0] if link is None else link
        if not isinstance(link, str) or link not in links:
            allowed = links[0] if len(links) == 1 else f"one of {joined(links)}"
            raise InvalidInput(f"link of family {family!r} must be {allowed}, not {link!r}")
        for what, name in (("offset", offset), ("weights", weights)):
            if name is not None and not isinstance(name, str):
                raise InvalidInput(f"{what} must be a column's name, not {name!r}")
        if family in CHOICES and offset is not None:
            raise InvalidInput(f"family {family!r} takes no offset: leave it out")
        if family == "ordinal" and not intercept:
            raise InvalidInput(
                "an ordinal model has thresholds in place of an intercept: leave intercept out"
            )
        self._set(
            **stepwise(target, features, rounds=rounds, intercept=intercept, norm=norm, least=2),
            family=family,
            link=link,
            offset=offset,
            weights=weights,
        )
        self._design(False)  # refuses a target among the features

    @property
    def likelihood(self) -> Likelihood:
        """What is made of the family between steps."""
        return LIKELIHOODS[self.family, self.link]

    @property
    def _made(self) -> ChoiceRegression | None:
        """The regression of several categories, if it is one."""
        if self.family not in CHOICES:
            return None
        return ChoiceRegression(
            self.target,
            self.features,
            self.family,  # type: ignore[arg-type]
            weights=self.weights,
            rounds=self.rounds,
            intercept=self.intercept,
            norm=self.norm,
        )

    @property
    def predictor(self) -> str:  # type: ignore[override]
        return "log-odds" if self.family in CHOICES else self.likelihood.predictor

    def _design(self, scores: bool) -> Design:
        beside = tuple(name for name in (self.offset, self.weights) if name is not None)
        return replace(super()._design(scores), beside=beside if scores else ())

    def _check(self, schema: Schema) -> None:
        if self.family not in CHOICES:
            self.likelihood.check(self.target, schema)
        for what, name in (("offset", self.offset), ("weights", self.weights)):
            if name is not None and isinstance(schema[name], Category):
                raise InvalidInput(
                    f"{what} {name!r} must be a number with bounds; the schema gives it categories"
                )
        if self.offset is not None and self.link != "identity":
            column = schema.number(self.offset)
            if max(abs(column.low), abs(column.high)) > LARGEST_OFFSET:
                raise InvalidInput(
                    f"offset {self.offset!r} must have bounds between -{LARGEST_OFFSET:g} and "
                    f"{LARGEST_OFFSET:g}: it is added to {self.predictor}, so that a time at risk enters as "
                    "its logarithm, a column of its own under [derive]"
                )
        if self.weights is not None and schema.number(self.weights).low < 0:
            raise InvalidInput(f"weights {self.weights!r} must have a lower bound of at least 0")

    def _query(self, point: Point, schema: Schema, neighbours: Neighbours) -> Query:
        beside = (self.offset is not None, self.weights is not None)
        return score_query(self._design(True), point, schema, neighbours, beside)

    def _begin(self, schema: Schema) -> Point:
        width, likelihood = self._width(schema), self.likelihood
        if isinstance(likelihood, Numbers):
            return likelihood.start(schema.number(self.target), width)
        assert isinstance(likelihood, Binary)
        return likelihood.start(width)

    def _read(self, answer: Answer, point: Point, steps: list[Step], schema: Schema) -> Step:
        step = super()._read(answer, point, steps, schema)
        if not isinstance(self.likelihood, Numbers):
            return step
        if steps:
            return step if step.beyond is None else self._measured(step)
        return self.likelihood.started(step, self._constant, self._shift(schema))

    def _measured(self, step: Step) -> Step:
        """Return a step with the spread of residuals that it shows."""
        assert isinstance(self.likelihood, Numbers)
        return replace(step, deviation=self.likelihood.next(step, self._constant).deviation)

    def _shift(self, schema: Schema) -> float:
        """What the predictor typically has beside w·x."""
        return 0.0 if self.offset is None else Shape(schema.number(self.offset)).expected.mean

    def _counted(self, steps: list[Step]) -> list[Step]:
        """The first step of a family of numbers only says where to start; without noise the last says all.

        Where residuals are not symmetric, clipping takes as much from an earlier step as from the last one,
        and in the same direction: taking means of steps makes it no smaller.
        """
        if len(steps) == 1 or not (steps[-1].silent or isinstance(self.likelihood, Numbers)):
            return steps
        if steps[-1].silent:
            return steps[-1:]
        counted, last = steps[1:], steps[-1]
        if last.lopsided(ASYMMETRIC):
            return [replace(step, least_cut=last.cut * math.sqrt(len(counted))) for step in counted]
        return counted

    def _origin(self, steps: list[Step]) -> Floats | None:
        return steps[0].point.weights

    def _scale(self, steps: list[Step], schema: Schema) -> Scale:
        likelihood = self.likelihood
        if isinstance(likelihood, Numbers):
            scale = steps[-1].after or likelihood.next(steps[-1], self._constant)
            if self.family != "gaussian":
                return scale
            wide = WIDER if steps[-1].lopsided(0.999) else 1.0
            return replace(scale, beyond=True, wide=wide, most=2 * schema.number(self.target).half)
        assert isinstance(likelihood, Binary)
        return likelihood.scale

    def _moved(self, schema: Schema) -> float:
        return 2 * schema.number(self.target).half if self.link == "identity" else super()._moved(schema)

    def _middle(self, schema: Schema) -> float:
        return schema.number(self.target).middle if self.link == "identity" else 0.0

    def _spread(self, steps: list[Step]) -> float:
        start = steps[0].point.scale
        return start.deviation / WIDE if self.link == "identity" else super()._spread(steps)

    def _move(self, step: Step, weights: Floats) -> Floats:
        likelihood = self.likelihood
        return (
            step.toward(weights, FURTHEST)
            if isinstance(likelihood, Numbers) and self.link == "log"
            else weights
        )

    def stages(self) -> tuple[float, ...]:
        return super().stages() if self._made is None else self._made.stages()

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        self._check(schema)
        return (
            super().query(schema, neighbours) if self._made is None else self._made.query(schema, neighbours)
        )

    def finish(self, answer: Answer) -> AnalysisResult:
        return super().finish(answer) if self._made is None else self._made.finish(answer)

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        self._check(schema)
        made = self._made
        return super().conduct(schema, neighbours) if made is None else made.conduct(schema, neighbours)

    def expected(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return the noise of each coefficient after all steps over typical rows, and what it draws to 0."""
        if self._made is None:
            return super().expected(schema, noise, rows, neighbours)
        return self._made.expected(schema, noise, rows, neighbours)

    def limits(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return how steep slopes can be, less the furthest that they could be drawn to 0."""
        if self._made is None:
            return super().limits(schema, noise, rows, neighbours)
        return self._made.limits(schema, noise, rows, neighbours)

    def _steepest(self, schema: Schema) -> dict[str, float]:
        """Of a logarithm as of log-odds: it changes by 4 over one SD of a feature."""
        if self.link != "identity":
            schema = schema.changed({self.target: Category((0, 1))})
        return steepest(schema, self.target, self.features)

    def _told(self, steps: list[Step], schema: Schema) -> AnalysisResult:
        """Return the model of what these steps say."""
        if isinstance(self.likelihood, Numbers) and len(steps) > 1:
            steps = [*steps[:-1], self.likelihood.adjusted(steps[-1], self._constant)]
        fitted = self._fitted(steps, schema)
        self._warn_of_left(fitted)
        kept = fitted.estimates if self.intercept else fitted.estimates[1:]
        model = GLMModel(
            self.target,
            self.family,
            self.link,
            fitted.units.design,
            schema,
            kept,
            fitted.joint,
            tuple(float(w) for w in fitted.weights),
            fitted.estimates[0].value,
            len(steps),
            steps[-1].count,
            self._note(fitted),
            self.offset,
            *self._diagnosed(fitted),
        )
        return AnalysisResult(kept, model)

    def _diagnosed(self, fitted: Fitted) -> tuple[Estimate, Estimate, Estimate | None, WaldTest]:
        """Return the deviance, pseudo-R², the dispersion and the score test."""
        steps, first = fitted.steps, self._constant
        plain = self.offset is None and self.weights is None
        deviance = explained(steps, self.likelihood, first, plain)
        told = dispersion(steps[-1], self.likelihood, first)
        return *deviance, told, score_test(steps[0], first if plain else 0.0, fitted.units.names)

    def describe(self) -> str:
        """Return one line that an ethics board can read."""
        of = f"{self.family} regression ({self.link}) of {self.target} on {joined(self.features)}"
        beside = [
            f"{what} {name}" for what, name in (("offset", self.offset), ("weights", self.weights)) if name
        ]
        of = f"{of}, with {joined(beside)}" if beside else of
        return f"{of}, in {count(self.steps, 'step')}"
