"""The ledger at the desk: pages of releases, the running total, exports, and where the chain breaks."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
from html import unescape
from pathlib import Path

import pytest

from cape.desk.site import PAGES
from cape.desk.site import ledger as pages
from cape.site.admin import Desk
from tests.unit.desk.visitor import Visitor, desk
from tests.world import World, ask, document


def release(world: World, name: str, other: bool = False, share: float = 0.01) -> None:
    asked = document(name=name, analyses=[{"kind": "mean", "columns": ["age"], "share": share}])
    world.granted(ask(asked, world.roster, world.other if other else world.office))


def five(folder: Path) -> World:
    world = World(folder / "w")
    for number in range(5):
        release(world, f"study {number}", other=number == 3)
    return world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A site with five releases, for tests that add none."""
    return five(tmp_path_factory.mktemp("ledger"))


@pytest.fixture
def viewer(world: World, tmp_path: Path) -> Visitor:
    return Visitor(desk(PAGES, tmp_path, world.site), "viewer")


def studies(viewer: Visitor, path: str) -> list[str]:
    """The studies of a page's releases, from top to bottom."""
    return re.findall(r'<td data-of="Study"><a [^>]*>([^<]*)<', viewer.get(path).text)


def test_releases_are_shown_newest_first_with_their_total(viewer: Visitor, world: World):
    assert studies(viewer, "/ledger") == [f"study {number}" for number in (4, 3, 2, 1, 0)]
    book = Desk(world.site).ledger()
    words = unescape(viewer.words("/ledger"))
    assert f"Epsilon {book.total.epsilon:.3g} spent in 5 lines" in words
    assert "allowed ever: 3" in words
    assert f"office in {world.site.ledger.year}: epsilon {book.limits[0].spent:.3g} of 2 spent" in words


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("coordinator=other", (3,)),
        ("coordinator=office", (4, 2, 1, 0)),
        ("study=study+2", (2,)),
        ("since=2999-01-01", ()),
        ("until=2999-01-01", (4, 3, 2, 1, 0)),
        ("since=2000-01-01&study=study+1&coordinator=office", (1,)),
    ],
)
def test_filters_choose(viewer: Visitor, query: str, numbers: tuple[int, ...]):
    assert studies(viewer, f"/ledger?{query}") == [f"study {number}" for number in numbers]
    lines = list(csv.DictReader(io.StringIO(viewer.get(f"/ledger.csv?{query}").text)))
    assert [line["study"] for line in lines] == [f"study {number}" for number in sorted(numbers)]


def test_pages_lead_to_older_releases_and_lose_no_filter(
    viewer: Visitor, world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pages, "_PAGE", 2)
    found, path = [], "/ledger?coordinator=office"
    while path:
        found += studies(viewer, path)
        older = re.findall(r'<a href="([^"]*)" rel="next"', viewer.get(path).text)
        path = unescape(older[0]) if older else ""
        assert not path or "coordinator=office" in path
    assert found == [f"study {number}" for number in (4, 2, 1, 0)]


@pytest.mark.parametrize(
    "query", ["before=x", "before=-1", "since=yesterday", "coordinator=nobody", "until=2026-13-01"]
)
def test_a_nonsensical_filter_is_refused(viewer: Visitor, query: str):
    assert viewer.get(f"/ledger?{query}").status_code == 400
    assert query.startswith("before") or viewer.get(f"/ledger.csv?{query}").status_code == 400


def test_the_csv_is_read_in_parts_and_holds_no_formula(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pages, "_MOST", 2)
    world = five(tmp_path)
    viewer = Visitor(desk(PAGES, tmp_path, world.site), "viewer")
    release(world, "=1+1")
    release(world, "x; =HYPERLINK(1)")
    text = viewer.get("/ledger.csv").text
    lines = list(csv.DictReader(io.StringIO(text)))
    assert [int(line["line"]) for line in lines] == [1, 2, 3, 4, 5, 6, 7]
    assert [line["study"] for line in lines[-2:]] == ["'=1+1", "x;' =HYPERLINK(1)"]


def test_the_signed_export_is_the_daemons(viewer: Visitor, world: World):
    saved = viewer.get("/ledger.json")
    assert saved.headers["content-disposition"] == 'attachment; filename="ledger.json"'
    assert json.loads(saved.text)
    assert saved.text.count("study 3") == Desk(world.site).ledger_export().count("study 3") > 0


def test_a_sound_chain_is_said_to_be_one(viewer: Visitor):
    part = viewer.get("/ledger/chain", headers={"hx-request": "true"}).text
    assert part.startswith('<div id="chain">')
    assert "All 5 lines fit together" in part
    assert 'class="break"' not in part


def test_a_long_ledger_is_checked_on_demand_and_the_result_kept(
    viewer: Visitor, monkeypatch: pytest.MonkeyPatch
):
    assert 'hx-get="/ledger/chain"' in viewer.get("/ledger").text
    monkeypatch.setattr(pages, "_AT_ONCE", 4)
    assert 'hx-get="/ledger/chain"' not in viewer.get("/ledger").text
    assert "fit together" not in viewer.get("/ledger").text
    assert viewer.get("/ledger/chain").status_code == 200
    assert "All 5 lines fit together" in viewer.words("/ledger")


def test_a_changed_line_is_shown_with_a_red_line(tmp_path: Path):
    world = five(tmp_path)
    viewer = Visitor(desk(PAGES, tmp_path, world.site), "viewer")
    path = world.site.path / "ledger.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("DROP TRIGGER releases_UPDATE")
        db.execute("UPDATE releases SET study = 'forged' WHERE id = 3")
    for shown in ("/ledger", "/ledger/chain"):
        page = viewer.get(shown)
        assert page.status_code == 200
        assert "line 3 of 5" in page.text
        assert '<path class="break"' in page.text
        assert "fit together" not in page.text


def test_an_empty_ledger_is_shown(tmp_path: Path):
    world = World(tmp_path / "w")
    viewer = Visitor(desk(PAGES, tmp_path, world.site), "viewer")
    words = viewer.words("/ledger")
    assert "Nothing has left this site." in words
    assert "0 lines" in words
