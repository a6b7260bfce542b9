"""The methods by the names that `Curator.release(..., method=)` takes, and their models.

Their errors are not known: estimates have none (NaN), and no interval is claimed.

- dp-fm: the functional mechanism of Zhang et al. 2012 with their sensitivity;
- dp-fm-tight, dp-fm-pairs: the same with smaller ones, see `functional`;
- objective-perturbation, output-perturbation: those of Chaudhuri et al. 2011, see `erm`;
- output-perturbation-published, for linear regression: least squares within |w| <= 1, so of sensitivity 2,
  with noise of density exp(-epsilon |b| / 2). The published comparison of the paper on correlated noise has
  output perturbation of sensitivity 2 under the name "objPert".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cape.analyses.regression.joint import Joint
from cape.analyses.regression.linear import LinearRegression
from cape.analyses.regression.logistic import LogisticRegression
from cape.analyses.regression.minimise import Objective, minimum
from cape.blocks.design import Design
from cape.blocks.units import Units
from cape.data import Schema
from cape.engine.query import AnalysisResult
from cape.stats.estimates import Estimate
from reproduction.literature.curator import Holdings, methods_of
from reproduction.literature.data import Pooled, Regression, pool
from reproduction.literature.erm import (
    ClippedSquare,
    LogLoss,
    Loss,
    objective_perturbation,
    output_perturbation,
)
from reproduction.literature.functional import LEAST_SQUARES, LOGISTIC, Form, functional_mechanism
from reproduction.literature.models import LinearByMethod, LogisticByMethod
from reproduction.literature.noise import spherical

__all__ = ["linear_methods", "logistic_methods"]

Floats = NDArray[np.float64]
Fit = Callable[[Pooled, Regression, Holdings], tuple[Floats, float]]
Methods = Mapping[str, Callable[[Holdings], AnalysisResult]]

_BALL = 1.0


@methods_of.register
def linear_methods(asked: LinearRegression) -> Methods:
    """Return the methods for a linear regression."""
    fits = _fits(LEAST_SQUARES, ClippedSquare()) | {"output-perturbation-published": _published}
    return {name: partial(_linear, asked, name, fit) for name, fit in fits.items()}


@methods_of.register
def logistic_methods(asked: LogisticRegression) -> Methods:
    """Return the methods for a logistic regression."""
    fits = _fits(LOGISTIC, LogLoss())
    return {name: partial(_logistic, asked, name, fit) for name, fit in fits.items()}


def _fits(form: Form, loss: Loss) -> dict[str, Fit]:
    fits: dict[str, Fit] = {name: partial(_functional, form, name) for name in form.sensitivities}
    fits["objective-perturbation"] = partial(_perturbed, objective_perturbation, loss)
    fits["output-perturbation"] = partial(_perturbed, output_perturbation, loss)
    return fits


def _functional(
    form: Form, name: str, data: Pooled, asked: Regression, held: Holdings
) -> tuple[Floats, float]:
    sensitivity = form.sensitivities[name](data.width)
    return functional_mechanism(data, form, sensitivity, held.epsilon, held.stream)


def _perturbed(
    method: Callable[..., tuple[Floats, float]], loss: Loss, data: Pooled, asked: Regression, held: Holdings
) -> tuple[Floats, float]:
    given = getattr(asked, "ridge", "auto")  # a logistic regression has none
    ridge = None if isinstance(given, str) else float(given)
    return method(data, loss, ridge, held.epsilon, held.stream)


def _published(data: Pooled, asked: Regression, held: Holdings) -> tuple[Floats, float]:
    quadratic = Objective(((1, -2 * data.y @ data.x), (2, data.x.T @ data.x)), (0.0, 0.0), data.width)
    best = minimum(quadratic, _BALL, data.rows, ridge=0.0).weights
    return best + spherical(data.width, held.epsilon / (2 * _BALL), held.stream), 0.0


def _linear(asked: Regression, name: str, fit: Fit, held: Holdings) -> AnalysisResult:
    column = held.schema.number(asked.target)
    data = pool(held, asked)
    fitted, ridge = fit(data, asked, held)
    weights = data.weights(fitted)
    units = _units(asked, held.schema)
    raw = column.half * units.values(weights)
    raw[0] += column.middle
    estimates = _estimates(units, raw, asked.intercept)
    model = LinearByMethod(
        asked.target,
        units.design,
        held.schema,
        estimates,
        float(raw[0]),
        dict(zip(units.names, map(float, raw[1:]), strict=True)),
        tuple(map(float, weights)),
        data.rows,
        ridge,
        math.nan,
        math.nan,
        math.nan,
        math.nan,
        Joint(tuple(each.label for each in estimates), ((-math.inf, math.inf),) * len(estimates)),
        "unknown",
        method=name,
    )
    return AnalysisResult(estimates, model)


def _logistic(asked: LogisticRegression, name: str, fit: Fit, held: Holdings) -> AnalysisResult:
    classes = held.schema.category(asked.target).values
    data = pool(held, asked)
    weights = data.weights(fit(data, asked, held)[0])
    units = _units(asked, held.schema)
    estimates = _estimates(units, units.values(weights), asked.intercept)
    model = LogisticByMethod(
        asked.target,
        classes,
        units.design,
        held.schema,
        estimates,
        tuple(map(float, weights)),
        float(units.values(weights)[0]),
        asked.threshold,
        0,
        data.rows,
        f"By {name}, of the literature, with a trusted held. Errors of the coefficients are not known.",
        Joint(tuple(each.label for each in estimates), ((-math.inf, math.inf),) * len(estimates)),
        method=name,
    )
    return AnalysisResult(estimates, model)


def _units(asked: Regression, schema: Schema) -> Units:
    return Units(Design(asked.features, asked.target, asked.norm), schema)


def _estimates(units: Units, values: Floats, intercept: bool) -> tuple[Estimate, ...]:
    labels = ("intercept", *units.names)
    return tuple(
        Estimate(labels[i], float(values[i]), math.nan, math.nan)
        for i in range(0 if intercept else 1, len(labels))
    )
