"""Estimators with scikit-learn's interface: arrays in, split over sites, one private release per fit.

Inside this folder `import sklearn` is scikit-learn itself: imports are absolute here.
"""

from cape.sklearn.kmeans import KMeans
from cape.sklearn.linear import LinearRegression
from cape.sklearn.logistic import LogisticRegression
from cape.sklearn.network import MLPClassifier
from cape.sklearn.pca import PCA

__all__ = ["PCA", "KMeans", "LinearRegression", "LogisticRegression", "MLPClassifier"]
