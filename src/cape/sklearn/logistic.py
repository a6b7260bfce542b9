"""Logistic regression with scikit-learn's interface, for two classes or more."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn import linear_model
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import validate_data

from cape.analyses.regression import logistic
from cape.core import check
from cape.core.errors import IgnoredParameterWarning, outside
from cape.sklearn.base import PrivateEstimator, Target, by_label, ignore_weights, model_of
from cape.sklearn.bounds import box, warn_of
from cape.sklearn.classes import classes_of, labels_of, target_of

__all__ = ["LogisticRegression"]

Floats = NDArray[np.float64]
MOST_STEPS = 20  # that cape.LogisticRegression makes


@dataclass(eq=False, repr=False, kw_only=True)
class LogisticRegression(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """Logistic regression across sites: `cape.LogisticRegression` over arrays.

    >>> LogisticRegression(epsilon=1.0, data_norm=1.0).fit(X, y).predict_proba(X)

    More than two classes are fitted one against the rest, with equal budget shares. Labels of classes are
    public.

    Args:
        epsilon: what one fit may cost each person. At epsilon = infinity, with a warning, nothing is
            private: `coef_` and `intercept_` are scikit-learn's, with `C` and `tol`.
        delta: beside epsilon, 1e-6 if it is None: noise is Gaussian, which cannot do without.
        bounds_X: (low, high) of the features, numbers or arrays with one for each. What lies outside is cut.
        data_norm: the longest that a row of X may be, in its own units; longer ones are shortened.
        fit_intercept: if False, log-odds at X = 0 are 0.
        max_iter: how many steps, "auto" for six. Above 20 it is "auto" too, with a warning.
        C, tol: no effect unless epsilon is infinite, with a warning.
        penalty, solver, multi_class, warm_start, verbose, n_jobs: no effect, with a warning.
        n_sites, colluding, scheme, neighbours, random_state, accountant: see `LinearRegression`.

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
    C: float = 1.0
    tol: float = 1e-4
    penalty: str | None = "l2"
    solver: str = "lbfgs"
    multi_class: str = "ovr"
    warm_start: bool = False
    verbose: int = 0
    n_jobs: int | None = None

    _ignored: ClassVar[Mapping[str, str]] = {
        "C": "noise sets how far estimates are drawn to 0. Leave it out, or use epsilon=inf",
        "tol": "max_iter steps are made. Give max_iter instead, or use epsilon=inf",
        "penalty": "noise sets how far estimates are drawn to 0. Leave it out",
        "solver": "steps are those of cape.LogisticRegression. Leave it out",
        "multi_class": "several classes are fitted one against the rest. MLPClassifier fits them at once",
        "warm_start": "a fit starts afresh, because earlier rows may be other ones. Leave it out",
        "verbose": "nothing is printed; release_.summary() says what was done. Leave it out",
        "n_jobs": "a fit is one process. Leave it out",
    }
    _exact_only: ClassVar[frozenset[str]] = frozenset({"C", "tol"})

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, sites: Any = None) -> LogisticRegression:
        """Release the coefficients. `sites` has a label for each row: which site holds it."""
        rounds = self._rounds()
        check.real("C", self.C, above=0.0, infinite=True)
        check.real("tol", self.tol, above=0.0)
        X, y = validate_data(self, X, y, dtype=np.float64)
        ignore_weights(X, sample_weight)
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
                rounds=rounds,
                intercept=bool(self.fit_intercept),
                norm=self._box.norm,
            )
            for target in targets
        ]
        releases = self._release(X, self._box, targets, sites, analyses)
        self.release_ = by_label(labels_of(self.classes_), releases)
        if self._exact:
            self._set_exact(self._box.cut(X), codes)
            return self
        models = [model_of(release) for release in releases]
        slopes = [dict(model.predictor.coefficients) for model in models]
        self.coef_ = np.array([[each[name] for name in names] for each in slopes])
        intercepts = [float(model.intercept) if self.fit_intercept else 0.0 for model in models]
        self.intercept_ = np.array(intercepts)
        self.n_iter_ = np.array([getattr(model, "rounds", 1) for model in models], np.int32)
        return self

    def _rounds(self) -> int | Literal["auto"]:
        if isinstance(self.max_iter, str) and self.max_iter == "auto":
            return "auto"
        most = check.integer("max_iter", self.max_iter, least=1)
        if most <= MOST_STEPS:
            return most
        if not self._exact:
            warnings.warn(
                f"max_iter={most} has no effect: each step is paid for, and at most {MOST_STEPS} can be. "
                "Leave it at 'auto', which makes five, or give fewer",
                IgnoredParameterWarning,
                stacklevel=outside(),
            )
        return "auto"

    def _set_exact(self, X: Floats, codes: NDArray[np.int64]) -> None:
        """Set what scikit-learn finds, for the second class or for each against the rest."""
        several = len(self.classes_) > 2
        most = 100 if self.max_iter == "auto" else self.max_iter
        plain = [
            linear_model.LogisticRegression(
                C=self.C, tol=self.tol, fit_intercept=bool(self.fit_intercept), max_iter=most
            ).fit(X, codes == i)
            for i in (range(len(self.classes_)) if several else (1,))
        ]
        self.coef_ = np.concatenate([each.coef_ for each in plain])
        self.intercept_ = np.concatenate([np.ravel(each.intercept_) for each in plain])
        self.n_iter_ = np.concatenate([each.n_iter_ for each in plain])

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
