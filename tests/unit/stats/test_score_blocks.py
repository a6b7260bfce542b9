"""Steps of several predictors: curvatures shrunk toward each other, and toward what is expected of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cape.stats.matrices import symmetric
from cape.stats.score_steps import Point, ScoreStep, errors

COUNT, BEND, NOISE = 5000.0, 0.2, 250.0
CHANGED = np.kron(np.diag([1.0, 0.3]), np.eye(3))  # the second predictor has less curvature than the first


def step(curvature, noise=NOISE, **changed):
    point = Point.first(np.zeros(6), np.eye(6), 0.45, BEND, noise=1.0, count=COUNT, blocks=2)
    sizes = COUNT * BEND
    score = np.linspace(-0.1, 0.1, 6) * sizes
    made = ScoreStep(
        point, COUNT, score, curvature, sizes * np.eye(6), 30.0, noise, 20.0, None, True, blocks=2
    )
    return replace(made, **changed)


def noisy(true, rng):
    return true + symmetric(rng.normal(0, NOISE * np.sqrt(2), 6), rng.normal(0, NOISE, 15))


def test_what_is_expected_of_a_curvature_counts_where_noise_hides_it():
    rng, true = np.random.default_rng(1), COUNT * BEND * CHANGED
    blind, aware = [], []
    for _ in range(100):
        curvature = noisy(true, rng)
        blind.append(np.linalg.norm(step(curvature).likely - true))
        aware.append(np.linalg.norm(step(curvature, expected=CHANGED).likely - true))
    assert np.mean(aware) < 0.8 * np.mean(blind)


def test_without_noise_a_curvature_is_what_it_is():
    true = COUNT * BEND * CHANGED
    assert step(true, 0.0, expected=np.eye(6)).likely == pytest.approx(true)
    assert step(true, 0.01, expected=np.eye(6)).likely == pytest.approx(true, abs=0.1)


def test_what_shrinking_leaves_of_noise_counts_and_without_blocks_all_of_it():
    curvature = noisy(COUNT * BEND * np.eye(6), np.random.default_rng(2))
    several, one = step(curvature), step(curvature, blocks=0)
    assert several.curvature_left < 0.8 * NOISE
    assert one.curvature_left == NOISE
    possible = np.full(6, 20.0)
    for made in (several, one):
        square = float(made.change @ made.change)
        noise = made.score_noise**2 + made.curvature_left**2 * square
        found = errors(made, possible).noise
        assert found == pytest.approx(noise * made.inverse @ made.inverse)


def test_an_earlier_curvature_counts_as_it_is_expected_to_have_changed():
    before = step(COUNT * BEND * np.eye(6), 1e-3)
    now = step(noisy(COUNT * BEND * CHANGED, np.random.default_rng(3)), expected=CHANGED)
    assert now.with_earlier(before, 0.0).curvature == pytest.approx(COUNT * BEND * CHANGED, rel=1e-3, abs=1.0)


def test_the_spread_is_shrunk_toward_what_is_expected_too():
    rng, true = np.random.default_rng(4), COUNT * BEND * CHANGED
    aware = [
        step(true, expected=CHANGED, spread=noisy(true, rng), spread_noise=NOISE).likely_spread
        for _ in range(100)
    ]
    blind = [step(true, spread=noisy(true, rng), spread_noise=NOISE).likely_spread for _ in range(100)]
    errors_of = [np.mean([np.linalg.norm(each - true) for each in many]) for many in (aware, blind)]
    assert errors_of[0] < 0.8 * errors_of[1]


def test_rows_of_several_directions_have_less_curvature_in_each():
    one, four = (
        Point.first(np.zeros(8), np.eye(8), 0.45, BEND, noise=1.0, count=COUNT, blocks=many)
        for many in (1, 4)
    )
    assert four.curve == pytest.approx(one.curve / 2)
