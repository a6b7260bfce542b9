"""Logistic regression: log-odds of the second of two categories, from clipped scores (`score_regression`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from cape.analyses.regression.faults import warn
from cape.analyses.regression.formula import target_and_features
from cape.analyses.regression.logistic_model import LogisticModel
from cape.analyses.regression.marginals import Marginals
from cape.analyses.regression.score_arguments import score_arguments
from cape.analyses.regression.score_regression import ScoreRegression
from cape.analyses.regression.spreading import spreading
from cape.blocks import Design
from cape.blocks.families import Family, Logit
from cape.core import check
from cape.core.errors import InvalidInput
from cape.data import Number, Schema
from cape.engine.arguments import joined
from cape.engine.query import AnalysisResult
from cape.show.numbers import count
from cape.stats.matrices import CLEAR
from cape.stats.score_steps import ScoreStep

__all__ = ["LogisticRegression"]

# Rows times mu, per root of the number of columns: below that, two steps cover better than five, on the
# populations that `benchmarks.truth_data` names as those that constants were chosen on.
_LITTLE = 250.0
_RARE = 3.0  # rows: 95% of samples have none of a category of which 3 are expected


@dataclass(frozen=True, init=False)
class LogisticRegression(ScoreRegression):
    """The log-odds of the second category of `target`, linear in the features.

    >>> fitted = consortium.release(LogisticRegression("ill", ["age", "sex"]), share=0.2)
    >>> fitted.model.odds_ratios
    >>> fitted.model.predict_proba({"age": [50], "sex": ["female"]})

    A first stage looks at each column by itself: numbers are capped at a released quantile, about 1% of rows
    on each side, where their bounds are much wider than the data (`cap`), and what was capped is said. Each
    of `rounds` steps then asks for the sum over rows of scores, the gradient of the log-likelihood, at the
    weights found so far, with its curvature and its spread, in coordinates that earlier steps whiten: noise
    is as small for a column that hardly varies as for any other. Scores that are longer than a bound are
    shortened to it; a histogram of their lengths says which bound makes the whole error smallest, and what it
    left out counts in intervals.

    Estimates are those of the same model without privacy, on the capped columns, whether the model is right
    or not. Sampling errors are those of a sandwich.

    Rows are complete ones. A row whose features are longer than `norm`, in units of half their bounds, is
    shortened to it, here and in predictions; by default none is.

    **Sensitivity** of each step: see `score_query`; of the first stage: see `marginals`.

    Args:
        target: a column with two categories; log-odds are those of the second.
        features: numeric columns, or categories: one 0 or 1 for each value but the first; interactions such
            as "age:sex" and splines such as "spline(bmi, 4)" (`cape.blocks.terms`).
        formula: target and features in one text, as in "ill ~ age * sex + spline(bmi, 4) + site".
        rounds: how many steps, or "auto" for five; where the numbers of rows that are expected and the share
            are so small that noise would hide the first of them, two.
        intercept: whether log-odds may be other than 0 where all features are in the middle of their bounds
            (or in their first category).
        norm: the length that rows are shortened to.
        threshold: the probability from which on a prediction is the second category.
        cap: "auto", "none", or where columns are cut, as in {"nodes": (0, 24)}.
    """

    kind: ClassVar[str] = "logistic-regression"
    example: ClassVar[dict[str, Any]] = {"target": "disease", "features": ["age", "chol"], "rounds": 2}
    predictor: ClassVar[str] = "log-odds"
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
        cap: Any = "auto",
    ) -> None:
        target, features = target_and_features(target, features, formula)
        self._set(
            **score_arguments(target, features, rounds=rounds, intercept=intercept, norm=norm, cap=cap),
            threshold=check.probability("threshold", threshold),
        )
        self._design()  # refuses a target among the features

    def sized(self, rows: int, mu: float) -> Self:
        """Return it with two steps where there is little to spend, in place of "auto"."""
        little = rows * mu < _LITTLE * math.sqrt(1 + len(self.features))
        return self.changed(rounds=2) if self.rounds == "auto" and little else self

    def _check(self, schema: Schema) -> None:
        column = schema[self.target]
        if isinstance(column, Number) or len(column.values) != 2:
            found = "bounds" if isinstance(column, Number) else f"{len(column.values)}"
            raise InvalidInput(
                f"target {self.target!r} must have two categories for a logistic regression; "
                f"the schema gives it {found}"
            )

    def _family(
        self, marginals: Marginals | None, steps: list[ScoreStep], schema: Schema, last: Any = None
    ) -> Family:
        return Logit()

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
        note, faults = self._note(fitted), self._faults(fitted)
        if marginals is not None:
            note = f"{self._share_of(marginals, steps[-1].count, schema)} {note}"
        kept = fitted.estimates if self.intercept else fitted.estimates[1:]
        model = LogisticModel(
            self.target,
            self._classes(schema),
            fitted.units.design,
            schema,
            kept,
            tuple(float(w) for w in fitted.weights),
            float(fitted.units.values(fitted.weights)[0]),
            self.threshold,
            len(steps),
            steps[-1].count,
            note,
            fitted.joint,
            fitted.limited,
            fitted.means,
            faults,
            steps[-1].count_noise,
            spreading(steps, self.falls[self.cap != "auto"]),
        )
        return AnalysisResult(kept, model)

    def _share_of(self, marginals: Marginals, count: float, schema: Schema) -> str:
        """Return the share of the second category, with a warning if one of the two is rare."""
        share, doubt = float(marginals.shares[self.target][1]), marginals.doubts[self.target]
        rare, unsure = min(share, 1 - share) * count, CLEAR * doubt * count
        if rare < max(_RARE, unsure):
            most = rare + unsure
            if most >= count / 2:
                warn(f"noise hides how many rows are in each category of {self.target!r}")
            else:
                warn(
                    f"at most {most:,.0f} of {count:,.0f} rows are in one of the categories of "
                    f"{self.target!r}: too few to tell what sets it apart"
                )
        return f"Released share of {self._classes(schema)[1]!r}: {share:.3f} (noise {doubt:.2g})."

    def _classes(self, schema: Schema) -> tuple[Any, ...]:
        return schema.category(self.target).values

    def describe(self) -> str:
        """Return one line that an ethics board can read."""
        return (
            f"logistic regression of {self.target} on {joined(self.features)}, in {count(self.steps, 'step')}"
        )
