"""Means of noisy sums compared: Welch's tests without noise, and of the right size with it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import f as fisher
from scipy.stats import ttest_ind

from cape.stats.moments import Sums
from cape.stats.welch import Contrast, Group, Pair, equal


def group(cells, noise=(0.0, 0.0, 0.0), rng=None):
    drawn = np.zeros(3) if rng is None else rng.normal(0, 1, 3) * noise
    return Group(Sums(len(cells) + drawn[0], cells.sum() + drawn[1], (cells**2).sum() + drawn[2], *noise))


def cells(rng, *sizes):
    return [np.clip(rng.normal(0.1, 0.1 + 0.1 * i, size), -1, 1) for i, size in enumerate(sizes)]


def test_without_noise_two_groups_have_welchs_test_and_interval():
    one, other = cells(np.random.default_rng(0), 30, 12)
    pair = Pair(group(one), group(other))
    wanted = ttest_ind(one, other, equal_var=False)
    assert pair.test.statistic == pytest.approx(wanted.statistic**2)
    assert pair.test.p_value == pytest.approx(wanted.pvalue)
    assert pair.test.freedom[1] == pytest.approx(wanted.df)
    assert pair.interval(0.95) == pytest.approx(tuple(wanted.confidence_interval(0.95)))


def welch(groups):
    """Welch's analysis of variance (1951), as it is written in textbooks."""
    k = len(groups)
    w = np.array([len(x) / x.var(ddof=1) for x in groups])
    m = np.array([x.mean() for x in groups])
    middle = (w * m).sum() / w.sum()
    lack = sum((1 - w / w.sum()) ** 2 / (np.array([len(x) for x in groups]) - 1))
    statistic = (w * (m - middle) ** 2).sum() / (k - 1) / (1 + 2 * (k - 2) / (k * k - 1) * lack)
    freedom = (k * k - 1) / (3 * lack)
    return statistic, freedom, fisher.sf(statistic, k - 1, freedom)


def test_without_noise_several_groups_have_welchs_analysis_of_variance():
    groups = cells(np.random.default_rng(1), 30, 12, 50)
    found = equal([group(each) for each in groups])
    assert (found.statistic, found.freedom[1], found.p_value) == pytest.approx(welch(groups))


def test_exchanging_groups_turns_a_difference_around():
    one, other = (group(each, (2.0, 3.0, 3.0)) for each in cells(np.random.default_rng(2), 100, 80))
    pair, back = Pair(one, other), Pair(other, one)
    low, high = pair.interval(0.9)
    assert back.interval(0.9) == pytest.approx((-high, -low))
    assert back.test.p_value == pytest.approx(pair.test.p_value)
    low, high = pair.standardised(0.9)
    assert back.standardised(0.9) == pytest.approx((-high, -low))


def test_a_contrast_of_two_groups_is_their_difference():
    one, other = (group(each, (2.0, 3.0, 3.0)) for each in cells(np.random.default_rng(3), 100, 80))
    pair, contrast = Pair(one, other), Contrast(((1.0, one), (-1.0, other)))
    assert contrast.interval(0.9) == pytest.approx(pair.interval(0.9))
    twice = Contrast(((2.0, one), (-2.0, other)))
    assert twice.test.p_value == pytest.approx(contrast.test.p_value)
    assert twice.value == pytest.approx(2 * pair.value)


@pytest.mark.slow_cases("three", seconds=4)
@pytest.mark.parametrize("sizes", [(150, 60), (150, 60, 90)], ids=["two", "three"])
def test_groups_of_one_mean_are_rejected_as_often_as_the_level_says(sizes):
    """2000 draws: the standard error of a size of 5% is 0.5%. A test that knows of no noise is seen."""
    rng, noise = np.random.default_rng(4), np.array((4.0, 5.0, 5.0))
    rejected = blind = 0
    for _ in range(2000):
        groups = [group(each, noise, rng) for each in cells(rng, *sizes)]
        found = equal(groups)
        rejected += found is not None and found.p_value < 0.05
        silent = [Group(Sums(g.sums.count, g.sums.first, g.sums.second, 0.0, 0.0, 0.0)) for g in groups]
        found = equal(silent)
        blind += found is not None and found.p_value < 0.05
    assert 0.03 < rejected / 2000 < 0.07
    assert blind / 2000 > 0.15


def test_a_standardised_difference_is_over_the_root_of_the_mean_variance():
    one, other = cells(np.random.default_rng(5), 300, 200)
    found = Pair(group(one), group(other)).standardised
    wanted = (one.mean() - other.mean()) / math.sqrt((one.var(ddof=1) + other.var(ddof=1)) / 2)
    assert found.value == pytest.approx(wanted)
    low, high = found(0.95)
    assert low < wanted < high
    noisy = Pair(group(one, (0.0, 5.0, 5.0)), group(other, (0.0, 5.0, 5.0))).standardised
    assert noisy(0.95)[1] - noisy(0.95)[0] > high - low


def test_where_nothing_varies_there_is_no_test():
    same = Group(Sums(10.0, 5.0, 2.5, 0.0, 0.0, 0.0))
    assert Pair(same, same).test is None
    assert Pair(same, same).interval(0.95) == (0.0, 0.0)
    assert Pair(same, same).standardised is None
