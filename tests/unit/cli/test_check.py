"""`cape check` and the check before `cape run`: everything at once, to those who hold the rows."""

from __future__ import annotations

import json
import sqlite3

import pytest

from cape.data.survey import survey


def spoil(study, name, **lines):
    path = study.parent / "data" / f"{name}.csv"
    text = path.read_text().splitlines()
    for place, line in lines.items():
        text[int(place[1:]) - 1] = line
    path.write_text("\n".join(text) + "\n")


def test_a_clean_study_passes(cape, study):
    done = cape("check", study)
    assert done.code == 0
    assert done.out.count("Every cell fits the schema.") == 3
    assert "a: 200 rows, 4 columns of the study" in done.out
    assert "Missing cells: age 4 (2.0%)." in done.out


def test_everything_is_listed_at_once(cape, study, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    spoil(study, "a", L3="old,70,Male,no", L5="50,,male,no", L9="50,70,female,?")
    spoil(study, "c", L4="500,70,male,no", L7="1,2,3,4,5")
    done = cape("check", study)
    assert done.code == 1
    assert done.err == "cape: a run would fail at a, c\n"
    assert max(map(len, done.out.splitlines())) <= 80
    for said in (
        "age: 1 cell not a number (line 3): 'old'",
        "weight: 1 cell missing (line 5); the schema says that none is",
        "sex: 1 cell not a listed category (line 3): 'Male'; did you mean 'male'?",
        '  null_values = ["?"], recode = {sex = {Male = "male"}}',
        "1 line with too many cells or an open quote (line 7)",
        "age: 1 cell above 90 (0.2%) counts as 90",
    ):
        assert said in done.out
    told = json.loads(cape("check", study, "--site", "a", "--json").out)
    assert told["fails"]
    assert [site["site"] for site in told["sites"]] == ["a"]
    assert told["sites"][0]["columns"][0]["misfits"]["cells"] == {"old": 1}


def test_a_run_lists_everything_too_without_cells_and_spends_nothing(cape, study):
    spoil(study, "a", L3="qqq,70,qqq,no", L5="50,,male,no")
    spoil(study, "b", L4="50,70,qqq,no")
    done = cape("run", study, "--out", study.parent / "out")
    assert done.code == 1
    for said in (
        "a: age: 1 cell not a number (line 3)",
        "a: sex: 1 cell not a listed category (line 3)",
        "a: weight: 1 cell missing (line 5)",
        "b: sex: 1 cell not a listed category (line 4)",
        "cape: site 'a': the data cannot be used; the data of b cannot be used either. All that is wrong is",
        "Nothing was spent",
    ):
        assert said in done.err
    assert "qqq" not in done.err + done.out
    for name in ("results.json", "report.html"):
        written = (study.parent / "out" / name).read_text()
        assert "line 3" not in written
        assert "not a number" not in written


def test_cells_beyond_bounds_are_told_to_whoever_runs_it_only(cape, study):
    spoil(study, "a", L3="95,70,male,no", L5="97,50,male,no")
    done = cape("run", study, "--only", "mean", "--json", "--out", study.parent / "out")
    assert done.code == 0
    assert done.err == "  a: age: 2 cells above 90 (1.0%) count as 90\n"
    for written in (done.out, (study.parent / "out" / "report.html").read_text()):
        assert "count as 90" not in written


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--site", "aa"], "--site: no site 'aa' in the study"),
        (["--sites", "a"], "No such option"),
    ],
)
def test_wrong_use(cape, study, arguments, said):
    done = cape("check", study, *arguments)
    assert done.code == 2
    assert said in done.err


def test_sites_with_rows_elsewhere_are_left_to_them(cape, study, change):
    for name, rows in {"a": 200, "b": 300}.items():
        change(f'{name} = {{path = "data/{name}.csv", rows = {rows}}}', f"{name} = {{rows = {rows}}}")
    done = cape("check", study)
    assert done.code == 0
    assert "a: its rows are elsewhere; `cape site check` checks them there." in done.out
    done = cape("check", study, "--site", "a")
    assert done.code == 2
    assert "the study does not say where the rows of site 'a' are" in done.err


def test_a_database_checks_its_rows_itself_unless_something_is_wrong(cape, study, change, monkeypatch):
    lines = [line.split(",") for line in (study.parent / "data" / "a.csv").read_text().splitlines()]
    lines[1][0] = "95"
    with sqlite3.connect(study.parent / "a.db") as db:
        db.execute("CREATE TABLE people (age REAL, weight REAL, sex TEXT, ill TEXT)")
        db.executemany(
            "INSERT INTO people VALUES (?, ?, ?, ?)", [[c or None for c in row] for row in lines[1:]]
        )
    change(
        'a = {path = "data/a.csv", rows = 200}',
        'a = {query = "SELECT * FROM people", connection = "sqlite:///a.db", rows = 200}',
    )
    surveyed = []
    monkeypatch.setattr("cape.app.results.survey", lambda *given: surveyed.append(given[0]) or survey(*given))
    done = cape("run", study, "--only", "mean")
    assert done.err == "  a: age: 1 cell beyond 18 to 90 counts as the bound\n"
    assert surveyed == ["b", "c"]
    with sqlite3.connect(study.parent / "a.db") as db:
        db.execute("UPDATE people SET sex = 'qqq', ill = 'qqq' WHERE age = 95")
    done = cape("run", study, "--only", "mean")
    assert done.code == 1
    assert "a: sex: 1 cell not a listed category (row 1)" in done.err
    assert "a: ill: 1 cell not a listed category (row 1)" in done.err
    assert "qqq" not in done.err
