"""Rows, sites and parameters that cannot be right, or only just."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import cape
from cape.sklearn import (
    PCA,
    GaussianNB,
    KMeans,
    LinearRegression,
    LogisticRegression,
    MLPClassifier,
    StandardScaler,
)

BOTH = {"bounds_X": (-1, 1), "bounds_y": (-1, 1)}
LITTLE_NOISE = {"epsilon": 1e5, "scheme": "pooled"}


ALL = [LinearRegression, LogisticRegression, PCA, KMeans, MLPClassifier, GaussianNB, StandardScaler]


@pytest.mark.parametrize("estimator", ALL)
def test_a_missing_cell_is_refused(estimator):
    X = np.zeros((20, 2))
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        estimator().fit(X, np.arange(20) % 2)


def test_a_missing_target_is_refused(rows):
    y = rows.y.copy()
    y[0] = np.nan
    with pytest.raises(ValueError, match="Input y contains NaN"):
        LinearRegression(**BOTH).fit(rows.X, y)


@pytest.mark.parametrize("estimator", [LogisticRegression, MLPClassifier, GaussianNB])
def test_one_class_is_refused(estimator):
    with pytest.raises(cape.InvalidInput, match="needs at least 2 classes"):
        estimator(bounds_X=(-1, 1)).fit(np.zeros((20, 2)), np.ones(20))


@pytest.mark.parametrize("epsilon", [0, -1, np.nan, -np.inf, "1", None])
def test_epsilon_must_be_positive(rows, epsilon):
    for estimator in (LinearRegression(**BOTH), PCA(bounds_X=(-1, 1))):
        with pytest.raises(cape.InvalidInput, match="epsilon must be a number above 0"):
            estimator.set_params(epsilon=epsilon).fit(rows.X, rows.y)


@pytest.mark.parametrize("delta", [1, -0.1])
def test_delta_must_be_a_probability(rows, delta):
    with pytest.raises(cape.InvalidInput, match="delta must lie strictly between 0 and 1"):
        LinearRegression(**BOTH, delta=delta).fit(rows.X, rows.y)


@pytest.mark.parametrize("many", [1, 0, -2, 2.0, None])
def test_there_must_be_two_sites(rows, many):
    with pytest.raises(cape.InvalidInput, match="n_sites must be an integer at least 2"):
        LinearRegression(**BOTH, n_sites=many).fit(rows.X, rows.y)


@pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")
def test_fewer_rows_than_sites_make_fewer_sites_if_their_number_is_public(rows):
    with pytest.warns(cape.IgnoredParameterWarning, match="each of 4 sites gets one. Give n_sites=4") as seen:
        found = LinearRegression(**BOTH, **LITTLE_NOISE).fit(rows.X[:4], rows.y[:4])
    assert seen[0].filename == __file__
    assert found.guarantee_.parties.sites == 4
    with pytest.raises(cape.InvalidInput, match="n_samples=1 is less than two"):
        LinearRegression(**BOTH).fit(rows.X[:1], rows.y[:1])
    with pytest.raises(cape.InvalidInput, match="n_samples=4 is less than n_sites=5"):
        LinearRegression(**BOTH, neighbours="add-remove").fit(rows.X[:4], rows.y[:4])


def test_few_sites_are_warned_of(rows):
    with pytest.warns(cape.PrivacyLeakWarning, match="with 3 sites"):
        LinearRegression(**BOTH, **LITTLE_NOISE, n_sites=3).fit(rows.X, rows.y)


def test_sites_by_label(rows):
    labels = np.array(["north", "south", "east", "west"])[np.arange(len(rows.X)) % 4]
    found = LinearRegression(**BOTH, **LITTLE_NOISE).fit(rows.X, rows.y, sites=labels)
    assert found.release_.participants == ("east", "north", "south", "west")
    assert found.guarantee_.parties.sites == 4
    assert found.score(rows.X, rows.y) > 0.9


def test_a_label_that_no_row_has_is_no_site(rows):
    pandas = pytest.importorskip("pandas")
    labels = pandas.Categorical(np.arange(len(rows.X)) % 4, categories=range(6))
    found = LinearRegression(**BOTH, **LITTLE_NOISE).fit(rows.X, rows.y, sites=labels)
    assert found.guarantee_.parties.sites == 4


def test_labels_that_do_not_fit_are_refused(rows):
    estimator = LinearRegression(**BOTH)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        estimator.fit(rows.X, rows.y, sites=np.arange(7))
    with pytest.raises(cape.InvalidInput, match="at least two sites, not 1"):
        estimator.fit(rows.X, rows.y, sites=np.zeros(len(rows.X)))
    with pytest.raises(cape.InvalidInput, match="labels of one kind"):
        estimator.fit(rows.X, rows.y, sites=np.array(["a", 1] * 1000, dtype=object))
    with pytest.raises(ValueError, match="1d array"):
        estimator.fit(rows.X, rows.y, sites=np.zeros((len(rows.X), 2)))


def test_too_many_colluding_sites(rows):
    with pytest.raises(cape.InvalidInput, match="colluding"):
        LinearRegression(**BOTH, colluding=5).fit(rows.X, rows.y)


@pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")
def test_columns_that_repeat_each_other(rows):
    X = np.column_stack([rows.X, rows.X[:, 0], rows.X.sum(axis=1) / 3])
    found = LinearRegression(**BOTH, **LITTLE_NOISE).fit(X, rows.y)
    assert found.score(X, rows.y) > 0.9
    assert np.abs(found.coef_).max() < 10
    y = rows.y > 0.1
    assert LogisticRegression(bounds_X=(-1, 1), **LITTLE_NOISE).fit(X, y).score(X, y) > 0.85
    assert PCA(bounds_X=(-1, 1), **LITTLE_NOISE).fit(X).explained_variance_[-1] < 1e-3


@pytest.mark.slow(1)
@pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")
def test_fewer_rows_than_features():
    rng = np.random.default_rng(5)
    X, y = rng.uniform(-1, 1, (8, 20)), np.linspace(-1, 1, 8)
    for epsilon in (1.0, 1e5):
        given = {"epsilon": epsilon}
        found = LinearRegression(**BOTH, **given).fit(X, y)
        assert np.isfinite(found.coef_).all()
        assert np.abs(found.predict(X)).max() <= 1
        assert np.isfinite(LogisticRegression(bounds_X=(-1, 1), **given).fit(X, y > 0).coef_).all()
        assert np.isfinite(PCA(bounds_X=(-1, 1), **given).fit(X).components_).all()
        assert KMeans(3, bounds_X=(-1, 1), **given).fit(X).cluster_centers_.shape == (3, 20)


@pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")
def test_a_seed_repeats_noise_and_says_so(rows):
    estimator = LinearRegression(**BOTH, epsilon=10, random_state=3)
    with pytest.warns(cape.PrivacyLeakWarning, match="random_state .* protects nobody") as seen:
        first = estimator.fit(rows.X, rows.y).coef_
    assert [warning.filename for warning in seen] == [__file__]
    with pytest.warns(cape.PrivacyLeakWarning):
        assert np.array_equal(estimator.fit(rows.X, rows.y).coef_, first)
    with pytest.warns(cape.PrivacyLeakWarning):
        assert not np.array_equal(estimator.set_params(random_state=4).fit(rows.X, rows.y).coef_, first)


def test_without_a_seed_noise_is_fresh_whatever_numpy_was_told(rows, fresh_noise):
    found = []
    for _ in range(2):
        np.random.seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", cape.TooNoisyWarning)  # now and then, by its noise
            found.append(LinearRegression(**BOTH, epsilon=10).fit(rows.X, rows.y).coef_)
    assert not np.array_equal(*found)
