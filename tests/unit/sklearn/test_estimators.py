"""What is learned, beside scikit-learn on the same rows."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import sklearn.cluster
import sklearn.decomposition
import sklearn.linear_model
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

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

LITTLE_NOISE = {"epsilon": 1e5, "scheme": "pooled"}
BOUNDS = {"bounds_X": (-1, 1)}
BOTH = {**BOUNDS, "bounds_y": (-1, 1)}


@pytest.mark.parametrize("scale", [{}, {"data_norm": 2.0}, {"data_norm": 2.0, "bounds_X": None}])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_least_squares_as_without_privacy(rows, scale, fit_intercept):
    found = LinearRegression(**{**LITTLE_NOISE, **BOTH, **scale}, fit_intercept=fit_intercept).fit(
        rows.X, rows.y
    )
    known = sklearn.linear_model.LinearRegression(fit_intercept=fit_intercept).fit(rows.X, rows.y)
    assert np.allclose(found.coef_, known.coef_, atol=2e-3)
    assert found.intercept_ == pytest.approx(known.intercept_, abs=2e-3)
    assert np.allclose(found.predict(rows.X), np.clip(known.predict(rows.X), -1, 1), atol=5e-3)
    assert np.allclose(found.predict(rows.X), found.release_.model.predict(rows.X), atol=1e-5)
    intervals = found.interval(0.999)
    for i, weight in enumerate(known.coef_):
        low, high = intervals[f"x{i}"]
        assert low < weight < high
    assert ("intercept" in intervals) == fit_intercept


def test_one_feature_without_an_intercept_has_an_interval_by_name(rows):
    found = LinearRegression(**LITTLE_NOISE, **BOTH, fit_intercept=False).fit(rows.X[:, :1], rows.y)
    assert set(found.interval()) == {"x0"}


@pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")
def test_the_whole_budget_is_promised_and_no_more(rows):
    found = LinearRegression(**BOTH, epsilon=1, delta=1e-6, n_sites=5, colluding=2, data_norm=1.5)
    found.fit(rows.X, rows.y)
    assert found.guarantee_.mu == pytest.approx(cape.Budget(1, 1e-6).mu)
    assert found.guarantee_.epsilon == pytest.approx(1, rel=1e-4)
    assert found.guarantee_.parties.colluding == 2
    assert found.release_.share == 1
    assert found.release_.participants == tuple(f"site {i}" for i in range(1, 6))
    assert "differential privacy" in found.release_.summary()


@pytest.mark.slow(2)
def test_clusters_have_no_delta_unless_one_is_given(blobs):
    found = KMeans(3, epsilon=2.0, bounds_X=(-1, 1)).fit(blobs.X)
    assert (found.guarantee_.pure, found.guarantee_.delta) == (2, 0)
    assert "no delta" in found.release_.summary()
    given = clone(found).set_params(delta=1e-6).fit(blobs.X)
    assert given.guarantee_.pure is None
    assert given.guarantee_.mu == pytest.approx(cape.Budget(2, 1e-6).mu)
    paper = clone(found).set_params(scheme="cape-gaussian").fit(blobs.X)  # which has Gaussian noise only
    assert paper.guarantee_.delta == 1e-6
    with pytest.raises(cape.InvalidInput, match="needs a delta such as 1e-6"):
        clone(paper).set_params(delta=0).fit(blobs.X)


@pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")
def test_other_models_have_a_delta_of_a_millionth_and_refuse_none(rows):
    for model in (LinearRegression(**BOTH), PCA(**BOUNDS), LogisticRegression(**BOUNDS), GaussianNB(**BOUNDS),
                  MLPClassifier(**BOUNDS), StandardScaler(**BOUNDS)):  # fmt: skip
        y = rows.y if isinstance(model, LinearRegression) else (rows.y > 0).astype(int)
        assert model.delta is None
        with pytest.raises(cape.InvalidInput, match="needs a delta above 0: give delta=1e-6, or leave delta"):
            clone(model).set_params(delta=0).fit(rows.X, y)
        if not isinstance(model, MLPClassifier):
            assert model.fit(rows.X, y).guarantee_.delta == 1e-6
    means = StandardScaler(**BOUNDS, with_std=False, delta=0).fit(rows.X)
    assert means.guarantee_.pure == 1


def log_odds(rows, seed=3):
    odds = 5 * (rows.X @ rows.weights + 0.1)
    return np.random.default_rng(seed).uniform(size=len(odds)) < 1 / (1 + np.exp(-odds))


@pytest.mark.parametrize("scale", [{}, {"data_norm": 2.0}])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_log_odds_as_without_privacy(rows, scale, fit_intercept):
    y = np.where(log_odds(rows), "yes", "no")
    found = LogisticRegression(**LITTLE_NOISE, **BOUNDS, **scale, fit_intercept=fit_intercept, max_iter=4)
    found.fit(rows.X, y)
    known = sklearn.linear_model.LogisticRegression(C=np.inf, fit_intercept=fit_intercept).fit(rows.X, y)
    assert found.classes_.tolist() == ["no", "yes"]
    assert np.allclose(found.coef_, known.coef_, atol=0.02)
    assert np.allclose(found.intercept_, known.intercept_, atol=0.02)
    assert np.allclose(found.predict_proba(rows.X), known.predict_proba(rows.X), atol=0.01)
    assert np.allclose(
        found.decision_function(rows.X), found.release_.model.decision_function(rows.X), atol=1e-4
    )
    assert "log-odds of y = yes" in found.release_.summary()
    assert found.n_iter_.tolist() == [4]


@pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")
def test_more_classes_divide_the_budget(blobs):
    y = np.array(["a", "b", "c"])[blobs.y]
    found = LogisticRegression(epsilon=1, delta=1e-6, **BOUNDS, scheme="pooled").fit(blobs.X, y)
    parts = [release.guarantee.mu for release in found.release_.values()]
    assert list(found.release_) == ["a", "b", "c"]
    assert len(set(parts)) == 1
    assert found.guarantee_.mu == pytest.approx(cape.Budget(1, 1e-6).mu)
    assert found.guarantee_.mu <= cape.Budget(1, 1e-6).mu
    assert set(found.interval()["b"]) == {"intercept", "x0", "x1"}
    assert np.allclose(found.predict_proba(blobs.X).sum(axis=1), 1)
    assert LogisticRegression(**LITTLE_NOISE, **BOUNDS).fit(blobs.X, y).score(blobs.X, y) > 0.95


@pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")
def test_any_number_of_classes_stays_within_the_budget(blobs):
    y = np.arange(len(blobs.X)) % 11  # a share of 1/11 as a float is a little too much
    found = LogisticRegression(**BOUNDS, scheme="pooled").fit(blobs.X, y)
    assert found.guarantee_.mu <= cape.Budget(1, 1e-6).mu
    assert found.coef_.shape == (11, 2)


@pytest.mark.parametrize("scale", [{}, {"data_norm": 2.0}, {"bounds_X": ([-1, -2, -1], [1, 1, 3])}])
def test_components_as_without_privacy(rows, scale):
    found = PCA(2, **{**LITTLE_NOISE, **BOUNDS, **scale}).fit(rows.X)
    known = sklearn.decomposition.PCA(2).fit(rows.X)
    turned = np.sign((found.components_ * known.components_).sum(axis=1))
    assert np.allclose(found.components_, turned[:, None] * known.components_, atol=0.01)
    assert np.allclose(found.explained_variance_, known.explained_variance_, atol=1e-3)
    assert np.allclose(found.explained_variance_ratio_, known.explained_variance_ratio_, atol=1e-3)
    assert np.allclose(found.mean_, known.mean_, atol=1e-3)
    assert np.allclose(found.transform(rows.X), turned * known.transform(rows.X), atol=0.02)
    back = known.inverse_transform(known.transform(rows.X))
    assert np.allclose(found.inverse_transform(found.transform(rows.X)), back, atol=0.02)
    assert found.get_feature_names_out().tolist() == ["pca0", "pca1"]
    with pytest.raises(cape.InvalidInput, match="2 columns, one a component, not 3"):
        found.inverse_transform(rows.X)


def test_rows_that_are_centred_already_keep_their_zero(rows):
    found = PCA(**LITTLE_NOISE, bounds_X=([-1, -1, -1], [1, 1, 2]), centered=True).fit(rows.X)
    values, _ = np.linalg.eigh(rows.X.T @ rows.X / len(rows.X))
    assert np.allclose(found.explained_variance_, values[::-1], atol=1e-3)
    assert np.array_equal(found.mean_, np.zeros(3))


@pytest.mark.parametrize("many", [0, 4, 1.5, "most", True])
def test_components_are_counted(rows, many):
    with pytest.raises(cape.InvalidInput, match="n_components must be an integer at least 1 and at most 3"):
        PCA(many, **BOUNDS).fit(rows.X)


@pytest.mark.parametrize("scale", [{}, {"data_norm": 1.5}, {"bounds_X": ([-1, -3], [2, 1])}])
def test_centres_as_without_privacy(blobs, scale):
    found = KMeans(3, **{**LITTLE_NOISE, **BOUNDS, **scale}).fit(blobs.X)
    known = sklearn.cluster.KMeans(3, n_init=10, random_state=0).fit(blobs.X)
    assert adjusted_rand_score(found.labels_, known.labels_) > 0.98
    order = [np.argmin(np.abs(found.cluster_centers_ - c).sum(axis=1)) for c in known.cluster_centers_]
    assert np.allclose(found.cluster_centers_[order], known.cluster_centers_, atol=0.02)
    assert np.array_equal(found.predict(blobs.X), found.labels_)
    assert np.array_equal(found.predict(blobs.X), found.release_.model.predict(blobs.X))
    assert found.transform(blobs.X).shape == (900, 3)
    assert found.get_feature_names_out().tolist() == ["kmeans0", "kmeans1", "kmeans2"]
    assert found.score(blobs.X) == pytest.approx(-known.inertia_, rel=0.02)
    assert found.n_iter_ == 2


def test_a_network_tells_three_classes_apart(blobs):
    found = MLPClassifier(**LITTLE_NOISE, bounds_X=([-1, -1], [1, 2]), max_iter=40).fit(blobs.X, blobs.y)
    assert found.score(blobs.X, blobs.y) > 0.95
    assert np.allclose(found.predict_proba(blobs.X).sum(axis=1), 1)
    hidden = np.maximum(blobs.X @ found.coefs_[0] + found.intercepts_[0], 0)
    scores = hidden @ found.coefs_[1] + found.intercepts_[1]
    assert np.array_equal(scores.argmax(axis=1), found.predict_proba(blobs.X).argmax(axis=1))


def test_a_network_for_two_classes_with_other_activations(blobs):
    for activation in ("logistic", "tanh", "identity"):
        found = MLPClassifier(
            4, **LITTLE_NOISE, **BOUNDS, max_iter=40, activation=activation, solver="adam"
        ).fit(blobs.X, blobs.y == 2)
        assert found.score(blobs.X, blobs.y == 2) > 0.9
        assert found.classes_.tolist() == [False, True]


@pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")
def test_private_sizes(rows, blobs):
    apart = {"epsilon": 100, "scheme": "pooled", "neighbours": "add-remove"}
    assert LinearRegression(**apart, **BOTH).fit(rows.X, rows.y).score(rows.X, rows.y) > 0.9
    assert LogisticRegression(**apart, **BOUNDS).fit(blobs.X, blobs.y == 2).score(blobs.X, blobs.y == 2) > 0.9
    assert PCA(**apart, **BOUNDS).fit(rows.X).guarantee_.neighbours == "add-remove"
    KMeans(3, **apart, **BOUNDS).fit(blobs.X)
    network = MLPClassifier(**apart, **BOUNDS, max_iter=5)
    with pytest.raises(cape.InvalidInput, match="rows"):
        network.fit(blobs.X, blobs.y)
    network.set_params(expected_rows=1000).fit(blobs.X, blobs.y)


@pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")
def test_noise_that_hides_even_the_number_of_rows_is_an_error(rows):
    with pytest.raises(cape.CapeError, match="noise hides the number of rows"):
        PCA(**BOUNDS, epsilon=1e-3, neighbours="add-remove").fit(rows.X[:50])


@pytest.mark.parametrize("scheme", ["cape", "cape-gaussian", "conventional", "local", "pooled"])
def test_every_scheme(rows, scheme):
    found = LinearRegression(epsilon=50, **BOTH, scheme=scheme).fit(rows.X, rows.y)
    assert found.release_.scheme == scheme
    assert found.score(rows.X, rows.y) > 0.5


def test_an_unknown_scheme_is_named(rows, blobs):
    with pytest.raises(cape.InvalidInput, match="scheme must be one of"):
        LinearRegression(**BOTH, scheme="magic").fit(rows.X, rows.y)
    with pytest.raises(cape.InvalidInput, match="scheme must be one of"):
        LogisticRegression(**BOUNDS, scheme="dp-fm").fit(blobs.X, blobs.y)


def fitted(rows, blobs):
    yield LinearRegression(**LITTLE_NOISE, **BOTH).fit(rows.X, rows.y), "predict"
    yield LogisticRegression(**LITTLE_NOISE, **BOUNDS, max_iter=8).fit(blobs.X, blobs.y), "predict_proba"
    yield PCA(**LITTLE_NOISE, **BOUNDS).fit(rows.X), "transform"
    yield KMeans(3, **LITTLE_NOISE, **BOUNDS).fit(blobs.X), "predict"
    yield MLPClassifier(**LITTLE_NOISE, **BOUNDS, max_iter=5).fit(blobs.X, blobs.y), "predict_proba"


@pytest.mark.filterwarnings("ignore:log-odds grow:cape.TooNoisyWarning")  # a line separates these classes
def test_a_fitted_estimator_pickles_without_its_rows(rows, blobs):
    for estimator, method in fitted(rows, blobs):
        X = rows.X if estimator.n_features_in_ == 3 else blobs.X
        again = pickle.loads(pickle.dumps(estimator))
        assert np.array_equal(getattr(again, method)(X), getattr(estimator, method)(X))
        releases = [each.release_ for each in (again, estimator)]
        if isinstance(releases[0], dict):
            releases = [each["0"] for each in releases]
        assert releases[0].summary() == releases[1].summary()
        assert again.interval() == estimator.interval()
        bare = estimator.__dict__ | {"labels_": None}
        assert len(pickle.dumps(bare)) < 30_000


@pytest.mark.slow(2.5)
def test_in_a_pipeline_and_a_search(rows):
    half = FunctionTransformer(lambda X: X / 2)
    regression = LinearRegression(epsilon=100, bounds_X=(-1, 1), bounds_y=(-1, 1), scheme="pooled")
    pipe = make_pipeline(half, PCA(2, **LITTLE_NOISE, **BOUNDS), clone(regression))
    assert pipe.fit(rows.X, rows.y).score(rows.X, rows.y) > 0.5
    assert cross_val_score(regression, rows.X, rows.y, cv=3).min() > 0.8
    search = GridSearchCV(regression, {"epsilon": [1e-3, 100.0]}, cv=2)
    with pytest.warns(cape.TooNoisyWarning):
        search.fit(rows.X, rows.y)
    assert search.best_params_ == {"epsilon": 100.0}


def test_sites_go_through_pipelines_and_folds(rows):
    sites = np.arange(len(rows.X)) % 4
    pipe = make_pipeline(FunctionTransformer(), LinearRegression(**LITTLE_NOISE, **BOTH))
    pipe.fit(rows.X, rows.y, linearregression__sites=sites)
    assert pipe[-1].release_.participants == ("0", "1", "2", "3")
    scores = cross_val_score(
        LinearRegression(**LITTLE_NOISE, **BOTH), rows.X, rows.y, cv=3, params={"sites": sites}
    )
    assert scores.min() > 0.9


@pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")  # now and then, by its noise
def test_columns_of_a_frame_keep_their_names(rows):
    pandas = pytest.importorskip("pandas")
    for names, shown in (
        (["age", "y", "y="], ["age", "y", "y="]),
        (["intercept", "b", "c"], ["x0", "x1", "x2"]),
    ):
        X = pandas.DataFrame(rows.X, columns=names)
        found = LinearRegression(**LITTLE_NOISE, **BOTH).fit(X, rows.y)
        assert found.feature_names_in_.tolist() == names
        assert list(found.interval()) == ["intercept", *shown]
        assert found.score(X, rows.y) > 0.9
        many = LogisticRegression(**LITTLE_NOISE, **BOUNDS).fit(X, np.digitize(rows.y, [-0.2, 0.3]))
        assert list(many.release_) == ["0", "1", "2"]
