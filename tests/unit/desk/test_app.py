"""The application: what every request passes before a handler runs, and what comes out."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from cape.core.errors import CapeError, InvalidInput
from cape.desk.access.guard import POLICY
from cape.desk.access.limits import Buckets, Limits
from cape.desk.access.sessions import Sessions
from cape.desk.app import MOST_BODY
from cape.desk.page import Page, form, render, see
from tests.unit.desk.clock import Clock
from tests.unit.desk.raw import ask
from tests.unit.desk.visitor import HOST, Visitor, desk


def shown(request: Request) -> Response:
    return PlainTextResponse(f"{request.state.person.name} reads")


def decided(request: Request) -> Response:
    sent = form(request)
    if sent.get("wrong"):
        raise InvalidInput("the study must have <b>a name</b>")
    if sent.get("gone"):
        raise CapeError("no daemon answers")
    if sent.get("broken"):
        raise ValueError("a cell: 71.90625")
    return see(request, "/read", said=f"Decided on {sent['study']}.")


PAGES = (
    Page("/read", shown, title="Read"),
    Page("/decide", decided, role="steward", method="POST"),
)


@pytest.fixture
def steward(tmp_path: Path) -> Visitor:
    return Visitor(desk(PAGES, tmp_path), "steward")


def test_a_form_with_the_sessions_token_is_carried_out(steward: Visitor):
    done = steward.submit("/decide", study="heart")
    assert (done.status_code, done.headers["location"]) == (303, "/read")
    assert steward.get("/read").text == "ana reads"


@pytest.mark.parametrize("fields", [{}, {"csrf": ""}, {"csrf": "x" * 43}])
def test_a_form_without_it_is_refused(steward: Visitor, fields: dict[str, str]):
    done = steward.post("/decide", data=fields | {"study": "heart"})
    assert done.status_code == 403
    assert "Nothing was done" in done.text


def test_an_error_is_a_page_with_its_sentence_escaped(steward: Visitor):
    done = steward.submit("/decide", wrong="1")
    assert done.status_code == 400
    assert "The study must have &lt;b&gt;a name&lt;/b&gt;." in done.text
    assert steward.submit("/decide", gone="1").status_code == 409


def test_what_nobody_expected_shows_nothing(steward: Visitor):
    done = steward.submit("/decide", broken="1")
    assert done.status_code == 500
    assert "71" not in done.text
    assert "Traceback" not in done.text
    assert done.headers["content-security-policy"] == POLICY


@pytest.mark.parametrize(
    "host", ["evil.org", "evil.org:8011", "127.0.0.1", "127.0.0.1:8012", "", None, "localhost.evil.org:8011"]
)
@pytest.mark.parametrize("path", ["/read", "/login", "/static/desk.css", "/nothing"])
def test_under_another_name_nothing_is_answered(tmp_path: Path, host: str | None, path: str):
    app = desk(PAGES, tmp_path)
    found = ask(app, "GET", path, host=None if host is None else host.encode())
    assert found.status == 421
    assert ask(app, "GET", path, headers=[(b"host", b"evil.org")]).status == 421, "two names"


@pytest.mark.parametrize("path", ["/read", "/login", "/static/desk.css", "/nothing", "/decide"])
def test_every_answer_has_the_headers(steward: Visitor, path: str):
    found = steward.get(path)
    assert found.headers["content-security-policy"] == POLICY
    assert found.headers["x-frame-options"] == "DENY"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["referrer-policy"] == "same-origin"
    assert found.headers["cache-control"] == ("no-cache" if "static" in path else "no-store")
    assert "strict-transport-security" not in found.headers
    assert "server" not in found.headers


def test_under_tls_browsers_are_told_to_stay_there(tmp_path: Path):
    found = ask(desk(PAGES, tmp_path, secure=True), "GET", "/login")
    assert found.headers["strict-transport-security"] == "max-age=31536000"


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"origin": f"http://{HOST}"}, True),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "same-origin", "origin": "null"}, True),
        ({"origin": "http://evil.org"}, False),
        ({"origin": "null"}, False),
        ({"origin": "http://127.0.0.1:9000"}, False),
        ({"origin": "http://[:::"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "none"}, False),
    ],
)
def test_a_form_of_another_sites_page_is_refused_even_with_the_token(
    steward: Visitor, headers: dict[str, str], allowed: bool
):
    done = steward.post("/decide", data={"csrf": steward.csrf, "study": "heart"}, headers=headers)
    assert done.status_code == (303 if allowed else 403)


def test_a_token_of_another_session_is_refused(tmp_path: Path):
    app = desk(PAGES, tmp_path)
    one, two = Visitor(app, "steward"), Visitor(app, "steward")
    assert one.post("/decide", data={"csrf": two.csrf, "study": "heart"}).status_code == 403
    assert one.post("/decide", data={"study": "heart"}, headers={"x-csrf-token": one.csrf}).status_code == 303


def test_a_form_has_bounds(steward: Visitor):
    assert steward.submit("/decide", study="x" * MOST_BODY).status_code == 413
    many = "&".join(f"f{number}=1" for number in range(3000))
    encoded = {"content-type": "application/x-www-form-urlencoded", "x-csrf-token": steward.csrf}
    assert steward.post("/decide", content=many, headers=encoded).status_code == 400
    assert steward.post("/decide", content="study=%ff", headers=encoded).status_code == 400
    assert steward.post("/decide", content=b"study=\xff", headers=encoded).status_code == 400
    for kind in ("application/json", "text/plain", "multipart/form-data; boundary=x", ""):
        assert (
            steward.post("/decide", content="study=x", headers=encoded | {"content-type": kind}).status_code
            == 415
        )
    assert steward.get("/read?" + "x" * 4000).status_code == 414
    assert steward.get("/read", headers={"x": "y" * 17_000}).status_code == 431


def test_a_body_is_not_read_before_its_sender_is_known(tmp_path: Path):
    app = desk(PAGES, tmp_path)
    assert ask(app, "POST", "/decide", body=b"x" * (MOST_BODY + 1)).status == 401
    viewer = Visitor(app, "viewer")
    assert viewer.submit("/decide", study="x" * (MOST_BODY + 1)).status_code == 403


def test_requests_are_limited_for_each_address_and_for_all(tmp_path: Path):
    few = Limits(Buckets(0.001, 3), Buckets(0.001, 100), Buckets(1, 1))
    found = Visitor(desk(PAGES, tmp_path, limits=few), "viewer")
    assert [found.get("/read").status_code for _ in range(5)] == [200, 200, 200, 429, 429]
    few = Limits(Buckets(0.001, 100), Buckets(0.001, 2), Buckets(1, 1))
    found = Visitor(desk(PAGES, tmp_path, limits=few), "viewer")
    assert [found.get("/read").status_code for _ in range(3)] == [200, 200, 429]


def test_a_session_that_ended_is_sent_to_the_login_and_its_form_is_refused(tmp_path: Path):
    clock = Clock()
    ana = Visitor(desk(PAGES, tmp_path, sessions=Sessions(60, 600, clock)), "steward")
    assert ana.get("/read").status_code == 200
    clock.now += 61
    assert ana.get("/read").headers["location"] == "/login"
    assert ana.submit("/decide", study="heart").status_code == 401
    assert ana.get("/read", headers={"hx-request": "true"}).status_code == 401


def test_what_refreshes_itself_does_not_keep_a_session_open(tmp_path: Path):
    clock = Clock()
    ana = Visitor(desk(PAGES, tmp_path, sessions=Sessions(60, 600, clock)), "steward")
    for _ in range(3):
        clock.now += 25
        found = ana.get("/read", headers={"hx-request": "true"}).status_code
    assert found == 401


def test_logging_out_needs_the_token_and_ends_the_session(steward: Visitor):
    assert steward.post("/logout").status_code in (403, 415)
    assert steward.get("/read").status_code == 200
    done = steward.submit("/logout")
    assert done.headers["location"] == "/login"
    assert steward.get("/read").status_code == 303


def test_streams_are_counted(tmp_path: Path):
    opened = threading.Event()

    def stream(request: Request) -> Response:
        def lines() -> Iterator[str]:
            yield "x"
            opened.wait(10)

        return StreamingResponse(lines())

    app = desk((Page("/events", stream, stream=True),), tmp_path)
    ana = Visitor(app, "viewer")
    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(lambda: ana.get("/events").status_code) for _ in range(8)]
        for _ in range(1000):
            if sum(each.done() for each in found) == 2:
                break
            time.sleep(0.01)
        refused = [each.result() for each in found if each.done()]
        opened.set()
    assert refused == [429, 429]
    assert sorted(each.result() for each in found) == [200] * 6 + [429] * 2
    assert ana.get("/events").status_code == 200, "those that ended are forgotten"


def test_a_stream_ends_with_its_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cape.desk.app._LOOK", 0.01)

    def stream(request: Request) -> Response:
        def lines() -> Iterator[str]:
            for _ in range(1000):
                yield "x"
                time.sleep(0.01)
            yield "end"

        return StreamingResponse(lines())

    app = desk((Page("/events", stream, stream=True), PAGES[0]), tmp_path)
    ana = Visitor(app, "viewer")
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(lambda: ana.get("/events"))
        time.sleep(0.1)
        app.state.access.sessions.end(ana.cookies["cape-desk"])
        text = found.result(10).text
    assert text.startswith("x")
    assert "end" not in text


def test_a_link_on_another_sites_page_is_opened_again_from_here(tmp_path: Path):
    app = desk(PAGES, tmp_path)
    from_elsewhere = Visitor(app).get("/read", headers={"sec-fetch-site": "cross-site"})
    assert from_elsewhere.status_code == 200
    assert 'content="0; url=/read"' in from_elsewhere.text
    assert "logged in" not in from_elsewhere.text
    assert Visitor(app).get("/read", headers={"sec-fetch-site": "same-origin"}).status_code == 303
    assert Visitor(app).post("/decide", headers={"sec-fetch-site": "cross-site"}).status_code == 401


def test_the_navigation_shows_what_a_role_may_see(tmp_path: Path):
    def show(request: Request) -> Response:
        return render(request, "error.html", code=404, sentence="x")

    pages = (Page("/one", show, title="One"), Page("/two", show, role="admin", title="Two"))
    app = desk(pages, tmp_path)
    assert "Two" not in Visitor(app, "viewer").words("/one")
    assert "Two" in Visitor(app, "admin").words("/one")


def test_a_sentence_is_shown_once_on_the_next_page(tmp_path: Path):
    def show(request: Request) -> Response:
        return render(request, "error.html", code=404, sentence="x")

    ana = Visitor(desk((Page("/read", show), PAGES[1]), tmp_path), "steward")
    ana.submit("/decide", study="<heart>")
    assert "Decided on &lt;heart&gt;." in ana.get("/read").text
    assert "Decided" not in ana.get("/read").text
