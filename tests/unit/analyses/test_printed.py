"""What was printed wrongly once, looked at as a reader does: in the terminal, in HTML and in JSON."""

from __future__ import annotations

import math
import re
import warnings

import numpy as np
import polars as pl
import pytest
from scipy.special import ndtr

import cape
from cape.noise import SecureStream
from cape.show.numbers import counted, seen
from cape.stats.estimates import Estimate, error_beside

SCHEMA = cape.Schema(
    x=(0, 10),
    years=(0, 10),
    died=["no", "yes"],
    cause=["no", "cancer", "other"],
    arm=["old", "new", "none"],
    sex=["f", "m"],
)


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(1)
    arm = rng.choice(["old", "new", "none"], 1500, p=[0.5, 0.495, 0.005])
    event, end = rng.exponential(np.where(arm == "old", 4, 30)), rng.uniform(1, 14, 1500)
    had = (event <= end) & (event <= 10)
    return pl.DataFrame(
        {
            "x": np.clip(rng.normal(5, 1.5, 1500), 0, 10),
            "years": np.minimum(np.minimum(event, end), 10),
            "died": np.where(had, "yes", "no"),
            "cause": np.where(had, rng.choice(["cancer", "other"], 1500), "no"),
            "arm": arm,
            "sex": rng.choice(["f", "m"], 1500),
        }
    )


def released(analysis, frame, scheme, epsilon=2.0, schema=SCHEMA):
    parts = {name: frame[i::3] for i, name in enumerate("abc")}
    stream = SecureStream(b"\x09" * 32)
    consortium = cape.Consortium(parts, schema, cape.Budget(epsilon, 1e-6), colluding=1, stream=stream)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return consortium.release(analysis, share=1.0, scheme=scheme)


def shown(release):
    """What the terminal prints, and what a page says."""
    return " ".join(str(release).split()), re.sub("<[^>]+>", " ", release._repr_html_())


@pytest.mark.parametrize("scheme", ["none", "cape"])
def test_cumulative_incidence_is_printed(people, scheme):
    release = released(cape.KaplanMeier("years", "cause", by="arm", bins=5), people, scheme)
    for text in shown(release):
        assert "Cumulative incidence: the share with each event" in text
    table = next(each for each in release.tables() if (each.title or "").startswith("Cumulative"))
    assert table.columns[1:] == ("cause=cancer", "cause=other")
    assert not table.folded


TITLED = {
    "logistic": (cape.LogisticRegression("died", ["x"]), "row"),
    "glm": (cape.GLM("x", ["years"]), "row"),
    "ordinal": (cape.GLM("cause", ["x"], family="ordinal"), "row"),
    "linear": (cape.LinearRegression("x", ["years"]), "row"),
    "polynomial": (cape.PolynomialLoss("x", ["years"], {1: [0, -2], 2: [1]}), "row"),
    "components": (cape.PCA("x", "years"), "row"),
    "cox": (cape.Cox("years", "died", ["x"]), "event"),
}


@pytest.mark.parametrize("kind", TITLED)
def test_numbers_in_titles_are_marked_where_they_have_noise(people, kind):
    analysis, what = TITLED[kind]
    for scheme, words in (("none", rf"\([\d,]+ {what}s\)"), ("cape", rf"\(about [\d,]+ {what}s\)")):
        for text in shown(released(analysis, people, scheme)):
            assert re.search(words, text)


def test_a_title_has_no_events_where_noise_hides_whether_there_are_any(people):
    nobody = people.with_columns(pl.lit("no").alias("died"))
    text, _ = shown(released(cape.Cox("years", "died", ["x"]), nobody, "cape"))
    assert re.search(r"\(at most [\d,]+ events?\)", text)
    assert not re.search(r"[( ]\d+ events\)", text.replace("at most ", "at most-"))


def test_a_count_says_whether_it_is_exact():
    assert counted(1500, 0.0, "row") == "1,500 rows"
    assert counted(1, 0.0, "row") == "1 row"
    assert counted(1500.4, 3.0, "row") == "about 1,500 rows"
    assert counted(66.0, 40.0, "event") == "at most 146 events"
    assert counted(-5.0, 2.0, "event") == "at most 4 events"
    assert seen(66.0, 40.0) == "-"
    assert seen(0.0, 0.0) == "0"


