"""Clusters with scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.metrics import pairwise_distances
from sklearn.utils.validation import validate_data

from cape.core import check
from cape.core.errors import InvalidInput
from cape.learning import kmeans
from cape.sklearn.base import PrivateEstimator, ignore_weights, model_of
from cape.sklearn.bounds import box, warn_of

__all__ = ["KMeans"]

Floats = NDArray[np.float64]


@dataclass(eq=False, repr=False, kw_only=True)
class KMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, PrivateEstimator):  # type: ignore[misc]
    """Clusters across sites: `cape.KMeans` over arrays, with distances in the units of X.

    >>> KMeans(3, epsilon=1.0, bounds_X=(0, 10)).fit(X).cluster_centers_

    Args:
        n_clusters: how many.
        epsilon: what one fit may cost each person; nothing is private at epsilon = infinity, with a warning.
        delta: by default none, with Laplace noise. Above 0, noise is Gaussian, which grows less with the
            number of features: give delta=1e-6 for four or more, the sooner the fewer rows there are.
        bounds_X: (low, high) of the features, numbers or arrays with one for each. What lies outside is cut.
        data_norm: the longest that a row of X may be, in its own units; longer ones are shortened.
        max_iter: Lloyd's steps after the first summary; each takes its part of the budget.
        init, n_init, tol, algorithm, verbose: no effect, with a warning. `copy_x`: X is never overwritten.
        n_sites, colluding, scheme, neighbours, random_state, accountant: see `LinearRegression`.

    Attributes:
        cluster_centers_: (n_clusters, features), those of the largest cluster first.
        labels_: the cluster of each row of X: computed for its owner, from X itself, and not private.
        n_iter_: Lloyd's steps that were made.
        release_, guarantee_: the release, and its guarantee.
    """

    n_clusters: int = field(default=8, kw_only=False)
    data_norm: float | None = None
    max_iter: int = 2
    init: Any = "k-means++"
    n_init: Any = "auto"
    tol: float = 1e-4
    algorithm: str = "lloyd"
    verbose: int = 0
    copy_x: bool = True

    _pure: ClassVar[bool] = True
    _ignored: ClassVar[Mapping[str, str]] = {
        "init": "a private summary of the rows says where centres start. Leave it out",
        "n_init": "starts are tried on a private summary of the rows, which costs nothing. Leave it out",
        "tol": "max_iter steps are made. Give max_iter instead",
        "algorithm": "steps are Lloyd's. Leave it out",
        "verbose": "nothing is printed; release_.summary() says what was done. Leave it out",
    }

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, sites: Any = None) -> KMeans:
        """Release the centres. `sites` has a label for each row: which site holds it."""
        X = validate_data(self, X, dtype=np.float64)
        ignore_weights(X, sample_weight)
        many = check.integer("n_clusters", self.n_clusters, least=1)
        if many > len(X) and self.neighbours == "replace-one":
            raise InvalidInput(
                f"n_clusters={many} is more than n_samples={len(X)}: give one cluster a row at most"
            )
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
