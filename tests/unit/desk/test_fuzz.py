"""Requests that nobody would send: no answer is an error of the desk, or shows a trace, a cell or a key."""

from __future__ import annotations

import os
import random
import re
import string
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from starlette.applications import Starlette

from cape.desk.access.links import Links
from cape.desk.access.links import pages as login_pages
from cape.desk.access.people import ROLES, Role
from cape.desk.coordinator import PAGES as OF_COORDINATOR
from cape.desk.page import Page
from cape.desk.site import PAGES as OF_SITE
from cape.site.keyring import fingerprint, public_text
from tests.unit.desk.office import TEXT, Office
from tests.unit.desk.raw import Answer, ask
from tests.unit.desk.visitor import Visitor, desk
from tests.world import SECRET, World

EMPTY: Mapping[str, str] = {}
TEXTS = (
    *("", "x", "lungs", "office", "a" * 64, "0" * 64, "-1", "1e999", "2026", "nan", "true", "\x00"),
    *("\r\nx: y", "../../etc/passwd", "..%2f..", "<script>alert(1)</script>", "{{ 7*7 }}", "' or 1=1 --"),
    *("\ud800", "💥" * 9, "[site]\nname = 1", "a = [" * 400, "age = [18, 90]", "x" * 5000, '{"a": ' * 50),
    *("=cmd()", "%s%n", "é\u202e"),
)
NAMES = (
    *("study", "coordinator", "reason", "how", "question", "text", "hash", "card", "key", "name", "role"),
    *("as", "fingerprint", "csrf", "after", "most", "since", "until", "new.name", "new.value", "kind"),
    *("columns", "by"),
)
METHODS = ("GET", "POST", "POST", "GET", "HEAD", "PUT", "OPTIONS", "G\x00T", "")
HEADERS = (
    *("cookie", "host", "origin", "content-type", "content-length", "x-csrf-token", "hx-request", "accept"),
    *("last-event-id", "range", "if-modified-since", "transfer-encoding", "sec-fetch-site", "forwarded"),
)
TRACES = re.compile(rb"Traceback|File &#34;|\.py[\":, ]|site-packages|jinja2|starlette|0x[0-9a-f]{8}")
FORM = (b"content-type", b"application/x-www-form-urlencoded")


class Fuzz:
    """A source of requests to one desk, by people of every role and by nobody."""

    def __init__(
        self, app: Starlette, pages: tuple[Page, ...], seed: int, known: Mapping[str, str] = EMPTY
    ) -> None:
        self.app, self.draw, self.known = app, random.Random(seed), known
        self.pages = [page for page in pages if not page.stream]
        self.paths = [page.path for page in pages] + [
            "/",
            "/login",
            "/login/link/{x}",
            "/static/desk.css",
            "/logout",
        ]
        self.people = {role: Visitor(app, role) for role in ROLES}

    def one(self) -> Answer:
        """Send one request."""
        draw = self.draw
        page = draw.choice(self.pages)
        if draw.random() < 0.7:
            method, path = page.method, page.path
        else:
            method, path = draw.choice(METHODS), draw.choice(self.paths)
        path = re.sub(r"\{[^}]*\}", lambda _: self.text().replace("/", draw.choice("/_")), path)
        if draw.random() < 0.1:
            path = self.bent(path)
        headers, token = self.headers()
        query = self.encoded() if draw.random() < 0.4 else b""
        body = self.body(token)
        return ask(self.app, method, path, query=query[:5000], headers=headers, body=body)

    def headers(self) -> tuple[list[tuple[bytes, bytes]], str]:
        draw, found, token = self.draw, [FORM] if self.draw.random() < 0.9 else [], ""
        if draw.random() < 0.85:
            person = self.person(draw.choice(ROLES))
            found.append((b"cookie", f"cape-desk={person.cookies['cape-desk']}".encode()))
            token = person.csrf if draw.random() < 0.9 else self.person("viewer").csrf
        for _ in range(draw.choice((0, 0, 0, 0, 0, 0, 1, 3))):
            value = self.text().encode("utf-8", "surrogatepass")[:3000]
            found.append((draw.choice(HEADERS).encode(), bytes(value)))
        return found, token

    def person(self, role: Role) -> Visitor:
        """Return somebody with this role, who logs in again after logging out."""
        if self.app.state.access.sessions.find(self.people[role].cookies["cape-desk"]) is None:
            self.people[role] = Visitor(self.app, role)
        return self.people[role]

    def body(self, token: str) -> bytes:
        draw = self.draw
        if draw.random() < 0.1:
            return draw.randbytes(draw.choice((0, 1, 100, 70_000)))
        return f"csrf={token}&".encode() + self.encoded() if token else self.encoded()

    def encoded(self) -> bytes:
        draw = self.draw
        names = [*NAMES, *self.known, *self.known]
        fields = [(name, self.text(name)) for name in draw.choices(names, k=draw.randrange(10))]
        if draw.random() < 0.1:
            return quote(self.text(), errors="replace").encode()
        return urlencode(fields, errors="replace").encode()

    def text(self, name: str = "") -> str:
        draw = self.draw
        if name in self.known and draw.random() < 0.7:
            return self.known[name]
        if self.known and draw.random() < 0.3:
            return draw.choice(list(self.known.values()))
        if draw.random() < 0.3:
            return "".join(draw.choices(string.printable, k=draw.randrange(40)))
        return draw.choice(TEXTS)

    def bent(self, text: str) -> str:
        place = self.draw.randrange(len(text) + 1)
        return text[:place] + self.text() + text[place + self.draw.randrange(3) :]


