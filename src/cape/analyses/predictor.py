"""A public model as plain numbers: released before, or given from outside; what sites predict from."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cape.blocks.design import Design
from cape.blocks.predicted import LINKS, inverse
from cape.blocks.terms import parse
from cape.blocks.units import Units
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Category, Number, Schema
from cape.engine.arguments import joined, names

__all__ = ["Predictor", "model_from_json"]

_MOST = 2000  # coefficients: a site solves for as many weights, unpaid
_LARGEST = 1e100
_MOST_BYTES = 1 << 25  # of a model
_TAKEN = "linear and logistic regressions and GLMs of numbers or two categories"
_LOADED = ("linear-regression", "logistic-regression", "glm")
_EXAMPLE = (
    '{"target": "ill", "link": "logit", "intercept": -4.1, "coefficients": {"age": 0.05, "sex=male": 0.3}}'
)


@dataclass(frozen=True)
class Predictor:
    """What predicts a target: a link, an intercept and a coefficient for each entry of the features.

    >>> Predictor.of({"target": "ill", "link": "logit", "intercept": -4.1, "coefficients": {"age": 0.05}})

    Coefficients are in the columns' units. Categories have one for each value but the first, "sex=male".

    Attributes:
        target: the column that is predicted; of a category of two values, the probability of the second.
        features: the terms of the model.
        link: "identity", "logit", "log", "probit", "cloglog" or "inverse".
        intercept, coefficients: of predictions.
        columns: the schema of these columns, if the model brings it: `predict` needs it.
        caps: where cells of numeric columns are cut, as they were when the model was fitted.
    """

    target: str
    features: tuple[str, ...]
    link: str
    intercept: float
    coefficients: tuple[tuple[str, float], ...]
    columns: Schema | None = field(default=None, compare=False, repr=False)
    caps: tuple[tuple[str, float, float], ...] = ()

    @classmethod
    def of(cls, given: Any) -> Predictor:
        """Return the public numbers of a release, of its model, or of a mapping such as a JSON file holds."""
        if isinstance(given, Predictor):
            return given
        held = getattr(given, "model", None) if hasattr(given, "guarantee") else given
        found = getattr(held, "predictor", None)
        if isinstance(found, Predictor):
            return found
        if isinstance(given, Mapping):
            return _read(given)
        what = _kind_of(given, held)
        if what is not None:
            raise InvalidInput(f"{what} cannot be evaluated; Evaluate takes {_TAKEN}")
        raise InvalidInput(
            "model must be a release or a model with coefficients (a linear or logistic regression, a GLM), "
            f"or a mapping such as {_EXAMPLE}, not {type(given).__name__}"
            + ("; read a file with cape.model_from_json" if isinstance(given, (str, Path)) else "")
        )

    def design(self) -> Design:
        """Return the design whose vectors sites predict from: every entry in units of t."""
        cut = tuple((name, Number(low, high)) for name, low, high in self.caps)
        return Design(self.features, self.target, cube=True, cut=cut)

    def weights(self, schema: Schema) -> tuple[float, ...]:
        """Return the weights of 1 and of each entry of the vector, in units of t; check them."""
        given, names = dict(self.coefficients), self.design().names(schema)
        for name in given:
            column, sign, value = name.partition("=")
            known = schema[column] if sign and name not in names and column in schema else None
            if isinstance(known, Category) and value not in map(str, known.values):
                listed = check.plain(joined(list(map(str, known.values))), 200)
                raise InvalidInput(f"coefficient {check.show(name)}: {column} has the categories {listed}")
        for name in names:
            if name not in given:
                raise InvalidInput(
                    f"the model has no coefficient {name!r}; it must have one for each of: "
                    f"{check.plain(', '.join(names), 200)}"
                )
        if len(given) > len(names):
            extra = next(name for name in given if name not in names)
            raise InvalidInput(f"the model has a coefficient {check.show(extra)}, which no feature gives")
        units = Units(self.design(), schema)
        target = schema[self.target]
        bounded = isinstance(target, Category)
        if bounded and self.link in ("identity", "log", "inverse"):
            raise InvalidInput(
                f"target {self.target!r} has categories; link must be logit, probit or cloglog"
            )
        values = np.array([self.intercept, *(given[name] for name in names)])
        with np.errstate(over="ignore"):
            found = np.linalg.solve(units.matrix, values)
        if not (np.abs(found) <= _LARGEST).all():
            raise InvalidInput("coefficients times the bounds of their columns must not exceed 1e100")
        return tuple(found.tolist())

    def predict(self, data: Any) -> Floats:
        """Return a probability, or a number within the target's bounds, for each row.

        NaN where a feature is missing. `data` is as for the model's own `predict`; cells are cut to their
        bounds.
        """
        schema = self.columns
        if schema is None:
            raise InvalidInput("this model brings no columns; predict with the software that it comes from")
        weights = np.array(self.weights(schema))
        found = inverse(self.link, weights[0] + Units(self.design(), schema).rows(data) @ weights[1:])
        target = schema[self.target]
        low, high = (0.0, 1.0) if isinstance(target, Category) else (target.low, target.high)
        return np.clip(found, low, high)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, without columns: what a study's document and a request hold."""
        return {
            "target": self.target,
            "features": list(self.features),
            "link": self.link,
            "intercept": self.intercept,
            "coefficients": dict(self.coefficients),
            **({"caps": {name: [low, high] for name, low, high in self.caps}} if self.caps else {}),
        }


