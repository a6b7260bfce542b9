"""What is public about rows and targets, and what happens to what lies outside."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import cape
from cape.sklearn import PCA, KMeans, LinearRegression, LogisticRegression
from cape.sklearn.bounds import box, intervals

LITTLE_NOISE = {"epsilon": 1e5, "scheme": "pooled"}


def test_bounds_may_be_numbers_or_one_for_each_feature(rows):
    taken: list[str] = []
    one = box(rows.X, (-1, 1), None, taken)
    each = box(rows.X, ([-1, -1, -1], np.ones(3)), None, taken)
    assert [c.low for c in one.columns()] == [-1.0] * 3 == [c.low for c in each.columns()]
    assert one.norm is None
    assert not taken


@pytest.mark.parametrize(
    "bounds", [(1, -1), (0, 0), (-1, np.inf), 3, (1, 2, 3), ([0, 0], [1, 1]), ("a", "b"), (np.nan, 1)]
)
def test_bounds_that_cannot_be_are_named(rows, bounds):
    with pytest.raises(cape.InvalidInput, match="bounds_X must be"):
        LinearRegression(bounds_X=bounds, bounds_y=(-1, 1)).fit(rows.X, rows.y)


def test_a_norm_makes_features_about_zero_in_one_unit(rows):
    found = box(rows.X, ([-1, -1, 0], [1, 2, 8]), 4.0, [])
    assert found.middle.tolist() == [0, 0, 0]
    assert found.half.tolist() == [4, 4, 4]  # no cell of a row of length 4 is larger
    assert found.norm == pytest.approx(1.0)
    alone = box(rows.X, None, 2.0, [])
    assert (alone.half.tolist(), alone.norm) == ([2.0] * 3, 1.0)
    wide = box(rows.X, (-1, 1), 100.0, [])
    assert wide.norm == pytest.approx(np.sqrt(3))  # no row can be longer than the bounds allow


def test_rows_are_cut_one_by_one(rows):
    found = box(rows.X, (-1, 1), 1.2, [])
    odd = np.array([[5.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.1, 0.2, 0.3]])
    cut = found.cut(odd)
    assert np.allclose(cut[0], [1, 0, 0])  # by the bounds
    assert np.allclose(cut[1], 1.2 / np.sqrt(3))  # by the norm
    assert np.array_equal(cut[2], odd[2])
    assert np.array_equal(odd[0], [5, 0, 0])  # not in place
    assert np.allclose(found.cut(odd[1:]), cut[1:])


def test_in_one_unit_the_norm_is_what_the_bounds_allow(rows):
    found = box(rows.X, ([0, -1, 0], [2, 1, 0.5]), None, [], alike=True)
    assert found.half.tolist() == [1, 1, 1]
    assert found.middle.tolist() == [1, 0, 0.25]
    assert found.norm == pytest.approx(np.sqrt(1 + 1 + 0.25**2))


def test_through_zero_bounds_are_even(rows):
    found = box(rows.X, ([0, -1, 2], [1, 3, 3]), None, [], about_zero=True)
    assert found.middle.tolist() == [0, 0, 0]
    assert found.half.tolist() == [1, 3, 3]
    (target,) = intervals(rows.y[:, None], (2, 5), [], about_zero=True)
    assert (target.low, target.high, target.column.low, target.column.high) == (2, 5, -5, 5)


def test_bounds_from_the_data_give_one_warning(rows):
    with pytest.warns(cape.PrivacyLeakWarning) as seen:
        LinearRegression(**LITTLE_NOISE).fit(rows.X, rows.y)
    assert len(seen) == 1
    assert seen[0].filename == __file__
    assert "bounds_X and bounds_y were not given" in str(seen[0].message)
    assert "bounds_X=(low, high) or data_norm and bounds_y=(low, high)" in str(seen[0].message)
    with pytest.warns(cape.PrivacyLeakWarning, match="bounds_y was not given") as seen:
        LinearRegression(**LITTLE_NOISE, data_norm=2).fit(rows.X, rows.y)
    assert len(seen) == 1


def test_public_bounds_give_none(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", cape.TooNoisyWarning)  # the two classes can be told apart
        LinearRegression(**LITTLE_NOISE, bounds_X=(-1, 1), bounds_y=(-1, 1)).fit(rows.X, rows.y)
        LogisticRegression(**LITTLE_NOISE, data_norm=2).fit(rows.X, rows.y > 0)
        PCA(**LITTLE_NOISE, bounds_X=(-1, 1)).fit(rows.X)


@pytest.mark.filterwarnings("ignore::cape.PrivacyLeakWarning", "ignore::cape.TooNoisyWarning")
@pytest.mark.parametrize("value", [0.0, 1e-30, -3.0, 1e12])
def test_a_constant_column_has_bounds_too(rows, value):
    X = np.column_stack([rows.X, np.full(len(rows.X), value)])
    found = LinearRegression(**LITTLE_NOISE).fit(X, rows.y)
    assert found.score(X, rows.y) > 0.9
    assert PCA(**LITTLE_NOISE).fit(X[:, 3:]).explained_variance_ < 1e-4 * max(1, value**2)
    assert np.isfinite(LinearRegression(**LITTLE_NOISE).fit(rows.X, np.full(len(X), value)).coef_).all()


def test_a_target_outside_its_bounds_is_cut(rows):
    y = rows.y.copy()
    y[:50] = 1e6
    known = {**LITTLE_NOISE, "bounds_X": (-1, 1), "bounds_y": (-1, 1)}
    far = LinearRegression(**known).fit(rows.X, y)
    near = LinearRegression(**known).fit(rows.X, np.clip(y, -1, 1))
    assert np.allclose(far.coef_, near.coef_, atol=1e-3)
    assert np.abs(far.predict(1e3 * rows.X)).max() <= 1


def test_one_row_far_outside_the_norm_does_little(rows):
    X = rows.X.copy()
    X[0] = 1e9
    known = {**LITTLE_NOISE, "data_norm": 2.0, "bounds_y": (-1, 1)}
    assert np.allclose(
        LinearRegression(**known).fit(X, rows.y).coef_,
        LinearRegression(**known).fit(rows.X, rows.y).coef_,
        atol=0.01,
    )


def test_a_smaller_norm_makes_less_noise(rows):
    noise = [
        LinearRegression(bounds_X=(-9, 9), bounds_y=(-1, 1), data_norm=norm, epsilon=100, scheme="pooled")
        .fit(np.tile(rows.X, (30, 1)), np.tile(rows.y, 30))
        .release_.standard_error["x0"]
        for norm in (2.0, 8.0)
    ]
    assert noise[0] < noise[1]


def test_a_norm_must_be_positive(rows):
    for estimator in (LinearRegression, LogisticRegression, PCA, KMeans):
        with pytest.raises(cape.InvalidInput, match="data_norm must be a finite number above 0"):
            estimator(data_norm=0).fit(rows.X, rows.y > 0)
