"""Logistic regression: log-odds of the second of two categories, from clipped scores.

`scores` says what is asked for, how far one row moves it, and what is made of the answers. All that follows a
released sum is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from cape.analyses.regression.by_scores import ByScores, stepwise, warn
from cape.analyses.regression.formula import target_and_features
from cape.analyses.regression.logistic_model import LogisticModel
from cape.analyses.regression.scores import Step
from cape.core import check
from cape.core.errors import InvalidInput
from cape.data import Number, Schema
from cape.engine.arguments import joined
from cape.engine.query import AnalysisResult
from cape.show.numbers import count
from cape.stats.matrices import CLEAR

__all__ = ["LogisticRegression"]

_RARE = 3.0  # rows: 95% of samples have none of a category of which 3 are expected


@dataclass(frozen=True, init=False)
class LogisticRegression(ByScores):
    """The log-odds of the second category of `target`, linear in the features.

    >>> fitted = consortium.release(LogisticRegression("ill", ["age", "sex"]), share=0.2)
    >>> fitted.model.odds_ratios
    >>> fitted.model.predict_proba({"age": [50], "sex": ["female"]})

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
    ) -> None:
        target, features = target_and_features(target, features, formula)
        self._set(
            **stepwise(target, features, rounds=rounds, intercept=intercept, norm=norm),
            threshold=check.probability("threshold", threshold),
        )
        self._design(False)  # refuses a target among the features

    def _check(self, schema: Schema) -> None:
        column = schema[self.target]
        if isinstance(column, Number) or len(column.values) != 2:
            found = "bounds" if isinstance(column, Number) else f"{len(column.values)}"
            raise InvalidInput(
                f"target {self.target!r} must have two categories for a logistic regression; "
                f"the schema gives it {found}"
            )

    def _told(self, steps: list[Step], schema: Schema) -> AnalysisResult:
        """Return the model of what these steps say."""
        fitted = self._fitted(steps, schema)
        self._warn_of_left(fitted)
        note = self._note(fitted)
        if self.intercept:
            note = f"{self._share(steps[0], schema)} {note}"
        kept = fitted.estimates if self.intercept else fitted.estimates[1:]
        model = LogisticModel(
            self.target,
            self._classes(schema),
            fitted.units.design,
            schema,
            kept,
            tuple(float(w) for w in fitted.weights),
            fitted.estimates[0].value,
            self.threshold,
            len(steps),
            steps[-1].count,
            note,
            fitted.joint,
        )
        return AnalysisResult(kept, model)

    def _share(self, first: Step, schema: Schema) -> str:
        """Return the share of the second category, with a warning if one of the two is rare."""
        unit = 2 * math.hypot(1.0, self._first) / self._first
        mean, noise = -unit * float(first.score[0]) / first.count, unit * first.score_noise / first.count
        share = min(max((1 + mean) / 2, 0.0), 1.0)
        rare, doubt = min(share, 1 - share) * first.count, noise / 2 * first.count
        if rare < max(_RARE, CLEAR * doubt):
            most = rare + CLEAR * doubt
            if most >= first.count / 2:
                warn(f"noise hides how many rows are in each category of {self.target!r}")
            else:
                warn(
                    f"at most {most:,.0f} of {first.count:,.0f} rows are in one of the categories of "
                    f"{self.target!r}: too few to tell what sets it apart"
                )
        return f"Released share of {self._classes(schema)[1]!r}: {share:.3f} (noise {noise / 2:.2g})."

    def _classes(self, schema: Schema) -> tuple[Any, ...]:
        return schema.category(self.target).values

    def describe(self) -> str:
        """Return one line that an ethics board can read."""
        return (
            f"logistic regression of {self.target} on {joined(self.features)}, in {count(self.steps, 'step')}"
        )