def _kind_of(release: Any, model: Any) -> str | None:
    """Return what a release, or a model, without coefficients of its own is, in words; None for all else."""
    family = getattr(model, "family", None)
    if isinstance(family, str):
        return f"{'an' if family[0] in 'aeiou' else 'a'} {family} regression"
    kind = getattr(getattr(release, "analysis", None), "kind", None)
    return f"a result of kind {kind!r}" if isinstance(kind, str) else None


def _refuse_other(given: Mapping[Any, Any]) -> None:
    """Raise an error if plain data is a result without a model that predicts, as `to_json` writes it."""
    analysis, family = given.get("analysis"), given.get("family")
    kind = given.get("kind", analysis.get("kind") if isinstance(analysis, Mapping) else None)
    if isinstance(family, str) and family in ("multinomial", "ordinal"):
        what = f"{'a' if family == 'multinomial' else 'an'} {family} regression"
    elif isinstance(kind, str) and kind not in _LOADED:
        what = f"a result of kind {check.show(kind)}"
    else:
        return
    raise InvalidInput(f"this is {what}, which does not predict; models can be read of {_TAKEN}")


def _read(given: Mapping[Any, Any]) -> Predictor:
    _refuse_other(given)
    held = given.get("predictions", given)
    coefficients = held.get("coefficients") if isinstance(held, Mapping) else None
    if not isinstance(coefficients, Mapping) or not 0 < len(coefficients) <= _MOST:
        raise InvalidInput(f"model must have from 1 to {_MOST} coefficients by name, as in {_EXAMPLE}")
    target, link = given.get("target"), given.get("link")
    if not isinstance(target, str):
        raise InvalidInput(f"target of a model must be a column's name, not {check.show(target)}")
    if link not in LINKS:
        raise InvalidInput(f"link of a model must be one of {', '.join(LINKS)}, not {check.show(link)}")
    for name, value in coefficients.items():
        if not isinstance(name, str):
            raise InvalidInput(f"coefficients must have names, not {check.show(name)}")
        check.real(f"coefficient {name}", value)
    columns = given.get("columns")
    features = _features(given.get("features"), coefficients)
    return Predictor(
        target,
        features,
        str(link),
        check.real("intercept", held.get("intercept", 0.0)),
        tuple((name, float(value)) for name, value in coefficients.items()),
        Schema(columns) if isinstance(columns, Mapping) else None,
        _caps(given.get("caps"), features),
    )


def _caps(given: Any, features: tuple[str, ...]) -> tuple[tuple[str, float, float], ...]:
    if given is None:
        return ()
    known = {name for feature in features for name in parse(feature).columns}
    if not isinstance(given, Mapping) or not set(given) <= known:
        raise InvalidInput(f"caps of a model must be ends of its columns by name, not {check.show(given)}")
    found = []
    for name, ends in given.items():
        if not isinstance(ends, (list, tuple)) or len(ends) != 2:
            raise InvalidInput(f"cap of {name!r} must be two numbers that rise, not {check.show(ends)}")
        low, high = (check.real(f"cap of {name}", end) for end in ends)
        Number(low, high)  # refuses ends that do not rise
        found.append((name, low, high))
    return tuple(found)


def _features(given: Any, coefficients: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the features: as listed, or the columns that coefficients are named after."""
    if given is None:
        given = dict.fromkeys(name.partition("=")[0] for name in coefficients)
    if not isinstance(given, (list, tuple, dict)):
        raise InvalidInput(f"features of a model must be a list of columns, not {check.show(given)}")
    return names(list(given))


def model_from_json(source: str | Path | Mapping[str, Any]) -> Predictor:
    """Return the model of a JSON file, as `to_json` writes it or as another program does: a path or its text.

    >>> cape.model_from_json("model.json").predict(table)
    """
    if isinstance(source, Mapping):
        return Predictor.of(source)
    text = str(source)
    if not text.lstrip().startswith("{"):
        try:
            if not Path(source).is_file():
                raise OSError(None, "it is not a file")
            with open(source, "rb") as file:
                data = file.read(_MOST_BYTES + 1)
            if len(data) > _MOST_BYTES:
                raise OSError(None, f"it is larger than {_MOST_BYTES >> 20} MB")
            text = data.decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(
                f"{source} cannot be read: {getattr(error, 'strerror', None) or error}"
            ) from None
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"a model must be JSON such as {_EXAMPLE}: {error}") from None
    if not isinstance(found, dict):
        raise InvalidInput(f"a model must be JSON such as {_EXAMPLE}")
    return Predictor.of(found)


def supposed(target: str, features: Sequence[str], link: str, schema: Schema) -> tuple[float, ...]:
    """Return weights of a model that is not released yet, for its plan: predictors with a SD of about 1."""
    from cape.blocks.typical import vectors

    mean, covariance = vectors(Design(tuple(features), cube=True), schema)
    column = schema[target]
    each = 1 / np.sqrt(np.maximum(np.diag(covariance), 1e-6) * len(mean))
    middle = 0.0
    if isinstance(column, Category) and len(column.values) == 2:
        share = min(max(column.shares[1], 1e-6), 1 - 1e-6)
        middle = math.log(share / (1 - share))
    return (middle - float(each @ mean), *each.tolist())
