"""How cells of files are written: the same in both readers, and a cell is read by its own text alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from cape.blocks import Axis, Counts, Table
from cape.blocks.batches import Batches
from cape.core.errors import CapeError, DataError, InvalidInput
from cape.data import Category, Csv, File, Number, Schema
from cape.data.notation import BROKEN, Notation
from cape.data.person import Person
from cape.data.sources import open_source

X, XG = Schema(x=(0, 1e9)), Schema(x=(0, 100), g=["a", "b"])


def cells(source: Any, schema: Schema, *, lenient: bool = False) -> dict[str, list[Any]]:
    """Every column as it is read: numbers (None for missing) or values (None for missing)."""
    reader = open_source("alpha", source, lenient=lenient)
    batches = Batches("alpha", schema, reader, lenient=lenient)  # type: ignore[arg-type]
    found: dict[str, list[Any]] = {name: [] for name in schema}
    for part, _ in batches._read(list(schema)):
        for name, values in part.items():
            column = schema[name]
            if isinstance(column, Category):
                found[name] += [column.values[code] if code >= 0 else None for code in values]
            else:
                found[name] += [None if np.isnan(value) else float(value) for value in values]
    return found


@pytest.fixture
def both(tmp_path: Path) -> Callable[..., dict[str, list[Any]]]:
    """Reads a text in both ways, which agree."""

    def read(text: str, schema: Schema, **keys: Any) -> dict[str, list[Any]]:
        encoding = keys.get("encoding") or "utf-8"
        (tmp_path / "rows.csv").write_bytes(text.encode(encoding))
        source = Csv(tmp_path / "rows.csv", **keys)
        strict = cells(source, schema)
        assert strict == cells(source, schema, lenient=True)
        return strict

    return read


Both = Callable[..., dict[str, list[Any]]]


@pytest.mark.parametrize(
    "word", ["", "  ", '""', "NA", "na", " N/A ", "n/a", "#N/A", "NaN", "nan", "NULL", "."]
)
def test_the_usual_words_for_a_missing_cell(word: str, both: Both) -> None:
    assert both(f"x,g\n1,a\n{word},{word}\n2,b\n", XG) == {"x": [1, None, 2], "g": ["a", None, "b"]}


@pytest.mark.parametrize("word", ["none", "unknown", "-", "?"])
def test_other_words_are_no_missing_cells_unless_stated(word: str, both: Both, tmp_path: Path) -> None:
    assert both(f"x,g\n{word},{word.upper()}\nNA,a\n", XG, null_values=[word]) == {
        "x": [None, None],
        "g": [None, "a"],
    }
    for column in ("x", "g"):
        with pytest.raises(DataError, match="row 0"):
            cells(tmp_path / "rows.csv", Schema({column: XG[column]}))


def test_a_listed_category_is_never_missing(both: Both) -> None:
    schema = Schema(g=["NA", ".", "x"], h=["na", "b"])
    found = both("g,h\nNA,na\n.,b\n . ,NA\nx,\nnull,null\n", schema, null_values=["x"])
    assert found == {"g": ["NA", ".", ".", "x", None], "h": ["na", "b", None, None, None]}


def test_a_number_that_stands_for_missing_does_so_by_value(both: Both, tmp_path: Path) -> None:
    schema = Schema(x=(0, 100), i=Category((0, 1)), k=Category((-9, 1)))
    found = both("x,i,k\n-9,-9,-9\n-9.0,-9.0,1\n9,1,1\n", schema, null_values=["-9"])
    assert found == {"x": [None, None, 9], "i": [None, None, 1], "k": [-9, 1, 1]}
    pl.DataFrame({"x": [-9, 9], "i": [-9, 1], "k": [-9, 1]}).write_parquet(tmp_path / "rows.parquet")
    typed = cells(File(tmp_path / "rows.parquet", null_values=["-9"]), schema)
    assert typed == {"x": [None, 9], "i": [None, 1], "k": [-9, 1]}


def test_frames_have_a_null_of_their_own() -> None:
    with pytest.raises(DataError, match="row 0"):
        cells(pl.DataFrame({"g": ["NA", "a"]}), Schema(g=["a", "b"]))
    with pytest.raises(DataError, match="row 0"):
        cells(pl.DataFrame({"x": ["NA", "1"]}), X)


MARKS: list[tuple[str, dict[str, Any], float | None]] = [
    ("1,5", {"decimal": ","}, 1.5),
    ("12", {"decimal": ","}, 12),
    ("1e3", {"decimal": ","}, 1000),
    (" +1,5e3 ", {"decimal": ","}, 1500),
    ("1.5", {"decimal": ","}, None),
    ("1.234", {"decimal": ","}, None),
    ("1,2,3", {"decimal": ","}, None),
    ("1.234.567,8", {"decimal": ",", "thousands": "."}, 1234567.8),
    ("1.5", {"decimal": ",", "thousands": "."}, None),
    ("12.34,5", {"decimal": ",", "thousands": "."}, None),
    ("1234,5", {"decimal": ",", "thousands": "."}, 1234.5),
    ("1,234,567.8", {"thousands": ","}, 1234567.8),
    ("1234.5", {"thousands": ","}, 1234.5),
    ("1,5", {"thousands": ","}, None),
    ("1'234", {"thousands": "'"}, 1234),
    ("1\u00a0234,5", {"thousands": " ", "decimal": ","}, 1234.5),
    ("1 234", {"thousands": " "}, 1234),
    ("1 23", {"thousands": " "}, None),
    ("1,234", {}, None),
]


@pytest.mark.parametrize(("text", "keys", "wanted"), MARKS)
def test_marks_in_numbers(
    text: str, keys: dict[str, Any], wanted: float | None, both: Both, tmp_path: Path
) -> None:
    content = f"x;g\n0;a\n{text};b\n"
    if wanted is not None:
        assert both(content, X, separator=";", **keys) == {"x": [0, wanted]}
        return
    (tmp_path / "rows.csv").write_text(content)
    source = Csv(tmp_path / "rows.csv", separator=";", **keys)
    with pytest.raises(DataError, match="row 1"):
        cells(source, X)
    assert cells(source, X, lenient=True) == {"x": [0, None]}


def test_a_decimal_comma_goes_with_semicolons(both: Both) -> None:
    assert both("x;g\n1,5;a\n", XG, decimal=",") == {"x": [1.5], "g": ["a"]}
    assert both('x,g\n"1,5",a\n', XG, decimal=",", separator=",") == {"x": [1.5], "g": ["a"]}


BOOLEAN = Schema(b=Category((False, True)), i=Category((0, 1)), t=["no", "yes"])


def test_words_for_true_and_false(both: Both) -> None:
    text = "b,i,t\nyes,YES,yes\nNo,n,no\ntrue,FALSE,yes\n1,0,no\n1.0,0.0,no\nja,NEIN,NA\n"
    assert both(text, BOOLEAN, true="ja", false=["nein"]) == {
        "b": [True, False, True, True, True, True],
        "i": [1, 0, 0, 0, 0, 0],
        "t": ["yes", "no", "yes", "no", "no", None],
    }


def test_a_stated_word_takes_the_place_of_a_usual_one(both: Both) -> None:
    assert both("b\nn\ny\n", Schema(b=BOOLEAN["b"]), true=["n"], false=["y"]) == {"b": [True, False]}


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"i": [0, 1, None]}),
        pl.DataFrame({"i": [0.0, 1.0, float("nan")]}),
        pl.DataFrame({"i": [False, True, None]}),
        pd.DataFrame({"i": pd.array([0, 1, None], dtype="Int8")}),
        pd.DataFrame({"i": [False, 1, None]}),
    ],
    ids=["integers", "floats", "booleans", "nullable", "objects"],
)
def test_zero_and_one_are_categories_in_frames_and_files(frame: Any, tmp_path: Path) -> None:
    schema = Schema(i={"categories": [0, 1]})
    assert cells(frame, schema) == {"i": [0, 1, None]}
    if isinstance(frame, pl.DataFrame):
        frame.write_csv(tmp_path / "rows.csv")
        frame.write_parquet(tmp_path / "rows.parquet")
        frame.write_ipc(tmp_path / "rows.feather")
        for name in ("rows.csv", "rows.parquet", "rows.feather"):
            for lenient in (False, True):
                assert cells(tmp_path / name, schema, lenient=lenient) == {"i": [0, 1, None]}


def test_an_error_says_how_categories_of_numbers_are_written(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("sex\nmale\n")
    for source in (tmp_path / "rows.csv", pl.DataFrame({"sex": ["male"]})):
        with pytest.raises(DataError, match=r"write \{categories = \[0, 1\]\}"):
            cells(source, Schema(sex=[0, 1]))
        with pytest.raises(DataError) as caught:
            cells(source, Schema(sex=[0, 90]))
        assert "categories" not in str(caught.value)
    with pytest.raises(DataError, match=r"without quotes: \{categories = \[0, 1\]\}"):
        cells(pl.DataFrame({"sex": [0, 1]}), Schema(sex=["0", "1"]))


def test_recode(both: Both) -> None:
    schema = Schema(sex=["F", "M"], x=(0, 100), y=(0, 100), smoker=["no", "yes"], f=["f", "F"])
    found = both(
        "sex,x,y,smoker,f\nf,<1,1,0,f\n m ,99,0,1,F\nM,99.0,7,9,F\nF,5,NA,yes,f\n",
        schema,
        recode={
            "sex": {"m": "M"},
            "x": {"<1": 0.5, "99": ""},
            "smoker": {"9": "NA"},
            "f": "F",
            "1": "yes",
            "0": "no",
        },
    )
    assert found == {
        "sex": ["F", "M", "M", "F"],
        "x": [0.5, None, None, 5],
        "y": [1, 0, 7, None],
        "smoker": ["no", "yes", None, "yes"],
        "f": ["f", "F", "F", "f"],
    }


def test_recode_of_typed_files(tmp_path: Path) -> None:
    pl.DataFrame({"sex": [1, 2, 9], "x": [1.0, 99.0, None]}).write_parquet(tmp_path / "rows.parquet")
    source = File(
        tmp_path / "rows.parquet", recode={"sex": {"1": "M", "2": "F", "9": ""}, "x": {"99": "100"}}
    )
    assert cells(source, Schema(sex=["F", "M"], x=(0, 1000))) == {
        "sex": ["M", "F", None],
        "x": [1, 100, None],
    }


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize(
    ("recode", "said"),
    [
        ({"g": {"x": "c"}}, "recode of column 'g' gives 'c', which is not one of its categories"),
        ({"x": {"?": "many"}}, "recode of column 'x' gives 'many', and the schema says"),
        ({"sexx": {"f": "F"}}, "recode names a column 'sexx', which is not in the file"),
    ],
)
def test_a_recode_that_fits_nothing_is_found(
    recode: dict[str, Any], said: str, lenient: bool, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("x,g\n1,a\n")
    with pytest.raises(DataError, match=said):
        cells(Csv(tmp_path / "rows.csv", recode=recode), XG, lenient=lenient)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"decimal": ";"}, "decimal must be"),
        ({"decimal": 1}, "decimal must be"),
        ({"thousands": "."}, "but not the mark '.' of decimals"),
        ({"thousands": "x"}, "thousands must be"),
        ({"encoding": "utf-7"}, "encoding must be"),
        ({"encoding": "no such"}, "encoding must be"),
        ({"encoding": 5}, "encoding must be"),
        ({"encoding": "cp500"}, "encoding must be"),
        ({"true": 1}, "true must be a list of texts"),
        ({"true": ["ja"], "null_values": ["JA"]}, "must be in null_values or in true"),
        ({"true": ["x"], "false": ["X"]}, "must be in true or in false"),
        ({"recode": "f"}, "recode must be a table"),
        ({"recode": {"f": None}}, "recode must give texts or numbers"),
        ({"recode": {"sex": {"f": ["F"]}}}, "recode must give texts or numbers"),
        ({"separator": "é"}, "separator must be a character of ASCII"),
        ({"separator": '"'}, "separator must be a character of ASCII"),
    ],
)
def test_keys_that_cannot_be(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Csv("a.csv", **keys)


@pytest.mark.parametrize("lenient", [False, True])
def test_blanks_around_an_id_make_no_other_person(lenient: bool, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("who,x\n7,1\n 7 ,2\n7,3\nNA,4\n.,5\n-9,6\n8,7\n" + "7,8,9\n" * lenient)
    source = Csv(tmp_path / "rows.csv", null_values=["-9"])
    schema = Schema(x=(0, 100)).of_persons(Person("who", rows=1))
    table = Table("alpha", source, schema, unreadable="missing" if lenient else "error")
    (counts,) = table.sums([Counts((Axis("x", (0.0, 3.5, 100.0)),))])
    assert counts[0].tolist() == [1, 1]  # one row of 7, and that of 8
    ids = pl.Series(["7", "\u00a07 ", BROKEN, "na", "-9", None])
    assert Notation(source.words).ids(ids).to_list() == ["7", "7", None, None, None, None]


def test_blanks_around_names_are_not_part_of_them(both: Both) -> None:
    assert both("x , g\n1, a\n", XG) == {"x": [1], "g": ["a"]}


def test_broken_lines_and_missing_cells_where_none_may_be(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x,g\n1,a\nNA,NA\n1,2,3\n")
    schema = Schema(x=Number(0, 100, missing=False), g=Category(("a", "b"), missing=False))
    assert cells(tmp_path / "rows.csv", schema, lenient=True) == {"x": [1, 50, 50], "g": ["a", "a", "a"]}
    with pytest.raises(CapeError):
        cells(tmp_path / "rows.csv", schema)
