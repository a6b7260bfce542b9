"""Released models as fitted objects of scikit-learn, with what sites do to rows before as the first step.

A pipeline has two steps. `columns` takes a table with the columns of the study (or an array, where all are
numbers), cuts cells to their bounds and makes categories 0 or 1, as sites do. The second is scikit-learn's
own estimator with the released numbers: for regressions in the columns' units. Predictions agree with those
of the model; those of a linear regression are not cut to the target's bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import cluster, decomposition, linear_model
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from cape.analyses.describe.pca_model import PCAModel
from cape.analyses.predictor import Predictor
from cape.blocks.design import Design
from cape.blocks.units import Units
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Category, Schema
from cape.learning.kmeans_model import KMeansModel

__all__ = ["Columns", "exported"]


@dataclass(frozen=True)
class Columns:
    """Turns tables into vectors as sites make them: in the columns' units, or, if `scaled`, of t."""

    design: Design
    schema: Schema
    scaled: bool = False

    def __call__(self, data: Any) -> Floats:
        """Return the vector of each row."""
        units = Units(self.design, self.schema)
        x = units.rows(data)
        if self.scaled:
            return x * self.design.length(self.schema)
        # (1, x) w = (1, z) M w, with M w the intercept and the coefficients, for every w
        whole = np.column_stack([np.ones(len(x)), x])
        return np.asarray(np.linalg.solve(units.matrix.T, whole.T).T[:, 1:], np.float64)

    def names(self, *_: Any) -> list[str]:
        """Return what each entry is called."""
        return list(self.design.names(self.schema))


def exported(shown: Any) -> Any:
    """Return a release, or its model, as a fitted pipeline of scikit-learn."""
    model = getattr(shown, "model", None) if hasattr(shown, "guarantee") else shown
    if isinstance(model, PCAModel):
        return _pipeline(Columns(model.design, model.schema, scaled=True), _components(model))
    if isinstance(model, KMeansModel):
        return _pipeline(Columns(model.design, model.schema, scaled=True), _clusters(model))
    if isinstance(getattr(model, "predictor", None), Predictor) and model is not None:
        regression = _regression(model.predictor, getattr(model, "classes", None))
        return _pipeline(Columns(model.design, model.schema), regression)
    asked = getattr(shown, "analysis", None)
    what = type(model).__name__ if asked is None else f"a result of kind {asked.kind!r}"
    raise InvalidInput(
        "only linear and logistic regressions, PCA and k-means can become objects of scikit-learn, not "
        f"{what}; to_json() has the numbers of every result"
    )


def _pipeline(columns: Columns, estimator: Any) -> Pipeline:
    first = FunctionTransformer(columns, feature_names_out=columns.names, check_inverse=False)
    estimator.n_features_in_ = len(columns.names())
    return Pipeline([("columns", first), ("model", estimator)])


def _regression(model: Predictor, classes: Any) -> Any:
    coefficients = np.array([value for _, value in model.coefficients])
    if model.link == "logit":
        target = None if model.columns is None else model.columns[model.target]
        values = classes or (target.values if isinstance(target, Category) else (0, 1))
        found = linear_model.LogisticRegression()
        found.classes_ = np.array(values)
        found.coef_, found.intercept_ = coefficients[None, :], np.array([model.intercept])
        found.n_iter_ = np.array([0])
        return found
    if model.link == "identity":
        found = linear_model.LinearRegression()
        found.coef_, found.intercept_ = coefficients, model.intercept
        return found
    raise InvalidInput(
        f"scikit-learn has no regression with link {model.link!r}; to_json() has the coefficients, and "
        "cape.model_from_json(...).predict predicts from them"
    )


def _components(model: PCAModel) -> Any:
    found = decomposition.PCA(len(model.components))
    found.components_, found.mean_ = np.array(model.components), np.array(model.mean)
    found.explained_variance_ = np.array(model.explained_variance)
    found.explained_variance_ratio_ = np.array(model.explained_variance_ratio)
    found.singular_values_ = np.sqrt(found.explained_variance_ * max(model.count - 1, 1))
    found.n_components_, found.n_samples_ = len(model.components), round(model.count)
    total = float(found.explained_variance_[0] / max(float(found.explained_variance_ratio_[0]), 1e-300))
    rest, left = (
        total - float(found.explained_variance_.sum()),
        model.components.shape[1] - len(model.components),
    )
    found.noise_variance_ = max(rest, 0.0) / left if left else 0.0
    return found


def _clusters(model: KMeansModel) -> Any:
    centres = np.ascontiguousarray(model.vectors * model.design.length(model.schema), np.float64)
    found = cluster.KMeans(len(centres), n_init=1)
    found.cluster_centers_, found.n_iter_ = centres, 0
    found._n_threads = 1
    return found
