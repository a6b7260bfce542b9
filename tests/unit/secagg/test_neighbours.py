"""The choice of k: tails against scipy, and every event of the bound against simulated circles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import hypergeom

from cape.core.errors import InvalidInput, PrivacyLeakWarning
from cape.secagg import Identity, Parameters, Roster, automatic
from cape.secagg.neighbours import _at_least, best


@pytest.mark.parametrize(
    ("total", "marked", "drawn"), [(20, 5, 7), (999, 333, 184), (999, 50, 74), (10, 0, 3), (10, 10, 3)]
)
def test_tails_agree_with_scipy(total, marked, drawn):
    ours = _at_least(total, marked, drawn)
    theirs = hypergeom.logsf(np.arange(drawn + 2) - 1, total, marked, drawn)
    finite = np.isfinite(ours)
    assert np.array_equal(finite, np.isfinite(theirs))
    np.testing.assert_allclose(ours[finite], theirs[finite], rtol=1e-6, atol=1e-8)


def failure_by_scipy(n, k, t, colluding, dropping, lying):
    """The formula of the module's docstring, once more, with scipy's distributions."""
    secrecy = n * hypergeom.sf(t - 1, n - 1, colluding, k)
    answers = n * hypergeom.sf(k + 1 - t, n - 1, dropping, k)
    if lying:
        run = hypergeom.sf(t - k // 2 - 2, n, colluding, k // 2)
        stories = n * hypergeom.sf(2 * t - k - 2, n - 1, colluding, k)
    else:
        run = hypergeom.pmf(k // 2, n, colluding + dropping, k // 2)
        stories = 0.0
    return secrecy + answers + n * (n - 1) / 2 * run**2 + stories


@pytest.mark.parametrize("lying", [True, False])
@pytest.mark.parametrize(
    ("n", "k", "colluding", "dropping"), [(60, 20, 19, 3), (100, 52, 33, 5), (1000, 74, 50, 50)]
)
def test_the_bound_is_the_formula_at_its_best_number_of_helpers(n, k, colluding, dropping, lying):
    found = best(n, k, colluding, dropping, lying=lying)
    every = {t: failure_by_scipy(n, k, t, colluding, dropping, lying) for t in range(k // 2 + 1, k + 2)}
    expected = min(every.values())
    assert every[found.helpers] == pytest.approx(expected, rel=1e-6)
    assert 2.0**found.log2_failure == pytest.approx(min(1.0, expected), rel=1e-6)


def events(order, n, k, t, colluding, dropped):
    """Return whether secrecy, answers and connection fail on one circle, from their definitions."""
    secrecy = answers = False
    place = {site: i for i, site in enumerate(order)}
    for site in range(n):
        here = place[site]
        peers = [order[(here + d) % n] for d in range(-k // 2, k // 2 + 1) if d]
        secrecy |= site not in colluding and sum(p in colluding for p in peers) >= t
        answers |= sum(p not in dropped for p in [*peers, site]) < t and site not in dropped
    alive = [i for i, site in enumerate(order) if site not in colluding and site not in dropped]
    gaps = [(b - a - 1) % n for a, b in zip(alive, [*alive[1:], alive[0]], strict=True)]
    return secrecy, answers, sum(gap >= k // 2 for gap in gaps) >= 2


@pytest.mark.parametrize(("n", "k", "colluding", "dropping"), [(40, 6, 8, 4), (40, 4, 4, 8), (60, 8, 20, 6)])
def test_the_bound_holds_on_simulated_circles(n, k, colluding, dropping):
    # Dropouts at random: the curious aggregator's bound. k is far too small, so that failures are seen.
    random = np.random.default_rng(7)
    found = best(n, k, colluding, dropping, lying=False)
    t, tries = found.helpers, 1500
    counts = np.zeros(4)
    for _ in range(tries):
        order = list(random.permutation(n))
        failed = events(order, n, k, t, set(range(colluding)), set(range(n - dropping, n)))
        counts += [*failed, any(failed)]
    log = np.log
    bounds = [
        np.exp(log(n) + _at_least(n - 1, colluding, k)[t]),
        np.exp(log(n) + _at_least(n - 1, dropping, k)[k + 2 - t]),
        np.exp(log(n * (n - 1) / 2) + 2 * _at_least(n, colluding + dropping, k // 2)[k // 2]),
        2.0**found.log2_failure,
    ]
    rates = counts / tries
    for rate, bound in zip(rates, bounds, strict=True):
        assert rate <= min(1, bound) + 4 * np.sqrt(max(rate, 1 / tries) / tries)
    assert rates[-1] > 0  # the test sees failures, so it could see too many


@pytest.mark.slow(1.5)
def test_a_liar_who_chooses_the_dropped_cannot_cut_the_circle_more_often_than_the_bound():
    # It needs two runs of k/2 places, each with so many colluders that the t helpers of the site at its
    # edge can do without the rest.
    n, k, colluding, t = 60, 12, 20, 11
    random = np.random.default_rng(8)
    tries, cuts = 4000, 0
    need = t - k // 2 - 1
    for _ in range(tries):
        marked = (random.permutation(n) < colluding).astype(int)
        runs = np.array([np.take(marked, range(i, i + k // 2), mode="wrap").sum() for i in range(n)])
        heavy = np.flatnonzero(runs >= need)
        cuts += any(k // 2 <= (b - a) % n <= n - k // 2 for a in heavy for b in heavy)
    bound = n * (n - 1) / 2 * np.exp(2 * _at_least(n, colluding, k // 2)[need])
    rate = cuts / tries
    assert 0 < rate <= min(1.0, bound) + 4 * np.sqrt(rate / tries)


@pytest.mark.parametrize("lying", [True, False])
@pytest.mark.parametrize(("n", "colluding", "dropping"), [(100, 33, 10), (200, 10, 10), (1000, 333, 50)])
def test_automatic_is_the_smallest_below_2_to_the_minus_40(n, colluding, dropping, lying):
    found = automatic(n, colluding, dropping, 67, lying=lying)
    assert found.log2_failure < -40
    assert found.neighbours % 2 == 0
    smaller = best(n, found.neighbours - 2, colluding, dropping, lying=lying)
    assert smaller.log2_failure >= -40
    assert found.neighbours // 2 < found.helpers <= found.neighbours + 1


def test_all_are_neighbours_up_to_fifty_sites_and_when_nothing_less_is_enough():
    assert automatic(50, 16, 5, 34).neighbours == 49
    assert automatic(50, 16, 5, 34).helpers == 34
    assert automatic(60, 40, 15, 51).neighbours == 59


def test_more_collusion_or_dropout_takes_more_neighbours():
    few = automatic(500, 25, 25, 263).neighbours
    assert few < automatic(500, 100, 25, 301).neighbours
    assert few < automatic(500, 25, 60, 263).neighbours
    assert few < automatic(500, 25, 25, 263, bits=80).neighbours


def roster(n: int) -> Roster:
    return Roster.of({f"{i:04d}": i.to_bytes(32, "big") for i in range(n)})


def test_a_k_that_is_too_small_warns():
    with pytest.warns(PrivacyLeakWarning, match="4 neighbours of 20 sites"):
        chosen = Parameters.agree(bytes(16), roster(20), 3, colluding=2, neighbours=4)
    assert chosen.neighbours == 4
    assert chosen.threshold == 12


@pytest.mark.parametrize("neighbours", [3, 0, 1, 20, "some", 4.0, -2])
def test_a_k_that_cannot_be_is_refused(neighbours):
    with pytest.raises(InvalidInput, match="neighbours"):
        Parameters.agree(bytes(16), roster(20), 3, neighbours=neighbours)


def test_all_and_n_minus_one_mean_the_same():
    one, two = (Parameters.agree(bytes(16), roster(20), 3, neighbours=k) for k in ("all", 19))
    assert one == two
    assert one.helpers == one.threshold


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"threshold": 5}, "threshold must be at least 7"),
        ({"threshold": 6}, "threshold must be at least 7"),
        ({"threshold": 11}, "threshold"),
        ({"colluding": 10}, "colluding"),
        ({"dropping": -1}, "dropping"),
        ({"bits": 16}, "bits"),
    ],
)
def test_unsafe_parameters_are_refused(change, match):
    with pytest.raises(InvalidInput, match=match):
        Parameters.agree(bytes(16), roster(10), 3, **change)


@pytest.mark.parametrize(("run", "length"), [(b"short", 3), (bytes(16), 0), (bytes(16), 1 << 29)])
def test_run_and_length_are_checked(run, length):
    with pytest.raises(InvalidInput):
        Parameters.agree(run, roster(10), length)


def test_every_parameter_is_in_the_digest():
    base = Parameters.agree(bytes(16), roster(10), 3, colluding=1)
    changed = [
        Parameters.agree(b"\1" * 16, roster(10), 3, colluding=1),
        Parameters.agree(bytes(16), roster(11), 3, colluding=1, threshold=base.threshold + 1),
        Parameters.agree(bytes(16), roster(10), 4, colluding=1),
        Parameters.agree(bytes(16), roster(10), 3, colluding=1, bits=32),
        Parameters.agree(bytes(16), roster(10), 3, colluding=2, threshold=7),
        Parameters.agree(bytes(16), roster(10), 3, colluding=1, threshold=8),
        Parameters.agree(bytes(16), roster(10), 3, colluding=1, lying=False, threshold=6),
        replace(base, neighbours=8),
        replace(base, helpers=base.helpers + 1),
        replace(base, threshold=base.threshold + 2),
    ]
    assert len({base.digest(), *(p.digest() for p in changed)}) == 1 + len(changed)
    assert base.digest() == Parameters.agree(bytes(16), roster(10), 3, colluding=1).digest()
    assert Identity(b"\1" * 32).public not in base.digest()
