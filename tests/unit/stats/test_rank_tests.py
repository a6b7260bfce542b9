"""Rank tests of noisy histograms: those of Mann and Whitney and of Kruskal and Wallis, with noise counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kruskal

from cape.stats.rank_tests import larger, ranked
from tests.slices import examples

ROW = st.lists(st.integers(1, 60), min_size=4, max_size=4)


def cells(row):
    return np.repeat(np.arange(len(row)), np.array(row, int))


@given(st.lists(ROW, min_size=2, max_size=4))
def test_without_noise_the_test_is_that_of_kruskal_and_wallis(table):
    found, wanted = ranked(np.array(table, float), 0.0), kruskal(*map(cells, table))
    assert found.freedom == len(table) - 1
    assert found.statistic == pytest.approx(wanted.statistic, rel=1e-6, abs=1e-8)
    # groups that are alike leave scipy a statistic that is rounded to less than 0, of which it has no P value
    assert found.p_value == pytest.approx(1.0 if np.isnan(wanted.pvalue) else wanted.pvalue, rel=1e-6)


@given(ROW, ROW)
def test_without_noise_the_probability_is_that_of_all_pairs(one, other):
    x, y = cells(one), cells(other)
    wanted = (x[:, None] > y).mean() + (x[:, None] == y).mean() / 2
    assert larger("P", np.array(one, float), np.array(other, float), 0.0).value == pytest.approx(wanted)


@examples(60)
@given(ROW, ROW, st.floats(0, 2))
def test_exchanging_groups_or_the_direction_turns_it_around(one, other, noise):
    a, b = np.array(one, float), np.array(other, float)
    found = larger("P", a, b, noise)
    for turned in (larger("P", b, a, noise), larger("P", a[::-1], b[::-1], noise)):
        assert turned.value == pytest.approx(1 - found.value)
        assert turned.sampling == pytest.approx(found.sampling)
        assert turned.privacy == pytest.approx(found.privacy)
    table = np.stack([a, b])
    test = ranked(table, noise)
    for other_way in (table[::-1], table[:, ::-1]):
        assert ranked(other_way, noise).statistic == pytest.approx(test.statistic, rel=1e-6, abs=1e-9)


def test_equal_groups_are_rejected_as_often_as_the_level_says():
    """2000 tables of 16 skewed bins: the standard error of a size of 5% is 0.5%."""
    rng, noise = np.random.default_rng(0), 8.0
    shares = 0.7 ** np.arange(16)
    shares /= shares.sum()
    rejected = blind = 0
    for _ in range(2000):
        table = np.stack([rng.multinomial(n, shares) for n in (400, 250, 300)]) + rng.normal(
            0, noise, (3, 16)
        )
        rejected += ranked(table, noise).p_value < 0.05
        blind += ranked(table, 0.0).p_value < 0.05
    assert 0.035 < rejected / 2000 < 0.068
    assert blind / 2000 > 0.1


def test_the_errors_of_a_probability_are_how_it_scatters():
    """2000 draws: a standard deviation is known to 1.6%."""
    rng, noise, found = np.random.default_rng(1), 6.0, []
    a, b = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.4, 0.3, 0.2, 0.1])
    for _ in range(2000):
        rows = [rng.multinomial(n, p) + rng.normal(0, noise, 4) for n, p in ((500, a), (400, b))]
        found.append(larger("P", *rows, noise).value)
    said = larger("P", 500 * a, 400 * b, noise)
    assert np.std(found) == pytest.approx(said.standard_error, rel=0.06)
    assert said.privacy > 0.2 * said.sampling


def test_where_all_values_are_tied_there_is_no_test():
    assert ranked(np.array([[10.0, 0.0], [20.0, 0.0]]), 0.0) is None
