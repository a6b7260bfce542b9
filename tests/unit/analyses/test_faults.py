"""What is wrong with the data is named in the result of every kind of model and comparison: faults by kinds.

Mixed models are not among them: they are tested by themselves.
"""

from __future__ import annotations

import re
import warnings

import numpy as np
import polars as pl
import pytest

import cape
from cape.analyses.regression.faults import sentence
from cape.noise import SecureStream

ROWS = 900
SCHEMA = cape.Schema(
    x=(0, 10),
    z=(0, 10),
    y=(0.1, 30),
    n=(0, 30),
    years=(0, 10),
    died=["no", "yes"],
    ill=["no", "yes"],
    stage=["a", "b", "c"],
    arm=["old", "new", "none"],
)
BOTH = ["x", "z"]
LEAST_SQUARES = {1: [0, -2], 2: [1]}


def table(fault):
    """Rows in which nothing is wrong but this."""
    rng = np.random.default_rng(5)
    x, z = np.clip(rng.normal(5, 1.5, ROWS), 0, 10), np.clip(rng.normal(5, 2, ROWS), 0, 10)
    years = np.clip(rng.exponential(6, ROWS), 0, 10)
    found = {
        "x": x,
        "z": z,
        "y": np.clip(3 + 0.5 * x + rng.normal(0, 1, ROWS), 0.1, 30),
        "n": np.clip(rng.poisson(np.exp(0.3 + 0.1 * x)), 0, 30).astype(float),
        "years": years,
        "died": np.where(years < 10, rng.choice(["no", "yes"], ROWS), "no"),
        "ill": np.where(rng.random(ROWS) < 1 / (1 + np.exp(-0.3 * (x - 5))), "yes", "no"),
        "stage": rng.choice(["a", "b", "c"], ROWS),
        "arm": rng.choice(["old", "new", "none"], ROWS),
    }
    if fault == "constant":
        found["z"] = np.full(ROWS, 2.0)
    if fault == "repeated":
        found["z"] = x
    if fault == "separated":
        found["ill"] = np.where(z > 6, "yes", "no")
        found["stage"] = np.array(["a", "b", "c"])[np.digitize(z, [4.0, 6.0])]
    if fault == "no events":
        found |= {"died": np.full(ROWS, "no"), "ill": np.full(ROWS, "no"), "stage": np.full(ROWS, "a")}
        found |= {"n": np.zeros(ROWS), "y": np.full(ROWS, 3.0)}
    if fault == "empty":
        found["arm"] = rng.choice(["old", "new"], ROWS)
    return pl.DataFrame(found)


def models(features):
    return {
        "linear": cape.LinearRegression("y", features),
        "logistic": cape.LogisticRegression("ill", features),
        "gaussian": cape.GLM("y", features),
        "poisson": cape.GLM("n", features, family="poisson"),
        "negative-binomial": cape.GLM("n", features, family="negative-binomial"),
        "gamma": cape.GLM("y", features, family="gamma"),
        "binomial": cape.GLM("ill", features, family="binomial"),
        "probit": cape.GLM("ill", features, family="binomial", link="probit"),
        "multinomial": cape.GLM("stage", features, family="multinomial"),
        "ordinal": cape.GLM("stage", features, family="ordinal"),
        "cox": cape.Cox("years", "died", features),
        "weibull": cape.SurvivalRegression("years", "died", features),
        "polynomial": cape.PolynomialLoss("y", features, LEAST_SQUARES),
    }


