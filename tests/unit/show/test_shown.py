"""Every analysis shows itself: tables, figures, notes and JSON, by the columns' labels, units and `per`."""

from __future__ import annotations

import io
import json
import math
import warnings
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from cape import Budget, Category, Consortium, Number, Schema
from cape.analyses.describe.custom import CustomSum
from cape.analyses.registry import KINDS, build
from cape.learning.gradient_descent import GradientDescent
from cape.noise import SecureStream
from cape.show import Bars, Figure, HeatMap, Intervals, Line, Shown, Table, html
from cape.show.bar import bar
from cape.show.tables import listed
from cape.show.terminal import as_text
from cape.stats.estimates import Estimate, unknown
from tests.unit.app.test_report import Balanced

SCHEMA = Schema(
    age=Number(18, 90, missing=False, label="Age", unit="years", per=10),
    chol=Number(80, 220, missing=False, label="Blood <pressure>", unit="mmHg"),
    dose=Number(0, 40, missing=False),
    sex=Category(("female", "male"), missing=False, label="Sex"),
    disease=Category(("no", "yes"), missing=False, label="Heart disease"),
)
ASKED = {  # where the analysis' own example shows less
    "count": {"where": {"sex": "male", "disease": "yes"}},
    "sum": {"columns": ["age"]},
    "mean": {"columns": ["age", "chol"]},
    "variance": {"columns": ["age"]},
    "standard-deviation": {"columns": ["age"]},
    "covariance": {"columns": ["age", "chol"]},
    "correlation": {"columns": ["age", "chol"]},
    "histogram": {"column": "age", "bins": 5},
    "contingency-table": {"columns": ["sex", "disease"]},
    "ecdf": {"columns": ["age"], "bins": 16},
    "quantiles": {"columns": ["age"], "bins": 64},
    "table-one": {"columns": ["age", "sex"], "by": "disease"},
    "linear-regression": {"target": "chol", "features": ["age", "sex"]},
    "logistic-regression": {"target": "disease", "features": ["age", "dose", "sex"]},
    "polynomial-loss": {"target": "chol", "features": ["age"], "coefficients": {1: [0, -2], 2: [1]}},
    "pca": {"columns": ["age", "chol"]},
    "k-means": {"columns": ["age", "chol"], "clusters": 2},
    "neural-network": {"target": "disease", "features": ["age"], "hidden": [2], "epochs": 3, "watch": True},
}
NAMED = {  # what a reader sees of age and of the other columns
    "count": "Sex: male, Heart disease: yes",
    "variance": "Age (years²)",
    "covariance": "Age, Blood <pressure> covariance",
    "correlation": "Age, Blood <pressure> correlation",
    "histogram": "Age in [18, 32.4)",
    "contingency-table": "Sex: male, Heart disease: yes",
    "ecdf": "Age < 22.5",
    "quantiles": "Age quantile 0.5 (years)",
    "linear-regression": "Age (per 10 years)",
    "logistic-regression": "Age (per 10 years)",
    "polynomial-loss": "Age (per 10 years)",
    "pca": "Age",
    "neural-network": "mean loss",
}


@pytest.fixture(scope="module")
def consortium() -> Consortium:
    def site(seed: int) -> pl.DataFrame:
        rng = np.random.default_rng(seed)
        age, sex = np.clip(rng.normal(55, 12, 3000), 18, 90), rng.choice(["female", "male"], 3000)
        log_odds = 0.06 * (age - 60) + 0.5 * (sex == "male")
        return pl.DataFrame(
            {
                "age": age,
                "chol": np.clip(100 + 0.5 * age + rng.normal(0, 12, 3000), 80, 220),
                "dose": rng.uniform(0, 40, 3000),
                "sex": sex,
                "disease": np.where(rng.random(3000) < 1 / (1 + np.exp(-log_odds)), "yes", "no"),
            }
        )

    stream = SecureStream(b"shown".ljust(32))
    sites = {name: site(seed) for seed, name in enumerate("abc")}
    return Consortium(sites, SCHEMA, Budget(200, 1e-6), colluding=0, stream=stream)


