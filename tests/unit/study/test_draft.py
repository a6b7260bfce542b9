"""A new study file proposes the kind of noise that suits what it asks, and says why."""

from __future__ import annotations

import tomllib

import pytest

from cape import Budget, Mean, Schema, Study
from cape.engine.plan import noise_ratio
from cape.engine.schemes import Parties
from cape.engine.stages import Setting
from cape.study import draft
from cape.study.draft import Draft

KINDS = {"age": "number", "sex": "text", "admitted": "date"}


def text_of(**changes):
    given = {
        "name": "x",
        "source": "x.csv",
        "epsilon": 1.0,
        "delta": 1e-6,
        "kinds": KINDS,
        "ids": (),
        "sites": {"a": "a.csv", "b": "b.csv", "c": "c.csv"},
    }
    return Draft(**given | changes).text("study.toml")


def proposal(**changes):
    """Return the kind of noise in the file, what is asked, and the reason above it, without line ends."""
    text = text_of(**changes)
    written = tomllib.loads(text)
    reason = text[text.index("# Proposed: ") : text.index("\nnoise = ")].replace("\n#", "")
    return written["privacy"]["noise"], written["analysis"][0]["kind"], reason.removeprefix("# ")


@pytest.mark.parametrize(("kind", "asked", "times"), [("number", "mean", "3"), ("text", "proportion", "2.1")])
def test_of_one_column_what_has_less_error_is_proposed(kind, asked, times):
    assert proposal(kinds={"x": kind}) == (
        "laplace",
        asked,
        "Proposed: laplace noise, because the error that noise makes in the analysis below would be "
        f"{times} times as large with gaussian.",
    )


def test_the_reason_says_what_a_plan_of_the_same_study_says():
    setting = Setting(Schema(age=(18, 90)), Budget(1.0, 1e-6), Parties(3, 0, 3), "replace-one")
    times = noise_ratio(Mean("age"), setting, "cape", 1.0, None)
    assert f" {1 / times:.2g} times as large" in proposal(kinds={"age": "number"})[2]


def test_a_table_one_has_gaussian_noise_and_the_reason_says_that_it_has_no_other():
    kind, asked, reason = proposal()
    assert (kind, asked) == ("gaussian", "table-one")
    assert reason.startswith("Proposed: gaussian noise, because the analysis below (table-one) has no other.")
    assert "laplace" in reason


def test_for_many_numbers_gaussian_noise_is_proposed_with_how_much_better_it_is(monkeypatch):
    monkeypatch.setattr(draft, "_MANY", "mean")
    kind, _, reason = proposal(kinds={f"x{i}": "number" for i in range(60)})
    assert kind == "gaussian"
    assert reason.endswith(" times as large with laplace.")


def test_without_columns_nothing_is_compared():
    assert "nothing is asked yet" in text_of(kinds={"admitted": "date"})


@pytest.mark.parametrize("kinds", [KINDS, {"age": "number"}, {"sex": "text"}, {"admitted": "date"}])
def test_comments_fit_on_a_screen(kinds):
    assert max(map(len, text_of(kinds=kinds).splitlines())) <= 92


@pytest.mark.filterwarnings("ignore::cape.PrivacyLeakWarning")
def test_what_is_proposed_for_one_column_runs_with_its_noise(tmp_path):
    text = text_of(kinds={"age": "number"}).replace('"<low>"', "18").replace('"<high>"', "90")
    path = tmp_path / "study.toml"
    path.write_text(text)
    for site in "abc":
        (tmp_path / f"{site}.csv").write_text("age\n" + "50\n" * 200)
    study = Study.load(path)
    assert study.setting.noise == "laplace"
    assert study.better_noise is None