COMPARISONS = {
    "cox of groups": cape.Cox("years", "died", ["arm"]),
    "kaplan-meier": cape.KaplanMeier("years", "died", by="arm", bins=5),
    "log-rank": cape.LogRank("years", "died", by="arm", bins=5),
    "difference": cape.Difference("y", by="arm"),
    "rank test": cape.RankTest("y", by="arm"),
    "table one": cape.TableOne("y", "stage", by="arm"),
    "association": cape.Association("ill", "arm"),
}
ODDS = ("logistic", "binomial", "probit", "multinomial", "ordinal")
CONSTANT = r"\bz does not vary", r"\bz (lies between 1.87\d* and 2.18\d* in all rows|at this budget)"
REPEATED = (
    "x and z do not vary independently",
    "(x and z|z and x|x.* and z|about [xz]).*(vary together|at this budget)",
)
SEPARATED = r"\bz separates rows", r"\bz separates rows|about z at this budget"
NO_ROW = "No row has ill=yes", "Noise hides whether any row has ill=yes"
NO_STAGE = "Nobody is in 'b' and 'c'", "Noise hides whether anybody is in 'b' and 'c'"
NO_COUNT = (r"n lies between 0 and \S+ in all rows",) * 2
SAME = (r"y lies between 2.9\d+ and 3.8\d+ in all rows",) * 2
NO_GROUP = "Nobody is in .*arm=none", "Noise hides whether anybody is in .*arm=none"
NO_VALUE = "Nobody has arm=none", "Noise hides whether anybody has arm=none"
FLAT = "arm=none does not vary", "about arm=none at this budget"  # of columns whose values are not counted
NAMED = {  # fault: {kind: what the result says, without noise and with it}
    "constant": dict.fromkeys(models(BOTH), CONSTANT),
    "repeated": dict.fromkeys(models(BOTH), REPEATED),
    "separated": dict.fromkeys(ODDS, SEPARATED),
    "no events": {
        **dict.fromkeys(("logistic", "binomial", "probit"), NO_ROW),
        **dict.fromkeys(("multinomial", "ordinal"), NO_STAGE),
        **dict.fromkeys(("poisson", "negative-binomial"), NO_COUNT),
        **dict.fromkeys(("gaussian", "gamma"), SAME),
        "linear": ("y does not vary", "Noise hides how much y varies"),
        "cox": (r"no events \(died=yes\)", r"Noise hides whether there are any events \(died=yes\)"),
        "weibull": (r"no events \(died=yes\)", r"Noise hides whether there are any events \(died=yes\)"),
        "cox of groups": (
            r"no events \(died=yes\)",
            "Nothing is known of the hazard of arm=old, arm=new and",
        ),
        "kaplan-meier": ("no events in arm=new", "Noise hides whether there are any events in arm=new"),
        "log-rank": ("There are no events", "Noise hides whether there are any events"),
    },
    "empty": {
        **dict.fromkeys(COMPARISONS, NO_GROUP),
        "cox of groups": ("Nobody has arm=none", "Nothing is known of the hazard of arm=none"),
        **dict.fromkeys(models(BOTH), NO_VALUE),
        **dict.fromkeys(("linear", "polynomial"), FLAT),
    },
}
CASES = [(fault, kind) for fault, kinds in NAMED.items() for kind in kinds]
_TABLES = {fault: table(fault) for fault in (*NAMED, "nothing")}


