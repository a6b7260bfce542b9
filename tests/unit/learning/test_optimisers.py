from __future__ import annotations

import math

import numpy as np
import pytest

from cape.core.errors import InvalidInput
from cape.learning import SGD, Adam, Momentum

MAKERS = [lambda: SGD(0.1), lambda: Momentum(0.1, 0.8), lambda: Adam(0.01)]


def gradients(count, size=3):
    return np.random.default_rng(5).normal(size=(count, size))


def test_sgd_is_its_formula():
    assert SGD(0.5).step([1.0, 2.0], [0.2, -0.4]).tolist() == [0.9, 2.2]


def test_momentum_is_its_formula():
    optimiser, at, velocity = Momentum(0.1, 0.9), 1.0, 0.0
    for g in (1.0, -0.5, 0.25):
        velocity = 0.9 * velocity + g
        expected = at - 0.1 * velocity
        at = optimiser.step([at], [g])[0]
        assert at == pytest.approx(expected, rel=1e-15)


def test_adam_is_its_formula():
    optimiser, at, first, second = Adam(0.1, 0.9, 0.99, 1e-8), 1.0, 0.0, 0.0
    for t, g in enumerate((1.0, -0.5, 0.25, 3.0), 1):
        first, second = 0.9 * first + 0.1 * g, 0.99 * second + 0.01 * g * g
        mean, square = first / (1 - 0.9**t), second / (1 - 0.99**t)
        expected = at - 0.1 * mean / (math.sqrt(square) + 1e-8)
        at = optimiser.step([at], [g])[0]
        assert at == pytest.approx(expected, rel=1e-13)


def test_the_first_step_of_adam_is_its_rate_whatever_the_scale_of_the_gradient():
    steps = Adam(0.1).step(np.zeros(3), [1e-3, -5.0, 2e4])
    assert steps == pytest.approx([-0.1, 0.1, -0.1], rel=1e-4)


@pytest.mark.parametrize("make", MAKERS)
def test_a_restored_optimiser_goes_on_to_the_bit(make, tmp_path):
    one, at = make(), np.zeros(3)
    for gradient in gradients(4):
        at = one.step(at, gradient)
    np.savez(tmp_path / "state.npz", **one.state())
    two = make()
    with np.load(tmp_path / "state.npz") as saved:
        two.restore(dict(saved))
    left, right = at, at
    for gradient in gradients(3):
        left, right = one.step(left, gradient), two.step(right, gradient)
        assert np.array_equal(left, right)


@pytest.mark.parametrize("make", MAKERS)
def test_an_empty_state_starts_over(make):
    used, fresh, gradient = make(), make(), gradients(1)[0]
    assert used.state() == {}
    used.step(np.zeros(3), gradient)
    used.restore({})
    assert np.array_equal(used.step(np.ones(3), gradient), fresh.step(np.ones(3), gradient))


@pytest.mark.parametrize("make", MAKERS)
def test_neither_arguments_nor_a_saved_state_change_afterwards(make):
    optimiser, start, gradient = make(), np.ones(3), gradients(1)[0]
    before = gradient.copy()
    optimiser.step(start, gradient)
    saved = optimiser.state()
    copies = {name: array.copy() for name, array in saved.items()}
    optimiser.step(start, gradient)
    assert start.tolist() == [1.0, 1.0, 1.0]
    assert np.array_equal(gradient, before)
    assert all(np.array_equal(saved[name], copies[name]) for name in saved)


@pytest.mark.parametrize("make", MAKERS)
def test_each_walks_down_a_bowl(make):
    optimiser, at = make(), np.array([1.0, -2.0, 0.5])
    for _ in range(600):
        at = optimiser.step(at, 2 * at)
    assert np.linalg.norm(at) < 0.05


@pytest.mark.parametrize("make", MAKERS)
def test_what_does_not_fit_is_refused(make):
    with pytest.raises(InvalidInput, match="gradient must have the shape"):
        make().step(np.zeros(3), np.zeros(2))
    with pytest.raises(InvalidInput, match="state must hold"):
        make().restore({"other": np.zeros(3)})


def test_a_state_of_another_length_is_refused():
    for make in MAKERS[1:]:
        optimiser = make()
        optimiser.step(np.zeros(3), np.ones(3))
        with pytest.raises(InvalidInput, match="must have the shape"):
            optimiser.step(np.zeros(4), np.ones(4))
    with pytest.raises(InvalidInput, match="second must have the shape"):
        Adam().restore({"first": np.zeros(3), "second": np.zeros(2), "steps": np.ones(1)})


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: SGD(0.0), "rate"),
        (lambda: Momentum(0.1, 1.0), "momentum"),
        (lambda: Adam(beta2=1.5), "beta2"),
    ],
)
def test_arguments_out_of_range_are_named(make, name):
    with pytest.raises(InvalidInput, match=name):
        make()
