"""`cape results`: the tables of a folder again, and as files."""

from __future__ import annotations

import csv
import json
import zipfile

import pytest

from tests.unit.cli.conftest import SECRET


@pytest.fixture
def done(cape, study):
    out = study.parent / "out"
    assert cape("run", study, "--out", out).code == 0
    return out


def test_results_are_shown_again_without_the_data(cape, study, done):
    for path in (study.parent / "data").iterdir():
        path.unlink()
    again = cape("results", done)
    assert again.code == 0
    first = json.loads((done / "results.json").read_text())["analyses"][0]
    assert first["tables"][0]["rows"][0][1] in again.out  # the mean of age, as it was printed
    assert "2. Table one" in again.out
    assert json.loads(cape("results", done, "--json").out)["analyses"][0] == first


def test_every_number_is_in_the_csv_with_its_interval(cape, done):
    assert cape("results", done, "--format", "csv", "--out", done / "files").code == 0
    rows = list(csv.DictReader((done / "files" / "analysis-1.csv").read_text().splitlines()))
    estimates = json.loads((done / "results.json").read_text())["analyses"][0]["estimates"]
    assert [row["label"] for row in rows] == [each["label"] for each in estimates]
    assert [float(row["low"]) for row in rows] == [each["interval"][0] for each in estimates]


@pytest.mark.one_in(4, seconds=1.0)
@pytest.mark.parametrize(
    ("kind", "file", "inside"),
    [
        ("xlsx", "tables.xlsx", "xl/sharedStrings.xml"),
        ("docx", "tables.docx", "word/document.xml"),
        ("latex", "analysis-2.tex", None),
        ("html", "tables.html", None),
    ],
)
def test_tables_are_written_as_documents(cape, done, kind, file, inside):
    assert cape("results", done, "--format", kind).code == 0
    path = done / file
    text = path.read_text() if inside is None else zipfile.ZipFile(path).read(inside).decode()
    assert "median [IQR]" in text
    assert str(SECRET) not in text
    if kind == "html":
        assert "<hearts>" not in text  # the study's name is escaped


def test_a_sheet_holds_no_formula(cape, done):
    """Labels are categories, which may come from outside."""
    stored = json.loads((done / "results.json").read_text())
    table = stored["analyses"][0]["tables"][0]
    table["columns"][0], table["rows"][0][0] = "=1+1", "=HYPERLINK(1)"
    stored["analyses"][0]["notes"] = ["=2+2"]
    (done / "results.json").write_text(json.dumps(stored))
    assert cape("results", done, "--format", "xlsx").code == 0
    packed = zipfile.ZipFile(done / "tables.xlsx")
    for text in ("=1+1", "=HYPERLINK(1)", "=2+2"):
        assert f">{text}<" in packed.read("xl/sharedStrings.xml").decode()
    sheets = [packed.read(name).decode() for name in packed.namelist() if name.startswith("xl/worksheets/s")]
    assert not any("<f>" in sheet for sheet in sheets)


def test_a_folder_without_results_and_a_strange_file_are_refused_in_a_sentence(cape, tmp_path):
    missing = cape("results", tmp_path)
    assert missing.code == 2
    assert "cape run STUDY --out DIR" in missing.err
    (tmp_path / "results.json").write_text('{"study": 3}')
    assert "is not a results file" in cape("results", tmp_path).err
    assert cape("results", tmp_path, "--format", "pdf").code == 2


def test_a_report_begins_with_findings_and_ends_with_a_certificate(done):
    page = (done / "report.html").read_text()
    places = [page.index(f'id="{name}"') for name in ("findings", "analysis-1", "guarantee", "certificate")]
    assert places == sorted(places)
    assert "(95% CI" in page[places[0] : places[1]]


def test_a_narrow_screen_shows_every_number_of_a_table(cape, done, monkeypatch):
    monkeypatch.setenv("COLUMNS", "44")
    narrow = cape("results", done).out
    told = json.loads((done / "results.json").read_text())["analyses"][1]["tables"][0]
    for row in told["rows"]:
        for cell in row[1:]:
            assert all(word in narrow for word in cell.split()), cell


def test_cape_alone_says_what_to_do_next(cape):
    alone = cape()
    assert alone.code == 0
    assert "cape demo" in alone.out
    assert "cape init FILE.csv" in alone.out
