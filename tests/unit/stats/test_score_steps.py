"""Steps from clipped scores: they arrive where scores add up to 0, and errors are what they say."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import ncx2

from cape.stats.score_norms import BINS, FALLS, Beyond, Lengths
from cape.stats.score_steps import Point, ScoreStep, errors, next_point

WIDTH = 4
TRUE = np.array([-0.4, 0.8, -0.5, 0.2])


def rows(many, rng):
    x = np.column_stack([np.ones(many), rng.normal(size=(many, WIDTH - 1))])
    x[:, 3] = 0.6 * x[:, 2] + 0.8 * x[:, 3]
    return x, (rng.random(many) < expit(x @ TRUE + 0.5 * (x[:, 1] > 1))).astype(float)  # no model is true


def fitted(x, y):
    w = np.zeros(WIDTH)
    for _ in range(50):
        p = expit(x @ w)
        w = w + np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x, x.T @ (y - p))
    return w


def asked(x, y, point, noise, rng, clip=True):
    """What sums at a point are, with this noise in a sum whose rows are at most 1 long."""
    u, eta = x @ point.turn.T, x @ point.weights
    p = expit(eta)
    s, length = u * (y - p)[:, None], np.abs(y - p) * np.linalg.norm(u, axis=1)
    if clip:
        s = s * np.minimum(1, point.bound / length)[:, None]
    curvature = p * (1 - p) * np.minimum(1, point.curve / (p * (1 - p) * (u**2).sum(axis=1)))

    def blurred(matrix, std):
        upper = np.triu(rng.normal(0, std, matrix.shape), 1)
        return matrix + upper + upper.T + np.diag(rng.normal(0, std * math.sqrt(2), WIDTH))

    lengths = None
    if point.edges:
        counts = np.bincount(np.searchsorted(point.edges, length), minlength=BINS)
        lengths = Lengths(np.array(point.edges), counts + rng.normal(0, noise, BINS), noise)
    return ScoreStep(
        point,
        float(len(x)),
        s.sum(axis=0) + rng.normal(0, noise * point.bound, WIDTH),
        blurred((u * curvature[:, None]).T @ u, noise * point.curve),
        blurred(s.T @ s, noise * point.bound**2),
        noise * point.bound,
        noise * point.curve,
        noise * point.bound**2,
        lengths,
        True,
    )


def run(x, y, noise, rng, steps=5):
    point = Point.first(np.zeros(WIDTH), np.eye(WIDTH), 0.5, 0.25, noise=noise, count=len(x))
    step, moved = None, 0.0
    for i in range(steps):
        new = asked(x, y, point, noise, rng)
        step = new if step is None else new.with_earlier(step, moved)
        if i < steps - 1:
            last = i == steps - 2
            point, moved = next_point(step, whiten=not last, lengths=not last, noise=noise)
    return errors(step, np.full(WIDTH, 20.0))


def test_without_noise_steps_end_at_the_maximum_of_the_likelihood():
    rng = np.random.default_rng(1)
    x, y = rows(5_000, rng)
    found = run(x, y, 0.0, rng, steps=9)
    assert found.weights == pytest.approx(fitted(x, y), abs=1e-9)
    p = expit(x @ found.weights)
    inverse = np.linalg.inv((x * (p * (1 - p))[:, None]).T @ x)
    scores = x * (y - p)[:, None]
    assert found.sampling == pytest.approx(inverse @ (scores.T @ scores) @ inverse, rel=1e-5)
    assert found.noise.max() == 0
    assert np.abs(found.clipped).max() == 0


@pytest.mark.parametrize(("many", "noise"), [(2_000, 3.0), (2_000, 12.0), (20_000, 12.0)])
def test_errors_are_as_large_as_they_say(many, noise):
    """z of the fit without privacy: its variance is that of noise, clipping and unfinished steps."""
    rng, z = np.random.default_rng(2), []
    for _ in range(60):
        x, y = rows(many, rng)
        found = run(x, y, noise, rng)
        beside = found.noise + found.clipped + found.unsettled + found.hidden
        z.append((found.weights - fitted(x, y)) / np.sqrt(np.diag(beside)))
    assert np.mean(np.abs(z) < 1.96) > 0.93
    assert np.mean(np.square(z)) > 0.4  # and not as large as one likes


def test_a_bound_that_leaves_nothing_out_follows_the_longest_score():
    """Unless that has become much longer: then a bound that clips some is chosen, and says what it does."""
    rng = np.random.default_rng(8)
    x, y = rows(2_000, rng)
    step = asked(
        x, y, Point.first(np.zeros(WIDTH), np.eye(WIDTH), 0.5, 0.25, noise=3.0, count=2_000), 3.0, rng
    )
    lengths = replace(step.lengths, longest=4.0)
    point, _ = next_point(replace(step, lengths=lengths), whiten=False, lengths=False, noise=1e-3)
    assert point.bound == 4.0
    for longest in (3.0, 5.0):
        moved = point.unclipped(longest, lengths, 1e-3, FALLS)
        assert (moved.bound, moved.beyond.bound, moved.beyond.excess) == (longest, longest, 0)
    moved = point.unclipped(400.0, lengths, 40.0, FALLS)
    assert moved.bound == moved.beyond.bound < 40
    assert moved.beyond.excess > 0


def test_a_feature_that_varies_less_than_it_was_thought_to_is_not_taken_to_be_known():
    """Noise leaves all eigenvalues alike: that one of them is a tenth of the others cannot be seen."""
    rng, z = np.random.default_rng(11), []
    x, y = rows(300, rng)
    x[:, 3] *= 0.3
    true = fitted(x, y)
    for noise in (20.0, 25.0, 30.0):
        for _ in range(60):
            found = run(x, y, noise, rng)
            beside = found.noise + found.clipped + found.unsettled + found.hidden
            z.append((found.weights - true) / np.sqrt(np.diag(beside)))
    assert np.mean(np.abs(z) < 1.96, axis=0).min() > 0.9


def test_a_step_that_noise_makes_is_drawn_to_0():
    rng = np.random.default_rng(3)
    x, y = rows(500, rng)
    y = (rng.random(500) < 0.5).astype(float)  # nothing to find
    point = Point.first(np.zeros(WIDTH), np.eye(WIDTH), 0.5, 0.25, noise=30.0, count=500)
    steps = [asked(x, y, point, 30.0, rng) for _ in range(40)]
    assert np.mean([np.sum(s.drawn**2) for s in steps]) < 0.3 * np.mean([np.sum(s.change**2) for s in steps])


def test_what_noise_hides_is_said_to_be_hidden():
    rng = np.random.default_rng(4)
    x, y = rows(2_000, rng)
    x[:, 3] = x[:, 2]  # the two cannot be told apart
    found = run(x, y, 1.0, rng)
    assert found.hidden[2, 2] > 1
    assert found.hidden[1, 1] < 0.1
    together = np.array([0, 0, 1, 1])
    assert together @ found.hidden @ together < 0.1


@pytest.mark.parametrize("ratio", np.linspace(0, 4, 17))
def test_as_one_more_error_a_bias_widens_an_interval_by_at_least_what_it_needs(ratio):
    """The quantile of |N(ratio, 1)|, which covers a bias of that size, is no longer at usual levels."""
    for level in (0.9, 0.95, 0.99):
        needed = math.sqrt(ncx2.ppf(level, 1, max(ratio, 1e-12) ** 2))
        z = math.sqrt(ncx2.ppf(level, 1, 1e-18))
        assert z * math.hypot(1, ratio) > 0.99 * needed


@pytest.mark.parametrize("seed", range(10))
def test_an_estimate_that_noise_hides_is_no_further_off_than_anything_can_be(seed):
    rng = np.random.default_rng(seed)
    x, y = rows(60, rng)
    point = Point.first(np.zeros(WIDTH), np.eye(WIDTH), 0.5, 0.25, noise=60.0, count=60.0)
    possible = np.array([5.0, 10.0, 10.0, 20.0])
    found = errors(asked(x, y, point, 60.0, rng), possible)
    privacy = found.noise + found.clipped + found.unsettled + found.hidden
    error = np.sqrt(np.diag(privacy))
    assert (error <= 2 * possible * (1 + 1e-9)).all()
    assert (np.abs(found.weights) <= possible)[error >= 2 * possible * (1 - 1e-9)].all()
    assert (np.linalg.eigvalsh(privacy) > -1e-9).all()


@pytest.mark.parametrize("direction", range(WIDTH))
def test_what_was_clipped_in_one_direction_is_counted_there_whole(direction):
    """Rows are alike in all directions but for some that are far out in one: all of their excess is there."""
    rng, bound, many = np.random.default_rng(direction), 5.0, 200
    inside = rng.normal(size=(4000, WIDTH))
    far = np.zeros((many, WIDTH))
    far[:, direction] = bound
    scores = np.concatenate([inside, far])
    beyond = Beyond(bound, float(many), 700.0, 9000.0)
    point = Point(np.zeros(WIDTH), np.eye(WIDTH), 1.0, 1.0, 0.0, bound, 4.0, beyond=beyond)
    curvature, spread = 4000 * np.eye(WIDTH), scores.T @ scores
    step = ScoreStep(point, 4200.0, np.zeros(WIDTH), curvature, spread, 1.0, 1.0, 1.0, None, True)
    possible = np.full(WIDTH, 10.0)
    whole = 700 / 4000  # the bias, if all of it lies in that direction
    apart = np.sqrt(np.diag(errors(step, possible, alike=False).clipped))
    alike = np.sqrt(np.diag(errors(step, possible).clipped))
    assert apart[direction] == pytest.approx(whole, rel=0.02)
    others = np.arange(WIDTH) != direction
    assert (apart[others] < 0.65 * whole).all()
    assert alike[direction] < 0.85 * whole
