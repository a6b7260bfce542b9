"""One-time links: once, for a while, here only."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from cape.desk.access.limits import Buckets, Limits
from cape.desk.access.links import LASTS, Links, pages
from cape.desk.access.people import Person
from cape.errors import InvalidInput
from tests.desk.clock import Clock
from tests.desk.test_app import PAGES
from tests.desk.visitor import Visitor, desk, unlimited

ANA = Person("ana", "steward")


def token(path: str) -> str:
    return path.rsplit("/", 1)[1]


def test_a_link_logs_in_once(tmp_path: Path):
    links = Links(tmp_path)
    app = desk(PAGES, tmp_path, login=pages(links))
    path, browser = links.make(ANA), Visitor(app)
    assert browser.get("/read").headers["location"] == "/login"
    assert "cape desk link" in browser.words("/login")
    entered = browser.get(path)
    assert entered.status_code == 200
    assert 'content="0; url=/"' in entered.text
    assert browser.get("/read").text == "ana reads"
    other = Visitor(app)
    again = other.get(path)
    assert again.status_code == 403
    assert "was used" in again.text
    assert other.get("/read").status_code == 303


def test_the_cookie_goes_to_this_desk_only_and_to_no_script(tmp_path: Path):
    links = Links(tmp_path)
    for secure in (False, True):
        app = desk(PAGES, tmp_path, login=pages(links), secure=secure)
        found = Visitor(app).get(links.make(ANA)).headers["set-cookie"].lower()
        assert "httponly" in found
        assert "samesite=strict" in found
        assert "path=/" in found
        assert "domain" not in found
        assert ("secure" in found) == secure


def test_of_two_at_the_same_time_one_gets_in(tmp_path: Path):
    links, ready = Links(tmp_path), threading.Barrier(4)
    found = list[Person | None]()

    def follow(path: str) -> None:
        ready.wait()
        found.append(links.take(token(path)))

    for _ in range(20):
        threads = [threading.Thread(target=follow, args=(path,)) for path in [links.make(ANA)] * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found.count(ANA) == 20
    assert found.count(None) == 60


def test_an_old_link_and_a_forged_one_are_refused(tmp_path: Path):
    clock = Clock()
    links = Links(tmp_path, clock)
    path = links.make(ANA)
    assert links.take(token(path) + "x") is None
    assert links.take("../links/x") is None
    clock.now += LASTS
    assert links.take(token(path)) is None


def test_only_the_token_opens_and_the_folder_does_not_hold_it(tmp_path: Path):
    path = Links(tmp_path).make(ANA)
    (file,) = (tmp_path / "links").iterdir()
    assert token(path) not in file.name + file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "links").stat().st_mode & 0o777 == 0o700


def test_attempts_are_limited(tmp_path: Path):
    limits = Limits(unlimited().each, unlimited().all, Buckets(0.001, 3))
    browser = Visitor(desk(PAGES, tmp_path, login=pages(Links(tmp_path)), limits=limits))
    assert [browser.get("/login/link/x").status_code for _ in range(5)] == [403, 403, 403, 429, 429]


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 201])
def test_a_name_that_could_forge_a_line_of_a_log_is_refused(tmp_path: Path, name: str):
    with pytest.raises(InvalidInput, match="printable"):
        Links(tmp_path).make(Person(name, "viewer"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_link_that_root_makes_belongs_to_the_desk(tmp_path: Path):
    links = Links(tmp_path)
    os.chown(tmp_path / "links", 70_003, 70_003)
    links.make(Person("ana", "steward"))
    (file,) = (tmp_path / "links").iterdir()
    assert (file.stat().st_uid, file.stat().st_mode & 0o777) == (70_003, 0o600)
