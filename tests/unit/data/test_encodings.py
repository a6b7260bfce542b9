"""Text files in other encodings than UTF-8: lines stay rows, whatever bytes they hold."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from cape.core.errors import DataError, InvalidInput
from cape.data import Csv, Schema, encodings, lines
from cape.data.encodings import ENCODINGS, encoding_of, opened
from cape.data.sources import open_source
from tests.slices import examples
from tests.unit.data.test_notation import cells

SCHEMA = Schema(x=(0, 100), g=["größe", "b"])
TEXT = "x;g\n1,5;größe\n2;b\n;NA\n"
FOUND = {"x": [1.5, 2, None], "g": ["größe", "b", None]}


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "latin-1", "windows-1252", "utf-16", "utf-16-be", "cp850"]
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_is_read_in_its_encoding(encoding: str, packed: bool, tmp_path: Path) -> None:
    data = TEXT.encode(encoding)
    (tmp_path / "rows.csv").write_bytes(gzip.compress(data) if packed else data)
    source = Csv(tmp_path / "rows.csv", encoding=encoding, decimal=",")
    assert cells(source, SCHEMA) == cells(source, SCHEMA, lenient=True) == FOUND
    if encoding in ("utf-8-sig", "utf-16"):  # the file itself says so
        bare = Csv(tmp_path / "rows.csv", decimal=",")
        assert cells(bare, SCHEMA) == cells(bare, SCHEMA, lenient=True) == FOUND


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "latin-1"])
def test_a_file_without_a_header(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_bytes(TEXT.removeprefix("x;g\n").encode(encoding))
    source = Csv(tmp_path / "rows.txt", encoding=encoding, decimal=",", columns=("x", "g"))
    assert cells(source, SCHEMA) == cells(source, SCHEMA, lenient=True) == FOUND


@pytest.mark.parametrize("encoding", [name for name in ENCODINGS if "utf-16" not in name])
def test_no_byte_takes_a_line_end_with_it(encoding: str) -> None:
    assert bytes(range(128)).decode(encoding) == bytes(range(128)).decode("ascii")
    assert encoding_of(encoding) == encoding
    some = [*range(0x21, 0x100, 5), 0x30, 0x81, 0xA4, 0xD4, 0xFE, 0xFF]
    starts = [bytes([a]) for a in range(128, 256)] + [bytes([a, b]) for a in range(128, 256) for b in some]
    starts += [bytes([a, 0x30, b]) for a in range(128, 256) for b in (0x81, 0xFE, 0xFF)]
    for start in starts:
        assert (start + b"\nx").decode(encoding, "replace")[-2:] == "\nx"


def test_half_a_pair_takes_no_line_end_with_it() -> None:
    for unit in ("\ud800", "\udc00"):
        for encoding in ("utf-16-le", "utf-16-be"):
            data = (unit + "\nx").encode(encoding, "surrogatepass")
            assert data.decode(encoding, "replace") == "\ufffd\nx"


@pytest.mark.parametrize(
    "name", ["iso2022_jp", "utf-7", "hz", "cp037", "rot13", "unicode_escape", "utf-32", ""]
)
def test_encodings_in_which_lines_depend_on_others_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="encoding must be"):
        encoding_of(name)


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    encoding=st.sampled_from(["latin-1", "windows-1252", "gb18030", "shift_jis", "cp949"]),
    rows=st.lists(st.binary(max_size=6).map(lambda b: b.replace(b"\n", b"")), max_size=6),
    chunk=st.integers(1, 40),
)
def test_any_line_is_one_row_and_is_read_alone(
    encoding: str, rows: list[bytes], chunk: int, tmp_path: Path
) -> None:
    def read(given_: list[bytes]) -> tuple[list[object], int]:
        (tmp_path / "rows.csv").write_bytes(b"\n".join([b"x;g", *given_, b""]))
        source = Csv(tmp_path / "rows.csv", encoding=encoding, separator=";", decimal=",")
        reader = open_source("alpha", source, lenient=True)
        found = cells(source, SCHEMA, lenient=True)
        return list(zip(found["x"], found["g"], strict=True)), reader.rows()  # type: ignore[union-attr]

    each = [read([row])[0][0] for row in rows]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_CHUNK", chunk)
        patch.setattr(encodings, "_READ", chunk)
        assert read(rows) == (each, len(rows))


def test_what_is_not_of_the_encoding_is_an_error_at_its_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"x;g\n1;b\n2;\x81\n")
    with pytest.raises(DataError, match="is not cp1252 text at line 3"):
        cells(Csv(path, encoding="windows-1252", separator=";"), SCHEMA)
    path.write_bytes("x;g\n1;b\n".encode("utf-16-be") + b"\xd8\x00\x00\x0a")
    with pytest.raises(DataError, match="is not utf-16-be text at line 3"):
        cells(Csv(path, encoding="utf-16-be", separator=";"), SCHEMA)
    path.write_bytes("x;g\n1;größe\n".encode() + "2;größe\n".encode("latin-1"))  # two encodings in one file
    with pytest.raises(DataError, match="encoding = 'windows-1252'"):
        cells(Csv(path, separator=";"), SCHEMA)
    found = cells(Csv(path, separator=";"), SCHEMA, lenient=True)
    assert found == {"x": [1, 2], "g": ["größe", None]}
    path.write_text("x;g\n1;b\n")
    for lenient in (False, True):
        with pytest.raises(InvalidInput, match="write utf-16-le or utf-16-be"):
            cells(Csv(path, encoding="utf-16", separator=";"), SCHEMA, lenient=lenient)


def test_a_decoded_file_is_cut_outside_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes('x,g,note\n1,b,"é\n,;""é"\n2,größe,é\n3,b,"a\nb\nc"\n'.encode("latin-1"))
    source = Csv(path, encoding="latin-1")
    for chunk in (1, 7, 1 << 20):
        monkeypatch.setattr("cape.data.decoded._CHUNK", chunk)
        assert cells(source, SCHEMA) == {"x": [1, 2, 3], "g": ["b", "größe", "b"]}
    path.write_bytes("x,g\n1,b\n2,b,é,é\n".encode("latin-1"))
    with pytest.raises(DataError, match="same number of cells in every line"):
        cells(source, SCHEMA)
    path.write_bytes('x,g\n1,b\n2,"é\n'.encode("latin-1"))
    with pytest.raises(DataError):
        cells(source, SCHEMA)
    path.write_bytes(b"")
    with pytest.raises(DataError):
        cells(source, SCHEMA)
    (tmp_path / "other.csv").write_bytes(b"x,g\n1,b\n")
    several = Csv(tmp_path / "*.csv", encoding="latin-1")
    assert cells(several, SCHEMA) == {"x": [1], "g": ["b"]}  # an empty file has no rows
    path.write_bytes(b"x,h\n1,b\n")
    with pytest.raises(DataError, match="different first lines"):
        cells(several, SCHEMA)


def test_an_opened_file_is_closed(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(TEXT.encode("latin-1"))
    with opened(str(tmp_path / "rows.csv"), "iso8859-1", header=True) as file:
        assert file.read().decode() == TEXT
    assert file.closed


def test_the_first_cells_of_a_file_without_a_header_do_not_decide_its_encoding(tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    for first in (b"1;b", b"\xff\xfe;b", b"\xfe\xff;b"):
        path.write_bytes(first + b"\n2;b\n")
        found = cells(Csv(path, columns=("x", "g"), separator=";"), SCHEMA, lenient=True)
        assert found["x"][1:] == [2]
        assert found["g"][1:] == ["b"]
