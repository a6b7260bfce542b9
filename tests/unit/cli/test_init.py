"""`cape init` writes a study file from a header and types; people fill in the rest, no row does."""

from __future__ import annotations

import io
import json
import re
import tomllib
from datetime import date

import polars as pl
import pytest

from cape.data.clinical import is_id, measure_of
from cape.study import Study
from tests.unit.cli.conftest import STUDY

ROWS = ["1,54,F,5.2,no,2020-01-31,7", "2,61,M,,yes,2021-06-30,8", "2,47,F,4.8,no,,9"]
HEADER = "patient_id,age,sex,chol_mmol,ill,admitted,score"
NAMES = {
    "Kreatinin (µmol/l)": "µmol/l",
    "heightM": "m",
    "Total_Cholesterol": "mg/dl",
    "HDL-C": "mg/dl",
    "Körpergröße": "cm",
    "glycémie": "mg/dl",
    "age at admission": "years",
}


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "north.csv"
    path.write_text("\n".join([HEADER, *ROWS]) + "\n")
    return path


def test_columns_are_written_with_places_to_fill_in_and_nothing_of_the_rows(cape, rows):
    done = cape("init", "north.csv")
    assert done.code == 0, done.err
    assert "Written: study.toml, with 6 columns." in done.out
    assert "look like ids: patient_id" in done.out
    text = (rows.parent / "study.toml").read_text()
    written = tomllib.loads(text)
    assert written["schema"] == {
        "age": {"low": "<low>", "high": "<high>"},
        "sex": ["<category>", "<category>"],
        "chol_mmol": {"low": "<low>", "high": "<high>"},
        "ill": ["<category>", "<category>"],
        "admitted": {"low": "<low>", "high": "<high>"},
        "score": {"low": "<low>", "high": "<high>"},
    }
    assert written["sites"] == {"north": "north.csv", "<site>": {}}
    assert '# id = "patient_id"' in text
    for cell in ("54", "5.2", '"F"', "yes", "2020-01-31"):
        assert cell not in text
    assert max(map(len, text.splitlines())) <= 90


def test_two_files_that_differ_in_cells_only_give_the_same_study(cape, rows):
    cape("init", "north.csv")
    one = (rows.parent / "study.toml").read_text()
    other = ["77,33,X,9.9,abc,1999-12-31,0", "78,,X,8.1,,2000-01-01,12"]
    rows.write_text("\n".join([HEADER, *other, *other]) + "\n")
    cape("init", "north.csv", "--force")
    assert (rows.parent / "study.toml").read_text() == one


@pytest.mark.filterwarnings("default::cape.PrivacyLeakWarning")
def test_every_blank_is_named_and_the_file_loads_once_they_are_filled_in(cape, rows):
    cape("init", "north.csv", "--sites", "north,south=data/south.csv,east")
    done = cape("plan", "study.toml")
    assert done.code == 2
    assert (
        "study.toml: fill in what stands in <...>, or delete the line: [schema] age, [schema] sex" in done.err
    )
    text = (rows.parent / "study.toml").read_text()
    text = text.replace(
        'admitted = {low = "<low>", high = "<high>"}', "admitted = {low = 2015-01-01, high = 2025-01-01}"
    )
    text = text.replace('low = "<low>", high = "<high>"', "low = 0, high = 100")
    left = text.replace('"<category>", "<category>"', '"no", "yes"', 1)
    (rows.parent / "study.toml").write_text(left)
    assert "delete the line: [schema] ill\n" in cape("plan", "study.toml").err
    (rows.parent / "study.toml").write_text(text.replace('"<category>", "<category>"', '"no", "yes"'))
    study = Study.load("study.toml")
    assert list(study.sites) == ["north", "south", "east"]
    assert [place.elsewhere for place in study.sites.values()] == [False, False, True]
    (entry,) = study.analyses
    assert entry.analysis.kind == "table-one"
    text = (rows.parent / "study.toml").read_text()
    (rows.parent / "study.toml").write_text(re.sub(r"(?m)^# (\[person\]|id =|rows =)", r"\1", text))
    person = Study.load("study.toml").setting.schema.person
    assert person is not None
    assert (person.id, person.rows) == ("patient_id", 1)
    assert study.budget.epsilon == 1


def test_bounds_are_suggested_by_name_and_unit_and_not_by_cells(cape, rows):
    cape("init", "north.csv", "--suggest")
    schema = tomllib.loads((rows.parent / "study.toml").read_text())["schema"]
    assert schema["age"] == {"low": 0, "high": 100, "unit": "years"}
    assert schema["chol_mmol"] == {"low": 1.2, "high": 13, "unit": "mmol/l"}
    assert schema["sex"] == ["female", "male"]
    assert schema["score"] == {"low": "<low>", "high": "<high>"}


