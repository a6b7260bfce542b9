"""Analyses from what a study file says of them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from cape.core import check
from cape.core.check import hint
from cape.core.errors import InvalidInput
from cape.engine.query import Analysis

__all__ = ["SELECTION", "build_of", "keys_of_class"]


SELECTION = (
    "features are not selected by the data here, because each step would cost budget, and intervals and P "
    "values after a selection do not hold; name the features before the data are seen"
)
_REFUSED_KEYS = dict.fromkeys(("stepwise", "step", "selection", "select"), SELECTION)
_OTHER_NAMES = {
    "median": 'kind = "quantiles" with probs = [0.5]',
    "iqr": 'kind = "quantiles" with probs = [0.25, 0.75]',
    "percentiles": 'kind = "quantiles" with probs = [...]',
    "t-test": 'kind = "difference" with by = "..."',
    "ttest": 'kind = "difference" with by = "..."',
    "welch": 'kind = "difference" with by = "..."',
    "anova": 'kind = "difference" with by = "..."',
    "chi-square": 'kind = "association"',
    "chi-squared": 'kind = "association"',
    "chi2": 'kind = "association"',
    "odds-ratio": 'kind = "association"',
    "mann-whitney": 'kind = "rank-test"',
    "kruskal-wallis": 'kind = "rank-test"',
    "wilcoxon": 'kind = "rank-test"',
    "crosstab": 'kind = "contingency-table"',
    "poisson-regression": 'kind = "glm" with family = "poisson"',
    "survival": 'kind = "kaplan-meier"',
    "cox-regression": 'kind = "cox"',
}


def _meant(kind: Any, kinds: Mapping[str, type[Analysis]]) -> str:
    """Return the end of an error's sentence: how what was probably meant is written."""
    known = _OTHER_NAMES.get(str(kind).lower().replace("_", "-").replace(" ", "-"))
    return f"; write {known}" if known else hint(kind, kinds)


def keys_of_class(made: type[Analysis]) -> list[str]:
    """Return the keys that a study file may give for an analysis of this class, besides `kind`."""
    parameters = inspect.signature(made).parameters.values()
    own = [p.name for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD]
    return [*own, *getattr(made, "options", ())]


def build_of(kinds: Mapping[str, type[Analysis]], description: Mapping[str, Any]) -> Analysis:
    """Return the analysis, of one of these kinds, that a study file describes.

    Its budget share belongs to the study and is ignored here.
    """
    given = dict(description)
    if "kind" not in given:
        raise InvalidInput(f"an analysis must have a kind: one of {', '.join(kinds)}")
    kind = given["kind"]
    if not isinstance(kind, str) or kind not in kinds:
        raise InvalidInput(f"no analysis of kind {check.show(kind)}{_meant(kind, kinds)}")
    made = kinds[kind]
    keys = ["kind", *keys_of_class(made), "share"]
    for key in given:
        if key not in keys and key in _REFUSED_KEYS and "features" in keys:
            raise InvalidInput(f"{key} is refused: {_REFUSED_KEYS[key]}")
        if key not in keys:
            raise InvalidInput(f"an analysis of kind {kind!r} has no key {check.show(key)}{hint(key, keys)}")
    del given["kind"]
    given.pop("share", None)
    parameters = inspect.signature(made).parameters.values()
    for parameter in parameters:
        required = parameter.default is inspect.Parameter.empty and "VAR" not in parameter.kind.name
        if required and parameter.name not in given:
            raise InvalidInput(f"an analysis of kind {kind!r} must have the key {parameter.name!r}")
    if not any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return made(**given)
    columns = given.pop("columns", ())
    if not isinstance(columns, (str, list, tuple)):
        shown = check.show(columns)
        raise InvalidInput(f'columns must be a list of names, as in ["age", "chol"], not {shown}')
    return made(*([columns] if isinstance(columns, str) else columns), **given)
