"""Standard scores with scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from cape.analyses.describe.mean import Mean, Variance
from cape.core.errors import InvalidInput
from cape.engine.query import Analysis
from cape.engine.result import Release
from cape.sklearn.base import PrivateEstimator, ignore_weights
from cape.sklearn.bounds import box, warn_of

__all__ = ["StandardScaler"]

Floats = NDArray[np.float64]


@dataclass(eq=False, repr=False, kw_only=True)
class StandardScaler(OneToOneFeatureMixin, TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """Standard scores by private means and variances: `cape.Mean` and `cape.Variance` over arrays.

    >>> StandardScaler(epsilon=1.0, bounds_X=(0, 10)).fit_transform(X)

    Means and variances have equal budget shares; what is not asked for by `with_mean` and `with_std` is not
    released. New rows are not cut to the bounds.

    Args:
        epsilon: what one fit may cost each person; nothing is private at epsilon = infinity, with a
            warning.
        delta: beside epsilon, 1e-6 if it is None: noise is Gaussian. Means alone (with_std=False) can do
            without, with delta=0.
        bounds_X: (low, high) of the features, numbers or arrays with one for each. What lies outside is cut.
        with_mean: whether means are taken off.
        with_std: whether rows are divided by standard deviations.
        copy: X is never overwritten, whatever it says.
        n_sites, colluding, scheme, neighbours, random_state, accountant: see `LinearRegression`.

    Attributes:
        mean_, var_: of the features, or None if not asked for. `var_` is the mean square about the mean.
        scale_: the root of `var_`, or of its noise where that is larger; 1 where both are 0.
        n_samples_seen_: the rows; None if their number is private.
        release_, guarantee_: the releases, "mean" and "variance", and the guarantee of both together: None if
            neither was asked for.
    """

    with_mean: bool = True
    with_std: bool = True
    copy: bool = True

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, sites: Any = None) -> StandardScaler:
        """Release means and variances. `sites` has a label for each row: which site holds it."""
        X = validate_data(self, X, dtype=np.float64)
        ignore_weights(X, sample_weight)
        names = self._names()
        analyses: dict[str, Analysis] = {"mean": Mean(*names)} if self.with_mean else {}
        analyses |= {"variance": Variance(*names)} if self.with_std else {}
        public = self.neighbours == "replace-one"
        self.n_samples_seen_ = len(X) if public else None
        self.release_: Mapping[str, Release] = {}
        self.guarantee_ = None
        self.mean_ = self.var_ = self.scale_ = None
        if not analyses:
            return self
        taken: list[str] = []
        bounds = box(X, self.bounds_X, None, taken)
        warn_of(taken, norm=False)
        found = self._release(X, bounds, {}, sites, list(analyses.values()))
        self.release_ = dict(zip(analyses, found, strict=True))
        if self.with_mean:
            self.mean_ = np.array(self.release_["mean"].estimates.values)
        if self.with_std:
            variances = self.release_["variance"].estimates
            self.var_ = np.array(variances.values) * ((len(X) - 1) / len(X) if public else 1.0)
            least = np.maximum(self.var_, variances.privacy)
            self.scale_ = np.where(least > 0, np.sqrt(least), 1.0)
        return self

    def transform(self, X: Any) -> Floats:
        """Return the standard scores of rows."""
        scores = self._rows(X)
        scores = scores if self.mean_ is None else scores - self.mean_
        return scores if self.scale_ is None else scores / self.scale_

    def inverse_transform(self, X: Any) -> Floats:
        """Return the rows that have these standard scores."""
        check_is_fitted(self)
        rows = check_array(X, dtype=np.float64)
        if rows.shape[1] != self.n_features_in_:
            raise InvalidInput(f"X must have {self.n_features_in_} columns, not {rows.shape[1]}")
        rows = rows if self.scale_ is None else rows * self.scale_
        return np.asarray(rows if self.mean_ is None else rows + self.mean_)
