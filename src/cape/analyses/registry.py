"""Analyses by the names that study files use."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from cape.analyses.parse_analysis import build_of, keys_of_class
from cape.core.errors import InvalidInput
from cape.engine.query import Analysis

__all__ = ["KINDS", "build", "build_after", "keys_of"]


class _Kinds(MutableMapping[str, type[Analysis]]):
    """Classes by kind, in their order; each is imported when it is first asked for."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._held: dict[str, str | type[Analysis]] = dict(places)

    def __getitem__(self, kind: str) -> type[Analysis]:
        held = self._held[kind]
        if isinstance(held, str):
            module, _, name = held.rpartition(".")
            made: type[Analysis] = getattr(importlib.import_module(module), name)
            self._held[kind] = held = made
        return held

    def __setitem__(self, kind: str, made: type[Analysis]) -> None:
        self._held[kind] = made

    def __delitem__(self, kind: str) -> None:
        del self._held[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, kind: object) -> bool:
        return kind in self._held


_PLACES = {
    "count": "cape.analyses.Count",
    "sum": "cape.analyses.Sum",
    "mean": "cape.analyses.Mean",
    "variance": "cape.analyses.Variance",
    "standard-deviation": "cape.analyses.StandardDeviation",
    "covariance": "cape.analyses.Covariance",
    "correlation": "cape.analyses.Correlation",
    "histogram": "cape.analyses.Histogram",
    "contingency-table": "cape.analyses.ContingencyTable",
    "tables": "cape.analyses.Tables",
    "proportion": "cape.analyses.Proportion",
    "association": "cape.analyses.Association",
    "difference": "cape.analyses.Difference",
    "rank-test": "cape.analyses.RankTest",
    "correlation-test": "cape.analyses.CorrelationTest",
    "ecdf": "cape.analyses.ECDF",
    "quantiles": "cape.analyses.Quantiles",
    "table-one": "cape.analyses.TableOne",
    "kaplan-meier": "cape.analyses.KaplanMeier",
    "log-rank": "cape.analyses.LogRank",
    "cox": "cape.analyses.Cox",
    "survival-regression": "cape.analyses.SurvivalRegression",
    "linear-regression": "cape.analyses.LinearRegression",
    "logistic-regression": "cape.analyses.LogisticRegression",
    "glm": "cape.analyses.GLM",
    "polynomial-loss": "cape.analyses.PolynomialLoss",
    "heterogeneity": "cape.analyses.Heterogeneity",
    "mixed-model": "cape.analyses.MixedModel",
    "evaluate": "cape.analyses.Evaluate",
    "synthetic-data": "cape.analyses.SyntheticData",
    "pca": "cape.analyses.PCA",
    "k-means": "cape.learning.KMeans",
    "neural-network": "cape.learning.NeuralNetwork",
}
KINDS: MutableMapping[str, type[Analysis]] = _Kinds(_PLACES)


def keys_of(kind: str) -> list[str]:
    """Return the keys that a study file may give for an analysis of this kind, besides `kind`."""
    return keys_of_class(KINDS[kind])


def build_after(descriptions: Sequence[Any], number: int, model: Any = None) -> Analysis:
    """Return the analysis of a study with this number, from 1; `model` is that of the one it follows."""
    analysis = build(descriptions[number - 1])
    earlier = analysis.follows
    if earlier is None:
        return analysis
    if not earlier < number:
        raise InvalidInput(f"analysis {number} must come after analysis {earlier}, whose model it needs")
    described = descriptions[earlier - 1]
    if not isinstance(described, Mapping):
        raise InvalidInput(f"analysis {earlier} must be a table with a kind")
    return analysis.told(build(described), model)


def build(description: Mapping[str, Any]) -> Analysis:
    """Return the analysis that a study file describes, as in {"kind": "mean", "columns": ["age"]}.

    Its budget share belongs to the study and is ignored here.
    """
    return build_of(KINDS, description)
