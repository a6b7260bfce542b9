"""A survey lists everything at once, and finds a trouble exactly where a run would stop."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, strategies

from cape.blocks import Table
from cape.core.errors import DataError
from cape.data import Category, Csv, Database, Number, Schema
from cape.data.person import Person
from cape.data.survey import survey
from cape.data.surveyed import ColumnSurvey, Survey
from cape.data.troubles import missing, remedy, stops, toml, toml_key, warnings
from tests.slices import examples

SCHEMA = Schema(
    age=(18, 90), weight=Number(40, 140, missing=False), sex=["female", "male"], ill=Category((0, 1))
)
HEADER = "age,weight,sex,ill"


def write(path: Path, *lines: str) -> str:
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    return str(path)


def column(found: Survey, name: str) -> ColumnSurvey:
    return next(each for each in found.columns if each.name == name)


def test_all_troubles_are_found_at_once_with_their_lines(tmp_path):
    source = write(
        tmp_path / "a.csv",
        "50,70,female,0",
        "fifty,70,F,0",
        "51,,male,1",
        "52,70,F,2",
        "1,2,3,4,5,6",
        "",
        "200,70,male,1.0",
    )
    found = survey("a", source, SCHEMA)
    assert found.fails()
    assert found.rows == 7
    age, weight, sex, ill = found.columns
    assert (age.misfits.count, age.misfits.places, age.misfits.cells) == (1, ("3",), {"fifty": 1})
    assert (weight.gaps.count, weight.gaps.places) == (2, ("4", "7"))
    assert (sex.misfits.places, sex.misfits.cells, sex.recode) == (("3", "5"), {"F": 2}, {"F": "female"})
    assert ill.misfits.cells == {"2": 1}
    assert found.broken.places == ("6",)
    assert found.blank.places == ("7",)
    assert (age.above, age.below, age.missing) == (1, 0, 1)
    said = "\n".join(map(str, [*stops(found), *warnings(found)]))
    assert "age: 1 cell not a number (line 3): 'fifty'" in said
    assert "sex: 2 cells not a listed category (lines 3, 5): 'F' (2); did you mean 'female'?" in said
    assert "1 line with too many cells or an open quote (line 6)" in said
    assert remedy(found) == 'recode = {sex = {F = "female"}}'
    assert missing(found) == "age 1 (14%), weight 2 (29%), sex 1 (14%), ill 1 (14%)"


def test_without_cells_no_cell_is_shown(tmp_path):
    source = write(tmp_path / "a.csv", "qqq,70,qqq,qqq", "999,70,male,1")
    said = [*stops(survey("a", source, SCHEMA).shown()), *warnings(survey("a", source, SCHEMA).shown())]
    assert len(said) == 4
    assert not any("qqq" in str(each) or "999" in str(each) for each in said)
    assert not remedy(survey("a", source, SCHEMA).shown())


CELLS = (
    ("50", "17.5", "", "x", "1e3", "NaN", "inf", "5,5", '"60"', '"6', "-3"),
    ("70", "", "y", "300"),
    ("male", "female", "F", "", "male ", '"male"', '"a\nb"'),
    ("0", "1", "2", "True", "1.0", "", "x"),
)


@pytest.mark.slow(2)
@examples(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=strategies.integers(0, 2**32))
def test_a_survey_fails_exactly_where_a_run_does(tmp_path, seed):
    draw = np.random.default_rng(seed)
    path = tmp_path / "a.csv"
    clean = draw.random() < 0.5
    lines = []
    for _ in range(int(draw.integers(1, 6))):
        cells = ["50", "70", "male", "1"]
        for place in np.flatnonzero(draw.random(4) < 0.3):
            cells[place] = str(draw.choice(CELLS[place][:2] if clean and place != 1 else CELLS[place]))
        lines.append(
            ",".join(cells[: 4 if draw.random() < 0.9 else 5]) + ("," if draw.random() < 0.05 else "")
        )
    source = write(path, *lines)
    try:
        Table("a", source, SCHEMA).check()
        failed = False
    except DataError:
        failed = True
    assert survey("a", source, SCHEMA).fails() == failed, path.read_text()
    table = Table("a", source, SCHEMA, unreadable="missing")
    table.check()
    assert survey("a", source, SCHEMA, lenient=True).unreadable == table.counted_as_missing


def test_the_first_line_is_understood_as_people_would(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("Age;Sex\n50,5;m\xe4nnlich\n".encode("latin-1"))
    schema = Schema(age=(18, 90), Sex=["female", "male"])
    found = survey("a", str(path), schema)
    assert found.supposed == {"separator": ";", "encoding": "latin-1", "decimal": ","}
    assert found.absent[0].same == ("Age",)
    assert found.encoding.places == ("2",)
    assert column(found, "age").present == 1, "read as 'Age', with a decimal comma"
    assert remedy(found).startswith('separator = ";", encoding = "latin-1"')
    path.write_text("50,70,male\n51,71,male\n")
    found = survey("a", str(path), SCHEMA)
    assert found.headless
    assert "if it has no header, name its columns" in str(stops(found)[0])
    named = survey(
        "a", Csv(path, columns=("age", "weight", "sex")), Schema(age=(18, 90), weight=(0, 70), sex=["male"])
    )
    assert (named.fails(), named.rows, column(named, "weight").above) == (False, 2, 1)


def test_one_comma_among_numbers_with_points_is_that_cell_s_trouble(tmp_path):
    found = survey("a", write(tmp_path / "a.csv", "50.5,70,male,1", '"51,5",70,male,1'), SCHEMA)
    assert found.supposed == {}
    assert column(found, "age").misfits.cells == {"51,5": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        (HEADER + "\n", "the table has no rows"),
        ("age,weight,sex,ill,age\n1,2,male,1,3\n", "age: the file has more than one column of this name"),
        ("age,wieght,sex,ill\n1,2,male,1\n", "weight: no such column in the file; did you mean 'wieght'?"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path, text, said):
    (tmp_path / "a.csv").write_text(text)
    found = survey("a", tmp_path / "a.csv", SCHEMA)
    assert found.fails()
    assert said in "\n".join(map(str, stops(found)))


def test_no_file_and_a_folder(tmp_path):
    assert "no file" in str(stops(survey("a", tmp_path / "no.csv", SCHEMA))[0])
    assert "is a folder" in str(stops(survey("a", tmp_path, SCHEMA))[0])


def test_a_utf16_file_is_named(tmp_path):
    (tmp_path / "a.csv").write_text(HEADER + "\n50,70,male,1\n", encoding="utf-16-le")
    assert survey("a", tmp_path / "a.csv", SCHEMA).supposed == {"encoding": "utf-16-le"}
    (tmp_path / "a.csv").write_text(HEADER + "\n50,70,male,1\n", encoding="utf-16")
    assert not survey("a", tmp_path / "a.csv", SCHEMA).fails()


def test_lines_are_those_of_each_file_of_a_pattern(tmp_path):
    write(tmp_path / "a.csv", "50,70,male,1")
    (tmp_path / "b.csv").write_text("\n\n" + HEADER + "\n50,70,male,1\nx,70,male,1\n")
    found = survey("a", str(tmp_path / "*.csv"), SCHEMA)
    assert column(found, "age").misfits.places == ("b.csv:5",)
    packed = tmp_path / "c.csv"
    packed.write_bytes(gzip.compress((tmp_path / "b.csv").read_bytes()))
    assert column(survey("a", packed, SCHEMA), "age").misfits.places == ("5",)


def test_a_quoted_line_break_is_no_trouble_to_a_run_but_to_a_daemon(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('age,note\n50,"two\nlines"\n51,one\n')
    schema = Schema(age=(18, 90))
    run, daemon = survey("a", path, schema), survey("a", path, schema, lenient=True)
    assert not run.fails()
    assert any("a daemon takes every line for a row" in str(each) for each in warnings(run))
    assert not daemon.fails()
    assert daemon.unreadable == {"age": 2}


def test_another_unit_is_guessed_and_codes_for_missing_cells_are_named():
    rows = 200
    mmol = np.linspace(4, 7, rows)
    frame = pl.DataFrame(
        {
            "chol": mmol,
            "height_cm": np.linspace(1.5, 1.9, rows),
            "age": np.where(np.arange(rows) < 9, 999, 50),
            "bmi": np.where(np.arange(rows) < 3, 61.0, 25.0),
        }
    )
    schema = Schema(chol=(100, 400), height_cm=(120, 210), age=(18, 90), bmi=(10, 60))
    found = survey("a", frame, schema)
    assert not found.fails()
    said = "\n".join(map(str, warnings(found)))
    assert "chol: 100% below 100 (200 cells, which count as 100); multiplied by 38.67" in said
    assert "is this column in mmol/l?" in said
    assert "multiplied by 100, they would lie within: is this column in m?" in said
    assert "age: 9 cells of 999: a code for a missing cell?" in said
    assert "bmi: 3 cells above 60 (1.5%) count as 60" in said
    assert column(found, "age").unit is None


def proposed(cells, ends, **others):
    """Return what `cape check` proposes to read as missing in a column with these cells and bounds."""
    frame = pl.DataFrame({"x": np.array(cells, float), **others})
    found = survey("a", frame, Schema(x=ends))
    assert "null_values" not in remedy(found), "that would be for all columns"
    return set(column(found, "x").codes), remedy(found), "\n".join(map(str, warnings(found)))


def test_0_is_a_code_where_bounds_begin_well_above_it():
    codes, keys, said = proposed([0] * 60 + [*np.linspace(120, 400, 140), 85.0], (100, 600))
    assert codes == {"0"}
    assert keys == 'recode = {x = {0 = ""}}'
    assert "x: 60 cells of 0: a code for a missing cell?" in said
    assert proposed([0] * 100, (100, 600))[0] == {"0"}, "all of a site"
    assert not proposed([0] * 60 + [1, 2, 3] * 20, (1, 40))[0]
    assert not proposed([0, *np.linspace(120, 400, 140)], (100, 600))[0], "one cell is a slip"
    assert not proposed([0] * 60 + [*range(1, 60)], (20, 80))[0], "one of many below"


def test_numbers_among_others_are_no_codes():
    changes = [-2.6, -2.0, *[-1.0] * 9, -0.5, *np.linspace(0, 4, 90)]
    assert not proposed(changes, (0, 4))[0]
    assert not proposed([-1.0] * 9 + [0.0] * 90, (0, 4))[0]
    months = [*np.arange(336, 930, 6), *[888.0] * 5, *[777.0] * 5]
    codes, keys, _ = proposed(months, (20, 80))
    assert not codes
    assert not keys
    assert proposed([*months, *[9999.0] * 3], (20, 80))[0] == {"9999"}
    assert proposed([-9.0] * 3 + [1e5] * 50, (0, 1e6))[0] == {"-9"}
    assert not proposed([99.0, 97.0, 94.0, *range(20, 90)], (18, 90))[0]


@examples(200)
@given(
    low=strategies.floats(-200, 200),
    width=strategies.floats(1, 2000),
    below=strategies.floats(0, 1),
    above=strategies.floats(0, 1),
    code=strategies.sampled_from([0.0, -1.0, -9.0, 99.0, 888.0, 999.0, 9999.0]),
    times=strategies.integers(1, 40),
)
def test_no_number_that_may_be_one_of_the_cells_is_proposed(low, width, below, above, code, times):
    cells = np.linspace(low - below * width, low + (1 + above) * width, 80)
    codes, keys, _ = proposed([*cells, *[code] * times], (low, low + width))
    assert codes <= {f"{code:g}"}
    if cells[0] - 0.1 * width <= code <= cells[-1] + 0.1 * width and not code <= -9 < 0 <= cells[0]:
        assert not codes
    if code > cells[-1] + (cells[-1] - cells[0]):
        assert codes
        assert keys == f'recode = {{x = {{{toml_key(f"{code:g}")} = ""}}}}'


def test_signs_of_missing_cells_that_are_numbers_are_proposed_for_their_column_alone(tmp_path):
    source = write(tmp_path / "a.csv", "50,70,99,0", "51,99,male,1", "52,71,?,1")
    found = survey("a", source, SCHEMA)
    assert remedy(found) == 'null_values = ["?"], recode = {sex = {99 = ""}}'


def test_ids_with_several_rows_are_counted(tmp_path):
    frame = pl.DataFrame({"age": [50, 51, 52, 53], "patientId": ["a", "b", "a", "a"], "id": [1, 2, 3, 4]})
    schema = Schema(age=(18, 90))
    (said,) = warnings(survey("a", frame, schema))
    assert str(said).startswith("patientId: 2 different ids in 4 rows, up to 3 rows each")


def test_the_rows_of_persons_that_do_not_count_are_told(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("age,who\n50,a\n51, a\n52,a\n53,b\n54,\n")
    schema = Schema(age=(18, 90)).of_persons(Person("who", rows=2))
    found = survey("a", path, schema)
    assert not found.fails()
    assert [str(each) for each in warnings(found)] == [
        "who: 1 row does not count: a person has up to 3, and [person] lets 2 of them count",
        "who: 1 row without an id, which counts for nobody",
    ]
    one = Schema(age=(18, 90), visits=(0, 9)).of_persons(Person("who", row={"visits": "count(*)"}))
    assert [each.name for each in survey("a", path, one).columns] == ["age"]
    assert not survey("a", path, one).fails()
    gone = survey("a", path, Schema(age=(18, 90)).of_persons(Person("Who")))
    assert gone.fails()
    assert "Who: no such column in the file; did you mean 'who'?" in map(str, stops(gone))


def test_derived_columns_are_not_looked_for_in_the_file(tmp_path):
    schema = Schema({"age": (18, 90), "old": {"sql": "age >= 65"}}).only("age > 20").at(["a", "b"])
    path = tmp_path / "a.csv"
    path.write_text("age\n50\nx\n")
    found = survey("a", path, schema)
    assert [each.name for each in found.columns] == ["age"]
    assert column(found, "age").misfits.count == 1
    assert not found.absent


def test_other_sources_are_surveyed_too(tmp_path):
    frame = pl.DataFrame({"age": [50.0, None], "sex": ["male", "man"]})
    schema = Schema(age=Number(18, 90, missing=False), sex=["female", "male"])
    frame.write_parquet(tmp_path / "a.parquet")
    for source in (frame, frame.lazy(), frame.to_pandas(), tmp_path / "a.parquet"):
        found = survey("a", source, schema)
        assert (found.unit, found.fails()) == ("row", True)
        assert column(found, "age").gaps.places == ("2",)
        assert column(found, "sex").misfits.cells == {"man": 1}


def test_a_database_is_surveyed(tmp_path):
    import sqlite3

    with sqlite3.connect(tmp_path / "a.db") as db:
        db.execute("CREATE TABLE rows (age, sex)")
        db.executemany("INSERT INTO rows VALUES (?, ?)", [(50, "male"), ("x", "man")])
    source = Database("SELECT * FROM rows", f"sqlite:///{tmp_path / 'a.db'}")
    found = survey("a", source, Schema(age=(18, 90), sex=["female", "male"]))
    assert column(found, "age").misfits.cells == {"x": 1}
    assert column(found, "sex").misfits.count == 1


def test_toml_is_written_so_that_it_reads_back():
    import tomllib

    value = {'a "b"\\': ["ü", "\x7f\n", 1, 2.5, True], "c": {"d-e": False}}
    assert tomllib.loads(f"x = {toml(value)}")["x"] == value


def test_a_column_of_another_name_is_named_and_can_be_renamed(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("age,Gewicht,sex,ill\n50,70,male,1\n61,82,female,0\n")
    found = survey("a", Csv(path), SCHEMA)
    (said,) = [str(each) for each in stops(found) if "weight" in str(each)]
    assert "the file also has 'Gewicht'" in said
    assert "rename = {weight = ...}" in said
    assert survey("a", Csv(path, rename={"weight": "Gewicht"}), SCHEMA).absent == ()
    assert "Gewicht" not in str(found.shown())


@pytest.mark.parametrize(
    ("rename", "said"),
    [
        ({"weight": "Gewihct"}, "rename names a column 'Gewihct', which is not in the file"),
        ({"age": "Gewicht"}, "rename calls a column 'age', and the file has another of this name"),
    ],
)
def test_a_wrong_rename_is_said(tmp_path, rename, said):
    path = tmp_path / "rows.csv"
    path.write_text("age,Gewicht,sex,ill\n50,70,male,1\n")
    assert said in " ".join(map(str, stops(survey("a", Csv(path, rename=rename), SCHEMA))))


def test_codes_that_nobody_listed_get_blanks_to_fill_in(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("age,weight,sex,ill\n50,70,7,1\n61,82,8,0\n")
    keys = remedy(survey("a", Csv(path), SCHEMA))
    assert 'recode = {sex = {7 = "<' in keys
