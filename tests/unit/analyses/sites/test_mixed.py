"""Linear mixed models: statsmodels' without noise, and intervals that cover with it."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import statsmodels.formula.api as smf

import cape
from cape.analyses import MixedModel

from cape.analyses.sites.mixed_likelihood import maximised
from cape.analyses.sites.mixed_observed import Observed

from cape.analyses.sites.site_sums import SiteSums
from cape.blocks import SiteScores
from cape.core.errors import InvalidInput, TooNoisyWarning
from cape.data import Category, Number, Schema
from cape.engine.query import Answer
from cape.show.terminal import as_text

pytestmark = pytest.mark.filterwarnings(
    "ignore::cape.core.errors.TooNoisyWarning", "ignore::cape.core.errors.PrivacyLeakWarning"
)
SCHEMA = Schema(
    y=Number(-1, 1, missing=False), x=Number(-1, 1, missing=False), g=Category(("a", "b"), missing=False)
)
SIZES = (1000, 400, 1500, 800, 1300)


def hospitals(sizes=SIZES, tau=0.1, slope=0.15, seed=3):
    rng, found = np.random.default_rng(seed), {}
    for place, many in enumerate(sizes):
        x, g = rng.uniform(-1, 1, many), rng.random(many) < 0.5
        y = tau * rng.normal() + (0.3 + slope * rng.normal()) * x + 0.2 * g + rng.normal(0, 0.2, many)
        cells = {"y": np.clip(y, -1, 1), "x": x, "g": np.where(g, "b", "a")}
        found[f"s{place}"] = pl.DataFrame(cells)
    return found


def released(asked, *, scheme="none", epsilon=1.0, tables=None):
    consortium = cape.Consortium(tables or hospitals(), SCHEMA, cape.Budget(epsilon, 1e-6), colluding=1)
    return consortium.release(asked, 0.9, scheme=scheme)


@pytest.mark.parametrize(
    ("random", "formula"),
    [("intercept", "~1"), (["intercept", "x"], "~x"), ("x", "~0 + x"), ("g", "~0 + g1")],
)
def test_without_noise_the_model_is_that_of_statsmodels(random, formula):
    frame = pl.concat(each.with_columns(site=pl.lit(name)) for name, each in hospitals().items()).to_pandas()
    frame["g1"] = (frame["g"] == "b").astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of boundaries
        known = smf.mixedlm("y ~ x + g1", frame, groups="site", re_formula=formula).fit(reml=True, gtol=1e-9)
    release = released(MixedModel("y", ["x", "g"], random=random))
    model = release.model
    wanted = [known.params[name] for name in ("Intercept", "x", "g1")]
    assert list(model.coefficients.values()) == pytest.approx(wanted, abs=2e-6)
    assert list(model.tau2.values()) == pytest.approx(np.diag(known.cov_re), abs=2e-6)
    assert model.residual_variance == pytest.approx(known.scale, abs=2e-6)
    errors = [known.bse_fe[name] for name in ("Intercept", "x", "g1")]
    assert release.estimates.standard_errors[:3] == pytest.approx(errors, rel=0.15)  # a sandwich


def test_a_formula_says_target_and_features():
    assert MixedModel(formula="y ~ x + g", random=["x"]) == MixedModel("y", ["x", "g"], random=["x"])


def test_equal_sites_have_students_interval_of_the_intercept():
    """Where sites differ by far more than their rows do."""
    tables = hospitals(sizes=(200,) * 5, tau=0.15, slope=0.0)
    release = released(MixedModel("y", ["x", "g"]), tables=tables)
    error = release.standard_error["intercept"]
    low, high = release.interval()["intercept"]
    assert (high - low) / 2 / error == pytest.approx(2.776, rel=0.05)
    low, high = release.interval()["x"]
    assert (high - low) / 2 / release.standard_error["x"] == pytest.approx(1.96, rel=0.01)


def sums_of(asked, schema, tables, rng, std):
    """The released sums of tables, with noise."""
    query = asked.query(schema, "replace-one")
    (block,) = query.blocks
    found = []
    for table in tables:
        length = block.design.length(schema)
        v = np.stack([np.ones(len(table)), table["x"] / length, (table["g"] == "b") / length, table["y"]])
        found.append(v @ v.T)
    grams, sums, noise = np.stack(found), [], []
    for products, scale in zip(block.products(schema), query.scales[0], strict=True):
        i, j = zip(*products.places, strict=True)
        exact = grams[:, list(i), list(j)]
        exact = exact if products.grouped else exact.sum(axis=0)
        each = std * query.sensitivity * scale
        sums.append(exact + each * rng.normal(size=exact.shape))
        noise.append(each)
    return Answer((tuple(sums),), (tuple(noise),), None, schema)


@pytest.mark.slow(8)
def test_the_stated_noise_is_that_of_the_coefficients():
    """The same rows, released 60 times: the scatter is what is said to come from privacy."""
    tables, schema, rng = list(hospitals().values()), SCHEMA.at("abcde"), np.random.default_rng(1)
    asked = MixedModel("y", ["x", "g"])
    values, stated = [], []
    for _ in range(60):
        found = asked.finish(sums_of(asked, schema, tables, rng, 2.0)).estimates
        values.append([each.value for each in found[:3]])
        stated.append([each.privacy for each in found[:3]])
    assert np.std(values, axis=0) == pytest.approx(np.median(stated, axis=0), rel=0.3)


def test_a_small_site_has_effects_of_its_own_as_far_as_noise_lets_it():
    """Its curvature is that of all sites, in proportion to its rows; one that may be empty has none."""
    tables = hospitals(sizes=(1500, 1500, 1500, 60, 1500)).values()
    asked = MixedModel("y", ["x", "g"], random=["intercept", "x"])
    told = conducted(asked, SCHEMA.at("abcde"), tables, 4.0)
    assert told.model.used == (True,) * 5
    low, high = told.estimates[1].interval()
    assert -0.5 < low < 0.3 < high < 1
    schema = SCHEMA.only("x > -2").at("abcde")  # sizes of sites are not public
    few = hospitals(sizes=(1500, 1500, 1500, 15, 1500)).values()
    told = conducted(MixedModel("y", ["x", "g"]), schema, few, 2.0)
    assert told.model.used == (True, True, True, False, True)
    assert any(note.startswith("d: too few rows to be told from noise") for note in told.model.notes())


def conducted(asked, schema, tables, std, seed=1):
    """All stages over tables, with noise of `std` for a sensitivity of 1 at the whole budget."""
    rng, talk = np.random.default_rng(seed), asked.conduct(schema, "replace-one")
    query = next(talk)
    for share in asked.stages():
        (block,) = query.blocks
        if isinstance(block, SiteScores):
            length, rows = block.design.length(schema), []
            for table in tables:
                x = table["x"] / length, (table["g"] == "b").cast(float) / length
                rows.append((np.stack([np.ones(len(table)), *x]), table["y"].to_numpy(), 1.0))
            noise = tuple(std / math.sqrt(share) * query.sensitivity * scale for scale in query.scales[0])
            sums = block.summed(rows)
            noisy = tuple(
                each + error * rng.normal(size=each.shape) for each, error in zip(sums, noise, strict=True)
            )
            answer = Answer((noisy,), (noise,), None, schema)
        else:
            answer = sums_of(asked, schema, tables, rng, std / math.sqrt(share))
        try:
            query = talk.send(answer)
        except StopIteration as told:
            return told.value
    raise AssertionError("there are as many questions as shares")


def test_effects_that_all_sites_have_in_common_are_known_almost_as_without_privacy():
    """By moments, noise is 2 to 3 times the sampling error: `glm.mixed`."""
    tables = list(hospitals(sizes=(1000,) * 5, slope=0.0).values())
    std = math.sqrt(5 / 4) / float(cape.privacy.mu(1.0, 1e-6))
    asked, schema = MixedModel("y", ["x", "g"]), SCHEMA.at("abcde")
    private = {e.label: e for e in conducted(asked, schema, tables, std).estimates}
    plain = {e.label: e for e in conducted(asked, schema, tables, 0.0).estimates}
    for label in ("x", "g=b"):
        (low, high), (least, most) = private[label].interval(), plain[label].interval()
        assert (high - low) / (most - least) < 1.4
        assert private[label].privacy < private[label].sampling


def test_scores_of_earlier_points_make_noise_less(monkeypatch):
    given = []
    monkeypatch.setattr(mixed, "fit_scores", lambda *asked: given.append(asked) or fit_scores(*asked))
    tables = list(hospitals(sizes=(1000,) * 5, tau=0.0, slope=0.0).values())
    conducted(MixedModel("y", ["x", "g"]), SCHEMA.at("abcde"), tables, 4.0)
    sums, told, places = given[0]
    last, both, every = (fit_scores(sums, told[-many:], places) for many in (1, 2, 3))
    for fewer, more in ((last, both), (both, every)):
        seen = np.linalg.eigvalsh(fewer.observed.noise - more.observed.noise)
        assert seen[0] > -1e-6 * seen[-1]  # less noise in any combination of values
    assert np.diag(every.observed.noise).sum() < 0.8 * np.diag(last.observed.noise).sum()
    assert np.abs(every.values - last.values).max() < 4 * math.sqrt(float(np.diag(last.covariance).max()))


def test_where_noise_is_hardly_any_part_of_errors_moments_say_all_and_scores_are_not_asked_for():
    tables, schema = list(hospitals().values()), SCHEMA.at("abcde")
    talk = MixedModel("y", ["x", "g"]).conduct(schema, "replace-one")
    next(talk)
    with pytest.raises(StopIteration):
        talk.send(sums_of(MixedModel("y", ["x", "g"]), schema, tables, np.random.default_rng(1), 1e-3))


def test_skewed_residuals_move_no_mean():
    """Cut residuals of an exponential distribution have another mean, which is given back."""
    rng, tables = np.random.default_rng(4), []
    for _ in range(5):
        x, g = rng.uniform(-1, 1, 4000), rng.random(4000) < 0.5
        y = 0.3 * x + 0.2 * g + rng.exponential(0.15, 4000) - 0.55
        tables.append(pl.DataFrame({"y": y, "x": x, "g": np.where(g, "b", "a")}))
    found = conducted(MixedModel("y", ["x", "g"]), SCHEMA.at("abcde"), tables, 1.0).estimates
    assert found[0].value == pytest.approx(-0.4, abs=0.012)  # cut at 1.2 SDs it would be -0.42
    assert found[1].value == pytest.approx(0.3, abs=0.012)


@pytest.mark.slow(10)
@pytest.mark.parametrize("random", [["intercept"], ["intercept", "x"], ["x"]])
def test_the_stated_noise_of_all_stages_is_that_of_the_coefficients(random):
    """The same rows, released 40 times: the scatter is what is said to come from privacy, or less."""
    tables, schema = list(hospitals().values()), SCHEMA.at("abcde")
    values, stated = [], []
    for seed in range(40):
        found = conducted(MixedModel("y", ["x", "g"], random=random), schema, tables, 4.0, seed).estimates
        values.append([each.value for each in found[:3]])
        stated.append([each.privacy for each in found[:3]])
    ratio = np.std(values, axis=0) / np.median(stated, axis=0)
    assert (ratio > 0.5).all()
    assert (ratio < 1.4).all()


def test_a_plan_says_about_how_large_noise_will_be():
    schema, std = SCHEMA.at("abcde"), 4.7
    asked = MixedModel("y", ["x", "g"])
    query = asked.query(schema, "replace-one")
    noise = [[std / math.sqrt(asked.stages()[0]) * query.sensitivity * scale for scale in query.scales[0]]]
    expected = asked.expected(schema, noise, 5000)
    tables = list(hospitals(sizes=(1000,) * 5).values())
    found = {each.label: each.privacy for each in conducted(asked, schema, tables, std).estimates}
    assert 1 < expected["x"] / found["x"] < 6  # typical rows vary less in x, and more in y
    assert asked.decisive == 0


def test_where_noise_hides_everything_there_are_bounds_and_a_warning():
    tables = hospitals(sizes=(4,) * 5)
    asked = MixedModel("y", ["x", "g"], random=["x"])
    with pytest.warns(TooNoisyWarning):
        release = released(asked, scheme="cape", epsilon=0.1, tables=tables)
    assert math.isnan(release.model.p_value("x"))
    assert release.interval()["residual variance"] == (0, 1)
    assert as_text(release, 80)


def test_a_feature_that_varies_between_sites_only_is_known_from_sites_alone():
    """Its interval is wide, with few degrees of freedom; nothing divides by what does not vary."""
    tables = {
        name: each.with_columns(g=pl.lit("b" if place % 2 else "a"))
        for place, (name, each) in enumerate(hospitals(tau=0.1, slope=0.0).items())
    }
    release = released(MixedModel("y", ["x", "g"]), tables=tables)
    frame = pl.concat(each.with_columns(site=pl.lit(name)) for name, each in tables.items()).to_pandas()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = smf.mixedlm("y ~ x + g", frame, groups="site").fit(reml=True, gtol=1e-9)
    assert release.value["g=b"] == pytest.approx(known.params["g[T.b]"], abs=1e-5)
    low, high = release.interval()["g=b"]
    assert (high - low) / 2 / release.standard_error["g=b"] > 2.7  # as of three degrees of freedom


def test_where_noise_hides_all_errors_of_rows_the_errors_of_variances_are_those_of_noise():
    """The spread of scores is never below 0; where noise puts it there, rows leave sites no errors at all."""
    of_residual = np.diag([0.0, 0.0, 0.0, 0.003])
    loads = tuple(np.array([[one], [1.0 - one], [0.0], [0.5]]) for one in (1.0, 0.0))
    design = np.array([[1.0, 0.02, 0.0], [1.0, 0.01, 0.0], [0.0, 170.0, 0.0], [1.0, 0.02, 1.0]])
    noise = np.diag([9e-6, 8e-6, 0.18, 6e-6])
    values = np.array([0.0078, 0.0063, 0.33, 0.0033])
    seen = Observed(values, design, loads, of_residual, noise, 0.036, 23.0, 300.0, (0, 0), level=True)
    found = maximised(seen, None)
    assert found is not None
    nothing = replace(found, between=np.zeros((1, 1)))
    sampling, privacy = nothing.tau2_errors(0)
    assert sampling < 1e-6 * privacy
    assert 0 < privacy < 1e-4


def test_it_is_shown_in_80_columns_and_as_json():
    release = released(MixedModel("y", ["x", "g"], random=["intercept", "x"]), scheme="cape")
    text = as_text(release, 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "tau² intercept" in text
    assert "Each site's own sums are now public, under its name." in text
    plain = json.loads(json.dumps(release.to_dict()))
    assert set(plain["model"]["tau2"]) == {"intercept", "x"}
    assert plain["analysis"]["random"] == ["intercept", "x"]
    assert release.figures()


def test_coefficients_and_variances_are_shown_per_what_the_schema_says():
    schema = Schema({**SCHEMA, "x": Number(-1, 1, missing=False, per=0.5, unit="m")})
    asked = MixedModel("y", ["x", "g"], random=["intercept", "x"])
    consortium = cape.Consortium(hospitals(), schema, cape.Budget(1.0, 1e-6), colluding=1)
    release = consortium.release(asked, 0.9, scheme="none")
    shown = {row[0]: row[1] for row in release.tables()[0].rows if len(row) > 1}
    assert float(shown["x (per 0.5 m)"]) == pytest.approx(release.value["x"] / 2, rel=0.05)
    assert float(shown["tau² x (per 0.5 m)"]) == pytest.approx(release.value["tau² x"] / 4, rel=0.1)
    assert shown.keys() == {row[0] for row in consortium.plan(asked, 0.9).table().rows}


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: MixedModel("y", ["x"], random=["z"]), "random must name 'intercept' or features"),
        (lambda: MixedModel("y", ["x"], random=[]), "at least one column"),
        (lambda: MixedModel("y", ["x", "site"]), "tells sites apart"),
        (lambda: MixedModel("y", ["x"], by=3), "by must be a column's name"),
        (lambda: MixedModel("y", ["y"]), "must not be one of the features"),
    ],
)
def test_what_cannot_be_asked_is_refused_at_once(made, said):
    with pytest.raises(InvalidInput, match=said):
        made()


def test_one_site_and_too_many_random_effects_are_refused_before_anything_is_asked():
    with pytest.raises(InvalidInput, match="has one site"):
        MixedModel("y", ["x"]).query(SCHEMA.at(["a"]), "replace-one")
    schema = Schema(y=(0, 1), stage=["I", "II", "III", "IV"]).at("ab")
    with pytest.raises(InvalidInput, match="at most 3 effects"):
        MixedModel("y", ["stage"], random=["intercept", "stage"]).query(schema, "replace-one")
    with pytest.raises(InvalidInput, match="must have bounds"):
        MixedModel("g", ["x"]).query(SCHEMA.at("ab"), "replace-one")


def test_two_sites_are_the_fewest_that_say_anything():
    schema = SCHEMA.at("ab")
    asked = MixedModel("y", ["x", "g"])
    tables = list(hospitals(sizes=(500, 500)).values())
    answer = sums_of(asked, schema, tables, np.random.default_rng(1), 0.0)
    block = asked.query(schema, "replace-one").blocks[0]
    assert fit(SiteSums.of(answer, block), [0]) is not None
    first = np.array([[1.0], [0.0]])
    sums = tuple(array * first if array.ndim == 2 else array for array in answer.sums[0])
    alone = Answer((sums,), answer.noise, None, schema)
    assert fit(SiteSums.of(alone, block), [0]) is None


@pytest.mark.slow(60)
@pytest.mark.parametrize("tau", [0.0, 0.1])
def test_fixed_effects_and_variances_of_five_sites_are_covered(tau):
    """5,000 rows at epsilon 1: 95% to three standard errors of 150 runs."""
    schema, runs = SCHEMA.at("abcde"), 150
    asked, std = MixedModel("y", ["x", "g"]), math.sqrt(5 / 4) / float(cape.privacy.mu(1.0, 1e-6))
    held = np.zeros(5)
    for run in range(runs):
        tables = list(hospitals(sizes=(1000,) * 5, tau=tau, slope=0.0, seed=run).values())
        found = conducted(asked, schema, tables, std, run).estimates
        for place, truth in enumerate([0.0, 0.3, 0.2, tau**2, 0.04]):
            low, high = found[place].interval()
            held[place] += low <= truth <= high
    assert (held / runs > 0.95 - 3 * 0.0178).all()


def test_a_residual_variance_is_at_most_what_the_bounds_allow():
    for freedom in (0.3, 1.0, 50.0):
        low, high = ResidualVariance(50.0, freedom, 8100.0)(0.95)
        assert 0 <= low < 50 < high <= 8100