def require_harmless(found: Answer) -> None:
    """Fail if an answer is an error of the desk, or shows what nobody may see."""
    assert found.status < 500, (found.status, found.body[:300])
    assert found.headers["content-security-policy"]
    assert not TRACES.search(found.body), TRACES.findall(found.body)
    assert str(SECRET).encode() not in found.body, "a cell"
    assert b"BEGIN PRIVATE" not in found.body


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Starlette, dict[str, str]]]:
    world = World(tmp_path / "w")
    world.edit('approve = "auto"', 'approve = "ask"')
    request = world.request()
    assert world.code(request) == "approval"
    failures: list[str] = []
    app = desk(OF_SITE, tmp_path, world.site, login=login_pages(Links(tmp_path)), log=failures.append)
    card = world.sites["b"].card
    policy = app.state.site("ana").policy()
    yield (
        app,
        {
            "study": request.study_hash,
            "coordinator": "office",
            "text": policy.text,
            "hash": policy.hash,
            "card": card.to_text(),
            "key": public_text(card.key),
            "name": card.name,
            "fingerprint": fingerprint(card.key),
            "as": "coordinator",
            "role": "site",
        },
    )
    assert not failures, failures


def run(fuzz: Fuzz, count: int) -> dict[int, int]:
    """Send requests; return how many had which status."""
    seen: dict[int, int] = {}
    for _ in range(count):
        found = fuzz.one()
        require_harmless(found)
        seen[found.status] = seen.get(found.status, 0) + 1
    return seen


@pytest.mark.parametrize("count", [140, pytest.param(4000, marks=pytest.mark.slow(15))])
def test_no_request_breaks_the_stewards_desk(site: tuple[Starlette, dict[str, str]], count: int):
    app, known = site
    seen = run(Fuzz(app, OF_SITE, count, known), count)
    assert {200, 400, 403} <= seen.keys(), "requests of all kinds were made"


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.slow(4))])
def test_no_request_breaks_the_coordinators_desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int):
    world = World(tmp_path / "w")
    office = Office(world, monkeypatch)
    paths = (os.fspath(tmp_path).encode(), b"/home/", b"site.toml")
    seen = {}
    fuzz = Fuzz(office.app, OF_COORDINATOR, count, {"text": TEXT, "name": "lungs"})
    for _ in range(count):
        found = fuzz.one()
        require_harmless(found)
        assert not any(path in found.body for path in paths), "a path"
        seen[found.status] = True
    assert {200, 403} <= seen.keys()


def test_a_trace_would_be_seen():
    for body in (b"Traceback (most recent call last)", b'File "x.py", line 3', b"<Desk at 0x7f13cef00f50>"):
        with pytest.raises(AssertionError):
            require_harmless(Answer(200, {"content-security-policy": "x"}, body))
    with pytest.raises(AssertionError):
        require_harmless(Answer(500, {"content-security-policy": "x"}, b""))
