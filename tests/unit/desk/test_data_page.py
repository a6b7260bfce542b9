"""The rows as the desk shows them: counts for the steward, never a cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from cape.desk.site import log, rows
from tests.unit.desk.visitor import Visitor, desk
from tests.world import MEAN, SECRET, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "w")


@pytest.fixture
def steward(world: World, tmp_path: Path) -> Visitor:
    return Visitor(desk((*rows.PAGES, *log.PAGES), tmp_path, world.site), "steward")


def test_the_page_comes_at_once_and_the_check_after_it(steward: Visitor):
    page = steward.get("/data").text
    assert 'hx-get="/data/check"' in page
    assert "400 rows" not in page
    part = steward.get("/data/check", headers={"hx-request": "true"}).text
    assert part.startswith('<div id="checked">')
    assert "400 rows, 5 columns" in part
    assert "400 rows, 5 columns" in steward.words("/data/check"), "without script it is a whole page"


def test_what_does_not_fit_is_counted_without_a_cell(steward: Visitor, world: World):
    path = world.site.path / "rows.csv"
    first, second, *rest = path.read_text().splitlines()
    path.write_text("\n".join([first, f"x{SECRET}," + second.partition(",")[2], *rest]) + "\n")
    world.edit("min_rows = 100", "min_rows = 500")
    words = steward.words("/data/check")
    assert "there are 400 rows, and min_rows asks for 500" in words
    assert "1 cell not a number" in words
    assert str(SECRET) not in words


def test_a_study_file_is_checked_and_not_kept(steward: Visitor, world: World):
    world.study(MEAN, 'kind = "pca"\ncolumns = ["age", "weight"]\ncomponents = 1')
    text = (world.folder / "lungs.toml").read_text()
    page = steward.submit("/data/study", study=text, coordinator="office")
    assert page.status_code == 200
    assert "mean of age and weight" in page.text
    assert "does not answer analyses of kind" in page.text
    assert not world.site.approvals.studies("waiting")
    assert steward.submit("/data/study", study="[study", coordinator="office").status_code == 400


def test_counts_of_rows_are_not_for_viewers(world: World, tmp_path: Path):
    viewer = Visitor(desk(rows.PAGES, tmp_path, world.site), "viewer")
    assert {viewer.get(path).status_code for path in ("/data", "/data/check")} == {403}


def test_the_log_is_shown_newest_first_and_searched(steward: Visitor, world: World):
    for number in range(150):
        world.site.log(f"line {number} <b>")
    words = steward.words("/log")
    assert words.index("line 149") < words.index("line 148")
    assert "line 49 " not in words
    assert "line 49 " in steward.words("/log?lines=1000")
    assert "<b>" not in steward.get("/log").text.replace("<br>", "")
    found = steward.words("/log?word=LINE+12")
    assert "line 120" in found
    assert "line 130" not in found
    assert "has this word" in steward.words("/log?word=nothing+like+it&lines=nonsense")
