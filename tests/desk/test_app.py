"""The application: what every request passes before a handler runs, and what comes out."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from cape.desk.access.guard import POLICY
from cape.desk.page import Page, form, see
from cape.errors import CapeError, InvalidInput
from tests.desk.visitor import Visitor, desk


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