def test_spellings_and_units_of_names_are_known():
    for name, unit in NAMES.items():
        found = measure_of(name)
        assert found is not None, name
        assert found[1] == unit, name
        low, high = found[0].bounds(unit)
        assert low < high
    assert [measure_of(name) for name in ("note", "sex", "ward", "")] == [None] * 4
    assert [is_id(name) for name in ("Patient_ID", "patientNr", "id", "MRN", "idle", "void")] == [
        True
    ] * 4 + [False] * 2


@pytest.mark.filterwarnings("default::cape.PrivacyLeakWarning")
def test_what_is_read_from_rows_is_marked_and_must_be_reviewed(cape, rows):
    done = cape("init", "north.csv", "--from-data", "--sites", "north,south")
    assert "cape: warning: --from-data copies bounds and categories from the rows" in done.err
    text = (rows.parent / "study.toml").read_text()
    written = tomllib.loads(text)
    assert written["schema"]["age"] == {"low": 47, "high": 61}
    assert written["schema"]["sex"] == ["F", "M"]
    assert written["schema"]["admitted"] == {"low": date(2020, 1, 31), "high": date(2021, 6, 30)}
    done = cape("plan", "study.toml")
    assert done.code == 2
    assert "bounds or categories were read from rows" in done.err
    assert "delete the line that starts with 'unreviewed'" in done.err
    (rows.parent / "study.toml").write_text(re.sub("(?m)^unreviewed.*\n", "", text))
    assert Study.load("study.toml").name == "north"


def test_a_study_file_is_not_replaced_unless_asked(cape, rows):
    (rows.parent / "study.toml").write_text(STUDY)
    done = cape("init", "north.csv")
    assert done.code == 2
    assert "study.toml exists; give another name (--output), or replace it with --force" in done.err
    assert (rows.parent / "study.toml").read_text() == STUDY
    assert cape("init", "north.csv", "--force").code == 0


def test_it_asks_at_a_terminal(cape, rows, monkeypatch):
    monkeypatch.setattr("cape.cli.init_action.terminal", lambda: True)
    monkeypatch.setattr("sys.stdin", io.StringIO("heart\nnorth,south\n0.5\n\ny\nheart.toml\n"))
    done = cape("init", "north.csv")
    assert done.code == 0, done.err
    written = tomllib.loads((rows.parent / "heart.toml").read_text())
    assert written["study"]["name"] == "heart"
    assert written["privacy"] == {"epsilon": 0.5, "delta": 1e-6, "noise": "gaussian"}
    assert list(written["sites"]) == ["north", "south"]
    assert written["schema"]["age"]["high"] == 100


def test_the_layout_of_a_text_file_is_written_down(cape, rows):
    rows.write_bytes("Alter;Größe;ort\n54,5;170;Köln\n60;165;Bonn\n61,2;;Ulm\n".encode("latin-1"))
    assert cape("init", "north.csv").code == 0
    written = tomllib.loads((rows.parent / "study.toml").read_text())
    assert written["sites"]["north"] == {
        "path": "north.csv",
        "encoding": "latin-1",
        "separator": ";",
        "decimal": ",",
    }


def test_types_of_other_files_are_their_own(cape, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pl.DataFrame({"age": [1.5], "sex": ["F"], "ill": [True], "odd name": [1]}).write_parquet("a.parquet")
    assert cape("init", "a.parquet").code == 0
    schema = tomllib.loads((tmp_path / "study.toml").read_text())["schema"]
    assert {name: type(entry) for name, entry in schema.items()} == {
        "age": dict,
        "sex": list,
        "ill": list,
        "odd name": dict,
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty; give a file with a header"),
        ("54,F\n60,M\n", "the first line of north.csv seems to be a row"),
        ("patient_id\n1\n", "has no column that a study could use"),
    ],
)
def test_files_without_a_usable_header_are_refused(cape, rows, text, said):
    rows.write_text(text)
    done = cape("init", "north.csv")
    assert done.code == 2
    assert said in done.err
    assert not (rows.parent / "study.toml").exists()


def test_a_header_alone_gives_columns_of_unknown_type(cape, rows):
    rows.write_text(HEADER + "\n")
    assert cape("init", "north.csv").code == 0
    schema = tomllib.loads((rows.parent / "study.toml").read_text())["schema"]
    assert set(map(json.dumps, schema.values())) == {'"<bounds or categories>"'}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no.csv"], "no file"),
        (["."], "is a folder"),
        (["north.csv", "--epsilon", "-1"], "--epsilon must be"),
        (["north.csv", "--sites", "a,a"], "--sites must be different names"),
        (["north.csv", "--output", "no/study.toml"], "cannot be written"),
    ],
)
def test_wrong_use(cape, rows, arguments, said):
    done = cape("init", *arguments)
    assert done.code == 2
    assert said in done.err
