"""Principal components with scikit-learn's interface."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from cape import check
from cape.analyses import pca
from cape.errors import InvalidInput
from cape.sklearn.base import PrivateEstimator, model_of
from cape.sklearn.bounds import box, warn_of

__all__ = ["PCA"]

Floats = NDArray[np.float64]


@dataclass(eq=False, repr=False, kw_only=True)
class PCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """Principal components across sites: `cape.PCA` over arrays, in the units of X.

    >>> PCA(2, epsilon=1.0, bounds_X=(0, 16)).fit_transform(X)

    All features enter in one unit, so that directions are those of X as it is; scale X first, by public
    numbers, if features have different units. New rows are cut to `bounds_X` and `data_norm` too.

    Args:
        n_components: how many, by default all.
        epsilon, delta: what one fit may cost each person.
        bounds_X: (low, high) of the features, numbers or arrays with one for each. What lies outside is cut.
        data_norm: the longest that a row of X may be, in its own units; longer ones are shortened.
        centered: whether X is known to have mean 0: nothing is then taken off, which makes for less noise.
        n_sites, colluding, scheme, neighbours, random_state: see `LinearRegression`.

    Attributes:
        components_: (n_components_, features); the largest entry of each is positive.
        explained_variance_, explained_variance_ratio_: along each, without what noise adds.
        mean_: of the features; 0 if `centered`.
        release_, guarantee_: the release, and its guarantee. Variances there are in units of t.
    """

    n_components: int | None = field(default=None, kw_only=False)
    data_norm: float | None = None
    centered: bool = False

    def fit(self, X: Any, y: Any = None, sites: Any = None) -> PCA:
        """Release the components. `sites` has a label for each row: which site holds it."""
        X = validate_data(self, X, dtype=np.float64)
        width = X.shape[1]
        many = width
        if self.n_components is not None:
            many = check.integer("n_components", self.n_components, least=1, most=width)
        taken: list[str] = []
        self._box = box(X, self.bounds_X, self.data_norm, taken, about_zero=bool(self.centered), alike=True)
        warn_of(taken)
        analysis = pca.PCA(*self._names(), components=many, norm=self._box.norm, center=not self.centered)
        (release,) = self._release(X, self._box, {}, sites, [analysis])
        model, unit = model_of(release), float(self._box.half[0])
        self.release_ = release
        self.components_ = np.array(model.components)
        self.n_components_ = many
        self.explained_variance_ = unit**2 * np.asarray(model.explained_variance)
        self.explained_variance_ratio_ = np.array(model.explained_variance_ratio)
        self.mean_ = self._box.middle + unit * np.asarray(model.mean)
        return self

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def transform(self, X: Any) -> Floats:
        """Return the scores of each row."""
        X = self._rows(X)
        return np.asarray((self._box.cut(X) - self.mean_) @ self.components_.T)

    def inverse_transform(self, X: Any) -> Floats:
        """Return rows that have these scores and are average otherwise."""
        check_is_fitted(self)
        scores = check_array(X, dtype=np.float64)
        if scores.shape[1] != self.n_components_:
            raise InvalidInput(
                f"X must have {self.n_components_} columns, one a component, not {scores.shape[1]}"
            )
        return np.asarray(scores @ self.components_ + self.mean_)