def released(fault, analysis, scheme, epsilon=40.0):
    frame = _TABLES[fault]
    consortium = cape.Consortium(
        {name: frame[i::3] for i, name in enumerate("abc")},
        SCHEMA,
        cape.Budget(epsilon, 1e-6),
        colluding=1,
        stream=SecureStream(b"\x07" * 32),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return consortium.release(analysis, share=1.0, scheme=scheme)


def asked(fault, kind):
    return COMPARISONS.get(kind) or models(["x", "arm"] if fault == "empty" else BOTH)[kind]


@pytest.mark.one_in(6, seconds=0.08)
@pytest.mark.parametrize("scheme", ["none", "cape"])
@pytest.mark.parametrize(("fault", "kind"), CASES)
def test_what_is_wrong_is_named_in_the_result(fault, kind, scheme):
    release = released(fault, asked(fault, kind), scheme)
    words = NAMED[fault][kind][scheme == "cape"]
    assert re.search(words, " ".join(release.notes())), release.notes()
    printed = " ".join(str(release).split())
    assert re.search(words, printed)
    assert re.search(words, " ".join(release.to_dict()["notes"]))
    if "faults" in (plain := release.model.to_dict()) and fault != "empty":
        assert re.search(words, " ".join(plain["faults"]))


SIGNS = re.compile(
    "does not vary|do not vary|vary together|separate|hides whether|Nobody|No row|no events|in all rows|"
    "converged"
)


@pytest.mark.one_in(6, seconds=0.08)
@pytest.mark.parametrize("scheme", ["none", "cape"])
@pytest.mark.parametrize("kind", [*models(BOTH), *COMPARISONS])
def test_where_nothing_is_wrong_nothing_is_named(kind, scheme):
    notes = released("nothing", asked("nothing", kind), scheme).notes()
    assert not SIGNS.search(" ".join(notes)), notes


@pytest.mark.one_in(3, seconds=0.1)
@pytest.mark.parametrize("fault", ["constant", "repeated"])
@pytest.mark.parametrize("kind", ["cox", "logistic", "poisson"])
def test_what_does_not_vary_spoils_no_other(kind, fault):
    alone, both = (released(fault, models(features)[kind], "none") for features in (["x"], BOTH))
    known = alone.estimates[-1].value
    if fault == "constant":
        assert both.value["x"] == pytest.approx(known, abs=1e-5)
        assert both.estimates[-2].sampling == pytest.approx(alone.estimates[-1].sampling, rel=1e-3)
    else:  # of all coefficients that fit the same, the least
        assert both.value["x"] + both.value["z"] == pytest.approx(known, abs=1e-5)
        assert both.value["x"] == pytest.approx(both.value["z"], rel=0.01)
    assert "converged" not in " ".join(both.notes())


@pytest.mark.parametrize("scheme", ["none", "cape"])
def test_columns_of_a_correlation_that_do_not_vary_are_named(scheme):
    notes = " ".join(released("constant", cape.CorrelationTest("x", "z"), scheme).notes())
    assert ("z does not vary" if scheme == "none" else "Noise hides whether z varies") in notes


def test_sites_where_nothing_varies_have_no_pooled_effect():
    release = released("no events", cape.Heterogeneity(cape.LinearRegression("y", ["x"])), "none")
    assert "nothing can be said of differences between sites" in " ".join(release.notes())
    assert not np.isnan(release.estimates.values).any()


def test_a_sentence_keeps_the_first_letter_of_a_column():
    assert sentence("z does not vary", ["z"]) == "z does not vary."
    assert sentence("the data say little.") == "The data say little."


GROUPED = [
    cape.Mean("y", by="arm"),
    cape.StandardDeviation("y", by="arm"),
    cape.Proportion("ill", by="arm"),
    cape.Quantiles("y", by="arm"),
    cape.Correlation("x", "y", by="arm"),
]


@pytest.mark.one_in(3, seconds=0.1)
@pytest.mark.parametrize("scheme", ["none", "cape"])
@pytest.mark.parametrize("analysis", GROUPED, ids=lambda each: each.kind)
def test_groups_of_which_nothing_is_known_are_named(analysis, scheme):
    said = " ".join(released("empty", analysis, scheme, epsilon=400.0).notes())
    why = "too few rows are, or nothing varies there" if scheme == "none" else "noise hides it"
    assert f"Nothing is known of arm=none: nobody is in it, or {why}." in said
    said = " ".join(released("nothing", analysis, scheme, epsilon=400.0).notes())
    assert "Nothing is known" not in said


def test_a_column_that_does_not_vary_is_not_called_too_few_rows():
    said = " ".join(released("no events", cape.Difference("y", by="stage"), "none").notes())
    assert "too few rows in a group" in said, "two of three stages are empty"
    frame = _TABLES["no events"].with_columns(pl.Series("ill", ["no", "yes"] * (ROWS // 2)))
    _TABLES["constant y"] = frame
    said = " ".join(released("constant y", cape.Difference("y", by="ill"), "none").notes())
    assert "y does not vary within a group" in said
    assert "too few" not in said
