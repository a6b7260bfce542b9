"""What can be asked: each analysis knows its sensitivity, the sums it needs, and how to turn noisy sums
into estimates; the registry of all, and what families share (`by`, influence, sensitivity of moments).

Not here: sums over rows (`blocks`), how noise is made and paid for (`engine`), and statistics that no
single analysis owns (`stats`).

`Estimate.sampling` is the error from having seen a sample of a population: for means, variances,
covariances, correlations, quantiles, distribution functions and percentages. Counts and sums describe the
people in the tables themselves: they have no sampling error, and their intervals cover privacy noise only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cape.core.lazy import exports

if TYPE_CHECKING:
    from cape.analyses.compare.association import Association
    from cape.analyses.compare.correlation_test import CorrelationTest
    from cape.analyses.compare.difference import Difference
    from cape.analyses.compare.rank_test import RankTest
    from cape.analyses.describe.count import Count
    from cape.analyses.describe.covariance import Correlation, Covariance
    from cape.analyses.describe.custom import CustomSum
    from cape.analyses.describe.histogram import ContingencyTable, Histogram
    from cape.analyses.describe.mean import Mean, StandardDeviation, Sum, Variance
    from cape.analyses.describe.pca import PCA
    from cape.analyses.describe.proportion import Proportion
    from cape.analyses.describe.quantiles import ECDF, Quantiles
    from cape.analyses.describe.table_one import TableOne
    from cape.analyses.evaluate.evaluate import Evaluate
    from cape.analyses.predictor import Predictor, model_from_json
    from cape.analyses.registry import KINDS, build, build_after
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
    from cape.stats.independence import Independence
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "cape.analyses.compare.association": ["Association"],
            "cape.analyses.compare.correlation_test": ["CorrelationTest"],
            "cape.analyses.describe.count": ["Count"],
            "cape.analyses.describe.covariance": ["Correlation", "Covariance"],
            "cape.analyses.describe.custom": ["CustomSum"],
            "cape.analyses.compare.difference": ["Difference"],
            "cape.analyses.evaluate.evaluate": ["Evaluate"],
            "cape.analyses.sites.heterogeneity": ["Heterogeneity"],
            "cape.analyses.describe.histogram": ["ContingencyTable", "Histogram"],
            "cape.stats.independence": ["Independence"],
            "cape.analyses.describe.mean": ["Mean", "StandardDeviation", "Sum", "Variance"],
            "cape.analyses.sites.mixed": ["MixedModel"],
            "cape.analyses.describe.pca": ["PCA"],
            "cape.analyses.predictor": ["Predictor", "model_from_json"],
            "cape.analyses.describe.proportion": ["Proportion"],
            "cape.analyses.describe.quantiles": ["ECDF", "Quantiles"],
            "cape.analyses.compare.rank_test": ["RankTest"],
            "cape.analyses.registry": ["KINDS", "build", "build_after"],
            "cape.analyses.regression.glm": ["GLM"],
            "cape.analyses.regression.linear": ["LinearRegression"],
            "cape.analyses.regression.logistic": ["LogisticRegression"],
            "cape.analyses.regression.polynomial": ["PolynomialLoss"],
            "cape.analyses.survival.cox": ["Cox"],
            "cape.analyses.survival.kaplan_meier": ["KaplanMeier"],
            "cape.analyses.survival.logrank": ["LogRank"],
            "cape.analyses.survival.parametric": ["SurvivalRegression"],
            "cape.analyses.synthetic.synthetic": ["SyntheticData"],
            "cape.analyses.describe.table_one": ["TableOne"],
            "cape.analyses.tables.tables": ["Tables"],
        },
    )

__all__ = [
    "ECDF",
    "GLM",
    "KINDS",
    "PCA",
    "Association",
    "ContingencyTable",
    "Correlation",
    "CorrelationTest",
    "Count",
    "Covariance",
    "Cox",
    "CustomSum",
    "Difference",
    "Evaluate",
    "Heterogeneity",
    "Histogram",
    "Independence",
    "KaplanMeier",
    "LinearRegression",
    "LogRank",
    "LogisticRegression",
    "Mean",
    "MixedModel",
    "PolynomialLoss",
    "Predictor",
    "Proportion",
    "Quantiles",
    "RankTest",
    "StandardDeviation",
    "Sum",
    "SurvivalRegression",
    "SyntheticData",
    "TableOne",
    "Tables",
    "Variance",
    "build",
    "build_after",
    "model_from_json",
]
