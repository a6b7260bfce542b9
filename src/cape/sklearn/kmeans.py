"""Clusters with scikit-learn's interface."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.metrics import pairwise_distances
from sklearn.utils.validation import validate_data

from cape.learning import kmeans
from cape.sklearn.base import PrivateEstimator, model_of
from cape.sklearn.bounds import box, warn_of

__all__ = ["KMeans"]

Floats = NDArray[np.float64]


@dataclass(eq=False, repr=False, kw_only=True)
class KMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, PrivateEstimator):  # type: ignore[misc]
    """Clusters across sites: `cape.KMeans` over arrays, with distances in the units of X.

    >>> KMeans(3, epsilon=1.0, bounds_X=(0, 10)).fit(X).cluster_centers_

    Args:
        n_clusters: how many.
        epsilon, delta: what one fit may cost each person.
        bounds_X: (low, high) of the features, numbers or arrays with one for each. What lies outside is cut.
        data_norm: the longest that a row of X may be, in its own units; longer ones are shortened.
        max_iter: Lloyd's steps after the first summary; each takes its part of the budget.
        n_sites, colluding, scheme, neighbours, random_state: see `LinearRegression`.

    Attributes:
        cluster_centers_: (n_clusters, features), those of the largest cluster first.
        labels_: the cluster of each row of X: computed for its owner, from X itself, and not private.
        n_iter_: Lloyd's steps that were made.
        release_, guarantee_: the release, and its guarantee.
    """

    n_clusters: int = field(default=8, kw_only=False)
    data_norm: float | None = None
    max_iter: int = 2

    def fit(self, X: Any, y: Any = None, sites: Any = None) -> KMeans:
        """Release the centres. `sites` has a label for each row: which site holds it."""
        X = validate_data(self, X, dtype=np.float64)
        taken: list[str] = []
        self._box = box(X, self.bounds_X, self.data_norm, taken, alike=True)
        warn_of(taken)
        analysis = kmeans.KMeans(
            self._names(), self.n_clusters, steps=self.max_iter, norm=self._box.norm, seed=self._seed()
        )
        (release,) = self._release(X, self._box, {}, sites, [analysis])
        centres = np.asarray(model_of(release).centres, np.float64)
        self.release_ = release
        self.cluster_centers_ = np.clip(centres, self._box.low, self._box.high)
        self.n_iter_ = len(analysis.stages()) - (len(analysis.stages()) > 1)
        self.labels_ = self._nearest(X)
        return self

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def _distances(self, X: Floats) -> Floats:
        return np.asarray(pairwise_distances(self._box.cut(X), self.cluster_centers_))

    def _nearest(self, X: Floats) -> NDArray[np.int64]:
        return np.asarray(self._distances(X).argmin(axis=1), np.int64)

    def transform(self, X: Any) -> Floats:
        """Return the distance of each row to each centre."""
        return self._distances(self._rows(X))

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the nearest centre of each row."""
        return self._nearest(self._rows(X))

    def score(self, X: Any, y: Any = None) -> float:
        """Return the sum of squared distances to the nearest centres, negative: computed from X itself."""
        return -float((self.transform(X).min(axis=1) ** 2).sum())
