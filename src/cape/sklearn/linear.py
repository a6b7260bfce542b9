"""Linear regression with scikit-learn's interface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from cape.analyses.regression import linear
from cape.sklearn.base import PrivateEstimator, model_of
from cape.sklearn.bounds import Interval, box, interval, warn_of

__all__ = ["LinearRegression"]

Floats = NDArray[np.float64]


@dataclass(eq=False, repr=False, kw_only=True)
class LinearRegression(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """Least squares across sites: `cape.LinearRegression` over arrays.

    >>> LinearRegression(epsilon=1.0, bounds_X=(-1, 1), bounds_y=(0, 100)).fit(X, y).predict(X)

    `coef_` and `intercept_` are those of predictions, a ridge regression whose ridge the noise sets;
    `interval()` and `release_.summary()` are about least squares, with errors. Predictions are for rows as
    sites see them, cut to `bounds_X` and `data_norm`, and lie within `bounds_y`.

    Args:
        epsilon, delta: what one fit may cost each person.
        bounds_X: (low, high) of the features, numbers or arrays with one for each. What lies outside is cut.
        bounds_y: (low, high) of the target.
        data_norm: the longest that a row of X may be, in its own units; longer ones are shortened. Makes for
            less noise than bounds where rows are shorter than the bounds allow.
        fit_intercept: if False, the prediction at X = 0 is 0.
        ridge: "auto", or what is added to the mean of xx', for predictions.
        errors: "robust" sampling errors, which take 9% of the budget, or "classical" ones.
        n_sites: how many sites rows are split over, unless `fit` gets `sites`.
        colluding: how many sites may collude with the aggregator; by default ceil(n_sites / 3) - 1.
        scheme: how noise is made: see `cape.Consortium`.
        neighbours: "replace-one" or "add-remove".
        random_state: for simulations: splits rows, and makes noise that can be reproduced, with a warning.

    Attributes:
        coef_, intercept_: of predictions, in the units of X and y.
        release_, guarantee_: the release, and its guarantee.
    """

    bounds_y: Any = None
    data_norm: float | None = None
    fit_intercept: bool = True
    ridge: float | Literal["auto"] = "auto"
    errors: Literal["robust", "classical"] = "robust"

    def fit(self, X: Any, y: Any, sites: Any = None) -> LinearRegression:
        """Release the coefficients. `sites` has a label for each row: which site holds it."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        through_zero = not self.fit_intercept
        taken: list[str] = []
        self._box = box(X, self.bounds_X, self.data_norm, taken, about_zero=through_zero)
        self._interval: Interval = interval(y, self.bounds_y, taken, about_zero=through_zero)
        warn_of(taken)
        names, target = self._names(), self._target()
        analysis = linear.LinearRegression(
            target,
            names,
            intercept=bool(self.fit_intercept),
            ridge=self.ridge,
            norm=self._box.norm,
            errors=self.errors,
        )
        cells = pl.Series(np.clip(np.asarray(y, np.float64), self._interval.low, self._interval.high))
        (release,) = self._release(X, self._box, {target: (self._interval.column, cells)}, sites, [analysis])
        model = model_of(release)
        self.release_ = release
        self.coef_ = np.array([model.coefficients[name] for name in names])
        self.intercept_ = float(model.intercept) if self.fit_intercept else 0.0
        return self

    def predict(self, X: Any) -> Floats:
        """Return the target for each row, within its bounds."""
        X = self._rows(X)
        y = self._box.cut(X) @ self.coef_ + self.intercept_
        return np.asarray(np.clip(y, self._interval.low, self._interval.high))
