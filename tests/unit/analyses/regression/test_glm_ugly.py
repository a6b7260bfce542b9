"""Generalised linear models of columns as registries have them: skewed, unbalanced, constant, empty."""

from __future__ import annotations

import math
import warnings

import numpy as np
import polars as pl
import pytest
import statsmodels.api as sm

from benchmarks.glm import Skewed, run
from cape import Budget, Consortium
from cape.analyses import GLM, LogisticRegression
from cape.core.errors import PrivacyLeakWarning, TooNoisyWarning
from cape.data import Category, Number, Schema
from cape.noise import SecureStream


def released(asked, columns, schema, scheme="none", epsilon=3.0):
    """One release of four sites, with the sentences that it warned of."""
    frame = pl.DataFrame(columns)
    parts = {f"s{i}": frame[i::4] for i in range(4)}
    consortium = Consortium(
        parts, schema, Budget(epsilon, 1e-6), colluding=1, stream=SecureStream(b"\x05" * 32)
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        release = consortium.release(asked, 1.0, scheme=scheme)
    kinds = (TooNoisyWarning, PrivacyLeakWarning)
    assert all(issubclass(each.category, kinds) for each in said)
    return release, [str(each.message) for each in said if issubclass(each.category, TooNoisyWarning)]


def steep(rng, rows=20_000):
    """A column whose bounds are 500 times what is usual: log-odds change by 25 from end to end."""
    x = np.minimum(rng.lognormal(1, 1, rows), 500.0)
    y = rng.random(rows) < 1 / (1 + np.exp(2 - 0.05 * x))
    return {"x": x, "y": np.array(["no", "yes"])[y.astype(int)]}


STEEP = Schema(x=Number(0, 500, missing=False), y=Category(("no", "yes"), missing=False))


@pytest.mark.parametrize("scheme", ["none", "cape"])
@pytest.mark.parametrize(
    "asked", [LogisticRegression("y", ["x"]), GLM("y", ["x"], "binomial")], ids=["logistic", "glm"]
)
def test_what_the_data_shows_may_be_steeper_than_was_expected(asked, scheme):
    release, _ = released(asked, steep(np.random.default_rng(1)), STEEP, scheme)
    value, (low, high) = release.value["x"], release.interval()["x"]
    assert value > 20 / 500  # what no column was expected to exceed
    assert high - value > 0.5 * (value - low)
    low, high = release.estimates[1].interval(1 - 1e-6)
    assert low < 0.05 < high


def test_without_noise_steps_go_on_until_nothing_changes():
    rng = np.random.default_rng(0)
    x = np.minimum(rng.lognormal(1, 1, 8000), 60.0)
    y = np.minimum(rng.poisson(np.exp(-1 + 0.08 * x)), 200).astype(float)
    known = sm.GLM(y, sm.add_constant(x), family=sm.families.Poisson()).fit(tol=1e-12)
    for high in (60, 500):
        schema = Schema(x=Number(0, high, missing=False), y=Number(0, 200, missing=False))
        release, said = released(GLM("y", ["x"], "poisson", cap="none"), {"x": x, "y": y}, schema)
        assert list(release.value.values()) == pytest.approx(known.params, abs=5e-5)  # cells are rounded
        assert not said
        assert release.model.rounds > 5
    schema = Schema(x=Number(0, 60, missing=False), y=Number(0, 200, missing=False))
    few, said = released(GLM("y", ["x"], "poisson", cap="none", rounds=2), {"x": x, "y": y}, schema)
    assert few.model.rounds == 2
    assert any("the last one changed log rates" in each for each in said)
    low, high = few.interval()["x"]
    assert low < known.params[1] < high


CONSTANT = Schema(
    k=Number(0, 10, missing=False),
    x=Number(-3, 3, missing=False),
    n=Number(0, 20, missing=False),
    y=Category(("no", "yes"), missing=False),
)


@pytest.mark.parametrize(
    "asked",
    [
        LogisticRegression("y", ["k", "x"]),
        GLM("y", ["k", "x"], "binomial"),
        GLM("n", ["k", "x"], "poisson"),
        GLM("x", ["k", "n"]),
    ],
    ids=["logistic", "binomial", "poisson", "gaussian"],
)
def test_a_feature_that_does_not_vary_spoils_no_other(asked):
    rng = np.random.default_rng(3)
    columns = {
        "k": np.full(2000, 2.0),
        "x": np.clip(rng.normal(size=2000), -3, 3),
        "n": np.minimum(rng.poisson(2, 2000), 20).astype(float),
        "y": rng.choice(["no", "yes"], 2000),
    }
    release, said = released(asked, columns, CONSTANT)
    assert any("k does not vary in the data; its coefficient is unreliable. Drop it" in each for each in said)
    other = asked.features[1]
    alone, _ = released(type(asked)(asked.target, [other], **_family(asked)), columns, CONSTANT)
    assert release.value[other] == pytest.approx(alone.value[other], abs=0.01)
    widths = [high - low for low, high in (release.interval()[other], alone.interval()[other])]
    assert widths[0] == pytest.approx(widths[1], rel=0.1)


def _family(asked):
    return {} if isinstance(asked, LogisticRegression) else {"family": asked.family}


@pytest.mark.slow(10)
def test_coefficients_of_a_skewed_feature_are_covered_with_few_rows():
    hits = [
        run(Skewed(family), 2_000, seed, (3.0,)).covered[3.0] for family in ("logit",) for seed in range(40)
    ]
    assert np.mean(np.concatenate(hits)) > 0.9


def test_features_explain_what_they_do_beside_an_offset():
    rng = np.random.default_rng(6)
    x, time = np.clip(rng.normal(size=6000), -3, 3), rng.uniform(0, 3, 6000)
    y = np.minimum(rng.poisson(np.exp(-0.5 + 0.4 * x + time)), 300).astype(float)
    schema = Schema(
        x=Number(-3, 3, missing=False), time=Number(0, 3, missing=False), y=Number(0, 300, missing=False)
    )
    columns = {"x": x, "time": time, "y": y}
    model = released(GLM("y", ["x"], "poisson", offset="time", cap="none"), columns, schema)[0].model
    poisson = sm.families.Poisson()
    full = sm.GLM(y, sm.add_constant(x), family=poisson, offset=time).fit()
    none = sm.GLM(y, np.ones((6000, 1)), family=poisson, offset=time).fit()
    assert model.pseudo_r2.value == pytest.approx(1 - full.deviance / none.deviance, abs=0.01)


@pytest.mark.parametrize("link", ["logit", "probit", "cloglog"])
def test_mcfaddens_share_is_exact_for_every_link_of_two_categories(link):
    columns = steep(np.random.default_rng(7), 3000)
    model = released(GLM("y", ["x"], "binomial", link), columns, STEEP)[0].model
    links = {"logit": "Logit", "probit": "Probit", "cloglog": "CLogLog"}
    family = sm.families.Binomial(getattr(sm.families.links, links[link])())
    known = sm.GLM((columns["y"] == "yes") * 1.0, sm.add_constant(columns["x"]), family=family).fit()
    assert model.pseudo_r2.value == pytest.approx(1 - known.deviance / known.null_deviance, abs=1e-3)


def test_a_dispersion_that_clipping_hides_has_no_upper_end():
    rng = np.random.default_rng(8)
    rows = 20_000
    x = np.clip(rng.normal(size=rows), -3, 3)
    rare = np.where(rng.random(rows) < 0.1, rng.exponential(20, rows), 0.0)  # most are 0, some are far out
    columns = {"x": x, "y": np.minimum(np.round(rare), 120)}
    schema = Schema(x=Number(-3, 3, missing=False), y=Number(0, 120, missing=False))
    model = released(GLM("y", ["x"], "poisson"), columns, schema, "cape", 1.0)[0].model
    known = sm.GLM(columns["y"], sm.add_constant(x), family=sm.families.Poisson()).fit()
    low, high = model.dispersion.interval()
    assert low < known.pearson_chi2 / known.df_resid
    assert high == math.inf
    notes = " ".join(model.notes())
    assert "(at least" in notes
    assert "Counts vary more than Poisson's" in notes
    assert model.to_dict()["dispersion"]["interval"][1] is None


def test_the_variance_of_a_gaussian_family_is_that_of_residuals():
    rng = np.random.default_rng(9)
    x = np.clip(rng.normal(size=4000), -3, 3)
    y = np.clip(2 * x + rng.exponential(3, 4000), -10, 40)
    schema = Schema(x=Number(-3, 3, missing=False), y=Number(-10, 40, missing=False))
    known = sm.OLS(y, sm.add_constant(x)).fit()
    exact = released(GLM("y", ["x"], cap="none"), {"x": x, "y": y}, schema)[0].model.dispersion
    assert exact.value == pytest.approx(known.scale, rel=1e-4)
    noisy = released(GLM("y", ["x"], cap="none"), {"x": x, "y": y}, schema, "cape", 2.0)[0].model.dispersion
    low, high = noisy.interval(1 - 1e-6)
    assert low < known.scale < high
