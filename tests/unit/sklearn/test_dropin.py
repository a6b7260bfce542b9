"""What users of other libraries give and expect: an infinite epsilon, parameters without effect, targets."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import sklearn.decomposition
import sklearn.linear_model
import sklearn.naive_bayes
import sklearn.preprocessing
from sklearn.base import clone

import cape
from cape.sklearn import PCA, GaussianNB, KMeans, LinearRegression, LogisticRegression, StandardScaler
from cape.sklearn.dimensions import by_share, likeliest

LITTLE_NOISE = {"epsilon": 1e5, "scheme": "pooled"}
BOUNDS = {"bounds_X": (-1, 1)}
BOTH = {**BOUNDS, "bounds_y": (-1, 1)}


@pytest.mark.filterwarnings("ignore:scheme 'none' adds no noise")
def test_infinite_epsilon_is_said_to_protect_nobody(rows):
    for estimator in (LinearRegression(**BOTH, epsilon=np.inf), PCA(**BOUNDS, epsilon=float("inf"))):
        with pytest.warns(cape.PrivacyLeakWarning, match="protect nobody. Give a finite epsilon") as seen:
            estimator.fit(rows.X, rows.y)
        assert seen[0].filename == __file__
        assert estimator.guarantee_.mu == np.inf
        assert estimator.release_.scheme == "none"


@pytest.mark.filterwarnings("ignore::cape.PrivacyLeakWarning", "ignore::cape.TooNoisyWarning")
def test_at_infinite_epsilon_results_are_those_of_scikit_learn(rows, blobs):
    open_ = {"epsilon": np.inf}
    plain = sklearn.linear_model.LinearRegression().fit(rows.X, rows.y)
    ours = LinearRegression(**open_, bounds_X=(-1, 1), bounds_y=(-1, 1)).fit(rows.X, rows.y)
    assert np.allclose(ours.coef_, plain.coef_, rtol=1e-9)
    assert np.allclose(ours.predict(rows.X), plain.predict(rows.X), rtol=1e-9)
    for y, C in ((blobs.y == 2, 0.1), (blobs.y, 1.0)):
        ours = LogisticRegression(**open_, **BOUNDS, C=C).fit(blobs.X, y)
        one = sklearn.linear_model.LogisticRegression(C=C).fit(blobs.X, y == max(y))
        assert np.allclose(ours.coef_[-1], one.coef_[0], rtol=1e-6)
    for centered in (False, True):
        X = rows.X - rows.X.mean(axis=0) * centered
        ours = PCA(2, **open_, bounds_X=(-2, 2), centered=centered).fit(X)
        plain = sklearn.decomposition.PCA(2).fit(X)
        for name in (
            "explained_variance_",
            "explained_variance_ratio_",
            "singular_values_",
            "noise_variance_",
        ):
            assert np.allclose(getattr(ours, name), getattr(plain, name), rtol=1e-6)
        assert np.allclose(np.abs(ours.components_), np.abs(plain.components_))
    ours = StandardScaler(**open_, **BOUNDS).fit(rows.X)
    plain = sklearn.preprocessing.StandardScaler().fit(rows.X)
    assert np.allclose(ours.mean_, plain.mean_, atol=1e-5)
    assert np.allclose(ours.var_, plain.var_, rtol=1e-5)


@pytest.mark.parametrize(
    ("estimator", "given"),
    [
        (LinearRegression, {"n_jobs": 2}),
        (LogisticRegression, {"C": 2.0}),
        (LogisticRegression, {"tol": 1e-3}),
        (LogisticRegression, {"solver": "newton-cg"}),
        (LogisticRegression, {"multi_class": "multinomial"}),
        (LogisticRegression, {"penalty": None}),
        (LogisticRegression, {"warm_start": True}),
        (LogisticRegression, {"verbose": 1}),
        (KMeans, {"verbose": 1}),
        (KMeans, {"init": np.zeros((8, 2))}),
        (KMeans, {"n_init": 10}),
        (PCA, {"svd_solver": "full"}),
    ],
)
def test_parameters_without_effect_are_accepted_with_a_warning(estimator, given):
    (name,) = given
    with pytest.warns(cape.IgnoredParameterWarning, match=f"^{name} has no effect on") as seen:
        made = estimator(**given)
    assert [each.filename for each in seen] == [__file__]
    with pytest.warns(cape.IgnoredParameterWarning):
        clone(made)
    with pytest.warns(cape.IgnoredParameterWarning, match=f"^{name} has no effect on"):
        estimator().set_params(**given)


def test_parameters_with_an_effect_or_of_the_default_value_give_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LinearRegression(copy_X=False)
        LogisticRegression(C=1.0, solver="lbfgs", warm_start=False)
        LogisticRegression(C=0.1, tol=1e-6, epsilon=np.inf)
        KMeans(copy_x=False, verbose=0)
        PCA(2, svd_solver="auto", whiten=True).set_params(epsilon=3)


@pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")
def test_weights_of_rows_have_no_effect_and_a_warning_says_so(rows, blobs):
    estimators = (
        (LinearRegression(**LITTLE_NOISE, **BOTH), rows.X, rows.y),
        (LogisticRegression(**LITTLE_NOISE, **BOUNDS, max_iter=2), rows.X, rows.y > 0),
        (KMeans(3, **LITTLE_NOISE, **BOUNDS), blobs.X, None),
        (GaussianNB(**LITTLE_NOISE, **BOUNDS), blobs.X, blobs.y),
        (StandardScaler(**LITTLE_NOISE, **BOUNDS), rows.X, None),
    )
    for estimator, X, y in estimators:
        with pytest.warns(cape.IgnoredParameterWarning, match="sample_weight has no effect") as seen:
            estimator.fit(X, y, np.ones(len(X)))
        assert seen[0].filename == __file__
    with (
        pytest.warns(cape.IgnoredParameterWarning),
        pytest.raises(cape.InvalidInput, match="one number for each row"),
    ):
        estimators[0][0].fit(rows.X, rows.y, sample_weight=np.ones(3))


def test_bad_values_of_parameters_are_refused_though_they_have_no_effect(rows):
    y = rows.y > 0
    for given in ({"C": -1}, {"tol": "1"}, {"tol": -1}, {"max_iter": -1}, {"max_iter": "100"}):
        (name,) = given
        with pytest.raises(cape.InvalidInput, match=f"^{name} must be"):
            LogisticRegression(**BOUNDS, **{"epsilon": np.inf, **given}).fit(rows.X, y)


@pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")
def test_more_steps_than_can_be_paid_for_are_the_default(rows):
    with pytest.warns(cape.IgnoredParameterWarning, match="max_iter=1000 has no effect") as seen:
        found = LogisticRegression(**LITTLE_NOISE, **BOUNDS, max_iter=1000).fit(rows.X, rows.y > 0.1)
    assert seen[0].filename == __file__
    assert found.n_iter_.tolist() == [5]
    assert LogisticRegression(**LITTLE_NOISE, **BOUNDS, max_iter=20).fit(rows.X, rows.y > 0.1).n_iter_ == 20


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_several_targets_divide_the_budget(rows, fit_intercept):
    y = np.stack([rows.y, 2 - 3 * rows.y], axis=1)
    known = {"bounds_X": (-1, 1), "bounds_y": ([-1, -1], [1, 5]), "fit_intercept": fit_intercept}
    found = LinearRegression(**LITTLE_NOISE, **known).fit(rows.X, y)
    plain = sklearn.linear_model.LinearRegression(fit_intercept=fit_intercept).fit(rows.X, y)
    assert np.allclose(found.coef_, plain.coef_, atol=0.01)
    assert np.allclose(found.intercept_, plain.intercept_, atol=0.01)
    assert np.shape(found.intercept_) == np.shape(plain.intercept_)
    assert np.allclose(found.predict(rows.X), np.clip(plain.predict(rows.X), [-1, -1], [1, 5]), atol=0.02)
    assert found.guarantee_.mu <= cape.Budget(1e5, 1e-6).mu
    assert list(found.release_) == ["0", "1"]
    assert all(release.share <= 0.5 for release in found.release_.values())
    assert found.score(rows.X, y) > (0.9 if fit_intercept else -10)
    assert LinearRegression(**LITTLE_NOISE, **BOTH).fit(rows.X, y[:, :1]).coef_.shape == (1, 3)


def test_more_clusters_than_rows_are_refused_if_the_number_of_rows_is_public(blobs):
    with pytest.raises(cape.InvalidInput, match="n_clusters=30 is more than n_samples=20"):
        KMeans(30, **BOUNDS).fit(blobs.X[:20])


@pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")
def test_components_by_share_and_by_evidence():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(3000, 6)) * [0.4, 0.3, 0.1, 0.1, 0.1, 0.1]
    for many in (0.3, 0.6, 0.9, 0.999, "mle"):
        found = PCA(many, **LITTLE_NOISE, bounds_X=(-2, 2)).fit(X)
        plain = sklearn.decomposition.PCA(many, svd_solver="full").fit(X)
        assert found.n_components_ == plain.n_components_ == len(found.components_)
        assert found.transform(X).shape == (3000, found.n_components_)


def test_evidence_and_shares_of_spectra():
    assert likeliest(np.array([9.0, 4.0, 1.0, 1.0, 1.0]), 500) == 2
    assert likeliest(np.array([9.0, 0.0, 0.0]), 500) == 1
    assert likeliest(np.array([1.0]), 500) == 1
    assert by_share(np.array([6.0, 3.0, 1.0]), 0.6) == 2  # more than the share, as in scikit-learn
    assert by_share(np.array([6.0, 3.0, 1.0]), 0.59) == 1
    assert by_share(np.zeros(3), 0.5) == 1


@pytest.mark.parametrize("whiten", [True, False])
def test_likelihoods_covariances_and_whitened_scores_as_without_privacy(rows, whiten):
    found = PCA(2, **LITTLE_NOISE, bounds_X=(-2, 2), whiten=whiten).fit(rows.X)
    plain = sklearn.decomposition.PCA(2, whiten=whiten).fit(rows.X)
    assert found.score(rows.X) == pytest.approx(plain.score(rows.X), abs=0.01)
    assert np.allclose(found.score_samples(rows.X), plain.score_samples(rows.X), atol=0.1)
    assert np.allclose(found.get_covariance(), plain.get_covariance(), atol=1e-3)
    assert np.allclose(found.get_precision() @ found.get_covariance(), np.eye(3), atol=1e-6)
    assert np.allclose(found.singular_values_, plain.singular_values_, rtol=0.01)
    assert np.allclose(np.abs(found.transform(rows.X)), np.abs(plain.transform(rows.X)), atol=0.1)
    exported = found.to_sklearn()
    assert np.allclose(exported.transform(rows.X), found.transform(rows.X))
    assert np.allclose(exported.inverse_transform(rows.X[:, :2]), found.inverse_transform(rows.X[:, :2]))


def test_likelihoods_are_finite_where_noise_hides_components(rows):
    with pytest.warns(cape.TooNoisyWarning):
        found = PCA(**BOUNDS, epsilon=0.05).fit(rows.X[:100])
    assert np.isfinite(found.score(rows.X))


def test_standard_scores_by_private_moments(rows):
    found = StandardScaler(**LITTLE_NOISE, **BOUNDS).fit(rows.X)
    plain = sklearn.preprocessing.StandardScaler().fit(rows.X)
    assert np.allclose(found.transform(rows.X), plain.transform(rows.X), atol=0.02)
    assert np.allclose(found.inverse_transform(found.transform(rows.X)), rows.X)
    assert found.n_samples_seen_ == len(rows.X)
    assert list(found.release_) == ["mean", "variance"]
    assert found.guarantee_.mu <= cape.Budget(1e5, 1e-6).mu
    assert set(found.interval()["mean"]) == {"x0", "x1", "x2"}
    private = StandardScaler(epsilon=100, **BOUNDS, neighbours="add-remove").fit(rows.X)
    assert private.n_samples_seen_ is None


def test_a_scaler_releases_only_what_it_needs(rows):
    accountant = cape.sklearn.BudgetAccountant()
    nothing = StandardScaler(with_mean=False, with_std=False, accountant=accountant).fit(rows.X)
    assert np.array_equal(nothing.transform(rows.X), rows.X)
    assert len(accountant) == 0
    assert nothing.interval() == {}
    only = StandardScaler(**LITTLE_NOISE, **BOUNDS, with_std=False).fit(rows.X)
    assert only.var_ is None
    assert list(only.release_) == ["mean"]
    assert only.release_["mean"].share == 1
    with pytest.warns(cape.PrivacyLeakWarning, match=r"Give bounds_X=\(low, high\), from"):
        StandardScaler(**LITTLE_NOISE).fit(rows.X)


@pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")
def test_standard_scores_stay_finite_where_noise_hides_variances(rows):
    found = StandardScaler(epsilon=0.1, bounds_X=(-1000, 1000)).fit(rows.X)
    assert (found.scale_ >= 1).all()  # no smaller than what noise lets be seen


def test_classes_by_private_moments(blobs):
    y = np.array(["a", "b", "c"])[blobs.y]
    found = GaussianNB(**LITTLE_NOISE, **BOUNDS).fit(blobs.X, y)
    plain = sklearn.naive_bayes.GaussianNB().fit(blobs.X, y)
    assert found.classes_.tolist() == ["a", "b", "c"]
    assert np.allclose(found.theta_, plain.theta_, atol=0.01)
    assert np.allclose(found.var_, plain.var_, rtol=0.1)
    assert np.allclose(found.class_count_, plain.class_count_, atol=2)
    assert (found.predict(blobs.X) == plain.predict(blobs.X)).mean() > 0.99
    assert np.allclose(found.predict_proba(blobs.X), plain.predict_proba(blobs.X), atol=0.1)
    assert found.guarantee_.mu == pytest.approx(cape.Budget(1e5, 1e-6).mu)
    private = GaussianNB(epsilon=1, **BOUNDS).fit(blobs.X, y)
    assert private.guarantee_.epsilon == pytest.approx(1, rel=1e-4)
    assert private.score(blobs.X, y) > 0.9


@pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")
def test_probabilities_of_classes_that_are_known_beforehand(blobs):
    known = GaussianNB(**BOUNDS, epsilon=0.01, priors=(0, 0.5, 0.5)).fit(blobs.X, blobs.y)
    assert known.class_prior_.tolist() == [0, 0.5, 0.5]
    found = known.predict_proba(blobs.X)
    assert np.isfinite(found).all()
    assert not found[:, 0].any()
    for priors in ((1,), (0.5, 0.7, 0.1), (-0.5, 1, 0.5)):
        with pytest.raises(cape.InvalidInput, match="priors must be 3 probabilities"):
            GaussianNB(**BOUNDS, priors=priors).fit(blobs.X, blobs.y)