@pytest.fixture(scope="module")
def releases(consortium):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        described = {kind: {"kind": kind, **ASKED.get(kind, KINDS[kind].example)} for kind in KINDS}
        share = 0.8 / len(described)
        return {kind: consortium.release(build(said), share) for kind, said in described.items()}


def balanced(page: str) -> str:
    """Return the text of HTML whose tags are all closed."""
    parser = Balanced()
    parser.feed(page)
    assert not parser.open
    return " ".join(parser.text)


def test_what_noise_hides_is_no_number():
    known, hidden = Estimate("a", 2.0, 0.5, 0.1), unknown("b", 0.0, 8.0)
    rows = listed([known, hidden]).rows
    assert rows[0][1] == "2.00"
    assert rows[1] == ("b", "-", "0.0 to 8.0", "-", "-")


@pytest.mark.parametrize("kind", KINDS)
def test_every_analysis_has_tables_figures_and_complete_json(kind, releases):
    release = releases[kind]
    tables, figures = release.tables(), release.figures()
    assert tables
    assert all(isinstance(table, Table) and table.rows for table in tables)
    for table in tables:
        assert all(len(row) in (1, len(table.columns)) for row in table.rows)
    assert figures
    assert all(isinstance(figure, Figure) and figure.panels and figure.caption for figure in figures)
    told = release.to_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert len(told["estimates"]) == len(release.estimates)
    assert (told["model"] is None) == (release.model is None)
    assert told["notes"] == list(release.notes())
    for note in told["notes"]:
        assert note.endswith(".")


@pytest.mark.parametrize("kind", KINDS)
def test_every_analysis_is_drawn_the_same_in_a_report_and_a_notebook(kind, releases):
    release = releases[kind]
    shown = html.body(release)
    text = balanced(shown)
    assert "nan" not in shown
    for note in release.notes():
        assert note in text
    assert NAMED.get(kind, "Age (years)") in text or kind not in ASKED
    assert balanced(release._repr_html_())
    assert shown in release._repr_html_()


