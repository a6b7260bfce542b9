"""Differences between sites: what each site says is what its rows say, and all of them together cover."""

from __future__ import annotations

import json
import math

import numpy as np
import polars as pl
import pytest
from scipy.stats import ttest_ind
from statsmodels.api import OLS, add_constant
from statsmodels.stats.meta_analysis import combine_effects
from statsmodels.stats.oneway import anova_oneway

import cape
from cape.analyses import Association, Difference, Heterogeneity, LinearRegression, Mean, Proportion
from cape.analyses.registry import build
from cape.core.errors import InvalidInput, TooNoisyWarning
from cape.data import Number, Schema
from cape.engine.query import Answer
from cape.show.svg import draw
from cape.show.terminal import as_text

pytestmark = pytest.mark.filterwarnings(
    "ignore::cape.core.errors.TooNoisyWarning", "ignore::cape.core.errors.PrivacyLeakWarning"
)
SCHEMA = Schema(sbp=(80, 220), age=Number(18, 90, missing=False), ill=["no", "yes"], drug=["none", "some"])
SIZES = {"bern": 900, "graz": 300, "lyon": 1500, "turin": 40}


def hospitals(shift=6.0, sizes=None):
    rng, found = np.random.default_rng(3), {}
    for name, many in (sizes or SIZES).items():
        age, drug = rng.uniform(20, 85, many), rng.random(many) < 0.4
        sbp = 130 + shift * rng.normal() + 0.3 * (age - 52) + 4 * drug + rng.normal(0, 15, many)
        ill = rng.random(many) < 0.2 + 0.1 * rng.random() + 0.1 * drug
        found[name] = pl.DataFrame(
            {
                "sbp": np.clip(sbp, 80, 220),
                "age": age,
                "ill": np.where(ill, "yes", "no"),
                "drug": np.where(drug, "some", "none"),
            }
        )
    return found


def released(of, *, scheme="none", epsilon=3.0, tables=None, **options):
    consortium = cape.Consortium(tables or hospitals(), SCHEMA, cape.Budget(epsilon, 1e-6), colluding=1)
    return consortium.release(Heterogeneity(of), 0.9, scheme=scheme, **options)


def test_means_of_sites_are_those_of_their_rows_and_tested_as_statsmodels_does():
    release, tables = released(Mean("sbp")), hospitals()
    found = release.model["sbp mean"]
    cells = [tables[name]["sbp"].to_numpy() for name in SIZES]
    values, variances = (
        np.array([each.mean() for each in cells]),
        np.array([each.var(ddof=1) / len(each) for each in cells]),
    )
    assert [site.value for site in found.sites] == pytest.approx(values, abs=1e-3)
    known = combine_effects(values, variances, method_re="iterated")
    assert found.synthesis.test.statistic == pytest.approx(known.q, rel=1e-4)
    assert found.fixed.value == pytest.approx(known.mean_effect_fe, abs=1e-3)
    assert found.random.value == pytest.approx(known.mean_effect_re, abs=1e-3)
    assert found.tau2.value == pytest.approx(known.tau2, rel=1e-3)
    assert found.i2.value == pytest.approx(known.i2, rel=1e-3)
    welch = anova_oneway(cells, use_var="unequal")
    assert release.model.p_value() == pytest.approx(welch.pvalue, rel=1e-3)
    assert sum(found.weights) == pytest.approx(1)
    assert [each.label for each in found.without] == [f"sbp mean | without {name}" for name in SIZES]


def test_shares_differences_and_slopes_of_sites_are_those_of_their_rows():
    tables = hospitals()
    each = tables["bern"]
    ill, some = (each["ill"] == "yes").to_numpy(), (each["drug"] == "some").to_numpy()
    sbp = each["sbp"].to_numpy()
    shares = released(Proportion("ill"))
    assert shares.value["ill=yes | site=bern"] == pytest.approx(ill.mean())
    risks = released(Association("drug", "ill"))
    label = "ill=yes risk difference, drug: some - none | site=bern"
    assert risks.value[label] == pytest.approx(ill[some].mean() - ill[~some].mean())
    apart = released(Difference("sbp", by="drug"))
    label = "sbp difference, drug: some - none | site=bern"
    known = ttest_ind(sbp[some], sbp[~some], equal_var=False)
    assert apart.value[label] == pytest.approx(sbp[some].mean() - sbp[~some].mean(), abs=1e-3)
    assert apart.interval()[label] == pytest.approx(tuple(known.confidence_interval()), abs=1e-2)
    slopes = released(LinearRegression("sbp", ["age", "drug"]))
    fitted = OLS(sbp, add_constant(np.column_stack([each["age"].to_numpy(), some]))).fit()
    assert slopes.value["age | site=bern"] == pytest.approx(fitted.params[1], rel=1e-3)
    assert slopes.standard_error["age | site=bern"] == pytest.approx(fitted.bse[1], rel=1e-3)
    assert slopes.value["drug=some | site=bern"] == pytest.approx(fitted.params[2], rel=1e-3)
    assert {quantity.label for quantity in slopes.model.quantities} == {"age", "drug=some"}


