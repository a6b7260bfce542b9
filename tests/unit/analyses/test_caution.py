"""Models whose intervals may miss say so, wherever they are shown; those that hold do not."""

from __future__ import annotations

import json
import warnings

import numpy as np
import polars as pl
import pytest

import cape
from cape.analyses.caution import CAUTION

SCHEMA = cape.Schema(
    x=(0, 10), y=(0.5, 30), years=(0, 12), died=["no", "yes"], stage=["a", "b", "c"], ill=["no", "yes"]
)
COX = {"time": "years", "event": "died", "features": ["x"]}
CAUTIOUS = {
    "weibull": cape.SurvivalRegression(**COX),
}
PLAIN = {
    "mixed": cape.MixedModel("y", ["x"]),
    **{
        family: cape.GLM("y", ["x"], family=family)
        for family in ("gaussian", "poisson", "gamma", "negative-binomial")
    },
    "probit": cape.GLM("ill", ["x"], family="binomial", link="probit"),
    "multinomial": cape.GLM("stage", ["x"], family="multinomial"),
    "ordinal": cape.GLM("stage", ["x"], family="ordinal"),
    "cox": cape.Cox(**COX),
    "logistic": cape.LogisticRegression("ill", ["x"]),
    "glm logistic": cape.GLM("ill", ["x"], family="binomial"),
    "linear": cape.LinearRegression("y", ["x"]),
    "mean": cape.Mean("y"),
}


@pytest.fixture(scope="module")
def consortium() -> cape.Consortium:
    rng = np.random.default_rng(3)
    sites = {}
    for name in "abcde":
        x = rng.gamma(2.0, 1.5, 600).clip(0, 10)
        sites[name] = pl.DataFrame(
            {
                "x": x,
                "y": (2 + np.sqrt(x) + rng.gamma(1.0, 1.0, 600)).clip(0.5, 30),
                "years": rng.exponential(6 / (1 + 0.1 * x)).clip(0, 12),
                "died": rng.choice(["no", "yes"], 600),
                "stage": rng.choice(["a", "b", "c"], 600),
                "ill": rng.choice(["no", "yes"], 600),
            }
        )
    return cape.Consortium(sites, SCHEMA, budget=cape.Budget(60.0, 1e-6), colluding=1)


def released(consortium: cape.Consortium, analysis: cape.Analysis) -> cape.Release:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return consortium.release(analysis, share=0.05)


@pytest.mark.parametrize("name", CAUTIOUS)
def test_a_model_that_may_miss_says_so(consortium: cape.Consortium, name: str):
    release = released(consortium, CAUTIOUS[name])
    assert CAUTION in " ".join(str(release).split())
    assert CAUTION in " ".join(release.model.notes())
    assert json.loads(release.model.to_json())["caution"] == CAUTION


@pytest.mark.parametrize("name", PLAIN)
def test_a_model_that_holds_does_not(consortium: cape.Consortium, name: str):
    release = released(consortium, PLAIN[name])
    assert "Caution" not in str(release)
    assert "caution" not in release.to_json()