@pytest.mark.parametrize("kind", KINDS)
def test_every_analysis_fits_eighty_columns(kind, releases):
    text = as_text(releases[kind], 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "nan" not in text
    assert "Age" in text or kind not in ASKED or "Age" not in NAMED.get(kind, "Age")


@pytest.mark.parametrize("kind", ["pca", "k-means", "linear-regression", "logistic-regression"])
def test_a_model_alone_is_shown_as_its_release_is(kind, releases, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    model = releases[kind].model
    assert isinstance(model, Shown)
    assert model.tables() == releases[kind].tables()
    assert json.loads(json.dumps(model.to_dict(), allow_nan=False)) == model.to_dict()
    assert repr(model) == model.summary()


@pytest.mark.parametrize("kind", ["mean", "linear-regression", "k-means"])
def test_what_is_printed_is_as_wide_as_the_screen(kind, releases, monkeypatch):
    release = releases[kind]
    for shown in [release] if release.model is None else [release, release.model]:
        monkeypatch.setenv("COLUMNS", "80")
        assert str(shown) == as_text(shown, 80)
        monkeypatch.setenv("COLUMNS", "500")
        assert max(map(len, str(shown).splitlines())) <= 150


def test_a_terminal_says_which_tables_it_leaves_to_the_report(releases):
    assert "Not shown here, but in the report: released counts." in as_text(releases["association"])
    assert "interval of every number" not in as_text(releases["association"])
    assert "interval of every number" in as_text(releases["table-one"])


def test_coefficients_and_odds_ratios_are_per_what_the_schema_says(releases):
    release = releases["logistic-regression"]
    model, told = release.model, release.model.to_dict()
    by_label = {each.label: each for each in release.estimates}
    low, high = by_label["age"].interval(0.95)
    age, dose = told["coefficients"]["age"], told["coefficients"]["dose"]
    assert (age["per"], dose["per"]) == (10, 1)
    assert age["value"] == pytest.approx(10 * by_label["age"].value)
    assert age["interval"] == pytest.approx([10 * low, 10 * high])
    assert age["standard_error"] == pytest.approx(10 * by_label["age"].standard_error)
    assert 0 <= age["p"] < 0.001 < dose["p"]
    ratio = told["odds_ratios"]["age"]
    assert ratio["value"] == pytest.approx(math.exp(10 * model.coefficients["age"]))
    assert ratio["interval"] == pytest.approx([math.exp(10 * low), math.exp(10 * high)])
    assert "intercept" not in told["odds_ratios"]
    assert told["predictions"]["coefficients"]["age"] == by_label["age"].value  # for one year
    (table,) = model.tables()
    rows = {row[0]: row for row in table.rows}
    shown = rows["Age (per 10 years)"]
    assert float(shown[1]) == pytest.approx(ratio["value"], rel=0.01)
    assert shown[3] == "<0.001"
    assert set(rows) == {"at reference", "Age (per 10 years)", "dose", "Sex: male"}


def test_odds_ratios_are_drawn_around_one_with_labels_and_comparable_steps(releases):
    ((panel,),) = [figure.panels for figure in releases["logistic-regression"].figures()]
    assert isinstance(panel, Intervals)
    assert (panel.line, panel.log) == (1.0, True)
    assert panel.axis == "Odds ratio of Heart disease: yes"
    assert [mark.label for mark in panel.marks] == ["Age (per 10 years)", "dose (per 20)", "Sex: male"]
    for mark in panel.marks:
        assert 0 < mark.low < mark.inner[0] < mark.value < mark.inner[1] < mark.high
    age = releases["logistic-regression"].model.to_dict()["odds_ratios"]["age"]
    assert [panel.marks[0].low, panel.marks[0].high] == pytest.approx(age["interval"])


def test_each_kind_of_panel_suits_what_it_shows(releases):
    kinds = {
        kind: {type(panel) for figure in release.figures() for panel in figure.panels}
        for kind, release in releases.items()
    }
    assert kinds["histogram"] == {Bars}
    assert kinds["contingency-table"] == {HeatMap}
    assert kinds["ecdf"] == kinds["neural-network"] == {Line}
    assert kinds["pca"] == {Intervals, HeatMap}
    assert kinds["mean"] == kinds["table-one"] == kinds["k-means"] == {Intervals}
    (figure,) = releases["neural-network"].figures()
    assert len(figure.panels[0].marks) == 3 == figure.panels[0].at[-1]


def test_functions_that_people_bring_are_shown_too(consortium):
    custom = CustomSum(lambda batch: batch["age"], columns=["age"], bound=90, name="years lived")
    assert "years lived" in balanced(html.body(consortium.release(custom, 1 / 50)))
    descent = GradientDescent(
        lambda batch, w: w - batch["age"][:, None], columns=["age"], start=[50.0], clip=50.0, epochs=2
    )
    release = consortium.release(descent, 1 / 50)
    assert "w[0]" in release.summary()
    assert release.to_dict()["model"] == {"parameters": release.model.parameters.tolist(), "steps": 2}


def test_a_histogram_of_very_many_bins_is_drawn_in_few_bars(consortium):
    release = consortium.release(build({"kind": "histogram", "column": "age", "bins": 5000}), 1 / 50)
    page = html.body(release)
    assert page.count("<rect") == 2 * 200  # for a wide and a narrow page
    assert "All 5,000 numbers" in page
    assert "and 4,800 more" in page
    assert "and 4,960 more" in release.summary()


def test_a_column_drawn_with_characters_is_left_out_of_pages():
    told = Table(("", "value", ""), (("age", "3", "──■──"),), drawn=2)
    assert "■" not in html.table(told)
    assert "value" in html.table(told)
    assert told.without(0).drawn == 1
    assert told.without(2).drawn is None


def test_a_bar_shows_how_far_a_release_is():
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with bar("cox", console) as advance:
        advance(SimpleNamespace(done=2, of=5, note="slope 0.31"))
    drawn = console.file.getvalue()
    assert "stage 2 of 5 slope 0.31" in drawn