def test_the_noise_of_a_site_is_counted_and_that_of_public_sizes_is_none():
    schema = SCHEMA.at(SIZES)
    asked = Heterogeneity(Mean("age"))
    query = asked.query(schema, "replace-one")
    assert query.sensitivity == pytest.approx(2.0)
    assert query.scales[0][0] == pytest.approx(1 / 64)  # sizes of sites are public, and do not move
    assert Heterogeneity(Mean("sbp")).query(schema, "replace-one").scales[0][0] > 0.5
    noise = ((0.02, 10.0, 10.0),)
    sums = np.array([[900.0], [300.0], [1500.0], [40.0]]), np.zeros((4, 1)), np.full((4, 1), 30.0)
    found = asked.finish(Answer((sums,), noise, None, schema))
    assert found.estimates[0].privacy == pytest.approx(36 * 10 / 900, rel=1e-3)


def test_a_study_file_says_it_with_a_nested_table():
    said = {"kind": "heterogeneity", "of": {"kind": "difference", "columns": ["sbp"], "by": "drug"}}
    analysis = build(said)
    assert analysis == Heterogeneity(Difference("sbp", by="drug"))
    assert build(json.loads(json.dumps(analysis.to_dict()))) == analysis
    assert "differences between sites" in analysis.describe()


def test_it_is_shown_as_a_forest_plot_in_80_columns():
    release = released(Mean("sbp"), scheme="cape")
    text = as_text(release, 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "■" in text
    assert "◆" in text
    assert "Leaving out one site" in text
    assert "Each site's own numbers are now public, under its name." in text.replace("\n", " ")
    (figure,) = release.figures()
    picture = draw(figure.panels[0])
    assert picture.count("<rect") == 4
    assert picture.count('Z"/>') == 2  # two diamonds
    plain = json.loads(json.dumps(release.to_dict()))
    assert plain["model"]["quantities"]["sbp mean"]["p"] == pytest.approx(release.model.p_value())


def test_a_site_of_few_rows_is_left_out_and_said_so():
    tables = hospitals(sizes={"bern": 900, "graz": 800, "lyon": 700, "turin": 2})
    release = released(Mean("sbp"), scheme="cape", epsilon=1.0, tables=tables)
    found = release.model["sbp mean"]
    assert found.weights[3] == 0
    assert found.sites[3].interval() == (80, 220)
    assert (
        "turin: too few rows with sbp to be told from noise, or none; the pooled estimates leave it out."
        in release.notes()
    )
    (row,) = (row for row in release.tables()[0].rows if row[0] == "turin")
    assert row[1:] == ("-", "80 to 220", "-", "")
    assert found.synthesis.many == 3
    assert "without turin" in found.without[3].label


def test_coefficients_are_shown_per_what_the_schema_says_and_the_test_has_their_title():
    told = Schema({**SCHEMA, "age": Number(18, 90, missing=False, label="Age", unit="years", per=10)})
    consortium = cape.Consortium(hospitals(), told, cape.Budget(30.0, 1e-6), colluding=1)
    asked = Heterogeneity(LinearRegression("sbp", ["age"]))
    release = consortium.release(asked, 0.9, scheme="none")
    table, found = release.tables()[0], release.model["age"]
    assert table.title == "Age (per 10 years)"
    shown = {row[0]: float(row[1]) for row in table.rows if row[1]}
    assert shown["bern"] == pytest.approx(10 * found.sites[0].value, rel=0.02)
    assert shown["tau²"] == pytest.approx(100 * found.tau2.value, rel=0.1, abs=0.01)
    assert shown["I²"] == pytest.approx(found.i2.value, rel=0.1, abs=0.01)
    assert release.figures()[0].panels[0].marks[0].value == pytest.approx(10 * found.sites[0].value)
    assert release.notes()[0].startswith("Test that all sites agree in Age (per 10 years): Cochran's Q = ")
    planned = {row[0] for row in consortium.plan(asked, 0.9).table().rows}
    assert {"Age (per 10 years) | site=bern", "Age (per 10 years) | tau²"} <= planned


def test_of_two_sites_none_can_be_left_out(recwarn):
    two = {name: rows for name, rows in hospitals().items() if name in ("bern", "lyon")}
    consortium = cape.Consortium(two, SCHEMA, cape.Budget(3.0, 1e-6), colluding=0)
    release = consortium.release(Heterogeneity(Mean("sbp")), 0.9)
    assert not any("without" in each.label for each in release.estimates)
    assert not [each for each in recwarn if issubclass(each.category, TooNoisyWarning)]


def test_where_noise_hides_all_sites_there_are_bounds_and_a_warning():
    tables = hospitals(sizes=dict.fromkeys(SIZES, 5))
    with pytest.warns(TooNoisyWarning):
        release = released(Mean("sbp"), scheme="cape", epsilon=0.2, tables=tables)
    assert release.model.p_value() is None
    assert release.interval()["sbp mean | random effects"] == (80, 220)
    assert as_text(release, 80)
    first, *rest = release.notes()
    assert first.startswith(
        "sbp mean: nothing can be said of differences between sites. bern, graz, lyon and"
    )
    assert rest == ["Each site's own numbers are now public, under its name."]  # and nothing about P
    assert all(math.isfinite(each.value) for each in release.estimates)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Heterogeneity("mean"), "of must be one of mean"),
        (lambda: Heterogeneity(cape.Count()), "not count"),
        (
            lambda: Heterogeneity({"kind": "logistic-regression"}),
            "of must be one of mean, .*, not 'logistic-reg",
        ),
        (lambda: Heterogeneity({"columns": ["age"]}), "must have a kind"),
        (lambda: Heterogeneity(Mean("age"), by="age"), "tells sites apart"),
        (lambda: Heterogeneity(Mean("age"), by=3), "by must be a column's name"),
        (lambda: Heterogeneity(Mean("age", where="age > 3")), "write where beside it"),
        (lambda: Heterogeneity(Mean("age", by="ill")), "must not have groups"),
        (lambda: Heterogeneity(LinearRegression("sbp", ["age"], intercept=False)), "must have an intercept"),
        (lambda: Heterogeneity(LinearRegression("sbp", ["age", "site"])), "tells sites apart"),
    ],
)
def test_what_cannot_be_compared_is_refused_at_once(made, said):
    with pytest.raises(InvalidInput, match=said):
        made()


