"""Analyses by the names that study files use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cape.analyses.compare.association import Association
from cape.analyses.compare.correlation_test import CorrelationTest
from cape.analyses.compare.difference import Difference
from cape.analyses.compare.rank_test import RankTest
from cape.analyses.describe.count import Count
from cape.analyses.describe.covariance import Correlation, Covariance
from cape.analyses.describe.histogram import ContingencyTable, Histogram
from cape.analyses.describe.mean import Mean, StandardDeviation, Sum, Variance
from cape.analyses.describe.pca import PCA
from cape.analyses.describe.proportion import Proportion
from cape.analyses.describe.quantiles import ECDF, Quantiles
from cape.analyses.describe.table_one import TableOne
from cape.analyses.evaluate.evaluate import Evaluate
from cape.analyses.parse_analysis import build_of, keys_of_class
from cape.analyses.regression.glm import GLM
from cape.analyses.regression.linear import LinearRegression
from cape.analyses.regression.logistic import LogisticRegression
from cape.analyses.regression.polynomial import PolynomialLoss
from cape.analyses.sites.heterogeneity import Heterogeneity
from cape.analyses.sites.mixed import MixedModel
from cape.analyses.survival.cox import Cox
from cape.analyses.survival.kaplan_meier import KaplanMeier
from cape.analyses.survival.logrank import LogRank
from cape.analyses.survival.parametric import SurvivalRegression
from cape.analyses.synthetic.synthetic import SyntheticData
from cape.analyses.tables.tables import Tables
from cape.core.errors import InvalidInput
from cape.engine.query import Analysis
from cape.learning.kmeans import KMeans
from cape.learning.neural_network import NeuralNetwork

__all__ = ["KINDS", "build", "build_after", "keys_of"]

KINDS: dict[str, type[Analysis]] = {
    analysis.kind: analysis
    for analysis in (
        Count,
        Sum,
        Mean,
        Variance,
        StandardDeviation,
        Covariance,
        Correlation,
        Histogram,
        ContingencyTable,
        Tables,
        Proportion,
        Association,
        Difference,
        RankTest,
        CorrelationTest,
        ECDF,
        Quantiles,
        TableOne,
        KaplanMeier,
        LogRank,
        Cox,
        SurvivalRegression,
        LinearRegression,
        LogisticRegression,
        GLM,
        PolynomialLoss,
        Heterogeneity,
        MixedModel,
        Evaluate,
        SyntheticData,
        PCA,
        KMeans,
        NeuralNetwork,
    )
}


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
