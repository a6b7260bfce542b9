from __future__ import annotations

import json
import math
import shutil

import pytest


def test_a_plan_needs_no_data(cape, study):
    shutil.rmtree(study.parent / "data")
    done = cape("plan", study)
    assert done.code == 0, done.err
    for word in (
        "age",
        "conventional",
        "local",
        "pooled",
        "expected error",
        "total",
        "halve",
        "mean |error|",
    ):
        assert word in done.out
    assert "Planned for 1,000 rows" in done.out


def test_a_plan_as_json_has_noise_by_scheme_and_the_total(cape, study):
    plan = json.loads(cape("plan", study, "--json").out)
    first = plan["analyses"][0]
    assert first["number"] == 1
    noise = first["noise"]["weight"]
    # 3 sites, one colluding: two honest ones have to make enough noise, one if a site is lost
    assert noise["cape"] ** 2 == pytest.approx(3 / 2 * noise["pooled"] ** 2, rel=0.01)
    assert first["lost"] == {"1": pytest.approx(math.sqrt(2 / (3 / 2)), rel=1e-6)}
    assert noise["conventional"] ** 2 == pytest.approx(3 * noise["pooled"] ** 2, rel=0.01)
    assert first["rows"] == 1000
    assert not first["rows_assumed"]
    assert plan["total"]["share"] == pytest.approx(1)
    assert plan["total"]["guarantee"]["epsilon"] == pytest.approx(2.0, rel=1e-4)
    assert plan["left"] == pytest.approx(0)


def test_without_rows_a_thousand_each_are_assumed_and_said(cape, change):
    for rows in (200, 300, 500):
        study = change(f", rows = {rows}", "")
    done = cape("plan", study)
    assert "3,000 rows" in done.out
    assert "assumed" in done.out


def test_shares_left_out_split_what_is_left(cape, study):
    plan = json.loads(cape("plan", study, "--json").out)
    assert [each["share"] for each in plan["analyses"]] == [0.25, 0.5, 0.125, 0.125]


def test_what_is_public_costs_nothing_in_a_plan_and_in_a_run(cape, study):
    text = study.read_text()
    study.write_text(text[: text.index("[[analysis]]")] + '[[analysis]]\nkind = "count"\n')
    plan = json.loads(cape("plan", study, "--json").out)
    assert plan["total"]["share"] == plan["total"]["guarantee"]["epsilon"] == 0
    assert cape("plan", study).code == 0
    done = cape("run", study, "--json", "--out", study.parent / "out")
    assert json.loads(done.out)["budget"]["spent"] == 0
    assert "Only public facts were asked for" in (study.parent / "out" / "report.html").read_text()


def test_text_in_brackets_is_shown_and_not_taken_for_markup(cape, change):
    done = cape("plan", change("lungs & <hearts>", "lungs [bold] [/x]"))
    assert done.code == 0
    assert "lungs [bold] [/x]" in done.out


@pytest.mark.filterwarnings("default::cape.PrivacyLeakWarning")
def test_no_colluding_site_is_warned_of(cape, change):
    change("colluding = 1\n", "")
    done = cape("plan", change("min_sites = 2\n", ""))
    assert done.code == 0
    assert done.err.startswith("cape: warning: with 3 sites")
    assert "site-packages" not in done.err
    assert ".py" not in done.err


def test_help_has_an_example(cape):
    for command in ("plan", "run", "demo"):
        done = cape(command, "--help")
        assert done.code == 0
        assert "Example" in done.out
        assert "--json" in done.out


def test_a_plan_names_columns_as_results_do_and_slopes_per_as_many_units(cape, study):
    text = study.read_text().replace(
        "age = [18, 90]", 'age = {low = 18, high = 90, label = "Age", unit = "years", per = 10}'
    )
    start = text[: text.index("[[analysis]]")]
    study.write_text(
        start
        + '[[analysis]]\nkind = "mean"\ncolumns = ["age"]\n'
        + '[[analysis]]\nkind = "linear-regression"\ntarget = "weight"\nfeatures = ["age"]\n'
    )
    slope = json.loads(cape("plan", study, "--json").out)["analyses"][1]["noise"]["age"]["cape"]
    lines = cape("plan", study).out.splitlines()
    assert any("Age (years)" in line for line in lines)
    (line,) = [line for line in lines if "Age (per 10 years)" in line]
    assert float(line.split("│")[2]) == pytest.approx(10 * slope, rel=0.01)


def test_a_narrow_screen_leaves_out_columns_of_a_plan_and_not_what_they_are(cape, study, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    shown = cape("plan", study).out
    assert "Not shown for lack of space: expected error, local." in shown
    assert max(map(len, shown.splitlines())) <= 60


def test_a_plan_shows_what_is_expected_and_where_nothing_is_what_is_assumed(cape, change):
    plain = cape("plan", change("age = [18, 90]", "age = {low = 18, high = 90}"))
    assert "Nothing is expected of" in plain.out
    assert "To narrow it, write expected = {mean = ..., sd = ...}" in " ".join(plain.out.split())
    study = change(
        "age = {low = 18, high = 90}", "age = {low = 18, high = 90, expected = {mean = 24, sd = 5}}"
    )
    stated = cape("plan", study)
    assert "age (mean 24, SD 5)" in " ".join(stated.out.split())
    told = json.loads(cape("plan", study, "--json").out)
    assert told["study"]["schema"]["age"]["expected"] == {"mean": 24, "sd": 5}
    assert "age" in told["analyses"][1]["expected_of"]
    assert set(told["analyses"][1]["nothing_expected_of"]) == {"ill", "sex"}


def test_a_plan_warns_of_a_question_that_will_have_no_answer(cape, study):
    text = study.read_text()
    asked = '[[analysis]]\nkind = "correlation"\ncolumns = ["age", "weight"]\nshare = 0.01\n'
    study.write_text(text[: text.index("[[analysis]]")] + asked)
    told = " ".join(cape("plan", study).out.split())
    assert "No answer at this budget and size: the 95% interval of age, weight correlation" in told
    assert "An answer needs a share of" in told


def test_an_expectation_that_cannot_be_right_is_refused_where_it_stands(cape, change):
    wrong = change("age = [18, 90]", "age = {low = 18, high = 90, expected = {mean = 95, sd = 5}}")
    done = cape("plan", wrong)
    assert done.code == 2
    assert (
        "[schema]: column 'age': expected mean must lie between the bounds 18 and 90, not at 95" in done.err
    )
