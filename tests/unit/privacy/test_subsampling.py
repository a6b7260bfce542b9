"""Poisson subsampling by dp-accounting: its conventions, its direction of error, and the worst pair."""

import math
import sys

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from cape.core.errors import InvalidInput, MissingExtra
from cape.privacy import (
    compose,
    delta,
    dominating_mu,
    epsilon,
    gaussian,
    noise_for_mu,
    subsampled,
    subsampling,
)

# adjacency -> the distance of the two means without sampling, in units of the bound on a record
DISTANCE = {"replace-one": 2.0, "add-remove": 1.0}


@pytest.mark.parametrize("adjacency", DISTANCE)
@pytest.mark.parametrize(("noise", "steps"), [(20.0, 100), (5.0, 3)])
def test_without_sampling_it_is_the_exact_gaussian(adjacency, noise, steps):
    total = compose(*[DISTANCE[adjacency] / noise] * steps)
    found = subsampled(noise, 1.0, steps, delta=1e-5, adjacency=adjacency)
    assert found.delta == 1e-5
    exact = epsilon(1e-5, total)
    assert exact * (1 - 1e-6) <= found.epsilon <= exact * 1.002
    found = subsampled(noise, 1.0, steps, epsilon=1.0, adjacency=adjacency)
    assert found.epsilon == 1.0
    assert delta(1.0, total) * (1 - 1e-6) <= found.delta <= delta(1.0, total) * 1.01


def mixture(q, shift, noise):
    return lambda x: (1 - q) * norm.pdf(x, 0, noise) + q * norm.pdf(x, shift, noise)


def divergence(p, q, factor, width):
    return quad(lambda x: max(0.0, p(x) - factor * q(x)), -width, width, limit=500, points=[0.0])[0]


@pytest.mark.quick_cases("2.0-0.5-0.3", seconds=1.6)
@pytest.mark.parametrize(("noise", "q", "e"), [(1.0, 0.1, 0.2), (2.0, 0.5, 0.3), (0.7, 0.02, 0.05)])
def test_one_step_is_the_divergence_of_the_two_mixtures(noise, q, e):
    width, factor = 1 + 12 * noise, math.exp(e)
    none, one, other = (mixture(q, shift, noise) for shift in (0.0, 1.0, -1.0))
    replaced = divergence(one, other, factor, width)
    found = subsampled(noise, q, 1, epsilon=e).delta
    assert replaced * (1 - 1e-6) <= found <= replaced * 1.001
    removed = max(divergence(one, none, factor, width), divergence(none, one, factor, width))
    found = subsampled(noise, q, 1, epsilon=e, adjacency="add-remove").delta
    assert removed * (1 - 1e-6) <= found <= removed * 1.001


def test_opposite_records_at_the_bound_are_the_worst_pair():
    rng = np.random.default_rng(0)
    axis = np.linspace(-9.0, 9.0, 361)
    cell = (axis[1] - axis[0]) ** 2
    x, y = np.meshgrid(axis, axis)

    def density(record, q, noise):
        centre = np.exp(-(x**2 + y**2) / (2 * noise**2))
        moved = np.exp(-((x - record[0]) ** 2 + (y - record[1]) ** 2) / (2 * noise**2))
        return ((1 - q) * centre + q * moved) / (2 * math.pi * noise**2)

    def diverge(p, q, factor):
        return float(np.maximum(0.0, p - factor * q).sum() * cell)

    for noise, q, factor in [(1.0, 0.3, 1.1), (0.6, 0.05, 1.0), (1.0, 0.7, 1.5), (0.8, 0.4, 0.7)]:
        worst = diverge(density((1, 0), q, noise), density((-1, 0), q, noise), factor)
        for _ in range(60):
            radius, angle = np.sqrt(rng.uniform(size=2)), rng.uniform(0, 2 * math.pi, size=2)
            first, second = (
                density((r * math.cos(a), r * math.sin(a)), q, noise)
                for r, a in zip(radius, angle, strict=True)
            )
            assert diverge(first, second, factor) <= worst + 1e-6
            assert diverge(first, density((0, 0), q, noise), factor) <= worst + 1e-6


