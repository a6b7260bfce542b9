"""Generalised linear models: a target of one of several families, whose mean is linear in the features by a
link.

`score_stages` says what is asked for, `score_query` how far one row moves it, and
`score_regression_estimate` what is made of the answers; `cape.blocks.families` what a row's target says, and
how it is clipped; `likelihoods` what is made of a family between steps. All that follows a released sum is
post-processing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from cape.analyses.regression.diagnostics import (
    alpha_of,
    deviance_of,
    deviance_of_constant,
    deviance_of_share,
    dispersion,
    share_of,
)
from cape.analyses.regression.formula import target_and_features
from cape.analyses.regression.glm_model import GLMModel
from cape.analyses.regression.likelihoods import LIKELIHOODS, Likelihood
from cape.analyses.regression.marginals import Marginals, weight_share
from cape.analyses.regression.multinomial import ChoiceRegression
from cape.analyses.regression.score_arguments import score_arguments
from cape.analyses.regression.score_regression import ScoreRegression
from cape.analyses.regression.score_regression_estimate import Fitted
from cape.analyses.regression.spreading import Spreading, spreading
from cape.blocks import Design, Scores
from cape.blocks.families import Family
from cape.blocks.typical import Shape, steepest
from cape.core.check import hint
from cape.core.errors import InvalidInput
from cape.data import Category, Schema
from cape.engine.arguments import joined
from cape.engine.query import AnalysisResult, Answer, Conversation, Neighbours, Noise, Query
from cape.show.numbers import count
from cape.stats.estimates import Estimate, unknown
from cape.stats.score_steps import Point, ScoreStep

__all__ = ["GLM"]

LARGEST_OFFSET = 20.0
# The largest deviance of a row that counts; of numbers, in typical ones, with noise and without.
_BINARY, _OTHERS, _EXACT = 16.0, 30.0, 1000.0
CHOICES = ("multinomial", "ordinal")


@dataclass(frozen=True, init=False)
class GLM(ScoreRegression):
    """A target of a family of distributions, whose mean, by a link, is linear in the features.

    >>> fitted = consortium.release(GLM("chol", ["age", "sex"], family="gamma"), share=0.2)
    >>> fitted.model.ratios, fitted.model.test("age", "sex=male").p

    A first stage looks at each column by itself: numbers are capped at a released quantile, about 1% of rows
    on each side, where their bounds are much wider than the data (`cap`), and what was capped is said. Each
    of `rounds` steps then asks for the sum over rows of scores, the gradient of the log-likelihood, with its
    curvature and its spread. Scores that are longer than a bound are shortened to it; a histogram of their
    lengths says which bound makes the whole error smallest, and what it left out counts in intervals.

    Estimates are those of the same model without privacy, on the capped columns, whether the model is right
    or not. Sampling errors are those of a sandwich, whatever the variance of the target is. For
    "negative-binomial" alpha is estimated from the steps before the last and then held fixed.

    **Sensitivity** of each step: see `score_query`; of the first stage: see `marginals`.

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
        rounds: how many steps, or "auto" for five.
        intercept: whether the predictor may be other than 0 where all features are in the middle of their
            bounds (or in their first category).
        norm: the length that rows are shortened to, in units of half their bounds.
        cap: "auto", "none", or where columns are cut, as in {"visits": (0, 24)}.
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
        cap: Any = "auto",
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
            **score_arguments(target, features, rounds=rounds, intercept=intercept, norm=norm, cap=cap),
            family=family,
            link=link,
            offset=offset,
            weights=weights,
        )
        self._design()  # refuses a target among the features

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
            cap=self.cap,
        )

    @property
    def predictor(self) -> str:  # type: ignore[override]
        return "log-odds" if self.family in CHOICES else self.likelihood.predictor

    @property
    def _beside(self) -> tuple[str, ...]:
        return tuple(name for name in (self.offset, self.weights) if name is not None)

    @property
    def _curved(self) -> bool:
        return self.likelihood.curved

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

    def _family(
        self, marginals: Marginals | None, steps: list[ScoreStep], schema: Schema, last: Any = None
    ) -> Family:
        """Return the family, with the dispersion that the last step shows."""
        if self.family != "negative-binomial":
            return self.likelihood.made(1.0)
        y, chance = self._likely(marginals, schema)
        mean = max(float(chance @ y), 1e-9)
        if not steps:
            extra = float(chance @ (y - mean) ** 2) - mean
            return self.likelihood.made(max(extra, 0.1 * mean**2) / mean**2)
        return self.likelihood.made(alpha_of(steps, mean, last))

    def _block(self, point: Point, design: Design, family: Family, marginals: Marginals | None) -> Scores:
        block = super()._block(point, design, family, marginals)
        assert isinstance(block, Scores)
        return replace(block, offset=self.offset is not None, weighted=self.weights is not None)

    def _most_deviance(self, point: Point, family: Family) -> float:
        if family.binary:
            return _BINARY
        typical = max(1.0, float(point.size / point.bend**0.5) ** 2)
        return (_EXACT if point.exact else _OTHERS) * typical

    def _shift(self, marginals: Marginals | None, schema: Schema) -> float:
        if self.offset is None:
            return 0.0
        if marginals is not None:
            return marginals.numbers[self.offset].mean
        return Shape(schema.number(self.offset)).expected.mean

    def _share(self, marginals: Marginals | None, schema: Schema) -> float:
        if self.weights is None:
            return 1.0
        if marginals is not None:
            return marginals.share(self.weights)
        column = schema.number(self.weights)
        return weight_share(Shape(column).expected.mean, column.high)

    def _moved(self, schema: Schema) -> float:
        return 2 * schema.number(self.target).half if self.link == "identity" else super()._moved(schema)

    def _middle(self, schema: Schema) -> float:
        return schema.number(self.target).middle if self.link == "identity" else 0.0

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

    def effort(self, schema: Schema, results: Sequence[int]) -> float:
        """Return a bound on the seconds until the next question."""
        return super().effort(schema, results) if self._made is None else self._made.effort(schema, results)

    def _steepest(self, schema: Schema) -> dict[str, float]:
        """Of a logarithm as of log-odds: it changes by 4 over one SD of a feature."""
        if self.link != "identity":
            schema = schema.changed({self.target: Category((0, 1))})
        return steepest(schema, self.target, self.features)

    def _result(
        self,
        steps: list[ScoreStep],
        marginals: Marginals | None,
        design: Design,
        family: Family,
        schema: Schema,
    ) -> AnalysisResult:
        """Return the model of what these steps say."""
        fitted = self._fitted(steps, marginals, design, schema)
        kept = fitted.estimates if self.intercept else fitted.estimates[1:]
        deviance = deviance_of(steps[-1])
        model = GLMModel(
            self.target,
            self.family,
            self.link,
            fitted.units.design,
            schema,
            kept,
            fitted.joint,
            tuple(float(w) for w in fitted.weights),
            float(fitted.units.values(fitted.weights)[0]),
            len(steps),
            steps[-1].count,
            self._note(fitted),
            self.offset,
            deviance,
            self._explained(deviance, steps[-1], marginals, fitted),
            dispersion(steps[-1], self.likelihood, family),
            fitted.joint.test(*fitted.units.names),
            fitted.limited,
            fitted.means,
            self._faults(fitted),
            steps[-1].count_noise,
            self._spreading(steps),
        )
        return AnalysisResult(kept, model)

    def _note(self, fitted: Fitted) -> str:
        """Return what the estimates are; those of a negative binomial rest on an alpha that is not theirs."""
        note = super()._note(fitted)
        if self.family != "negative-binomial":
            return note
        most, at = "Maximum-likelihood estimates", "for an alpha that is estimated by moments"
        return note.replace(most, f"{most} {at}")

    def _spreading(self, steps: list[ScoreStep]) -> Spreading | None:
        """Return how scores spread; rows that count in unequal shares say nothing of it."""
        if self.weights is not None:
            return None
        dispersed = bool(self.likelihood.dispersed) and self.family != "poisson"
        return spreading(steps, self.falls[self.cap != "auto"], dispersed=dispersed)

    def _explained(
        self, deviance: Estimate, last: ScoreStep, marginals: Marginals | None, fitted: Fitted
    ) -> Estimate:
        """Return which share of the deviance of a constant the features explain."""
        plain = self.offset is None and self.weights is None
        if marginals is not None and self.likelihood.binary and self.intercept and plain:
            share, doubt = float(marginals.shares[self.target][1]), marginals.doubts[self.target]
            constant, beside = deviance_of_share(share, doubt, last.count)
        else:
            constant, beside = deviance_of_constant(deviance, last, self.intercept, fitted)
        found = share_of(deviance, constant, beside)
        return unknown("pseudo-R²", 0.0, 1.0) if found is None else found

    def describe(self) -> str:
        """Return one line that an ethics board can read."""
        of = f"{self.family} regression ({self.link}) of {self.target} on {joined(self.features)}"
        beside = [
            f"{what} {name}" for what, name in (("offset", self.offset), ("weights", self.weights)) if name
        ]
        of = f"{of}, with {joined(beside)}" if beside else of
        return f"{of}, in {count(self.steps, 'step')}"
