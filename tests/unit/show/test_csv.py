"""CSV in which no spreadsheet finds a formula, however it cuts lines, and numbers stay numbers."""

from __future__ import annotations

import csv
import io
import re
import unicodedata

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cape.show.plain import csv_rows, to_csv
from tests.slices import examples

SIGNS = "=+-@＝＋－＠﹦﹢﹣﹫⁺₌\N{MINUS SIGN}"
BLANKS = " \t\r\n\v\f\x00\x1c\x85\xa0\u1680\u2003\u2028\u200b\u200e\u2060\u3000\ufeff"
HOSTILE = st.lists(
    st.sampled_from([*SIGNS, *BLANKS, *";,|\"'", "x", "1", "=1+1", "cmd|' /C calc'!A0", "-2", "(-3, -1]"]),
    max_size=8,
).map("".join)
DESK = re.compile(r"(^|[;\t|])\s*[=+@\-＝＋＠－]")  # what the desk alone looked for


def shows(sign: str) -> bool:
    return unicodedata.category(sign)[0] not in "ZC" and sign != '"'


def begins_formula(cell: str) -> bool:
    first = next(filter(shows, cell), "")
    return unicodedata.normalize("NFKC", first)[:1] in ("=", "+", "-", "@", "\N{MINUS SIGN}")


@examples(500)
@given(cells=st.lists(HOSTILE | st.text(max_size=6), min_size=1, max_size=3))
@example(cells=[" =1+1"])
@example(cells=["x;=1+1"])
@example(cells=["＝1+1"])
@example(cells=['x;"=1+1"'])
@example(cells=["\t@SUM(A1)"])
@example(cells=["x,=1+1"])
def test_no_cell_is_a_formula_however_a_line_is_cut(cells: list[str]):
    text = csv_rows([cells])
    (read,) = csv.reader(io.StringIO(text, newline=""))
    assert not any(map(begins_formula, read))
    for ends in (";", "\t", "|", ";\t|\r\n"):
        assert not any(map(begins_formula, re.split(f"[{ends}]", text)))
    for cell in re.split(r"[,;|\t\r\n]", text):  # as one that knows no quotes, and takes all of them for ends
        assert not begins_formula(cell) or re.fullmatch(r'"?\s*[+-]\d[\d.]*[)\]]?"?', cell)


@examples(300)
@given(cell=HOSTILE | st.text(max_size=8))
def test_what_the_desk_escaped_is_escaped_and_nothing_but_apostrophes_is_added(cell: str):
    ((found,),) = csv.reader(io.StringIO(csv_rows([[cell]]), newline=""))
    assert found.replace("'", "") == cell.replace("'", "")
    if DESK.search(cell):
        assert found != cell
    if not any(unicodedata.normalize("NFKC", sign)[:1] in "=+-@\N{MINUS SIGN}" for sign in cell):
        assert found == cell


@pytest.mark.parametrize("text", ["lungs & hearts", "a-b", "x=1", "[-10, -5)", "'=1", "mean of a, b", "ä@b"])
def test_a_text_that_is_no_formula_stays_as_it_is(text: str):
    ((found,),) = csv.reader(io.StringIO(csv_rows([[text]])))
    assert found == text


def test_numbers_stay_numbers():
    records = [{"-label": "=a", "value": -1.5, "count": -2}, {"-label": "b", "value": -1e-300, "count": 3}]
    text = to_csv(records)
    frame = pd.read_csv(io.StringIO(text))
    assert list(frame.columns) == ["'-label", "value", "count"]
    assert frame["value"].tolist() == [-1.5, -1e-300]
    assert frame["count"].tolist() == [-2, 3]
    assert frame["'-label"].tolist() == ["'=a", "b"]
    assert to_csv([{"a": float("nan")}, {"a": None}]) == 'a\n""\n""\n'
    assert to_csv([]) == ""
