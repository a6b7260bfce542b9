"""Regressions, components, clusters and networks in a study: on the screen, as JSON, in the report."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import polars as pl
import pytest

import cape as library
from cape.app import words
from cape.cli import screen
from cape.engine.execute import Progress
from cape.show import Intervals, Line, Mark, html, svg
from cape.show.plain import to_json
from cape.stats.estimates import Estimate
from tests.unit.app.test_report import Balanced

MODELS = """
[[analysis]]
kind = "linear-regression"
formula = "age ~ weight + sex"
[[analysis]]
kind = "logistic-regression"
target = "ill"
features = ["age", "sex"]
[[analysis]]
kind = "pca"
columns = ["age", "weight"]
[[analysis]]
kind = "k-means"
columns = ["age", "weight"]
clusters = 2
[[analysis]]
kind = "neural-network"
target = "ill"
features = ["age", "weight"]
"""


STEPS = library.NeuralNetwork("ill", ["age"]).training.steps


@pytest.fixture
def models(study):
    text = study.read_text()
    study.write_text(text[: text.index("[[analysis]]")] + MODELS)
    return study


def strict(text: str) -> dict:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)


def test_every_model_is_in_the_results(cape, models):
    done = cape("run", models, "--json", "--out", models.parent / "out")
    assert done.code == 0, done.err
    linear, logistic, pca, kmeans, network = strict(done.out)["analyses"]
    assert set(linear["model"]["coefficients"]) == {"weight", "sex=male"}
    assert logistic["model"]["classes"] == ["no", "yes"]
    assert set(logistic["model"]["odds_ratios"]) == {"age", "sex=male"}
    assert np.array(pca["model"]["components"]).shape == (2, 2)
    assert np.array(kmeans["model"]["centres"]).shape == (2, 2)
    assert network["estimates"] == []
    assert len(network["model"]["parameters"]) == 5 * 3 + 6
    assert any("results.json" in note for note in network["notes"])


def test_a_sum_has_no_model(cape, study):
    assert strict(cape("run", study, "--only", "mean", "--json").out)["analyses"][0]["model"] is None


@pytest.mark.slow(2)
def test_the_report_draws_what_suits_each(cape, models):
    assert cape("run", models, "--out", models.parent / "out").code == 0
    page = (models.parent / "out" / "report.html").read_text()
    parser = Balanced()
    parser.feed(page)
    assert not parser.open
    # coefficients stand around 0, odds ratios around 1; each is drawn for wide and for narrow pages
    assert page.count('class="zero"') == 2 * 2
    assert "weight (per 50)" in page  # half of its bounds
    assert page.count('<th scope="col">odds ratio</th>') == 1
    sections = re.findall(r'<section id="analysis-.*?</section>', page, re.DOTALL)
    (network,) = [section for section in sections if ". Neural network (5 hidden units)" in section]
    assert network.count("<table") == 1  # its layers: there is no number with an error to show
    assert "<figure" not in network
    assert f"21 parameters after {STEPS} steps" in network
    (clusters,) = [section for section in sections if "2 clusters of rows" in section]
    assert clusters.count('class="wide-plot"') == 3  # sizes, and two columns


@pytest.mark.slow(1.5)
def test_a_model_is_shown_as_far_as_it_fits_the_screen(cape, models, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    wide = cape("run", models).out
    for shown in (
        "2. logistic regression of ill",
        "odds ratio",
        "in predictions",
        "cluster",
        "21 parameters",
    ):
        assert shown in wide
    assert "lack of room" not in wide
    monkeypatch.setenv("COLUMNS", "60")
    narrow = cape("run", models, "--only", "logistic-regression").out
    assert "odds ratio" in narrow
    assert "Not shown for lack of space: " in narrow
    assert max(map(len, narrow.splitlines())) <= 60


@pytest.mark.slow(1.5)
def test_a_long_run_says_how_far_it_is(cape, models, monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr(screen.Steps, "tell", lambda _, line: lines.append(line))
    assert cape("run", models, "--only", "neural-network").code == 0
    assert len(lines) == STEPS
    assert lines[11].startswith(f"step 12 of {STEPS}, epsilon so far ")
    assert lines[11].endswith(" s per step")
    lines.clear()
    assert cape("run", models, "--only", "pca").code == 0
    assert [line[:11] for line in lines] == ["step 1 of 2", "step 2 of 2"]


def test_a_line_for_a_step():
    assert (
        words.step(Progress(12, 100, 0.4123, 0.0512, "loss 0.5"))
        == "step 12 of 100, epsilon so far 0.41, 0.051 s per step, loss 0.5"
    )
    assert "epsilon" not in words.step(Progress(1, 2, math.inf, 1.0, ""))


@pytest.mark.slow(1)
def test_a_plan_names_what_a_network_needs(cape, models):
    plan = strict(cape("plan", models, "--json").out)
    assert list(plan["analyses"][4]["noise"]) == ["each entry of a step's gradient"]


@pytest.mark.parametrize("scheme", ["cape", "none"])
@pytest.mark.filterwarnings("ignore:scheme 'none' adds no noise")
def test_a_loss_that_was_watched_is_a_curve(scheme):
    draw = np.random.default_rng(0)
    rows = pl.DataFrame({"x": draw.uniform(-1, 1, 300), "y": draw.choice(["a", "b"], 300)})
    schema = library.Schema(x=library.Number(-1, 1, missing=False), y=["a", "b"])
    consortium = library.Consortium({"a": rows, "b": rows}, schema, library.Budget(5, 1e-6), colluding=0)
    asked = library.NeuralNetwork("y", ["x"], hidden=[2], epochs=7, watch=True)
    release = consortium.release(asked, 1.0, scheme=scheme)
    section = html.body(release)
    assert section.count("loss at step ") == 2 * 7
    assert ">mean loss</text>" in section
    assert "nan" not in section
    parser = Balanced()
    parser.feed(section)
    assert not parser.open


def test_what_is_no_number_is_null():
    told = to_json({"a": np.float64("nan"), "b": np.array([1.0, np.inf]), "c": np.bool_(True)})
    assert json.loads(told) == {"a": None, "b": [1.0, None], "c": True}


def test_a_curve_of_one_point_and_an_axis_with_zero():
    one = Mark.of(Estimate("loss at step 1", 0.5, 0.0, 0.1))
    assert "nan" not in svg.draw(Line((1.0,), (one,), "t"))
    far = svg.draw(Intervals((Mark.of(Estimate("x", 100.0, 1.0, 1.0)),), line=0.0))
    assert ">0</text>" in far
    assert 'class="zero"' in far
