"""Scores that spread otherwise than their curvature say that a model does not hold; those of one that holds
do not, whatever noise, clipping and few rows do."""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.special import expit

import cape
from cape.analyses.regression.misfit import spread_misfit
from cape.analyses.regression.spreading import Spreading, spreading
from cape.blocks.families import Gamma, Gaussian, Logit, NegativeBinomial, Poisson
from cape.noise import SecureStream
from cape.stats.score_norms import Lengths, edges_around
from cape.stats.score_steps import Point, ScoreStep

FAMILIES = {
    "binomial": Logit(),
    "gaussian": Gaussian(),
    "gamma": Gamma(),
    "poisson": Poisson(),
    "negative-binomial": NegativeBinomial(0.8),
}


def drawn(family, eta, rng):
    if family == "binomial":
        return (rng.random(len(eta)) < expit(eta)).astype(float)
    if family == "gaussian":
        return eta + 2 * rng.normal(size=len(eta))
    mean = np.exp(eta)
    if family == "gamma":
        return rng.gamma(0.7, mean / 0.7)
    return rng.poisson(mean * (rng.gamma(1 / 0.8, 0.8, len(eta)) if family == "negative-binomial" else 1.0))


def step(family, x, y, rng, noise=0.0, bound=math.inf, curve=1e4):
    """Return a last step at the fit, with scores and curvatures cut, and noise in proportion to the cuts."""
    of, w = FAMILIES[family], np.zeros(x.shape[1])
    w[0] = of.link(float(np.clip(y.mean(), 0.01, None)))
    for _ in range(30):
        g, h = of.at(x @ w, y)
        change = np.linalg.solve((x * h[:, None]).T @ x, x.T @ g)
        w += change * min(1.0, 1 / max(np.abs(x @ change).max(), 1e-9))
    g, h = of.at(x @ w, y)
    turn = np.linalg.inv(np.linalg.cholesky((x * h[:, None]).T @ x / len(y)))
    u = x @ turn.T
    sizes = np.abs(g) * np.linalg.norm(u, axis=1)
    curves = h * (u**2).sum(axis=1)
    typical = float(np.sqrt(np.mean(sizes**2)))
    most, bent = min(bound * typical, sizes.max()), curve * curves.mean()
    s = u * (g * np.minimum(1.0, most / np.maximum(sizes, 1e-300)))[:, None]
    h = h * np.minimum(1.0, bent / np.maximum(curves, 1e-300))

    def noisy(matrix, size):
        above = np.triu(rng.normal(size=matrix.shape), 1) + np.diag(rng.normal(size=len(matrix))) / math.sqrt(
            2
        )
        return matrix + size * (above + above.T)

    edges = np.array(edges_around(typical))
    counts = np.bincount(np.searchsorted(edges, sizes), minlength=len(edges) + 1).astype(float)
    counts += noise / 2 * rng.normal(size=len(counts))
    width = x.shape[1]
    point = Point(
        w, turn, typical / math.sqrt(width), curves.mean() / width, 0.0, most, bent, exact=not noise
    )
    noises = (noise * most, noise * bent, noise * most**2)
    longest = float(sizes.max()) * 2
    return ScoreStep(
        point,
        float(len(y)),
        s.sum(axis=0),
        noisy((u * h[:, None]).T @ u, noises[1]),
        noisy(s.T @ s, noises[2]),
        *noises,
        Lengths.possible(edges, counts, noise / 2, len(y), longest),
        True,
    )


def features(rows, rng):
    x = rng.normal(size=rows)
    return np.column_stack(
        [np.ones(rows), x, rng.random(rows) < 0.1, np.minimum(rng.lognormal(0, 1, rows), 8)]
    )


def told(family, found):
    return bool(spread_misfit(family, "log-odds", found))


def seen(family, made):
    return spreading([made], 0.25, dispersed=family not in ("binomial", "poisson"))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("rows", "noise", "cuts"),
    [(150, 0.0, (99, 99)), (2000, 0.0, (99, 99)), (2000, 20.0, (3, 6)), (20000, 30.0, (9, 60))],
)
def test_of_models_that_hold_less_than_one_in_a_hundred_is_told(family, rows, noise, cuts):
    rng = np.random.default_rng(7)
    many = 40 if rows < 20000 else 8
    said = 0
    for _ in range(many):
        x = features(rows, rng)
        y = drawn(family, x @ np.array([-0.8, 0.5, 0.7, 0.15]), rng)
        said += told(family, seen(family, step(family, x, y, rng, noise, *cuts)))
    assert said == 0


def bent(family, x, rng):
    """Targets that are not linear in the features, or whose variance is another."""
    z = x[:, 1]
    if family == "gaussian":
        return 1 + z + np.exp(0.5 * z) * rng.normal(size=len(z))
    if family == "gamma":
        return rng.gamma(5, np.exp(0.5 * np.abs(z)) / 5) * np.exp(0.7 * (z > 0) * rng.normal(size=len(z)))
    if family in ("negative-binomial", "poisson"):
        return rng.poisson(np.exp(1 + 0.5 * z)) * (rng.random(len(z)) < expit(2 * z))
    return drawn(family, z**2 - 2, rng)


