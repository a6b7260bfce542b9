"""Risk differences and ratios of two noisy rows of counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats.contingency import odds_ratio, relative_risk

from cape.stats.estimates import is_unknown
from cape.stats.proportions import Share
from cape.stats.risks import RATIOS, Ratio, risks

TABLE = np.array([[70.0, 30.0], [45.0, 55.0]])
CELLS = st.lists(st.integers(5, 500), min_size=4, max_size=4)


def by_label(table, noise=0.0):
    return {each.label: each for each in risks(np.array(table, float).reshape(2, 2), noise)}


def test_without_noise_ratios_are_those_of_scipy():
    found = by_label(TABLE)
    assert found["risk difference"].value == pytest.approx(0.25)
    risk = relative_risk(55, 100, 30, 100)
    assert found["risk ratio"].value == pytest.approx(risk.relative_risk)
    assert found["risk ratio"].interval() == pytest.approx(tuple(risk.confidence_interval(0.95)))
    odds = odds_ratio(TABLE.astype(int), kind="sample")
    assert found["odds ratio"].value == pytest.approx(odds.statistic)
    assert found["odds ratio"].interval() == pytest.approx(tuple(odds.confidence_interval(0.95)))


@given(CELLS)
def test_exchanging_the_rows_inverts_ratios_and_mirrors_differences(cells):
    table = np.array(cells, float).reshape(2, 2)
    found, other = by_label(table, 1.0), by_label(table[::-1], 1.0)
    low, high = found["risk difference"].interval()
    assert other["risk difference"].interval() == pytest.approx((-high, -low), abs=1e-9)
    for label in RATIOS:
        assert other[label].value == pytest.approx(1 / found[label].value)
        low, high = found[label].interval()
        assert other[label].interval() == pytest.approx((1 / high, 1 / low if low else math.inf), rel=1e-6)


@given(CELLS, st.floats(0.1, 1.5))
def test_noise_makes_intervals_wider(cells, noise):
    quiet, noisy = by_label(cells), by_label(cells, noise)
    for label, each in quiet.items():
        low, high = each.interval()
        assert noisy[label].interval()[0] <= low + 1e-9
        assert noisy[label].interval()[1] >= high - 1e-9
        assert noisy[label].privacy > each.privacy == 0


def test_rows_that_noise_hides_say_nothing():
    for each in risks(TABLE, 40.0):
        assert is_unknown(each)
        assert math.isfinite(each.standard_error)


def test_a_ratio_with_an_empty_cell_is_open():
    found = by_label([[50, 0], [40, 10]])
    assert found["risk ratio"].interval() == (0.0, math.inf)
    assert found["risk difference"].interval()[0] > 0


def test_noise_that_both_rows_share_makes_a_ratio_certain():
    one, other = Share.of(55.0, 100.0, 4.0, 2), Share.of(30.0, 100.0, 4.0, 2)
    low, high = Ratio(one, other, "odds ratio", empty=False)(0.95)
    shared = Ratio(one, other, "odds ratio", empty=False, correlation=0.9)(0.95)
    assert low < shared[0]
    assert shared[1] < high
