"""Linear regression with scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn import linear_model
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from cape.analyses.regression import linear
from cape.sklearn.base import PrivateEstimator, Target, by_label, ignore_weights, model_of
from cape.sklearn.bounds import Box, Interval, box, intervals, warn_of

__all__ = ["LinearRegression"]

Floats = NDArray[np.float64]


@dataclass(eq=False, repr=False, kw_only=True)
class LinearRegression(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """Least squares across sites: `cape.LinearRegression` over arrays.

    >>> LinearRegression(epsilon=1.0, bounds_X=(-1, 1), bounds_y=(0, 100)).fit(X, y).predict(X)

    `coef_` and `intercept_` are those of predictions: a ridge regression whose ridge the noise sets, or, by
    clipped scores, estimates drawn to the mean as far as noise hides them;
    `interval()` and `release_.summary()` are about least squares, with errors. Predictions are for rows as
    sites see them, cut to `bounds_X` and `data_norm`, and lie within `bounds_y`. Several targets, columns of
    y, are fitted one by one, with equal budget shares.

    Args:
        epsilon: what one fit may cost each person. At epsilon = infinity, with a warning, nothing is
            private: `coef_` and `intercept_` are scikit-learn's, and predictions are not cut to `bounds_y`.
        delta: beside epsilon, 1e-6 if it is None: noise is Gaussian, which cannot do without.
        bounds_X: (low, high) of the features, numbers or arrays with one for each. What lies outside is cut.
        bounds_y: (low, high) of the target, numbers or arrays with one for each target.
        data_norm: the longest that a row of X may be, in its own units; longer ones are shortened. Makes for
            less noise than bounds where rows are shorter than the bounds allow.
        fit_intercept: if False, the prediction at X = 0 is 0.
        ridge: "auto", or what is added to the mean of xx', for predictions.
        errors: "robust" sampling errors, which take 9% of the budget, or "classical" ones.
        method: "moments", "scores", or "auto", the one with the smaller expected error.
        copy_X: X is never overwritten, whatever it says.
        n_jobs: no effect, with a warning.
        n_sites: how many sites rows are split over, unless `fit` gets `sites`; fewer if there are fewer rows.
        colluding: how many sites may collude with the aggregator; by default ceil(n_sites / 3) - 1.
        scheme: how noise is made: see `cape.Consortium`.
        neighbours: "replace-one" or "add-remove".
        random_state: for simulations: splits rows, and makes noise that can be reproduced, with a warning.
        accountant: a `BudgetAccountant` that fits share.

    Attributes:
        coef_, intercept_: of predictions, in the units of X and y; of several targets, one row and one number
            each.
        release_, guarantee_: the release, and its guarantee. For several targets `release_` is a dict of
            releases, "0", "1" and so on.
    """

    bounds_y: Any = None
    data_norm: float | None = None
    fit_intercept: bool = True
    ridge: float | Literal["auto"] = "auto"
    errors: Literal["robust", "classical"] = "robust"
    method: Literal["auto", "moments", "scores"] = "auto"
    copy_X: bool = True  # noqa: N815 - scikit-learn's name
    n_jobs: int | None = None

    _ignored: ClassVar[Mapping[str, str]] = {"n_jobs": "a fit is one process. Leave it out"}

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, sites: Any = None) -> LinearRegression:
        """Release the coefficients. `sites` has a label for each row: which site holds it."""
        X, y, self._box, ends = self._preprocess_data(
            X,
            y,
            fit_intercept=self.fit_intercept,
            bounds_X=self.bounds_X,
            bounds_y=self.bounds_y,
            copy=self.copy_X,
        )
        ignore_weights(X, sample_weight)
        names, targets = self._names(), self._targets(y, ends)
        analyses = [
            linear.LinearRegression(
                target,
                names,
                intercept=bool(self.fit_intercept),
                ridge=self.ridge,
                norm=self._box.norm,
                errors=self.errors,
                method=self.method,
            )
            for target in targets
        ]
        releases = self._release(X, self._box, targets, sites, analyses)
        self.release_ = by_label([str(i) for i in range(len(releases))], releases)
        if self._exact:
            plain = linear_model.LinearRegression(fit_intercept=bool(self.fit_intercept)).fit(
                self._box.cut(X), y
            )
            self.coef_, self.intercept_ = plain.coef_, plain.intercept_
            self._ends: tuple[Any, Any] = (-np.inf, np.inf)
            return self
        models = [model_of(release) for release in releases]
        coef = np.array([[model.coefficients[name] for name in names] for model in models])
        intercept = np.array([model.intercept for model in models], np.float64) if self.fit_intercept else 0.0
        several = y.ndim == 2
        self.coef_ = coef if several else coef[0]
        self.intercept_ = (
            float(np.ravel(intercept)[0]) if not several or not self.fit_intercept else intercept
        )
        lows, highs = [each.low for each in ends], [each.high for each in ends]
        self._ends = (np.array(lows), np.array(highs)) if several else (lows[0], highs[0])
        return self

    def _preprocess_data(
        self,
        X: Any,
        y: Any,
        *,
        fit_intercept: bool,
        bounds_X: Any,
        bounds_y: Any,
        check_input: bool = True,
        copy: bool = True,
    ) -> tuple[Floats, Floats, Box, list[Interval]]:
        """Return rows, targets cut to their bounds, and the bounds of both.

        scikit-learn's linear models have a method of this name: X is checked unless `check_input` says that
        it was, and is a copy if `copy` is set. It is never overwritten.
        """
        if check_input:
            X, y = validate_data(
                self, X, y, dtype=np.float64, y_numeric=True, multi_output=True, copy=bool(copy)
            )
        taken: list[str] = []
        rows = box(X, bounds_X, self.data_norm, taken, about_zero=not fit_intercept)
        columns = np.asarray(y, np.float64).reshape(len(X), -1)
        ends = intervals(columns, bounds_y, taken, about_zero=not fit_intercept)
        warn_of(taken)
        cut = np.clip(columns, [each.low for each in ends], [each.high for each in ends])
        return X, cut.reshape(np.shape(y)), rows, ends

    def _targets(self, y: Floats, ends: Sequence[Interval]) -> dict[str, Target]:
        """Return the columns of targets by name."""
        if y.ndim == 1:
            return {self._target(): (ends[0].column, pl.Series(y))}
        return {
            f"{self._target()}={i}": (each.column, pl.Series(np.ascontiguousarray(y[:, i])))
            for i, each in enumerate(ends)
        }

    def predict(self, X: Any) -> Floats:
        """Return the target for each row, or all targets, within their bounds."""
        X = self._rows(X)
        y = self._box.cut(X) @ np.transpose(self.coef_) + self.intercept_
        return np.asarray(np.clip(y, *self._ends))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