@pytest.mark.parametrize(
    ("family", "noise"),
    [
        *((name, 0.0) for name in FAMILIES),
        *((name, 10.0) for name in ("binomial", "gaussian", "negative-binomial")),
    ],
)
def test_models_that_do_not_hold_are_told(family, noise):
    rng = np.random.default_rng(8)
    x = features(40_000, rng)[:, :2]
    found = seen(family, step(family, x, bent(family, x, rng), rng, noise, 9, 60 if noise else 1e4))
    assert found is not None
    assert 1 < found.sure < found.ratio
    assert told(family, found) == (family != "poisson")  # of which the dispersion says it


def test_a_spread_that_is_too_small_is_told_where_nothing_was_cut():
    rng = np.random.default_rng(9)
    x = features(20_000, rng)[:, :2]
    y = drawn("binomial", x[:, 1] ** 2 - 0.5, rng)  # more than half, and a U
    found = seen("binomial", step("binomial", x, y, rng))
    assert found is not None
    assert 0 < found.ratio < found.sure < 1
    assert f"at most {found.sure:.2f} times" in spread_misfit("binomial", "log-odds", found)
    cut = seen("binomial", step("binomial", x, y, rng, noise=1.0, bound=1.5))
    assert cut is None or cut.sure >= 1  # noise may hide rows with the longest scores


def test_where_nothing_can_be_seen_nothing_is_said():
    rng = np.random.default_rng(10)
    x = features(40_000, rng)[:, :2]
    made = step("binomial", x, bent("binomial", x, rng), rng)
    assert told("binomial", seen("binomial", made))
    for other in (
        replace(made, persons=3),
        replace(made, lengths=None),
        replace(made, score=made.score + 0.5 * made.curvature[0]),  # weights are far from the fit
        replace(made, spread=0.2 * made.spread),  # most was cut
    ):
        assert seen("binomial", other) is None
    assert spread_misfit("binomial", "log-odds", None) == ""
    assert spread_misfit("binomial", "log-odds", Spreading(1.3, 1.01)) == ""
    assert spread_misfit("gamma", "log means", Spreading(1.3, 1.05)) == ""
    assert spread_misfit("gamma", "log means", Spreading(0.5, 0.8)) == ""
    assert spread_misfit("poisson", "log rates", Spreading(9.0, 8.0)) == ""  # its dispersion says it


def people(rows, rng):
    z = rng.normal(size=rows)
    ill = rng.random(rows) < expit(z**2 - 2)
    kinds = np.exp(np.column_stack([np.zeros(rows), z**2 - 1.5, -0.3 * z - 1]))
    kind = (rng.random(rows)[:, None] * kinds.sum(axis=1)[:, None] > kinds.cumsum(axis=1)).sum(axis=1)
    return {
        "age": np.clip(50 + 10 * z, 0, 100),
        "ill": np.where(ill, "yes", "no"),
        "kind": np.array(["p", "q", "r"])[kind],
        "cost": np.maximum(rng.gamma(2, np.exp(1 + 0.4 * z**2) / 2), 0.001),
    }


SCHEMA = cape.Schema(age=(0, 100), ill=["no", "yes"], kind=["p", "q", "r"], cost=(0.001, 500))
QUESTIONS = {
    "logistic": (cape.LogisticRegression("ill", ["age"]), "Log-odds are not linear"),
    "probit": (cape.GLM("ill", ["age"], family="binomial", link="probit"), "Probits are not linear"),
    "multinomial": (cape.GLM("kind", ["age"], family="multinomial"), "Log-odds are not linear"),
    "ordinal": (
        cape.GLM("kind", ["age"], family="ordinal"),
        'differ between thresholds.*family = "multinomial"',
    ),
    "gaussian": (cape.GLM("cost", ["age"]), 'The variance.*family = "gamma"'),
}


@pytest.mark.parametrize("scheme", ["none", "cape"])
@pytest.mark.parametrize("name", QUESTIONS)
def test_releases_say_so_beside_their_tables(name, scheme):
    frame = pl.DataFrame(people(40_000, np.random.default_rng(11)))
    parts = {site: frame[i::3] for i, site in enumerate("abc")}
    stream = SecureStream(bytes([3]) * 32)
    asked, words = QUESTIONS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        release = cape.Consortium(parts, SCHEMA, cape.Budget(6.0, 1e-6), stream=stream).release(
            asked, share=1.0, scheme=scheme
        )
    assert re.search(words, release.model.misfit)
    assert "spline(...)" in release.model.misfit
    assert release.model.misfit in release.notes()
    assert release.model.to_dict()["misfit"] == release.model.misfit


def test_rows_that_count_in_unequal_shares_say_nothing():
    frame = pl.DataFrame(people(3000, np.random.default_rng(12)))
    parts = {site: frame[i::3] for i, site in enumerate("abc")}
    asked = cape.GLM("ill", ["age"], family="binomial", weights="cost")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        release = cape.Consortium(parts, SCHEMA, cape.Budget(5.0, 1e-6)).release(
            asked, share=1.0, scheme="none"
        )
    assert release.model.spreading is None
    assert release.model.misfit == ""