def test_sizes_of_groups_that_have_noise_are_marked(people):
    for scheme in ("none", "cape"):
        noisy = scheme == "cape"
        _, page = shown(released(cape.KaplanMeier("years", "died", by="arm", bins=5), people, scheme))
        assert ("with noise of standard deviation" in page) == noisy
        assert ("- (-)" in page) == noisy, "of a group in which noise hides whether anybody is"
        assert bool(re.search(r"7\d\d \(0\)", page)), "the number at the start of the others"
        for text in shown(released(cape.LogRank("years", "died", by="arm", bins=5), people, scheme)):
            assert ("Rows and events have privacy noise" in text) == noisy
        release = released(cape.TableOne("x", "sex", by="arm"), people, scheme)
        assert ("Counts of rows have privacy noise." in release.notes()) == noisy
        assert ("n (95% interval)" in str(release)) == noisy


def test_a_median_that_may_not_be_reached_has_no_standard_error_anywhere(people):
    release = released(cape.KaplanMeier("years", "died", by="arm", bins=5), people, "cape")
    medians = [each for each in release.to_dict()["estimates"] if "quantile" in each["label"]]
    assert any(each["interval"][1] is None for each in medians)
    for each in medians:
        assert (each["standard_error"] is None) == (each["interval"][1] is None)
    rows = {row[0]: row for row in release.tables()[0].rows}
    for group in ("new", "none"):
        row = rows[f"arm={group}, years median"]
        assert "not reached" in row[2]
        assert not any(cell and cell != "-" for cell in row[3:])
    assert math.isnan(error_beside(2.0, (0.0, math.inf)))
    assert error_beside(2.0, (0.0, 1.0)) == 2.0


def ends(cell):
    """The smallest and the largest number that is printed like this."""
    half = 0.5 * 10.0 ** -len(cell.partition(".")[2])
    value = abs(float(cell.replace(",", "")))
    return max(value - half, 0.0), value + half


TESTED = {
    **{name: TITLED[name][0] for name in ("logistic", "glm", "ordinal", "linear", "cox")},
    "weibull": cape.SurvivalRegression("years", "died", ["x", "sex"]),
    "classical": cape.LinearRegression("x", ["years", "sex"], errors="classical"),
}


@pytest.mark.parametrize("analysis", TESTED)
def test_z_is_coefficient_over_standard_error_or_what_p_comes_from_is_said(people, analysis):
    for scheme, epsilon in (("none", 1.0), ("cape", 0.05), ("cape", 1.0), ("cape", 10.0)):
        release = released(TESTED[analysis], people, scheme, epsilon)
        for each in release.model.to_dict()["coefficients"].values():
            z, p, (low, high) = each["z"], each["p"], each["interval"]
            if z is not None:
                assert z == pytest.approx(each["value"] / each["standard_error"], rel=1e-9)
                assert p == pytest.approx(2 * float(ndtr(-abs(z))))
            if p is not None:
                assert (p < 0.05) == (low > 0 or high < 0)
        table = release.tables()[0]
        if "z" not in table.columns:
            assert "P is 1 minus the level at which the interval would end at 0" in shown(release)[0]
            assert "P>|z|" not in table.columns
            continue
        names = [table.columns.index(name) for name in ("coef", "std err", "z", "P>|z|")]
        for coef, error, z, p in ([row[place] for place in names] for row in table.rows):
            if z in ("", "-"):
                assert p in ("", "-")
                continue
            (least, most), (small, large), (low, high) = map(ends, (coef, error, z))
            assert low <= most / max(small, 1e-300)
            assert least / large <= high
            if not p.startswith("<"):
                assert ends(p)[0] <= 2 * ndtr(-low)
                assert 2 * ndtr(-high) <= ends(p)[1]


@pytest.mark.parametrize("kind", ["logistic", "linear", "glm"])
def test_at_reference_says_at_which_values(people, kind):
    release = released(TITLED[kind][0], people, "cape")
    said = re.search(r"At reference: (x|years) ([\d.]+)\.", " ".join(release.notes()))
    assert said is not None
    if kind != "linear":  # whose second moments are not asked for means: it says the middle of the bounds
        name = said.group(1)
        assert float(said.group(2)) == pytest.approx(people[name].mean(), abs=0.5 * people[name].std())


def test_an_estimate_whose_interval_is_open_has_no_error_in_tables():
    from cape.show.tables import listed, recorded

    class Open:
        def __call__(self, level):
            return 1.0, math.inf

    one = Estimate("ratio", 2.0, 0.5, 0.5, (0.0, math.inf), Open())
    assert listed([one]).rows[0][3:] == ("-", "-")
    assert math.isnan(recorded(one)["standard_error"])
