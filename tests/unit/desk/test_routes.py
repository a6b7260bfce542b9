"""Every page of both desks, also new ones: without login, with every role, with and without the token."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from cape.desk.access.guard import POLICY
from cape.desk.access.people import ROLES, Role
from cape.desk.coordinator import PAGES as OF_COORDINATOR
from cape.desk.page import Page
from cape.desk.site import PAGES as OF_SITE
from tests.unit.desk.raw import ask
from tests.unit.desk.visitor import Visitor, desk

DESKS = {"site": OF_SITE, "coordinator": OF_COORDINATOR}
ALL = [
    pytest.param(name, page, id=f"{name} {page.method} {page.path}")
    for name, pages in DESKS.items()
    for page in pages
]
SENT = [each for each in ALL if each.values[1].method == "POST"]
FORM = (b"content-type", b"application/x-www-form-urlencoded")


class Spied:
    """A desk whose handlers only note that they ran."""

    def __init__(self, name: str, folder: Path) -> None:
        self.ran: list[str] = []
        self._lines = 0
        pages = tuple(replace(page, handler=self._handler(page)) for page in DESKS[name])
        self.app = desk(pages, folder)
        self.trail = folder / "trail.jsonl"

    def _handler(self, page: Page) -> Callable[[Request], Response]:
        def note(request: Request) -> Response:
            self.ran.append(f"{page.method} {page.path}")
            return PlainTextResponse("ran")

        return note

    @property
    def lines(self) -> int:
        """How many lines of decisions there are since the last time that somebody asked."""
        lines = len(self.trail.read_text().splitlines()) if self.trail.exists() else 0
        new, self._lines = lines - self._lines, lines
        return new

    def take(self) -> list[str]:
        """Return which handlers ran since the last time."""
        ran, self.ran = self.ran, []
        return ran


@pytest.fixture(scope="module")
def desks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Spied]:
    return {name: Spied(name, tmp_path_factory.mktemp(name)) for name in DESKS}


def address(page: Page) -> str:
    """A path of a page: `/study/{hash}` with something in place of the hash."""
    return re.sub(r"\{(\w+)(:int)?\}", lambda found: "1" if found[2] else "x" * 64, page.path)


def send(visitor: Visitor, page: Page, **more: str):
    if page.method == "GET":
        return visitor.get(address(page))
    return visitor.post(address(page), data={"csrf": visitor.csrf} | more)


@pytest.mark.parametrize(("name", "page"), ALL)
def test_without_login_no_page_runs(desks: dict[str, Spied], name: str, page: Page):
    spied = desks[name]
    visitor = Visitor(spied.app)
    for forged in ("", "forged"):
        visitor.cookies.set("cape-desk", forged)
        found = send(visitor, page)
        assert found.status_code == (303 if page.method == "GET" else 401)
        assert found.headers.get("location") == ("/login" if page.method == "GET" else None)
        assert found.headers["content-security-policy"] == POLICY
    assert (spied.take(), spied.lines) == ([], 0)


@pytest.mark.parametrize(("name", "page"), ALL)
@pytest.mark.parametrize("role", ROLES)
def test_a_page_runs_for_its_role_and_higher_ones_only(
    desks: dict[str, Spied], name: str, page: Page, role: Role
):
    spied = desks[name]
    found = send(Visitor(spied.app, role), page)
    if ROLES.index(role) >= ROLES.index(page.role):
        assert (found.status_code, found.text) == (200, "ran")
        assert spied.take() == [f"{page.method} {page.path}"]
        assert spied.lines == (2 if page.method == "POST" and page.decides else 0)
    else:
        assert found.status_code == 403
        assert f"needs the role {page.role}" in found.text
        assert (spied.take(), spied.lines) == ([], 0)
    assert found.headers["content-security-policy"] == POLICY


@pytest.mark.parametrize(("name", "page"), SENT)
def test_without_the_token_of_the_session_no_form_is_carried_out(
    desks: dict[str, Spied], name: str, page: Page
):
    spied = desks[name]
    ana, bo = Visitor(spied.app, "admin"), Visitor(spied.app, "admin", "bo")
    path = address(page)
    for fields in ({}, {"csrf": ""}, {"csrf": bo.csrf}, {"csrf": ana.csrf[:-1]}, {"csrf": ana.csrf + "\n"}):
        assert ana.post(path, data=fields | {"study": "x"}).status_code == 403
    assert ana.post(path, data={"study": "x"}, headers={"x-csrf-token": bo.csrf}).status_code == 403
    query = ana.post(f"{path}?csrf={ana.csrf}", data={"study": "x"})
    assert query.status_code == 403, "a token in an address would be in histories and logs"
    for headers in ({"origin": "https://evil.org"}, {"sec-fetch-site": "cross-site"}):
        assert ana.post(path, data={"csrf": ana.csrf}, headers=headers).status_code == 403
    assert ana.get(path).status_code in (200, 405), "a form is never carried out by a link"
    assert (f"POST {page.path}" in spied.take(), spied.lines) == (False, 0)


@pytest.mark.parametrize(("name", "page"), ALL)
def test_another_name_and_other_methods_reach_no_page(desks: dict[str, Spied], name: str, page: Page):
    spied = desks[name]
    ana = Visitor(spied.app, "admin")
    cookie = [(b"cookie", f"cape-desk={ana.cookies['cape-desk']}".encode()), FORM]
    body = f"csrf={ana.csrf}".encode()
    for host in (b"evil.org:8011", b"evil.org", b"127.0.0.1:80"):
        found = ask(spied.app, page.method, address(page), headers=cookie, body=body, host=host)
        assert found.status == 421
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "post", ""):
        assert ask(spied.app, method, address(page), headers=cookie, body=body).status == 405
    assert (spied.take(), spied.lines) == ([], 0)


def test_only_forms_that_change_nothing_leave_no_line():
    silent = {
        page.path for pages in DESKS.values() for page in pages if page.method == "POST" and not page.decides
    }
    assert silent <= {"/policy/try", "/policy/text/try", "/peers/read", "/data/study", "/study/plan"}


def test_what_changes_keys_or_the_policy_needs_an_admin_and_what_decides_a_steward():
    for name, pages in DESKS.items():
        for page in pages:
            if page.method == "POST":
                assert page.role != "viewer", page.path
            if name == "site" and page.path.startswith(("/policy/", "/peers/")) and page.method == "POST":
                assert page.role == "admin", page.path
