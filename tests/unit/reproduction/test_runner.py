"""Computing, keeping, drawing, reporting: repeatable, resumable, and runs that are really different runs."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace

import pytest

from cape import CapeError, InvalidInput
from reproduction import FIRST_SEED, Cell, Reference, find, missing, names, reproduce, seeds, style
from reproduction.publish import SHOWN, publish
from reproduction.report import Section, page
from reproduction.store import Store
from tests.unit.reproduction.conftest import Noise, files


def test_a_second_run_computes_nothing_and_writes_the_same_bytes(noise, tmp_path):
    reproduce([noise], tmp_path)
    first = files(tmp_path)
    assert len(noise.computed) == 6
    reproduce([noise], tmp_path)
    assert len(noise.computed) == 6
    assert files(tmp_path) == first
    assert {"figure-0.csv", "figure-0-published.png", "figure-0-published.svg"} <= set(first)


def test_another_folder_gives_the_same_bytes(noise, tmp_path):
    for name in ("one", "two"):
        reproduce([noise], tmp_path / name)
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert len(noise.computed) == 12


def test_ten_runs_are_ten_seeds(noise, tmp_path):
    done = reproduce([noise], tmp_path)[0]
    assert done.seeds == seeds(FIRST_SEED, 3) == (FIRST_SEED, FIRST_SEED + 1, FIRST_SEED + 2)
    assert len({row["error"] for row in done.rows}) == 6
    other = reproduce([noise], tmp_path / "other", seed=7)[0]
    assert not {row["error"] for row in done.rows} & {row["error"] for row in other.rows}


def test_runs_that_coincide_are_refused(tmp_path):
    class Same(Noise):
        def compute(self, cell):
            return [{"error": 1.0}]

    with pytest.raises(CapeError, match=rf"seeds {FIRST_SEED} and {FIRST_SEED + 1} gave the same"):
        reproduce([Same()], tmp_path)
    assert not (tmp_path / "figure-0.csv").exists()


def test_a_run_that_was_stopped_goes_on(tmp_path):
    class Stopped(Noise):
        def compute(self, cell):
            if len(self.computed) == 4:
                raise KeyboardInterrupt
            return super().compute(cell)

    with pytest.raises(KeyboardInterrupt):
        reproduce([Stopped()], tmp_path)
    rest = Noise()
    reproduce([rest], tmp_path)
    assert len(rest.computed) == 2


def test_a_new_version_and_a_broken_file_are_computed_again(noise, tmp_path):
    reproduce([noise], tmp_path)
    broken = next((tmp_path / "cells" / "figure-0").iterdir())
    broken.write_text(broken.read_text()[:40])
    reproduce([noise], tmp_path)
    assert len(noise.computed) == 7

    class Newer(Noise):
        version = 2

    newer = Newer()
    reproduce([newer], tmp_path)
    assert len(newer.computed) == 6


def test_numbers_come_back_to_the_last_bit(tmp_path):
    store, cell = Store(tmp_path), Cell.of("figure-0", 1, a=0.1, b="x", c=None)
    rows = [{"x": 0.1 + 0.2, "tiny": 5e-324, "big": math.inf, "text": "é", "none": None, "yes": True}]
    store.put(cell, 1, rows)
    assert store.get(cell, 1) == rows
    assert store.get(cell, 2) is None
    assert store.get(Cell.of("figure-0", 2, a=0.1, b="x", c=None), 1) is None


def test_a_cells_randomness_depends_on_everything_about_it():
    cells = [Cell.of("f", 1, a=1), Cell.of("f", 2, a=1), Cell.of("f", 1, a=2), Cell.of("g", 1, a=1)]
    drawn = [cell.stream("x").bytes(8) for cell in cells] + [cells[0].stream("y").bytes(8)]
    assert len(set(drawn)) == 5
    assert cells[0].stream("x").bytes(8) == drawn[0]
    assert len({cell.key(1) for cell in cells}) == 4


def test_a_figure_without_its_data_is_left_out_or_an_error(noise, tmp_path):
    class Needy(Noise):
        name = "figure-5"

        def require(self):
            raise CapeError("no data here")

    with pytest.raises(CapeError, match="no data here"):
        reproduce([Needy()], tmp_path)
    assert missing(noise) == ""
    done = reproduce([Needy(), noise], tmp_path, without={"figure-5": missing(Needy())})
    assert done[0].skipped == "no data here"
    assert done[1].claims
    assert "Not drawn: no data here" in (tmp_path / "REPRODUCTION.md").read_text()


def test_the_csv_has_every_number_and_the_seed(noise, tmp_path):
    done = reproduce([noise], tmp_path, fast=True)[0]
    with (tmp_path / "figure-0.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert list(rows[0]) == ["scale", "error", "nothing", "seed"]
    assert [float(row["error"]) for row in rows] == [row["error"] for row in done.rows]


def test_the_page_says_what_holds(noise):
    claim = noise.claims([{}], None)[0]
    text = page([Section("figure-0", "Noise", True, (3, 4), 2, ("a.png",), (claim,), notes="| a |")])
    assert "Of 1 claims: 1 hold." in text
    assert "`python -m reproduction figure-0 --fast --seed 3`, seeds 3 to 4." in text
    assert "Noise \\| is noise." in text
    assert "do not edit" in text
    assert "**Holds.** 1 numbers." in text
    assert "![figure-0, a](a.png)" in text


def test_the_page_says_how_and_when_it_was_made(noise, tmp_path, monkeypatch):
    reproduce([noise], tmp_path, fast=True, seed=7, reference=Reference({}))
    section = json.loads((tmp_path / "sections" / "figure-0.json").read_text())
    assert (section["date"], section["reference"]) == ("2020-09-13", True)
    held = Section(**section | {"claims": (), "seeds": (7, 8), "pictures": ()})
    command = "python -m reproduction figure-0 --fast --seed 7 --reference FILE"
    assert f"Generated by `{command}` on 2020-09-13; do not edit." in page([held])
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    first = files(tmp_path)
    reproduce([noise], tmp_path, fast=True, seed=7, reference=Reference({}))
    assert files(tmp_path) == first  # nothing is new, the date neither
    reproduce([noise], tmp_path, fast=True, seed=9)
    assert json.loads((tmp_path / "sections" / "figure-0.json").read_text())["date"] == "2023-11-14"


def test_one_command_that_made_everything_is_named_all():
    sections = [Section(name, name, False, (FIRST_SEED,), 1, (), (), date="2020-09-13") for name in names()]
    assert "Generated by `python -m reproduction all` on 2020-09-13" in page(sections)
    mixed = page([replace(sections[0], fast=True), *sections[1:]])
    assert f"`python -m reproduction {names()[0]} --fast` on" in mixed
    assert f"`python -m reproduction {' '.join(names()[1:])}` on" in mixed


@pytest.mark.slow(2.9)
def test_a_page_for_documentation_shows_some_pictures(tmp_path):
    out, docs = tmp_path / "out", tmp_path / "docs"
    reproduce([find("figure-5")], out)
    files_written = publish(out, docs)
    assert [str(file.relative_to(docs)) for file in files_written] == [
        "reproduction.md",
        SHOWN["figure-5-equal.png"],
    ]
    text = files_written[0].read_text()
    assert "(img/paper-figure-5.png)" in text
    assert "figure-5-published.png" not in text
    assert 10_000 < files_written[1].stat().st_size < 200_000
    with pytest.raises(InvalidInput, match="no run"):
        publish(tmp_path / "nowhere", docs)


@pytest.mark.slow(1.8)
def test_processes_give_the_same_as_none(tmp_path):
    table = find("table-1")
    cells = [c for c in table.cells(True) if c["entries"] == 100 and c["sites"] in (5, 10)]

    class Few(type(table)):
        def cells(self, fast, seed=FIRST_SEED):
            return [Cell(c.figure, c.settings, seed, seconds=1.0) for c in cells[:4]]

        def draw(self, rows, reference):
            return {}

        def claims(self, rows, reference):
            return []

        def notes(self, rows):
            return ""

    reproduce([Few()], tmp_path / "two", workers=2)
    reproduce([Few()], tmp_path / "none", workers=1)
    assert files(tmp_path / "two") == files(tmp_path / "none")


def test_the_spread_over_runs():
    rows = [{"x": 1, "y": 1.0}, {"x": 1, "y": 3.0}, {"x": 0, "y": 5.0}, {"x": 0, "y": None}]
    low, high = style.over_runs(rows, "x", "y")
    assert (low.x, low.mean, low.std, low.runs) == (0, 5, 0, 1)
    assert (high.x, high.mean, high.runs) == (1, 2, 2)
    assert high.std == pytest.approx(math.sqrt(2))


def test_the_authors_values_are_read(noise, tmp_path):
    path = tmp_path / "values.csv"
    head = "file,x_name,x,epsilon,delta,S,algo,metric,mean,std,n\n"
    path.write_text(head + "noise.mat,e,10,,,5,cape,error,0.5,0.1,10\nnoise.mat,e,1,,,5,cape,error,2,,\n")
    reference = Reference.load(path)
    points = reference.curve("noise", "cape", "error")
    assert [(p.x, p.mean, p.runs) for p in points] == [(1, 2, 0), (10, 0.5, 10)]
    assert reference.curve("noise", "conv", "error") == []
    reproduce([noise], tmp_path / "out", reference=reference)
    for text in ("a,b\n1,2\n", head + "f,e,ten,,,5,cape,error,1,1,1\n"):
        path.write_text(text)
        with pytest.raises(InvalidInput, match="--reference"):
            Reference.load(path)
    with pytest.raises(InvalidInput, match="--reference"):
        Reference.load(tmp_path / "nowhere.csv")


def test_every_figure_is_found_by_its_name():
    assert {"figure-5", "figure-6", "table-1"} <= set(names())
    for name in names():
        figure = find(name)
        assert figure.name == name
        assert figure.title
        for fast in (True, False):
            cells = figure.cells(fast)
            assert len({cell.key(figure.version) for cell in cells}) == len(cells)
            json.dumps([cell.settings for cell in cells])
            assert cells == figure.cells(fast)
    with pytest.raises(InvalidInput, match="did you mean 'figure-5'"):
        find("figure5")
