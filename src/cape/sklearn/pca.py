"""Principal components with scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn import decomposition
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from cape.analyses.describe import pca
from cape.core import check
from cape.core.errors import InvalidInput
from cape.sklearn.base import PrivateEstimator, model_of
from cape.sklearn.bounds import box, warn_of
from cape.sklearn.dimensions import by_share, likeliest

__all__ = ["PCA"]

Floats = NDArray[np.float64]


@dataclass(eq=False, repr=False, kw_only=True)
class PCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """Principal components across sites: `cape.PCA` over arrays, in the units of X.

    >>> PCA(2, epsilon=1.0, bounds_X=(0, 16)).fit_transform(X)

    All features enter in one unit, so that directions are those of X as it is; scale X first, by public
    numbers, if features have different units. New rows are cut to `bounds_X` and `data_norm` too.

    Args:
        n_components: how many, by default all; a share of the variance between 0 and 1, or "mle", chooses
            them by what was released of all.
        epsilon: what one fit may cost each person. At epsilon = infinity, with a warning, nothing is
            private: results are scikit-learn's.
        delta: beside epsilon, 1e-6 if it is None: noise is Gaussian, which cannot do without.
        bounds_X: (low, high) of the features, numbers or arrays with one for each. What lies outside is cut.
        data_norm: the longest that a row of X may be, in its own units; longer ones are shortened.
        centered: whether X is known to have mean 0: nothing is then taken off, which makes for less noise.
        whiten: whether scores are divided by their standard deviations.
        svd_solver, tol, iterated_power: no effect, with a warning. `copy`: X is never overwritten.
        n_sites, colluding, scheme, neighbours, random_state, accountant: see `LinearRegression`.

    Attributes:
        components_: (n_components_, features); the largest entry of each is positive.
        explained_variance_, explained_variance_ratio_, singular_values_: along each, without what noise adds.
        noise_variance_: the mean variance in all other directions.
        n_samples_: the rows, as released if their number is private.
        mean_: of the features; 0 if `centered`.
        release_, guarantee_: the release, and its guarantee. Variances there are in units of t.
    """

    n_components: int | float | Literal["mle"] | None = field(default=None, kw_only=False)
    data_norm: float | None = None
    centered: bool = False
    whiten: bool = False
    svd_solver: str = "auto"
    tol: float = 0.0
    iterated_power: int | str = "auto"
    copy: bool = True

    _ignored: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("svd_solver", "tol", "iterated_power"),
        "components are those of a released matrix, without rows. Leave it out",
    )

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> PCA:
        """Release the components. `sites` has a label for each row: which site holds it."""
        X = validate_data(self, X, dtype=np.float64)
        width = X.shape[1]
        asked = self._asked(width)
        taken: list[str] = []
        self._box = box(X, self.bounds_X, self.data_norm, taken, about_zero=bool(self.centered), alike=True)
        warn_of(taken)
        analysis = pca.PCA(*self._names(), components=asked, norm=self._box.norm, center=not self.centered)
        (release,) = self._release(X, self._box, {}, sites, [analysis])
        model, unit = model_of(release), float(self._box.half[0])
        self.release_ = release
        self.n_samples_ = release.rows if release.rows is not None else round(model.count)
        if self._exact:
            components, variances, total, self.mean_ = self._found_exactly(self._box.cut(X))
        else:
            components = np.array(model.components)
            variances = unit**2 * np.asarray(model.explained_variance) * self._correction
            total = float(variances[0] / max(float(model.explained_variance_ratio[0]), 1e-300))
            self.mean_ = self._box.middle + unit * np.asarray(model.mean)
        many = self._kept(variances, asked)
        self.n_components_ = many
        self.components_, self.explained_variance_ = components[:many], variances[:many]
        self.explained_variance_ratio_ = variances[:many] / max(total, 1e-300)
        self.singular_values_ = np.sqrt(self.explained_variance_ * max(self.n_samples_ - 1, 1))
        rest = max(total - float(self.explained_variance_.sum()), 0.0)
        self.noise_variance_ = rest / (width - many) if many < width else 0.0
        return self

    @property
    def _correction(self) -> float:
        """What makes the mean of squares about a known mean scikit-learn's, which is over n - 1."""
        n = self.n_samples_
        return n / max(n - 1, 1) if self.centered else 1.0

    def _asked(self, width: int) -> int:
        """Return how many components to release: all, where what is released says how many are kept."""
        many = self.n_components
        if many is None or (isinstance(many, str) and many == "mle"):
            return width
        if isinstance(many, (float, np.floating)) and 0 < many < 1:
            return width
        try:
            return check.integer("n_components", many, least=1, most=width)
        except InvalidInput as error:
            raise InvalidInput(f"{error}; or 'mle', or a share of the variance between 0 and 1") from None

    def _kept(self, variances: Floats, asked: int) -> int:
        many = self.n_components
        if isinstance(many, str):
            return likeliest(variances, float(self.n_samples_))
        if isinstance(many, (float, np.floating)):
            return by_share(variances, float(many))
        return asked

    def _found_exactly(self, X: Floats) -> tuple[Floats, Floats, float, Floats]:
        """Return components, variances, their total, and the mean, as scikit-learn has them."""
        mean = np.zeros(X.shape[1]) if self.centered else X.mean(axis=0)
        away = X - mean
        values, vectors = np.linalg.eigh(away.T @ away / max(len(X) - 1, 1))
        variances, components = np.maximum(values[::-1], 0.0), vectors.T[::-1]
        largest = components[range(len(components)), np.abs(components).argmax(axis=1)]
        return components * np.sign(largest)[:, None], variances, float(variances.sum()), mean

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def to_sklearn(self) -> decomposition.PCA:
        """Return the released components as scikit-learn's own PCA, which cuts no rows."""
        check_is_fitted(self)
        plain = decomposition.PCA(self.n_components_, whiten=self.whiten)
        for name in [
            "components_",
            "explained_variance_",
            "explained_variance_ratio_",
            "singular_values_",
            "mean_",
            "noise_variance_",
            "n_components_",
            "n_samples_",
            "n_features_in_",
            "feature_names_in_",
        ]:
            if hasattr(self, name):
                setattr(plain, name, getattr(self, name))
        return plain

    def get_covariance(self) -> Floats:
        """Return the covariance of the features, by the components and equal variance in other directions."""
        return np.asarray(self.to_sklearn().get_covariance())

    def get_precision(self) -> Floats:
        """Return the inverse of the covariance."""
        return np.asarray(np.linalg.pinv(self.get_covariance(), hermitian=True))

    def score_samples(self, X: Any) -> Floats:
        """Return the log-likelihood of each row, cut to the bounds, under a normal distribution."""
        X = self._rows(X)
        away = self._box.cut(X) - self.mean_
        values, vectors = np.linalg.eigh(self.get_covariance())
        values = np.maximum(values, 1e-12 * max(float(values[-1]), 1e-300))
        squares = ((away @ vectors) ** 2 / values).sum(axis=1)
        return np.asarray(-(squares + np.log(2 * np.pi * values).sum()) / 2)

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-likelihood of rows: computed from X itself."""
        return float(self.score_samples(X).mean())

    def transform(self, X: Any) -> Floats:
        """Return the scores of each row."""
        X = self._rows(X)
        return np.asarray((self._box.cut(X) - self.mean_) @ self.components_.T / self._scale)

    @property
    def _scale(self) -> Floats:
        """What scores are divided by: the standard deviation of each if `whiten`, where it is above 0."""
        deviations = np.sqrt(self.explained_variance_)
        return np.where(deviations > 0, deviations, 1.0) if self.whiten else np.ones(len(deviations))

    def inverse_transform(self, X: Any) -> Floats:
        """Return rows that have these scores and are average otherwise."""
        check_is_fitted(self)
        scores = check_array(X, dtype=np.float64)
        if scores.shape[1] != self.n_components_:
            raise InvalidInput(
                f"X must have {self.n_components_} columns, one a component, not {scores.shape[1]}"
            )
        return np.asarray(scores * self._scale @ self.components_ + self.mean_)
