"""What the fuzzer found in study files, and a small version of it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from assurance.inputs.bend import to_toml
from cape.core.errors import CapeError, InvalidInput
from cape.study import Study
from tests.slices import examples

PASSWORD = "hunter" + "2"
RIGHT: dict[str, Any] = {
    "study": {"name": "lungs"},
    "privacy": {"epsilon": 1.0, "delta": 1e-6, "colluding": 1},
    "schema": {"age": [18, 90], "sex": ["female", "male"]},
    "sites": {
        "a": "a.csv",
        "b": {"path": "b.csv", "separator": ";"},
        "c": {"query": "SELECT 1", "connection": f"x://{PASSWORD}@h"},
    },
    "analysis": [{"kind": "mean", "columns": ["age"], "share": 0.5}],
}


def refused(path: Path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidInput) as caught:
        Study.load(path)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 1000
    assert PASSWORD not in message
    return message


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 100_000, "a = " + "{x=" * 50_000, "a = " + "9" * 5000, "a=0x" + "f" * 9999]
)
def test_numbers_and_brackets_without_end(text: str, tmp_path: Path):
    assert "is not a TOML file" in refused(tmp_path / "study.toml", text) or text.startswith("a=0x")


DEEP = {
    "dots": "a" + ".a" * 500_000 + "=1",
    "spaces": "a" + " \t. a" * 100_000 + "=1",
    "quotes": "a" + '.""' * 100_000 + "=1",
    "apostrophes": "a" + ".'x.y'" * 100_000 + "=1",
    "in a table": "x={a" + ".a" * 100_000 + "=1}",
    "a header": "[" + "a." * 100_000 + "a]",
    "after a string": 'x = """\\"""a"""\n' + "a" + ".a" * 100_000 + "=1",
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_keys_without_end(text: str, tmp_path: Path):
    """tomllib would take minutes and gigabytes for them."""
    assert "a key of more than eight names" in refused(tmp_path / "study.toml", text)


@pytest.mark.parametrize(
    "text", ['"\\' * 500_000, "a" * 999_999, '"""' * 300_000, "'" * 999_999, "a." * 7 + "a "]
)
def test_what_looks_for_such_keys_takes_no_time_itself(text: str, tmp_path: Path):
    assert "is not a TOML file" in refused(tmp_path / "study.toml", text * (1 if len(text) > 99 else 50_000))


def test_dots_in_strings_are_no_keys(tmp_path: Path):
    text = to_toml(RIGHT | {"study": {"name": "lungs", "description": "a.b.c.d.e.f.g.h.i.j.k.l"}})
    (tmp_path / "study.toml").write_text(text + "# a.b.c.d.e.f.g.h.i.j.k.l\n")
    assert Study.load(tmp_path / "study.toml").description.startswith("a.b")


def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path):
    with pytest.raises(InvalidInput, match="is larger than 1024 kB"):
        Study.load("/dev/zero")


def answer(path: Path) -> str:
    """What is said of a study: nothing, if it is right."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            Study.load(path)
        except CapeError as error:
            return str(error)
    return ""


@pytest.mark.parametrize(
    "change",
    [
        {"\x1b[2J": {"a": 1}},
        {"k" * 3000: 1},
        {"two\nlines": 1},
        {"study": {"name": "x", "k" * 3000: 1}},
        {"study": "x" * 5000},
        {"privacy": {"epsilon": 1.0, "delta": 1e-6, "scheme": "x" * 5000}},
        {"schema": {"k" * 3000: 5}},
        {"sites": {"a": "a.csv", "b\x1b[2J": 5}},
        {"sites": {"a": "a.csv", "b": "\0"}},
        {"sites": {"a": "a.csv", "b": {"path": "b.csv", "null_values": 1.5}}},
        {"sites": {"a": "a.csv", "b": {"query": "SELECT 1", "connection": [f"x://{PASSWORD}@h"]}}},
        {"analysis": [{"kind": "mean", "columns": ["x" * 5000]}]},
        {"analysis": [{"kind": "k" * 5000}]},
    ],
)
def test_refused_in_a_line_that_a_terminal_can_show(change: dict[str, Any], tmp_path: Path):
    refused(tmp_path / "study.toml", to_toml(RIGHT | change))


VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=6),
    st.lists(st.integers(0, 9) | st.text(max_size=3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@examples(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_in_any_place(data: st.DataObject, tmp_path: Path):
    document = {name: dict(part) for name, part in RIGHT.items() if isinstance(part, dict)}
    document["analysis"] = [dict(RIGHT["analysis"][0])]
    part = data.draw(st.sampled_from([*list(document.values())[:-1], document["analysis"][0]]))
    part[data.draw(st.sampled_from([*part, "x"]))] = data.draw(VALUES)
    path = tmp_path / "study.toml"
    path.write_text(to_toml(document), encoding="utf-8")
    said = answer(path)
    assert said.isprintable()
    assert len(said) < 1000


@examples(80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.floats(0, 1), change=st.binary(max_size=5))
def test_any_bytes_in_any_place(at: float, change: bytes, tmp_path: Path):
    right = to_toml(RIGHT).encode()
    place = int(at * len(right))
    path = tmp_path / "study.toml"
    path.write_bytes(right[:place] + change + right[place + len(change) :])
    assert answer(path).isprintable()
