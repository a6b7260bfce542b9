"""scikit-learn's own checks of an estimator, with little noise and with what is the default."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from cape.sklearn import (
    PCA,
    GaussianNB,
    KMeans,
    LinearRegression,
    LogisticRegression,
    MLPClassifier,
    StandardScaler,
)

LITTLE_NOISE = {"epsilon": 1e4}
HIDDEN = "asks for a good score on at most 300 rows, which noise of epsilon = 1 hides"
UNWEIGHTED = "check_sample_weight_equivalence_on_dense_data"
EXPECTED = {
    "LinearRegression": {"check_regressors_train": HIDDEN},
    "LogisticRegression": {"check_classifiers_train": HIDDEN},
}

pytestmark = pytest.mark.filterwarnings(
    "ignore::cape.PrivacyLeakWarning",
    "ignore::cape.IgnoredParameterWarning",
    "ignore::cape.TooNoisyWarning",
    "ignore::sklearn.exceptions.SkipTestWarning",
)


@pytest.mark.slow(0.065)
@parametrize_with_checks(
    [
        LinearRegression(**LITTLE_NOISE),
        LinearRegression(**LITTLE_NOISE, fit_intercept=False, n_sites=2),
        LogisticRegression(**LITTLE_NOISE, scheme="pooled"),
        PCA(**LITTLE_NOISE),
        PCA(1, epsilon=100, centered=True, neighbours="add-remove"),
        KMeans(3, **LITTLE_NOISE, scheme="pooled"),
        MLPClassifier(**LITTLE_NOISE, max_iter=30, scheme="pooled"),
        GaussianNB(**LITTLE_NOISE, scheme="pooled"),
        StandardScaler(**LITTLE_NOISE, scheme="pooled"),
    ]
)
def test_with_little_noise_every_check_passes(estimator: Any, check: Any) -> None:
    run(estimator, check)


def run(estimator: Any, check: Any) -> None:
    if check.func.__name__ == UNWEIGHTED:
        pytest.skip("weights of rows have no effect, and a warning says so")
    check(estimator)


def expected(estimator: Any) -> dict[str, str]:
    return EXPECTED.get(type(estimator).__name__, {})


@pytest.mark.one_in(4, seconds=0.04)
@parametrize_with_checks([LinearRegression(), PCA()], expected_failed_checks=expected)
def test_as_they_come_only_scores_fail(estimator: Any, check: Any) -> None:
    run(estimator, check)


@pytest.mark.slow(0.15)
@parametrize_with_checks([LogisticRegression()], expected_failed_checks=expected)
def test_as_it_comes_a_regression_of_classes_only_scores_fail(estimator: Any, check: Any) -> None:
    run(estimator, check)
