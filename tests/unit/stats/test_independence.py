"""Tests of independence of noisy tables: Pearson's without noise, and of the right size with it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, pearsonr
from scipy.stats.contingency import association

from cape.stats.estimates import is_unknown
from cape.stats.independence import contrasts, group_contrasts, strength
from cape.stats.law import Law
from tests.slices import examples

TABLE = np.array([[30.0, 50.0, 20.0], [40.0, 20.0, 60.0]])
TABLES = st.lists(st.integers(4, 300), min_size=6, max_size=6).map(lambda x: np.array(x, float).reshape(2, 3))


@given(TABLES)
def test_without_noise_the_test_and_v_are_those_of_scipy(table):
    found, wanted = contrasts(table, 0.0), chi2_contingency(table, correction=False)
    assert found.test.statistic == pytest.approx(wanted.statistic, rel=1e-7, abs=1e-8)
    assert found.test.freedom == wanted.dof
    assert found.test.p_value == pytest.approx(wanted.pvalue, rel=1e-6, abs=1e-12)
    assert strength(found).value == pytest.approx(association(table.astype(int)), abs=1e-7)


def test_without_noise_a_trend_is_the_squared_correlation_of_the_places():
    down, across = np.indices(TABLE.shape)
    rows = [np.repeat(each.reshape(-1), TABLE.astype(int).reshape(-1)) for each in (down, across)]
    n = TABLE.sum()
    assert contrasts(TABLE, 0.0, trend=True).test.statistic == pytest.approx(n * pearsonr(*rows)[0] ** 2)


@examples(60)
@given(TABLES, st.floats(0, 1.2), st.permutations(range(3)))
def test_the_order_of_categories_does_not_matter(table, noise, order):
    one, other = contrasts(table, noise), contrasts(table[::-1, list(order)], noise)
    turned = contrasts(table.T.copy(), noise)
    if one is None:
        assert other is turned is None
        return
    for each in (other, turned):
        assert each.test.statistic == pytest.approx(one.test.statistic, rel=1e-6, abs=1e-9)
        assert each.strength == pytest.approx(one.strength, abs=1e-6)


def test_noise_of_cells_is_the_same_as_a_sum_of_products_that_says_so():
    plain = contrasts(TABLE, 3.0)
    terms = contrasts(TABLE, [(4.0 * np.eye(2), np.eye(3)), (5.0 * np.eye(2), np.eye(3))])
    assert terms.test.statistic == pytest.approx(plain.test.statistic)
    assert terms.noise == pytest.approx(plain.noise)


@pytest.mark.slow_cases("laplace", seconds=2)
@pytest.mark.parametrize("law", [Law(math.inf), Law(1.0)], ids=["gaussian", "laplace"])
def test_independent_columns_are_rejected_as_often_as_the_level_says(law):
    """2000 tables: the standard error of a size of 5% is 0.5%. A test that knows of no noise is seen."""
    rng, noise, n = np.random.default_rng(3), 12.0, 1500
    margins = np.outer([0.3, 0.7], [0.2, 0.3, 0.5]).reshape(-1)
    rejected = blind = 0
    for _ in range(2000):
        drawn = rng.normal(0, noise, 6) if law.gaussian else rng.laplace(0, noise / math.sqrt(2), 6)
        table = (rng.multinomial(n, margins) + drawn).reshape(2, 3)
        rejected += contrasts(table, noise, law=law).test.p_value < 0.05
        blind += contrasts(table, 0.0).test.p_value < 0.05
    assert 0.035 < rejected / 2000 < 0.068
    assert blind / 2000 > 0.1


@given(TABLES, st.floats(0, 1.0), st.sampled_from([0.5, 0.9, 0.99]))
def test_the_interval_of_v_holds_it(table, noise, level):
    found = contrasts(table, noise)
    if found is None:
        return
    low, high = found.interval(level)
    assert 0 <= low <= found.strength <= high <= 1
    wide = found.interval((1 + level) / 2)
    assert wide[0] <= low
    assert high <= wide[1]


def test_a_margin_that_noise_hides_leaves_no_test():
    assert contrasts(TABLE, 40.0) is None
    assert contrasts(TABLE[:, :1], 0.0) is None
    assert is_unknown(strength(None))


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=6))
def test_contrasts_of_groups_are_orthonormal_for_the_margin(weights):
    margin = np.array(weights) / sum(weights)
    found = group_contrasts(margin)
    assert found.T @ np.diag(margin) @ found == pytest.approx(np.eye(len(margin) - 1), abs=1e-8)
    assert margin @ found == pytest.approx(np.zeros(len(margin) - 1), abs=1e-8)