def test_one_site_and_more_than_two_categories_are_refused_before_anything_is_asked():
    alone = SCHEMA.at(["bern"])
    with pytest.raises(InvalidInput, match="has one site"):
        Heterogeneity(Mean("sbp")).query(alone, "replace-one")
    schema = Schema(stage=["I", "II", "III"], sbp=(80, 220)).at(SIZES)
    with pytest.raises(InvalidInput, match="must have two categories"):
        Heterogeneity(Proportion("stage")).query(schema, "replace-one")


@pytest.mark.slow(20)
@pytest.mark.parametrize("spread", [0.0, 4.0])
def test_means_of_five_sites_are_covered(spread):
    """1,000 rows each at epsilon 1: coverage of 95% and the size of the test, to three standard errors."""
    schema = SCHEMA.at("abcde")
    asked, rng, runs = Heterogeneity(Mean("sbp")), np.random.default_rng(5), 400
    query = asked.query(schema, "replace-one")
    std = query.sensitivity / float(cape.privacy.mu(1.0, 1e-6)) * math.sqrt(5 / 4)
    noise = tuple(tuple(std * scale for scale in scales) for scales in query.scales)
    held = np.zeros(3)
    rejected = 0
    for _ in range(runs):
        centres = 130 + spread * rng.normal(size=5)
        t = (np.clip(centres[:, None] + 15 * rng.normal(size=(5, 1000)), 80, 220) - 150) / 70
        sums = [np.full((5, 1), 1000.0), t.sum(axis=1)[:, None], (t**2).sum(axis=1)[:, None]]
        noised = tuple(each + rng.normal(size=(5, 1)) * s for each, s in zip(sums, noise[0], strict=True))
        quantity = asked.finish(Answer((noised,), noise, None, schema)).model.quantities[0]
        for place, (estimate, truth) in enumerate(
            [(quantity.sites[0], centres[0]), (quantity.random, 130.0), (quantity.tau2, spread**2)]
        ):
            low, high = estimate.interval()
            held[place] += low <= truth <= high
        rejected += quantity.synthesis.test.p_value < 0.05
    assert (held / runs > 0.917).all()
    if not spread:
        assert rejected / runs < 0.083
