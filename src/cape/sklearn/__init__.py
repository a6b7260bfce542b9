"""Estimators with scikit-learn's interface: arrays in, split over sites, one private release per fit.

It needs the extra `sklearn`. Inside this folder `import sklearn` is scikit-learn itself: imports are absolute
here.
"""

from cape.errors import MissingExtra

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError:
    raise MissingExtra("sklearn", "cape.sklearn") from None

from cape.sklearn.kmeans import KMeans
from cape.sklearn.linear import LinearRegression
from cape.sklearn.logistic import LogisticRegression
from cape.sklearn.network import MLPClassifier
from cape.sklearn.pca import PCA

__all__ = ["PCA", "KMeans", "LinearRegression", "LogisticRegression", "MLPClassifier"]
