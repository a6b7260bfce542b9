"""What models say of themselves: notes beside a table, and plain data for JSON."""

from __future__ import annotations

import math
from typing import Any

from cape.analyses.pca import PCAModel
from cape.analyses.regression.linear_model import LinearModel
from cape.analyses.regression.logistic_model import LogisticModel
from cape.analyses.regression.polynomial import PolynomialModel
from cape.engine.result import count
from cape.learning.clusters import KMeansModel
from cape.learning.neural_network import NetworkModel

__all__ = ["notes", "plain"]


def notes(model: Any) -> list[str]:
    """Return what a reader should know besides the estimates."""
    if isinstance(model, LogisticModel):
        return [model.calibration] if model.calibration else []
    if isinstance(model, LinearModel):
        return _linear(model)
    if isinstance(model, PCAModel):
        return [
            "Columns count from -1 to 1 between their bounds. Variances are without what noise adds to them."
        ]
    if isinstance(model, KMeansModel):
        return ["Intervals are about the rows in the tables: they count privacy noise, and no sampling."]
    if isinstance(model, NetworkModel):
        size = f"{count(model.network.size, 'parameter')} after {count(len(model.history), 'step')}"
        return [f"What was learned is a network: {size}. All of it is in results.json, under model."]
    return []


def _linear(model: LinearModel) -> list[str]:
    if math.isinf(model.ridge):
        return ["Noise hides what the features say: predictions are a constant."]
    return [
        f"{'; '.join(model.told)} (root mean square, estimated from the release). Predictions are those of a "
        "ridge regression."
    ]


def plain(model: Any) -> dict[str, Any] | None:
    """Return a model as plain data: as it says itself, or what is needed to use it elsewhere."""
    told = getattr(model, "to_dict", None)
    if callable(told):
        return dict(told())
    if isinstance(model, LogisticModel):
        return {
            "target": model.target,
            "classes": list(model.classes),
            "intercept": model.intercept,
            "coefficients": model.coefficients,
            "odds_ratios": model.odds_ratios,
            "newton_steps": model.rounds,
            "rows": model.count,
            "threshold": model.threshold,
        }
    if isinstance(model, LinearModel):
        return {
            "target": model.target,
            "intercept": model.intercept,
            "coefficients": model.coefficients,
            "ridge": model.ridge,
            "r_squared": model.r_squared,
            "residual": model.residual,
            "error": model.error,
            "rows": model.rows,
        }
    if isinstance(model, PolynomialModel):
        return {
            "target": model.target,
            "intercept": model.intercept,
            "coefficients": model.coefficients,
            "ridge": model.ridge,
            "rows": model.rows,
        }
    if isinstance(model, PCAModel):
        return {
            "names": list(model.names),
            "components": model.components.tolist(),
            "mean": model.mean.tolist(),
            "explained_variance": model.explained_variance.tolist(),
            "explained_variance_ratio": model.explained_variance_ratio.tolist(),
            "clear": list(model.clear),
            "rows": model.count,
        }
    if isinstance(model, KMeansModel):
        return {
            "names": list(model.names),
            "centres": model.centres.tolist(),
            "percentages": model.percentages.tolist(),
            "clear": model.clear.tolist(),
        }
    return None
