"""Estimators with scikit-learn's interface (an extra): arrays in, split over sites, one private release per
fit, and a budget that several fits share.

Not here: methods of its own. A fit is a release of `analyses` or `learning`.

Inside this folder `import sklearn` is scikit-learn itself: imports are absolute here.
"""

from cape.core.errors import MissingExtra

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError:
    raise MissingExtra("sklearn", "cape.sklearn") from None

from cape.sklearn.accountant import BudgetAccountant
from cape.sklearn.cox import CoxRegression
from cape.sklearn.kmeans import KMeans
from cape.sklearn.linear import LinearRegression
from cape.sklearn.logistic import LogisticRegression
from cape.sklearn.naive_bayes import GaussianNB
from cape.sklearn.network import MLPClassifier
from cape.sklearn.pca import PCA
from cape.sklearn.scaler import StandardScaler

__all__ = [
    "PCA",
    "BudgetAccountant",
    "CoxRegression",
    "GaussianNB",
    "KMeans",
    "LinearRegression",
    "LogisticRegression",
    "MLPClassifier",
    "StandardScaler",
]
