"""Gaussian naive Bayes with scikit-learn's interface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import validate_data

from cape.analyses.describe.table_one import TableOne
from cape.core import check
from cape.core.errors import InvalidInput
from cape.sklearn.base import PrivateEstimator, ignore_weights
from cape.sklearn.bounds import box, warn_of
from cape.sklearn.classes import classes_of, labels_of, target_of

__all__ = ["GaussianNB"]

Floats = NDArray[np.float64]
BINS = 4  # the fewest of a table one


@dataclass(eq=False, repr=False, kw_only=True)
class GaussianNB(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """Classes by normal features that are independent within a class: `cape.TableOne` by class, over arrays.

    >>> GaussianNB(epsilon=1.0, bounds_X=(0, 8)).fit(X, y).predict(X)

    One release holds the size of each class, and the mean and the standard deviation of each feature in it. A
    row is in one class, so that more classes cost no more. Labels of classes are public.

    Args:
        epsilon: what one fit may cost each person; nothing is private at epsilon = infinity, with a
            warning.
        delta: beside epsilon, 1e-6 if it is None: noise is Gaussian, which cannot do without.
        bounds_X: (low, high) of the features, numbers or arrays with one for each. What lies outside is cut,
            in predictions too.
        priors: the probability of each class, by default its share of the rows as released.
        var_smoothing: what is added to variances, as a part of the largest that bounds allow.
        n_sites, colluding, scheme, neighbours, random_state, accountant: see `LinearRegression`.

    Attributes:
        classes_: the labels.
        class_count_, class_prior_: the rows of each class, as released, and its probability.
        theta_, var_: the mean and the variance of each feature in each class, (classes, features). A variance
            is at least its noise, so that no class is taken for narrower than it can be seen to be.
        epsilon_: what was added to variances.
        release_, guarantee_: the release, and its guarantee.
    """

    priors: Any = None
    var_smoothing: float = 1e-9

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, sites: Any = None) -> GaussianNB:
        """Release the moments of each class. `sites` has a label for each row: which site holds it."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        ignore_weights(X, sample_weight)
        self.classes_, codes = classes_of(y)
        priors = self._priors()
        smoothing = check.real("var_smoothing", self.var_smoothing, least=0.0)
        taken: list[str] = []
        self._box = box(X, self.bounds_X, None, taken)
        warn_of(taken, norm=False)
        target, labels, names = self._target(), labels_of(self.classes_), self._names()
        analysis = TableOne(*names, by=target, bins=BINS)
        column = target_of(labels, codes)
        (self.release_,) = self._release(X, self._box, {target: column}, sites, [analysis])
        found = {estimate.label: estimate for estimate in self.release_.estimates}
        ends = [f" | {target}={label}" for label in labels]
        self.class_count_ = np.array([found[f"n{end}"].value for end in ends])
        self.theta_ = np.array([[found[f"{name} mean{end}"].value for name in names] for end in ends])
        spread = [[found[f"{name} SD{end}"] for name in names] for end in ends]
        deviations = np.array([[max(each.value, each.privacy) for each in row] for row in spread])
        freedom = np.maximum(self.class_count_ - 1, 1) / np.maximum(self.class_count_, 1)
        self.epsilon_ = smoothing * float((self._box.half**2).max())
        least = self.epsilon_ + np.finfo(np.float64).eps * self._box.half**2
        self.var_ = deviations**2 * freedom[:, None] + least
        shares = np.maximum(self.class_count_, 1.0)
        self.class_prior_ = shares / shares.sum() if priors is None else priors
        return self

    def _priors(self) -> Floats | None:
        if self.priors is None:
            return None
        priors = np.asarray(self.priors, np.float64)
        if priors.shape != self.classes_.shape or (priors < 0).any() or not np.isclose(priors.sum(), 1):
            raise InvalidInput(
                f"priors must be {len(self.classes_)} probabilities that add up to 1, one for each class, "
                f"not {self.priors}"
            )
        return priors

    def predict_joint_log_proba(self, X: Any) -> Floats:
        """Return the logarithm of the density of each row and class together."""
        X = self._rows(X)
        cut = self._box.cut(X)
        with np.errstate(divide="ignore"):
            prior = np.log(self.class_prior_)
        away = (cut[:, None, :] - self.theta_) ** 2 / self.var_ + np.log(2 * np.pi * self.var_)
        return np.asarray(prior - away.sum(axis=2) / 2)

    def predict_log_proba(self, X: Any) -> Floats:
        """Return the logarithm of the probability of each class."""
        joint = self.predict_joint_log_proba(X)
        return np.asarray(joint - logsumexp(joint, axis=1, keepdims=True))

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class."""
        return np.asarray(np.exp(self.predict_log_proba(X)))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most likely class of each row."""
        places = self.predict_joint_log_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[places])
