"""A fit exists whatever the noise is, is least squares without noise, and is not worse than a constant."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes

from cape.analyses.regression import ridge
from cape.analyses.regression.moments import SecondMoments
from cape.analyses.regression.ridge import fit

WEIGHTS = {"y": 0.2, "yy": 1.0, "x": 0.3, "xy": 0.75, "xx": 1.0}


def moments(x, y, noise, rng):
    """The second moments, with noise in units of the sensitivity."""
    d = x.shape[1]
    std = {name: noise * math.sqrt(5.00125 / weight) for name, weight in WEIGHTS.items()}
    above = np.triu(rng.normal(size=(d, d)) * std["xx"] / math.sqrt(2), 1)
    return SecondMoments(
        float(len(y)),
        float(y.sum() + rng.normal() * std["y"]),
        float(y @ y + rng.normal() * std["yy"]),
        x.sum(axis=0) + rng.normal(size=d) * std["x"],
        x.T @ y + rng.normal(size=d) * std["xy"],
        x.T @ x + above + above.T + np.diag(rng.normal(size=d) * std["xx"]),
        0.0,
        *(std[name] for name in ("y", "yy", "x", "xy", "xx")),
    )


def sphere(rows, width, seed, length=2.0):
    """Rows on the sphere, with a linear target of this length."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, width))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    w = rng.normal(size=width)
    y = x @ (length * w / np.linalg.norm(w)) + 0.1 * rng.normal(size=rows)
    return x, np.clip(y, -1, 1), rng


@pytest.mark.parametrize("centred", [True, False])
def test_without_noise_it_is_least_squares(centred):
    x, y, rng = sphere(500, 6, 1)
    x, y = x * 0.7 + 0.1, np.clip(y + 0.2, -1, 1)
    sums = moments(x, y, 0.0, rng)
    found = fit(sums, centred=centred)
    design = np.column_stack([np.ones(len(y)), x]) if centred else x
    known = np.linalg.lstsq(design, y, rcond=None)[0]
    assert [found.intercept] * centred + list(found.weights) == pytest.approx(list(known), rel=1e-5, abs=1e-7)
    assert found.loss == pytest.approx(np.mean((y - design @ known) ** 2), rel=1e-5)


@given(
    data=st.data(),
    width=st.integers(1, 5),
    noise=st.sampled_from([0.0, 1e-6, 1.0, 1e3, 1e9]),
    centred=st.booleans(),
    given_ridge=st.sampled_from([None, 0.0, 1.0]),
)
def test_a_fit_exists_for_any_sums(data, width, noise, centred, given_ridge):
    number = st.floats(-1e6, 1e6)
    numbers = st.lists(number, min_size=width, max_size=width)
    half = np.array(data.draw(st.lists(numbers, min_size=width, max_size=width)))
    sums = SecondMoments(
        data.draw(st.floats(-10, 1e5)), data.draw(number), data.draw(number), np.array(data.draw(numbers)),
        np.array(data.draw(numbers)), half + half.T, 0.0, *[noise] * 5,
    )  # fmt: skip
    found = fit(sums, centred=centred, ridge=given_ridge)
    assert np.isfinite(found.weights).all()
    assert math.isfinite(found.intercept)
    assert 0 <= found.loss <= 1
    assert found.ridge > 0


def test_the_estimated_loss_is_what_the_loss_turns_out_to_be():
    """Stein's correction, on average: without it the loss would be thought lower by several errors."""
    x, y, rng = sphere(4000, 10, 2)
    guessed, true, blind = [], [], []
    for _ in range(300):
        sums = moments(x, y, 10.0, rng)
        found = fit(sums, centred=True)
        w, b = found.weights, found.intercept
        guessed.append(found.loss)
        true.append(np.mean((x @ w + b - y) ** 2))
        blind.append(
            (sums.yy - 2 * sums.xy @ w - 2 * b * sums.y + w @ sums.xx @ w + 2 * b * sums.x @ w) / 4000 + b * b
        )
    error = np.std(guessed) / math.sqrt(300)
    assert abs(np.mean(guessed) - np.mean(true)) < 4 * error
    assert np.mean(true) - np.mean(blind) > 8 * error


@pytest.mark.parametrize("noise", [0.6, 4.2, 35.0, 270.0, 2000.0])
def test_predictions_are_not_worse_than_the_middle_of_the_bounds(noise):
    """At epsilon 10, 1, 0.1, 0.01 and 0.001, over data with and without anything to find."""
    diabetes = load_diabetes()
    sets = [
        sphere(2000, 20, 3)[:2],
        sphere(300, 2, 4, 0.3)[:2],
        (np.clip(diabetes.data / 0.2, -1, 1) / math.sqrt(10), np.clip((diabetes.target - 180) / 170, -1, 1)),
        (np.full((50, 3), 0.5), np.full(50, 0.01)),
        (np.linspace(0.2, 0.9, 400)[:, None], np.linspace(-0.1, 0.1, 400) ** 3),
    ]
    rng = np.random.default_rng(5)
    for x, y in sets:
        for _ in range(25):
            found = fit(moments(x, y, noise, rng), centred=True)
            loss = np.mean((np.clip(x @ found.weights + found.intercept, -1, 1) - y) ** 2)
            assert loss <= 1.05 * np.mean(y**2) + 1e-12


def test_a_rule_without_its_caution_would_be_found_out(monkeypatch):
    monkeypatch.setattr(ridge, "SURE", 0.0)
    monkeypatch.setattr(ridge, "_FAR", 0.0)
    rng, worse = np.random.default_rng(6), 0
    x, y, _ = sphere(300, 2, 4, 0.3)
    for _ in range(50):
        found = fit(moments(x, y, 35.0, rng), centred=True)
        worse += np.mean((np.clip(x @ found.weights + found.intercept, -1, 1) - y) ** 2) > 1.05 * np.mean(
            y**2
        )
    assert worse > 5


def test_the_ridge_grows_with_the_noise_and_a_given_one_is_kept():
    x, y, _ = sphere(3000, 8, 7)
    ridges = [
        np.median([fit(moments(x, y, noise, np.random.default_rng(i)), centred=True).ridge for i in range(9)])
        for noise in (0.0, 1.0, 10.0, 1000.0)
    ]
    assert ridges == sorted(ridges)
    assert math.isinf(ridges[-1])
    sums = moments(x, y, 1.0, np.random.default_rng(1))
    assert fit(sums, centred=True, ridge=500.0).ridge == 500.0
    noisy = dataclasses.replace(sums, xx=-np.eye(8) * 100)
    assert fit(noisy, centred=True, ridge=1.0).ridge > 100
