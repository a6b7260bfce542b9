"""A neural network with scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import validate_data

from cape.core import check
from cape.learning.neural_network import NeuralNetwork
from cape.sklearn.base import PrivateEstimator, model_of
from cape.sklearn.bounds import box, warn_of
from cape.sklearn.classes import classes_of, labels_of, target_of

__all__ = ["MLPClassifier"]

Floats = NDArray[np.float64]


@dataclass(eq=False, repr=False, kw_only=True)
class MLPClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """A classifier by a multi-layer perceptron across sites: `cape.NeuralNetwork` over arrays.

    >>> MLPClassifier((5,), epsilon=4.0, bounds_X=(-3, 3)).fit(X, y).predict(X)

    Every step is a release of clipped gradients, paid for by its part of the budget. Labels of classes are
    public. Features enter between -1 and 1 by their bounds.

    Args:
        hidden_layer_sizes: units of each hidden layer; private training is better with few.
        epsilon: what one fit may cost each person.
        delta: beside epsilon, 1e-6 if it is None: noise is Gaussian, which cannot do without.
        bounds_X: (low, high) of the features, numbers or arrays with one for each. What lies outside is cut.
        activation: "relu", "tanh", "logistic" or "identity".
        solver: "adam", "momentum" or "sgd".
        learning_rate_init: the learning rate.
        max_iter: epochs: how often each row is used, on average.
        sampling: the probability with which a row takes part in a step; 1 is all rows in each.
        clip: the length that a row's gradient is shortened to, or "adaptive".
        expected_rows: how many rows to reckon with under "add-remove", where their number is private.
        n_sites, colluding, scheme, neighbours: see `LinearRegression`.
        random_state: for simulations: also where the first weights come from.

    Attributes:
        classes_: the labels.
        coefs_, intercepts_: weights and biases of each layer, for rows in the units of X.
        n_iter_: epochs that were made.
        release_, guarantee_: the release, and its guarantee.
    """

    hidden_layer_sizes: Sequence[int] = field(default=(5,), kw_only=False)
    activation: Literal["relu", "tanh", "logistic", "identity"] = "relu"
    solver: Literal["adam", "momentum", "sgd"] = "adam"
    learning_rate_init: float = 0.1
    max_iter: int = 100
    sampling: float = 1.0
    clip: float | Literal["adaptive"] = 1.0
    expected_rows: int | None = None

    def fit(self, X: Any, y: Any, *, sites: Any = None) -> MLPClassifier:
        """Learn the weights. `sites` has a label for each row: which site holds it."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        self.classes_, codes = classes_of(y)
        taken: list[str] = []
        self._box = box(X, self.bounds_X, None, taken)
        warn_of(taken)
        target, activation = self._target(), self.activation
        analysis = NeuralNetwork(
            target,
            self._names(),
            hidden=np.atleast_1d(self.hidden_layer_sizes).tolist(),
            activation="sigmoid" if activation == "logistic" else activation,
            epochs=check.integer("max_iter", self.max_iter, least=1),
            rate=self.learning_rate_init,
            optimiser=self.solver,
            sampling=self.sampling,
            clip=self.clip,
            rows=self.expected_rows,
            seed=self._seed(),
        )
        column = target_of(labels_of(self.classes_), codes)
        (release,) = self._release(X, self._box, {target: column}, sites, [analysis])
        model = model_of(release)
        self.release_ = release
        self.n_iter_ = self.max_iter
        layers = model.network.matrices(np.array(model.parameters))
        self.coefs_, self.intercepts_ = [m[:-1].copy() for m in layers], [m[-1].copy() for m in layers]
        self.intercepts_[0] -= (self._box.middle / self._box.half) @ self.coefs_[0]
        self.coefs_[0] /= self._box.half[:, None]
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class."""
        X = self._rows(X)
        return np.asarray(self.release_.model.predict_proba(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most likely class of each row."""
        places = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[places])
