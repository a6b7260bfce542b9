"""One-time links: once, for a while, here only."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cape.core.errors import InvalidInput
from cape.desk.access.limits import Buckets, Limits
from cape.desk.access.links import LASTS, Links, pages
from cape.desk.access.people import Person
from cape.desk.start import RUNNING
from tests.unit.cli.conftest import Cape
from tests.unit.cli.conftest import cape as cape
from tests.unit.desk.clock import Clock
from tests.unit.desk.test_app import PAGES
from tests.unit.desk.visitor import Visitor, desk, unlimited

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


@pytest.mark.parametrize("kind", ["link", "of another user", "open to others"])
def test_a_folder_of_links_that_leads_elsewhere_is_refused(tmp_path: Path, kind: str):
    state, folder, site = tmp_path / "state", tmp_path / "state" / "links", tmp_path / "site"
    for each in (state, site):
        each.mkdir(mode=0o700)
    key = site / "identity.key"
    key.write_text("secret")
    os.utime(key, (0, 0))
    if kind == "link":
        folder.symlink_to(site)
    else:
        folder.mkdir(mode=0o700)
        folder.chmod(0o770 if kind == "open to others" else 0o700)
    if kind == "of another user":
        if os.geteuid() != 0:
            pytest.skip("only root can give files away")
        os.chown(folder, 70_003, 70_003)
    links = Links(state)
    with pytest.raises(InvalidInput, match="remove it"):
        links.make(ANA)
    assert [each.name for each in site.iterdir()] == ["identity.key"]


def test_only_old_links_are_removed(tmp_path: Path):
    links, clock = Links(tmp_path), Clock()
    links.make(ANA)
    folder = tmp_path / "links"
    (old,) = folder.iterdir()
    others = [folder / name for name in ("identity.key", f"{old.name}x", "0" * 32 + ".json")]
    for each in others:
        each.touch()
    (folder / ("0" * 16 + ".new")).touch()  # what a killed process left
    for each in folder.iterdir():
        os.utime(each, (0, 0))
    Links(tmp_path, clock).make(ANA)
    left = set(folder.iterdir())
    assert set(others) < left
    assert len(left) == len(others) + 1
    assert old not in left


@pytest.fixture
def of_another(cape: Cape) -> Iterator[Path]:
    """A desk's folder of another user, whom the folders above let through."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    with tempfile.TemporaryDirectory() as home:
        os.chmod(home, 0o755)
        state = Path(home) / "state"
        state.mkdir(mode=0o700)
        (state / RUNNING).write_text('{"url":"http://127.0.0.1:8011","links":true}')
        for each in (state, state / RUNNING):
            os.chown(each, 70_003, 70_003)
        yield state


def test_a_link_that_root_makes_belongs_to_the_desk(cape: Cape, of_another: Path):
    made = cape("desk", "link", "--name", "ana", "--role", "steward", "--state", of_another)
    assert (made.code, made.err) == (0, "")
    (file,) = (of_another / "links").iterdir()
    for each, mode in ((file, 0o600), (file.parent, 0o700)):
        assert (each.stat().st_uid, each.stat().st_mode & 0o777) == (70_003, mode)
    assert os.geteuid() == 0
    assert 70_003 not in os.getgroups()


def test_root_removes_nothing_for_a_desk_whose_links_lead_elsewhere(cape: Cape, of_another: Path):
    site = of_another.parent / "site"
    site.mkdir(mode=0o700)
    kept = site / ("0" * 64 + ".json")  # named like a link
    kept.touch()
    for each in (kept, site):
        os.chown(each, 70_001, 70_001)
    os.utime(kept, (0, 0))
    (of_another / "links").symlink_to(site)
    made = cape("desk", "link", "--name", "ana", "--state", of_another)
    assert made.code == 2
    assert list(site.iterdir()) == [kept]
    (of_another / "links").unlink()
    (of_another.parent / "other").symlink_to(of_another)
    made = cape("desk", "link", "--name", "ana", "--state", of_another.parent / "other")
    assert "is a symbolic link; as root, name the folder itself" in made.err
