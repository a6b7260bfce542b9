"""delta and delta_conv: what is said of them is counted on the paper's grids, and can fail."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cape import privacy
from reproduction import find
from reproduction.figures import _guarantee as g


def rows_of(name):
    figure = find(name)
    return figure, [row for cell in figure.cells(False) for row in figure.compute(cell)]


@pytest.fixture(scope="module")
def five():
    return rows_of("figure-5")


@pytest.fixture(scope="module")
def six():
    return rows_of("figure-6")


def test_the_grid_is_the_papers(five):
    for setting, panel in g.settings_in(five[1]):
        np.testing.assert_allclose(g.floats(panel, "tau"), np.logspace(-2, 2, 50))
        assert {row["colluding"] for row in panel} == {math.ceil(setting.sites / 3) - 1}


def test_delta_lies_below_delta_conv_printed_and_exact(five):
    for _, panel in g.settings_in(five[1]):
        exact = g.count(panel, "exact_mu", "conventional_mu", lambda a, b: False)
        printed = g.count(panel, "printed_log10", "conventional_log10", lambda a, b: min(a, b) >= 0)
        assert (exact.points, exact.violations) == (50, 0)
        assert printed.violations == 0
        assert printed.points + printed.silent == 50
        for row in panel:  # where floats can tell, the numbers themselves say the same
            assert row["exact"] < row["conventional_exact"] or row["exact"] == row["conventional_exact"] == 0


def test_a_violation_would_be_counted():
    rows = [{"a": 1.0, "b": 2.0}, {"a": 2.0, "b": 2.0}, {"a": 3.0, "b": 2.0}, {"a": None, "b": 1.0}]
    counted = g.count(rows, "a", "b", lambda a, b: a == 3)
    assert (counted.points, counted.violations, counted.silent) == (2, 1, 1)


def test_the_printed_delta_is_too_small_at_30_sites(five):
    panel = dict(g.settings_in(five[1]))[g.PAIRS[1]]
    below = [row for row in panel if row["printed"] < row["exact"]]
    assert len(below) >= 10
    assert max(row["exact"] for row in below) > 1e-6
    claim = next(c for c in five[0].claims(five[1], None) if "S = 30, S_C = 9" in c.says)
    assert claim.holds is False
    assert "2.12 times" in claim.measured


def test_logarithms_agree_with_the_bound_where_it_is_a_float(five):
    for row in five[1]:
        if 0 < row["printed"] < 1:
            assert 10 ** row["printed_log10"] == pytest.approx(row["printed"], rel=1e-9)
        if 0 < row["conventional_tail"] < 1:
            assert 10 ** row["conventional_log10"] == pytest.approx(row["conventional_tail"], rel=1e-9)


def test_exact_deltas_are_those_of_the_joint_covariance(six):
    for row in six[1]:
        s, honest, tau = row["sites"], row["sites"] - row["colluding"], row["tau"]
        covariance = tau**2 * ((1 + 1 / s) * np.eye(honest) - np.ones((honest, honest)) / honest)
        change = np.zeros(honest)
        change[0] = s / row["samples"]
        mu = math.sqrt(change @ np.linalg.solve(covariance, change))
        assert row["exact_mu"] == pytest.approx(mu, rel=1e-9)
        assert row["exact"] == pytest.approx(privacy.delta(row["epsilon"], mu), rel=1e-6)


def test_any_number_of_colluders_is_no_worse_than_conventional(six):
    for row in six[1]:
        honest = row["sites"] - row["colluding"]
        assert row["ring_mu"] <= row["exact_mu"] * (1 + 1e-12)
        assert row["exact_mu"] <= row["conventional_mu"] * (1 + 1e-12)
        if honest == 1:  # alone, a site is as the conventional scheme has it
            assert row["exact_mu"] == pytest.approx(row["conventional_mu"])
        assert row["gain"] == pytest.approx((row["conventional_mu"] / row["exact_mu"]) ** 2)
        assert row["ring_gain"] == pytest.approx((row["conventional_mu"] / row["ring_mu"]) ** 2)


def test_each_is_drawn_twice(five, six):
    for figure, rows in (five, six):
        pictures = figure.draw(rows, None)
        assert set(pictures) == {"published", "equal"}
        assert all(axes.lines for picture in pictures.values() for axes in picture.axes)
        for picture in pictures.values():
            told = [text.get_text() for each in picture.legends for text in each.get_texts()]
            assert any("ring masks" in text for text in told)
        assert {claim.holds for claim in figure.claims(rows, None)} == {True, False}
