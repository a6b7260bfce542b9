from __future__ import annotations

import json
import shutil

import polars as pl
import pytest


def test_a_study_is_rehearsed_where_no_file_exists(cape, study):
    shutil.rmtree(study.parent / "data")
    assert cape("run", study).code != 0
    out = study.parent / "out"
    done = cape("run", "--rehearse", study, "--out", out)
    assert done.code == 0, done.err
    assert "REHEARSAL" in done.out
    assert "made-up rows" in done.out
    page = (out / "report.html").read_text()
    assert "<h1>Rehearsal: " in page
    assert "says nothing about anybody" in page
    assert json.loads((out / "results.json").read_text())["study"]["rehearsal"] is True


@pytest.mark.slow(2)
def test_a_rehearsal_spends_nothing_of_a_later_run(cape, study):
    out = study.parent / "out"
    assert cape("run", "--rehearse", study, "--out", out).code == 0
    assert cape("run", "--rehearse", study, "--out", out).code == 0  # in out-2
    done = cape("run", study, "--out", out, "--json")
    assert done.code == 0, done.err
    assert "out-3" in done.err
    results = json.loads(done.out)
    assert len(results["runs"]) == 1
    assert "rehearsal" not in results["study"]
    assert results["analyses"][0]["run"] == 1


def test_made_up_files_fit_the_study(cape, study):
    out = study.parent / "made"
    done = cape("synth", study, "--out", out, "--rows", 40, "--seed", 3)
    assert done.code == 0, done.err
    assert "nothing about anybody" in done.out
    assert pl.read_csv(out / "a.csv").shape == (40, 4)
    text = study.read_text().replace("data/", "made/")
    study.write_text(text)
    assert cape("run", study, "--only", "mean").code == 0
    assert cape("synth", study, "--out", out).code == 2  # keeps what is there
    told = cape("synth", "--schema", study, "--out", out, "--force", "--json")
    assert told.code == 0, told.err
    assert set(json.loads(told.out)["made_up"]) == {"a", "b", "c"}
    assert pl.read_csv(out / "c.csv").height == 500  # as the study expects


def test_synth_wants_one_study(cape, study):
    assert cape("synth").code == 2
    assert cape("synth", study, "--schema", study).code == 2


SYNTHETIC = """
[[analysis]]
kind = "synthetic-data"
columns = ["age", "sex", "ill"]
bins = 4
rows = 70
impossible = [{sex = "male", ill = "yes"}]
"""


@pytest.fixture
def quick(monkeypatch):
    """A model that is not fitted by mbi, which takes seconds to load: it has no potentials."""
    monkeypatch.setattr("cape.analyses.synthetic.synthetic_model.fit", lambda *told: {})


def test_a_run_writes_synthetic_rows_and_their_card(cape, study, quick):
    text = study.read_text()
    study.write_text(text[: text.index("[[analysis]]")] + SYNTHETIC)
    out = study.parent / "out"
    done = cape("run", study, "--out", out)
    assert done.code == 0, done.err
    assert "synthetic.csv" in done.out
    rows = pl.read_csv(out / "synthetic.csv")
    assert rows.shape == (70, 3)
    assert rows.filter((pl.col("sex") == "male") & (pl.col("ill") == "yes")).is_empty()
    card = (out / "synthetic.md").read_text()
    said = ("epsilon = 2 at delta = 1e-06", "What was measured", "cannot be learnt", "facts about sex × ill")
    for word in said:
        assert word in card
    assert "REHEARSAL" not in card
    assert "associations" in (out / "report.html").read_text()
    told = cape("run", "--rehearse", study, "--out", study.parent / "trial")
    assert told.code == 0, told.err
    assert "REHEARSAL" in (study.parent / "trial" / "rehearsal-synthetic.md").read_text()


def test_two_synthetic_tables_of_a_study_have_files_of_their_own(cape, study, quick):
    text = study.read_text()
    study.write_text(text[: text.index("[[analysis]]")] + SYNTHETIC + SYNTHETIC.replace("70", "30"))
    out = study.parent / "out"
    assert cape("run", study, "--out", out).code == 0
    assert pl.read_csv(out / "synthetic-1.csv").height == 70
    assert pl.read_csv(out / "synthetic-2.csv").height == 30
