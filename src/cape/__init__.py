"""CAPE: private statistics across sites, with the accuracy of a trusted curator.

`import cape` loads nothing heavy: a name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cape.core.errors import (
    BudgetExceeded,
    CapeError,
    DataError,
    IgnoredParameterWarning,
    InvalidInput,
    LedgerWarning,
    MissingExtra,
    OverflowRisk,
    PrivacyLeakWarning,
    TooFewSites,
    TooNoisyWarning,
)
from cape.core.lazy import exports
from cape.core.moved import install, with_former_names

if TYPE_CHECKING:
    from cape import learning, noise, privacy, secagg, synthetic
    from cape.analyses import (
        ECDF,
        GLM,
        PCA,
        Association,
        ContingencyTable,
        Correlation,
        CorrelationTest,
        Count,
        Covariance,
        Cox,
        Difference,
        Evaluate,
        Heterogeneity,
        Histogram,
        KaplanMeier,
        LinearRegression,
        LogisticRegression,
        LogRank,
        Mean,
        MixedModel,
        PolynomialLoss,
        Proportion,
        Quantiles,
        RankTest,
        StandardDeviation,
        Sum,
        SurvivalRegression,
        SyntheticData,
        TableOne,
        Tables,
        Variance,
        model_from_json,
    )
    from cape.data import Category, Csv, Database, Excel, File, Number, Omop, Person, Schema, Site
    from cape.engine.consortium import Consortium
    from cape.learning import GradientDescent, KMeans, NeuralNetwork
    from cape.privacy import Budget, Guarantee
    from cape.study import Study

install()  # former names of modules
__version__ = "0.1.0"

_HOMES = {
    "cape.analyses": """
        Association
        ContingencyTable
        Correlation
        CorrelationTest
        Count
        Covariance
        Cox
        Difference
        ECDF
        Evaluate
        GLM
        Heterogeneity
        Histogram
        KaplanMeier
        LinearRegression
        LogRank
        LogisticRegression
        Mean
        MixedModel
        PCA
        PolynomialLoss
        Proportion
        Quantiles
        RankTest
        StandardDeviation
        Sum
        SyntheticData
        SurvivalRegression
        TableOne
        Tables
        Variance
        model_from_json
    """,
    "cape.data": "Category Csv Database Excel File Number Omop Person Schema Site",
    "cape.engine.consortium": "Consortium",
    "cape.learning": "learning GradientDescent KMeans NeuralNetwork",
    "cape.noise": "noise",
    "cape.privacy": "privacy Budget Guarantee",
    "cape.secagg": "secagg",
    "cape.sklearn": "sklearn",  # not in __all__, like torch: they need an extra
    "cape.study": "Study",
    "cape.synthetic": "synthetic",
    "cape.torch": "torch",
}

__all__ = [
    "ECDF",
    "GLM",
    "PCA",
    "Association",
    "Budget",
    "BudgetExceeded",
    "CapeError",
    "Category",
    "Consortium",
    "ContingencyTable",
    "Correlation",
    "CorrelationTest",
    "Count",
    "Covariance",
    "Cox",
    "Csv",
    "DataError",
    "Database",
    "Difference",
    "Evaluate",
    "Excel",
    "File",
    "GradientDescent",
    "Guarantee",
    "Heterogeneity",
    "Histogram",
    "IgnoredParameterWarning",
    "InvalidInput",
    "KMeans",
    "KaplanMeier",
    "LedgerWarning",
    "LinearRegression",
    "LogRank",
    "LogisticRegression",
    "Mean",
    "MissingExtra",
    "MixedModel",
    "NeuralNetwork",
    "Number",
    "Omop",
    "OverflowRisk",
    "Person",
    "PolynomialLoss",
    "PrivacyLeakWarning",
    "Proportion",
    "Quantiles",
    "RankTest",
    "Schema",
    "Site",
    "StandardDeviation",
    "Study",
    "Sum",
    "SurvivalRegression",
    "SyntheticData",
    "TableOne",
    "Tables",
    "TooFewSites",
    "TooNoisyWarning",
    "Variance",
    "learning",
    "model_from_json",
    "noise",
    "privacy",
    "secagg",
    "synthetic",
]

_exported, _ = exports(__name__, {home: names.split() for home, names in _HOMES.items()})
__getattr__ = with_former_names(__name__, _exported)


def __dir__() -> list[str]:
    return sorted(__all__)
