"""Linear mixed models: statsmodels' without noise, and intervals that cover with it."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import polars as pl
import pytest
import statsmodels.formula.api as smf

import cape
from cape.analyses import MixedModel
from cape.blocks import Table
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


def conducted(asked, schema, tables, std, seed=1):
    """All stages over tables, with noise of `std` for a sensitivity of 1 at the whole budget."""
    rng, talk = np.random.default_rng(seed), asked.conduct(schema, "replace-one")
    named = zip(schema.category("site").values, tables, strict=True)
    held = [Table(name, table, schema) for name, table in named if len(table)]
    query = next(talk)
    for share in asked.stages():
        blocks = list(query.blocks)
        each = [table.sums(blocks) for table in held]
        noise = tuple(
            tuple(std / math.sqrt(share) * query.sensitivity * scale for scale in scales)
            for scales in query.scales
        )
        sums = tuple(
            tuple(
                sum(one[place][i] for one in each) * 2.0**-array.bits + s * rng.normal(size=array.shape)
                for i, (array, s) in enumerate(zip(block.arrays(schema), noise[place], strict=True))
            )
            for place, block in enumerate(blocks)
        )
        try:
            query = talk.send(Answer(sums, noise, None, schema))
        except StopIteration as told:
            return told.value
    raise AssertionError("there are as many questions as shares")


def test_a_small_site_has_effects_of_its_own_as_far_as_noise_lets_it():
    """Its curvature is that of all sites, in proportion to its rows; one that may be empty has none."""
    tables = list(hospitals(sizes=(1500, 1500, 1500, 60, 1500), slope=0.05).values())
    asked = MixedModel("y", ["x", "g"], random=["intercept", "x"], cap="none")
    told = conducted(asked, SCHEMA.at("abcde"), tables, 4.0)
    assert told.model.used == (True,) * 5
    low, high = told.estimates[1].interval()
    assert low < conducted(asked, SCHEMA.at("abcde"), tables, 0.0).estimates[1].value < high < low + 0.3
    schema = SCHEMA.only("x > -2").at("abcde")  # sizes of sites are not public
    few = hospitals(sizes=(1500, 1500, 1500, 2, 1500)).values()
    told = conducted(MixedModel("y", ["x", "g"]), schema, few, 2.0)
    assert told.model.used == (True, True, True, False, True)
    assert any(note.startswith("d: too few rows to be told from noise") for note in told.model.notes())


def test_effects_that_all_sites_have_in_common_are_known_almost_as_without_privacy():
    tables = list(hospitals(sizes=(1000,) * 5, slope=0.0).values())
    std = math.sqrt(5 / 4) / float(cape.privacy.mu(1.0, 1e-6))
    asked, schema = MixedModel("y", ["x", "g"], cap="none"), SCHEMA.at("abcde")
    private = {e.label: e for e in conducted(asked, schema, tables, std).estimates}
    plain = {e.label: e for e in conducted(asked, schema, tables, 0.0).estimates}
    for label in ("x", "g=b"):
        (low, high), (least, most) = private[label].interval(), plain[label].interval()
        assert (high - low) / (most - least) < 3


def test_skewed_residuals_move_no_mean():
    """No residual is cut at a size of its own: what clipping takes of scores is small, and counted."""
    rng, tables = np.random.default_rng(4), []
    for _ in range(5):
        x, g = rng.uniform(-1, 1, 4000), rng.random(4000) < 0.5
        y = 0.3 * x + 0.2 * g + rng.exponential(0.15, 4000) - 0.55
        tables.append(pl.DataFrame({"y": y, "x": x, "g": np.where(g, "b", "a")}))
    found = conducted(MixedModel("y", ["x", "g"], cap="none"), SCHEMA.at("abcde"), tables, 1.0).estimates
    assert found[0].value == pytest.approx(-0.4, abs=0.012)
    assert found[1].value == pytest.approx(0.3, abs=0.012)


def test_an_effect_that_bends_has_the_coefficient_of_the_model_without_privacy():
    """A tenth of the rows is far out, where the target no longer rises: they count as they are."""
    rng, tables = np.random.default_rng(5), []
    for place in range(4):
        x = np.where(rng.random(6000) < 0.1, rng.uniform(0.3, 1.0, 6000), rng.uniform(-1, -0.6, 6000))
        y = 0.1 * place + 0.5 * np.minimum(x, -0.7) + rng.normal(0, 0.1, 6000) * (1.5 + x)
        tables.append(pl.DataFrame({"y": np.clip(y, -1, 1), "x": x, "g": rng.choice(["a", "b"], 6000)}))
    asked = MixedModel("y", ["x", "g"], cap="none")
    private = conducted(asked, SCHEMA.at("abcd"), tables, 2.0)
    plain = conducted(asked, SCHEMA.at("abcd"), tables, 0.0)
    error = private.estimates[1].standard_error
    assert private.estimates[1].value == pytest.approx(plain.estimates[1].value, abs=3 * error)
    assert error < 2 * plain.estimates[1].standard_error


def test_caps_are_said_and_the_intercept_stays_that_in_the_middle_of_bounds():
    """Bounds are 20 times as wide as rows, which are cut; sites differ by a slope and a level."""
    schema = Schema({**SCHEMA, "x": Number(0, 40, missing=False)})
    tables = [each.with_columns(x=(pl.col("x") + 1).exp() / 4) for each in hospitals((3000,) * 5).values()]
    asked = MixedModel("y", ["x", "g"], random=["intercept", "x"])
    model = conducted(asked, schema.at("abcde"), tables, 0.5).model
    (capped,) = [each for each in model.limited.capped if each.column == "x"]
    cut = [each.with_columns(x=pl.col("x").clip(0, capped.high)) for each in tables]
    bare = MixedModel("y", ["x", "g"], random=["intercept", "x"], cap="none")
    plain = conducted(bare, schema.at("abcde"), cut, 0.0).model
    for label, value in plain.tau2.items():
        assert model.tau2[label] == pytest.approx(value, rel=0.3)
    assert any("count as the caps" in note for note in model.notes())
    assert asked.keys().get("cap") is None
    assert bare.keys()["cap"] == "none"


@pytest.mark.slow(10)
@pytest.mark.parametrize("random", [["intercept"], ["intercept", "x"], ["x"]])
def test_the_stated_noise_of_all_stages_is_that_of_the_coefficients(random):
    """The same rows, released 40 times: the scatter is what is said to come from privacy, or less: that also
    counts what lies beyond the bound on scores."""
    tables, schema = list(hospitals().values()), SCHEMA.at("abcde")
    values, stated = [], []
    for seed in range(40):
        asked = MixedModel("y", ["x", "g"], random=random, cap="none")
        found = conducted(asked, schema, tables, 4.0, seed).estimates
        values.append([each.value for each in found[:3]])
        stated.append([each.privacy for each in found[:3]])
    ratio = np.std(values, axis=0) / np.median(stated, axis=0)
    assert (ratio > 0.25).all()
    assert (ratio < 1.4).all()


def test_a_plan_says_about_how_large_noise_will_be():
    schema, std = SCHEMA.at("abcde"), 4.7
    asked = MixedModel("y", ["x", "g"])
    query = asked.query(schema, "replace-one")
    noise = [[std / math.sqrt(asked.stages()[-1]) * query.sensitivity * scale for scale in query.scales[0]]]
    expected = asked.expected(schema, noise, 5000)
    tables = list(hospitals(sizes=(1000,) * 5).values())
    found = {each.label: each.privacy for each in conducted(asked, schema, tables, std).estimates}
    assert 1 < expected["x"] / found["x"] < 6  # typical rows vary less in x, and more in y


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


@pytest.mark.slow(2)
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
    tables = list(hospitals(sizes=(500, 500)).values())
    assert conducted(MixedModel("y", ["x", "g"]), schema, tables, 0.0).model.used == (True, True)
    alone = [tables[0], tables[1][:0]]
    found = conducted(MixedModel("y", ["x", "g"]), schema, alone, 0.0)
    assert found.model.used == (False, False)
    assert math.isnan(found.model.p_value("x"))


@pytest.mark.slow(60)
@pytest.mark.parametrize("tau", [0.0, 0.1])
def test_fixed_effects_and_variances_of_five_sites_are_covered(tau):
    """5,000 rows at epsilon 1: 95% to three standard errors of 150 runs."""
    schema, runs = SCHEMA.at("abcde"), 150
    asked, std = MixedModel("y", ["x", "g"], cap="none"), math.sqrt(5 / 4) / float(cape.privacy.mu(1.0, 1e-6))
    held = np.zeros(5)
    for run in range(runs):
        tables = list(hospitals(sizes=(1000,) * 5, tau=tau, slope=0.0, seed=run).values())
        found = conducted(asked, schema, tables, std, run).estimates
        for place, truth in enumerate([0.0, 0.3, 0.2, tau**2, 0.04]):
            low, high = found[place].interval()
            held[place] += low <= truth <= high
    assert (held / runs > 0.95 - 3 * 0.0178).all()
