"""Logistic regression with scikit-learn's interface, for two classes or more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import validate_data

from cape.analyses.regression import logistic
from cape.sklearn.base import PrivateEstimator, Target, model_of
from cape.sklearn.bounds import box, warn_of
from cape.sklearn.classes import classes_of, labels_of, target_of

__all__ = ["LogisticRegression"]

Floats = NDArray[np.float64]


@dataclass(eq=False, repr=False, kw_only=True)
class LogisticRegression(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """Logistic regression across sites: `cape.LogisticRegression` over arrays.

    >>> LogisticRegression(epsilon=1.0, data_norm=1.0).fit(X, y).predict_proba(X)

    More than two classes are fitted one against the rest, with equal budget shares. Labels of classes are
    public.

    Args:
        epsilon, delta: what one fit may cost each person.
        bounds_X: (low, high) of the features, numbers or arrays with one for each. What lies outside is cut.
        data_norm: the longest that a row of X may be, in its own units; longer ones are shortened.
        fit_intercept: if False, log-odds at X = 0 are 0.
        max_iter: how many steps, "auto" for six.
        n_sites, colluding, scheme, neighbours, random_state: see `LinearRegression`.

    Attributes:
        classes_: the labels.
        coef_, intercept_: log-odds of the second class in the units of X, (1, features) and (1,); one row for
            each class if there are more than two.
        n_iter_: steps that were made.
        release_, guarantee_: the release, and its guarantee. For more than two classes `release_`
            is a dict of releases by class.
    """

    data_norm: float | None = None
    fit_intercept: bool = True
    max_iter: int | Literal["auto"] = "auto"

    def fit(self, X: Any, y: Any, sites: Any = None) -> LogisticRegression:
        """Release the coefficients. `sites` has a label for each row: which site holds it."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        self.classes_, codes = classes_of(y)
        taken: list[str] = []
        self._box = box(X, self.bounds_X, self.data_norm, taken, about_zero=not self.fit_intercept)
        warn_of(taken)
        targets = self._targets(codes)
        names = self._names()
        analyses = [
            logistic.LogisticRegression(
                target,
                names,
                rounds=self.max_iter,
                intercept=bool(self.fit_intercept),
                norm=self._box.norm,
            )
            for target in targets
        ]
        releases = self._release(X, self._box, targets, sites, analyses)
        models = [model_of(release) for release in releases]
        labels = labels_of(self.classes_)
        self.release_ = releases[0] if len(releases) == 1 else dict(zip(labels, releases, strict=True))
        self.coef_ = np.array([[model.coefficients[name] for name in names] for model in models])
        intercepts = [float(model.intercept) if self.fit_intercept else 0.0 for model in models]
        self.intercept_ = np.array(intercepts)
        self.n_iter_ = np.array([getattr(model, "rounds", 1) for model in models], np.int32)
        return self

    def _targets(self, codes: NDArray[np.int64]) -> dict[str, Target]:
        labels = labels_of(self.classes_)
        if len(labels) == 2:
            return {self._target(): target_of(labels, codes)}
        return {
            f"{self._target()}={label}": target_of([f"not {label}", label], (codes == i).astype(np.int64))
            for i, label in enumerate(labels)
        }

    def decision_function(self, X: Any) -> Floats:
        """Return log-odds: of the second class, or of each against the rest."""
        X = self._rows(X)
        odds = self._box.cut(X) @ self.coef_.T + self.intercept_
        return np.asarray(odds[:, 0] if len(self.classes_) == 2 else odds)

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class; of more than two, each against the rest, made to add up."""
        odds = self.decision_function(X)
        if odds.ndim == 1:
            return np.stack([expit(-odds), expit(odds)], axis=1)
        each = np.maximum(expit(odds), 1e-300)
        return np.asarray(each / each.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most likely class of each row."""
        odds = self.decision_function(X)
        places = (odds > 0).astype(np.int64) if odds.ndim == 1 else odds.argmax(axis=1)
        return np.asarray(self.classes_[places])