@pytest.mark.slow(2.7)
def test_the_total_grows_with_every_step_and_every_sample():
    def total(noise=2.0, rate=0.05, steps=50, **others):
        return subsampled(noise, rate, steps, delta=1e-6, **others).epsilon

    here = total()
    assert total(noise=3.0) < here < total(noise=1.5)
    assert total(rate=0.02) < here < total(rate=0.1) < total(rate=1.0)
    assert total(steps=20) < here < total(steps=100)
    assert total(adjacency="add-remove") < here
    assert subsampled(2.0, 0.05, 50, delta=1e-8).epsilon > here
    assert subsampled(2.0, 0.05, 50, epsilon=here).delta == pytest.approx(1e-6, rel=0.01)


def test_the_grid_is_fine_enough_for_small_losses_and_small_enough_for_large_ones():
    assert subsampled(100.0, 1e-3, 10_000, delta=1e-5).epsilon == pytest.approx(
        subsampled(100.0, 1e-3, 10_000, delta=1e-5, grid=1e-7).epsilon, rel=0.02
    )
    large = subsampled(0.5, 1.0, 2_000, delta=1e-5).epsilon
    exact = epsilon(1e-5, compose(*[4.0] * 2_000))
    assert exact * (1 - 1e-6) <= large <= exact * 1.01


def test_no_delta_below_what_rounding_allows():
    assert subsampled(50.0, 0.01, 10, epsilon=5.0).delta == 1e-12
    with pytest.raises(InvalidInput, match="delta must be a finite number at least 1e-12"):
        subsampled(50.0, 0.01, 10, delta=1e-13)


def test_exactly_one_of_the_two_is_asked_for():
    for both in ({}, {"delta": 1e-5, "epsilon": 1.0}):
        with pytest.raises(InvalidInput, match="exactly one of delta and epsilon"):
            subsampled(1.0, 0.1, 10, **both)


def test_the_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(MissingExtra, match=r"cape\.privacy\.subsampled .*cape-dp\[accounting\]"):
        subsampled(1.0, 0.1, 10, delta=1e-5)


@pytest.mark.slow_cases("1.0-0.01-300-replace-one", seconds=1.8)
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize(("noise", "rate", "steps"), [(1.0, 0.01, 300), (2.0, 0.1, 50), (8.0, 0.5, 20)])
def test_the_dominating_mu_lies_above_the_run_and_close_to_it(noise, rate, steps, adjacency):
    slack = 1e-9
    mu = dominating_mu(noise, rate, steps, slack, adjacency=adjacency)
    losses = subsampling._accountant(noise, rate, steps, adjacency, 1e-3)  # coarser: larger deltas
    epsilons = np.linspace(0.0, losses.get_epsilon(slack), 301)
    run = np.array([losses.get_delta(float(e)) for e in epsilons])
    covered, smaller = (
        np.array([(1 - slack) * gaussian.delta(float(e), m) + slack for e in epsilons])
        for m in (mu, 0.97 * mu)
    )
    assert np.all(run <= covered * 1.01)
    assert np.any(run > smaller)  # a cover that were 3% smaller would not hold somewhere


def test_without_sampling_the_cover_is_exact():
    assert dominating_mu(3.0, 1.0, 25, 1e-9) == pytest.approx(2 * 5 / 3)
    assert dominating_mu(3.0, 1.0, 25, 1e-9, adjacency="add-remove") == pytest.approx(5 / 3)
    assert noise_for_mu(0.5, 1.0, 25, 1e-9) == pytest.approx(20.0)


@pytest.mark.slow_cases("0.4-0.02-200-add-remove", "1.0-0.2-30-add-remove", seconds=0.96)
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize(("mu", "rate", "steps"), [(0.4, 0.02, 200), (1.0, 0.2, 30), (0.05, 0.5, 10)])
def test_noise_is_found_for_a_cover(mu, rate, steps, adjacency):
    noise = noise_for_mu(mu, rate, steps, 1e-9, adjacency=adjacency)
    assert dominating_mu(noise, rate, steps, 1e-9, adjacency=adjacency) <= mu
    assert dominating_mu(noise * 0.99, rate, steps, 1e-9, adjacency=adjacency) > mu


def test_a_cover_that_makes_no_sense():
    with pytest.raises(InvalidInput, match="adjacency"):
        dominating_mu(1.0, 0.1, 10, 1e-9, adjacency="swap")
    with pytest.raises(InvalidInput, match="slack"):
        dominating_mu(1.0, 0.1, 10, 1e-30)
    with pytest.raises(InvalidInput, match="mu"):
        noise_for_mu(0.0, 0.1, 10, 1e-9)
