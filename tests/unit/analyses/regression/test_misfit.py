"""Models that do not fit say so, where that is certain, and what to ask instead; those that fit do not."""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import cape
from cape.analyses.regression.glm_model import _said
from cape.analyses.regression.joint import WaldTest
from cape.analyses.regression.misfit import hazards_misfit, misfit_of
from cape.noise import SecureStream
from cape.stats.estimates import Estimate

SCHEMA = cape.Schema(x=(0, 10), n=(0, 200), years=(0, 5), died=["no", "yes"], arm=["old", "new"])


def released(analysis, columns, scheme, seed=0, epsilon=3.0):
    frame = pl.DataFrame(columns)
    schema = cape.Schema({name: SCHEMA[name] for name in columns})
    parts = {name: frame[i::3] for i, name in enumerate("abc")}
    stream = SecureStream(bytes([seed]) * 32)
    consortium = cape.Consortium(parts, schema, cape.Budget(epsilon, 1e-6), colluding=1, stream=stream)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return consortium.release(analysis, share=1.0, scheme=scheme)


def counts(kind, seed, rows=6000):
    rng = np.random.default_rng(seed)
    x = np.clip(rng.normal(5, 1.5, rows), 0, 10)
    mean = np.exp(0.8 + 0.15 * (x - 5))
    drawn = {
        "poisson": rng.poisson(mean),
        "overdispersed": rng.poisson(mean * rng.gamma(2, 0.5, rows)),
        "zeros": rng.poisson(3 * mean) * (rng.random(rows) < 0.3),
        "regular": np.rint(mean),
    }
    return {"x": x, "n": np.clip(drawn[kind], 0, 200).astype(float)}


@pytest.mark.parametrize("scheme", ["none", "cape"])
@pytest.mark.parametrize(
    ("kind", "family", "words"),
    [
        ("overdispersed", "poisson", 'vary more than Poisson\'s.*ask family = "negative-binomial"'),
        ("regular", "poisson", 'vary less than Poisson\'s.*ask family = "gaussian"'),
        ("zeros", "poisson", "vary more"),
    ],
)
def test_counts_that_are_not_of_their_family_are_told(kind, family, words, scheme):
    if kind == "regular" and scheme == "cape":
        pytest.skip("scores were shortened: the dispersion has no upper end")
    release = released(cape.GLM("n", ["x"], family=family), counts(kind, 1), scheme)
    assert re.search(words, release.model.misfit)
    assert release.model.misfit in release.notes()
    assert release.model.misfit in " ".join(str(release).split())
    assert release.model.to_dict()["misfit"] == release.model.misfit


@pytest.mark.one_in(3, seconds=0.4)
@pytest.mark.parametrize(
    ("kind", "family"),
    [("poisson", "poisson"), ("poisson", "negative-binomial"), ("overdispersed", "negative-binomial")],
)
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
@pytest.mark.parametrize("rows", [300, 6000])
def test_counts_of_their_family_are_not(kind, family, rows, epsilon):
    analysis = cape.GLM("n", ["x"], family=family)
    for seed in range(2):
        assert not released(analysis, counts(kind, seed, rows), "cape", seed, epsilon).model.misfit
    assert not released(analysis, counts(kind, 0, rows), "none").model.misfit


def test_what_noise_could_make_is_not_told():
    wide = Estimate("dispersion", 4.0, 0.1, 2.0)
    assert misfit_of("poisson", wide, Estimate("deviance", 9000.0, 0.0, 400.0), 1000.0) == ""
    # where the interval beside the table lies beyond, however wide it is, so does the sentence
    far = Estimate("dispersion", 17.66, 0.1, 6.73)
    assert f"at least {far.interval()[0]:.3f}" in misfit_of("poisson", far, wide, 1000.0)
    assert "at least 3.8" in misfit_of("poisson", Estimate("dispersion", 4.0, 0.1, 0.0), wide, 1000.0)
    for family in ("poisson", "negative-binomial"):
        for noise in (0.0, 100.0):  # beside noise it is the deviance of means that are off
            told = misfit_of(family, None, Estimate("deviance", 2000.0, 0.0, noise), 1000.0)
            assert ("at least 2" in told) == (noise == 0)
    assert misfit_of("gamma", wide, Estimate("deviance", 1e9, 0.0, 0.0), 10.0) == ""


def test_a_deviance_that_noise_hides_is_a_bound():
    hidden = Estimate("deviance", 0.0, 0.0, 21_100.0, (0.0, math.inf))
    assert _said(hidden) == "deviance at most 41,355"
    assert _said(replace(hidden, value=90_000.0)) == "deviance 90,000 (48,645 to 131,355)"
    assert _said(replace(hidden, privacy=0.0)) == "deviance 0 (0 to 0)"


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_without_noise_alpha_settles(alpha):
    rng = np.random.default_rng(4)
    x = np.clip(rng.normal(5, 1.5, 6000), 0, 10)
    n = rng.poisson(np.exp(0.8 + 0.1 * (x - 5)) * rng.gamma(1 / alpha, alpha, 6000))
    columns = {"x": x, "n": np.clip(n, 0, 200).astype(float)}
    release = released(cape.GLM("n", ["x"], family="negative-binomial", cap="none"), columns, "none")
    assert release.model.dispersion.value == pytest.approx(alpha, rel=0.15)
    assert release.model.to_dict()["dispersion"]["interval"] is None
    notes = " ".join(release.notes())
    assert "held fixed in the last" in notes
    # whose coefficients are the likeliest at that alpha only
    assert "Maximum-likelihood estimates for an alpha that is estimated by moments." in notes


def people(crossing, rows=4000):
    """Two arms: hazards of the second are half as large, or first twice and then a fifth as large."""
    rng = np.random.default_rng(3)
    new = rng.random(rows) < 0.5
    first = rng.exponential(np.where(new, 2.0, 4.0) if crossing else np.where(new, 8.0, 4.0))
    late = 1.0 + rng.exponential(np.where(new, 20.0, 4.0))
    years = np.where((first > 1.0) & crossing, late, first)
    return {
        "x": rng.uniform(0, 10, rows),
        "years": np.minimum(years, 5.0),
        "died": np.where(years <= 5.0, "yes", "no"),
        "arm": np.where(new, "new", "old"),
    }


@pytest.mark.one_in(2, seconds=0.3)
@pytest.mark.parametrize("scheme", ["none", "cape"])
@pytest.mark.parametrize("crossing", [False, True])
def test_hazards_that_are_not_proportional_are_told_if_that_was_asked(crossing, scheme):
    asked = cape.Cox("years", "died", ["arm", "x"], proportional=True)
    release = released(asked, people(crossing), scheme)
    assert ("not proportional" in " ".join(release.notes())) == crossing
    assert (release.model.to_dict()["misfit"] is not None) == crossing
    if crossing:
        plain = released(cape.Cox("years", "died", ["arm", "x"]), people(crossing), scheme)
        assert plain.model.misfit == ""


def test_a_test_that_is_not_known_says_nothing():
    assert hazards_misfit(None) == ""
    assert hazards_misfit(WaldTest(("x",), math.nan, 1, math.nan)) == ""
    assert hazards_misfit(WaldTest(("x",), 4.0, 1, 0.045)) == ""
