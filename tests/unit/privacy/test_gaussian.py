"""The analytic Gaussian against long arithmetic, against dp-accounting, and at its edges."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting import gaussian_mechanism
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from cape.privacy import compose, delta, epsilon, mu, tail
from tests.slices import examples

BAR = 1e-10  # the relative error that the module promises
ROUNDING = 100 * np.finfo(float).eps


def exact_delta(e, m):
    """Return delta with at least 60 digits left after the cancellation of the two terms."""
    with mpmath.workdps(100 + 2 * max(0, -math.floor(math.log10(m)))):
        e, m = mpmath.mpf(e), mpmath.mpf(m)
        a, b = m / 2 - e / m, -m / 2 - e / m
        root = mpmath.sqrt(2)
        return (mpmath.erfc(-a / root) - mpmath.exp(e) * mpmath.erfc(-b / root)) / 2


def relative(value, truth):
    return float(abs(mpmath.fsub(value, truth, exact=True) / truth))


def error_of_epsilon(found, d, m):
    """Return its relative error by one Newton step in long arithmetic, and its condition number."""
    with mpmath.workdps(80):
        gap = mpmath.fsub(exact_delta(found, m), mpmath.mpf(d), exact=True)
        w = (mpmath.mpf(found) / m + mpmath.mpf(m) / 2) / mpmath.sqrt(2)
        slope = mpmath.exp(mpmath.mpf(found)) * mpmath.erfc(w) / 2
        return float(abs(gap / slope) / found), float(d / slope / found)


def error_of_mu(found, e, d):
    with mpmath.workdps(80):
        gap = mpmath.fsub(exact_delta(e, found), mpmath.mpf(d), exact=True)
        a = mpmath.mpf(found) / 2 - mpmath.mpf(e) / mpmath.mpf(found)
        return float(abs(gap / mpmath.npdf(a)) / found)


MUS = [float(m) for m in np.geomspace(1e-8, 1e3, 23)]
# epsilon in standard deviations of the loss: from its mean for large mu, from 0 for small
DEVIATIONS = [0.0, 1e-9, 1e-3, 0.1, 0.5, 1.0, 2.0, 5.0, 12.0, 25.0, 36.9]


@pytest.mark.parametrize("m", MUS)
def test_delta_and_its_inverses_have_ten_digits_everywhere(m):
    for centre in (0.0, max(0.0, m * m / 2 - 2.5 * m), m * m / 2):
        for deviations in DEVIATIONS:
            e = centre + deviations * m
            d = delta(e, m)
            truth = exact_delta(e, m)
            if truth < 1e-300:
                continue
            assert relative(d, truth) < BAR
            if not 0.0 < d < 1.0:
                continue
            assert error_of_mu(mu(e, d), e, d) < BAR
            found = epsilon(d, m)
            if found > 0.0:
                error, condition = error_of_epsilon(found, d, m)
                assert error < BAR + ROUNDING * condition
                assert condition > 1e4 or error < BAR


@pytest.mark.parametrize("e", [0.0, 1e-300, 1e-12, 1e-3, 0.5, 1.0, 10.0, 300.0, 1e4])
@pytest.mark.parametrize("d", [1e-300, 1e-150, 1e-30, 1e-5, 0.3, 0.5, 0.5000001, 0.999, 1 - 1e-9, 1 - 2**-53])
def test_mu_has_ten_digits_for_every_budget(e, d):
    assert error_of_mu(mu(e, d), e, d) < BAR


@given(st.floats(0.0, 1e4), st.floats(-8.0, 3.0).map(lambda x: 10.0**x))
@example(100.0, 0.1 * math.sqrt(2.0))  # where the bracket changes its form
@example(0.0, 0.0999 * math.sqrt(2.0))
@examples(150)
def test_delta_has_ten_digits_at_any_point(e, m):
    truth = exact_delta(e, m)
    found = delta(e, m)
    if truth < 1e-300:
        assert 0.0 <= found <= 1.01e-300
    else:
        assert relative(found, truth) < BAR


@given(st.floats(0.0, 1e4), st.floats(-300.0, -1e-9).map(lambda x: 10.0**x))
@examples(100)
def test_mu_is_inverted_by_delta_and_by_epsilon(e, d):
    m = mu(e, d)
    assert error_of_mu(m, e, d) < BAR
    back = epsilon(d, m)
    with mpmath.workdps(60):
        slope = delta(e, m) / max(1e-320, float(_slope(e, m)))
    assert back == pytest.approx(e, rel=1e-9, abs=1e-11 * slope + 1e-300)


def _slope(e, m):
    return mpmath.exp(mpmath.mpf(e)) * mpmath.ncdf(-mpmath.mpf(m) / 2 - mpmath.mpf(e) / m)


@given(st.floats(-300.0, -1e-6).map(lambda x: 10.0**x), st.floats(-8.0, 3.0).map(lambda x: 10.0**x))
@examples(100)
def test_epsilon_has_ten_digits_where_it_is_well_conditioned(d, m):
    found = epsilon(d, m)
    assume(found > 0.0)
    error, condition = error_of_epsilon(found, d, m)
    assert error < BAR + ROUNDING * condition


def test_few_steps_suffice_everywhere(monkeypatch):
    deltas = 10.0 ** np.linspace(-300, -1e-6, 200)
    mus, epsilons = np.geomspace(1e-8, 1e3, 100)[:, None], np.geomspace(1e-300, 1e4, 100)[:, None]
    wanted = epsilon(deltas, mus), mu(epsilons, deltas)
    monkeypatch.setattr(tail, "_MOST_STEPS", 8)
    np.testing.assert_array_equal(epsilon(deltas, mus), wanted[0])
    np.testing.assert_array_equal(mu(epsilons, deltas), wanted[1])


def test_a_bad_start_still_converges(monkeypatch):
    cases = [(e, d) for e in (1e-6, 0.3, 1e3) for d in (1e-250, 1e-6, 0.2, 0.7, 0.9999)]
    wanted = [mu(e, d) for e, d in cases], [epsilon(d, mu(e, d)) for e, d in cases]
    for shift in (-5.0, 3.0):
        monkeypatch.setattr(tail, "_start", lambda on, delta, h, u, shift=shift: u + shift)
        assert [mu(e, d) for e, d in cases] == pytest.approx(wanted[0], rel=1e-12)
        again = [epsilon(d, mu(e, d)) for e, d in cases]
        assert again == pytest.approx(wanted[1], rel=1e-10, abs=1e-14)


def test_arrays_are_broadcast_and_agree_with_scalars():
    es, ms = np.array([0.0, 1e-3, 1.0, 50.0, 1e4]), np.geomspace(1e-8, 1e3, 12)[:, None]
    ds = np.array([1e-300, 1e-8, 0.4, 0.6, 0.999999])
    for function, columns, rows in (
        (delta, es, ms),
        (epsilon, ds, ms),
        (lambda d, e: mu(e, d), ds, es[:, None]),
    ):
        table = function(columns, rows)
        assert table.shape == (rows.shape[0], columns.size)
        assert table.dtype == np.float64
        one_by_one = [[function(float(c), float(r)) for c in columns] for r in rows[:, 0]]
        np.testing.assert_allclose(table, one_by_one, rtol=1e-12)


def test_scalars_of_any_kind_give_a_float():
    for one in (1, 1.0, np.float32(1), np.int64(1), np.array(1.0)):
        assert type(delta(one, one)) is float
        assert delta(one, one) == delta(1.0, 1.0)
        assert type(epsilon(1e-5, one)) is float
        assert type(mu(one, 1e-5)) is float
        assert type(compose(one, one)) is float
    assert delta([1.0, 2.0], 1).shape == (2,)
    assert delta(np.array([]), 1.0).shape == (0,)


def test_edges_are_those_of_the_tables():
    inf = math.inf
    assert delta(1.0, 0.0) == delta(inf, 0.0) == delta(inf, 3.0) == delta(inf, inf) == 0.0
    assert delta(0.0, inf) == delta(1e4, inf) == 1.0
    assert delta(0.0, 0.0) == 0.0
    assert delta(0.0, 2.0) == pytest.approx(math.erf(2 / math.sqrt(8)), rel=1e-14)
    assert epsilon(0.5, 0.0) == 0.0
    assert epsilon(0.5, inf) == inf
    assert epsilon(math.erf(1 / math.sqrt(8)), 1.0) == 0.0
    assert epsilon(0.99, 1.0) == 0.0
    assert mu(inf, 0.5) == inf
    assert mu(0.0, 0.5) == pytest.approx(2 * 0.6744897501960817, rel=1e-14)
    np.testing.assert_array_equal(delta([1.0, inf, 1.0], [0.0, inf, inf]), [0.0, 0.0, 1.0])
    np.testing.assert_array_equal(epsilon([0.5, 0.5, 0.99], [0.0, inf, 1.0]), [0.0, inf, 0.0])
    np.testing.assert_allclose(mu([0.0, inf], 0.5), [mu(0.0, 0.5), inf])


def test_underflow_is_silent_and_never_nan():
    tiny = [5e-324, 1e-308, 1e-200, 1e-30]
    with np.errstate(all="warn"):
        for m in [*tiny, 1e200, 1e308]:
            for e in [0.0, *tiny, 1.0, 1e4, 1e300]:
                assert 0.0 <= delta(e, m) <= 1.0
                assert not np.isnan(delta(np.array([e]), m)).any()
            for d in [*tiny, 0.5]:
                assert epsilon(d, m) >= 0.0
                assert not np.isnan(epsilon(np.array([d]), m)).any()
        for e in [0.0, *tiny, 1.0, 1e300]:
            for d in [*tiny, 0.5]:
                assert mu(e, d) > 0.0
                assert not np.isnan(mu(np.array([e]), d)).any()


positive = st.floats(0.0, 100.0)
factor = st.floats(1.0001, 10.0)


@given(positive, st.floats(1e-3, 30.0), factor)
@settings(deadline=None)
def test_delta_falls_with_epsilon_and_rises_with_mu(e, m, more):
    slack = 1 + 1e-12
    assert delta(e * more, m) <= delta(e, m) * slack
    assert delta(e, m) <= delta(e, m * more) * slack


@given(st.floats(1e-12, 0.99), st.floats(1e-3, 30.0), st.floats(0.1, 0.9999), factor)
@settings(deadline=None)
def test_epsilon_falls_with_delta_and_rises_with_mu(d, m, less, more):
    assert epsilon(d, m) <= epsilon(d * less, m) + 1e-9
    assert epsilon(d, m) <= epsilon(d, m * more) + 1e-9


@given(positive, st.floats(1e-12, 0.99), st.floats(0.1, 0.9999), factor)
@settings(deadline=None)
def test_mu_rises_with_epsilon_and_with_delta(e, d, less, more):
    slack = 1 + 1e-12
    assert mu(e, d * less) <= mu(e, d) * slack
    assert mu(e, d) <= mu(e * more, d) * slack


@pytest.mark.parametrize("m", [0.1, 0.5, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("d", [1e-10, 1e-5, 1e-2])
def test_dp_accounting_agrees(m, d):
    e = epsilon(d, m)
    assert gaussian_mechanism.get_epsilon_gaussian(1 / m, d) == pytest.approx(e, rel=1e-8)
    assert gaussian_mechanism.get_sigma_gaussian(e, d) == pytest.approx(1 / m, rel=1e-8)
    assert gaussian_mechanism._get_log_delta(1 / m, e) == pytest.approx(math.log(d), rel=1e-8)


def test_composition_adds_squares():
    assert compose() == 0.0
    assert compose(3.0, 4.0) == 5.0
    assert compose(*[0.1] * 100) == pytest.approx(1.0)
    assert compose(1.0, math.inf) == math.inf
    assert compose(1e200, 1e200) == pytest.approx(math.sqrt(2) * 1e200)
    np.testing.assert_allclose(compose([3.0, 5.0], 4.0, np.zeros((2, 1))), [[5, 41**0.5]] * 2)
