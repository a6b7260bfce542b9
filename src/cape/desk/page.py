"""What a page of the desk is, and what its handler uses.

    PAGES = (
        Page("/ledger", show_ledger, title="Ledger"),
        Page("/inbox/approve", approve, role="steward", method="POST"),
    )

    def approve(request: Request) -> Response:
        asked = form(request)
        with site(request) as desk:
            done = desk.approve(asked.get("study", ""))
        return see(request, "/inbox", said=f"Approved: {done.study.study}.")

A handler is a plain function; `cape.desk.app` runs it in a thread, after it has checked the session, the
role, and for anything but GET the CSRF token. It may raise `CapeError`: its text becomes a page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import parse_qsl

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from cape.core.errors import InvalidInput
from cape.desk.access.people import Person, Role
from cape.site.admin import Client, Desk

__all__ = ["Form", "Handler", "Page", "Reach", "form", "is_fragment", "render", "see", "site"]

Handler = Callable[[Request], Response]
Reach = Callable[[str], AbstractContextManager[Client | Desk]]
"""Connects to the site's daemon on behalf of the person of this name."""

_MOST_FIELDS = 2000


@dataclass(frozen=True)
class Page:
    """One page, or one form that is sent.

    Attributes:
        path: as Starlette reads it: `/study/{hash}`.
        handler: returns the response.
        role: the least role that may ask for it.
        method: GET only reads. Whatever decides or changes anything is POST: it needs the CSRF token, and
            leaves a line in the trail of decisions.
        title: its name in the navigation; empty if it is not there.
        stream: server-sent events. Open streams are counted, and do not keep a session from timing out.
        decides: False for a form that changes nothing, such as one that is planned while it is written: it
            leaves no line in the trail.
    """

    path: str
    handler: Handler
    role: Role = "viewer"
    method: Literal["GET", "POST"] = "GET"
    title: str = ""
    stream: bool = False
    decides: bool = True


class Form(Mapping[str, str]):
    """The fields of a form that was sent: the last value of each name, or `all` of them."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self._fields = fields
        self._last = dict(fields)

    def __getitem__(self, name: str) -> str:
        return self._last[name]

    def __iter__(self) -> Any:
        return iter(self._last)

    def __len__(self) -> int:
        return len(self._last)

    def all(self, name: str) -> list[str]:
        """Return every value of a name, as of checkboxes."""
        return [value for key, value in self._fields if key == name]


def form(request: Request) -> Form:
    """Return the fields that were sent; text of several lines has plain line feeds."""
    try:
        text = request.state.body.decode("ascii")
        fields = parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError:
        raise InvalidInput(
            f"the form cannot be read: it must be URL-encoded UTF-8 of at most {_MOST_FIELDS} fields"
        ) from None
    return Form([(name, value.replace("\r\n", "\n")) for name, value in fields])


def site(request: Request) -> AbstractContextManager[Client | Desk]:
    """Return the site's desk, for a `with` statement; the daemon is told who asks."""
    person: Person = request.state.person
    reach: Reach = request.app.state.site
    return reach(person.name)


def render(request: Request, template: str, status: int = 200, **context: Any) -> HTMLResponse:
    """Return a page made of a template.

    Besides the context, a template has `person` (None before login), `csrf()` (the hidden field of a form),
    `csrf_token`, `nav` (title, path and whether it is shown now), `said` (sentences of the last decision),
    `place` (whose desk it is) and `path`.
    """
    session = getattr(request.state, "session", None)
    token = session.csrf if session is not None else ""
    said = session.take_said() if session is not None and not is_fragment(request) else []
    person: Person | None = getattr(request.state, "person", None)
    told = {
        "person": person,
        "csrf": lambda: Markup('<input type="hidden" name="csrf" value="{}">').format(token),
        "csrf_token": token,
        "nav": _nav(request) if person is not None else [],
        "said": said,
        "place": request.app.state.place,
        "path": request.url.path,
    }
    text = request.app.state.templates.get_template(template).render(told | context)
    return HTMLResponse(text, status_code=status)


def see(request: Request, path: str, said: str = "") -> Response:
    """Send the browser to a page after a decision; the page says the sentence."""
    if said:
        request.state.session.say(said)
    return RedirectResponse(path, status_code=303)


def is_fragment(request: Request) -> bool:
    """Return whether htmx asks, to refresh a part of a page."""
    return request.headers.get("hx-request") == "true"


def _nav(request: Request) -> list[dict[str, Any]]:
    here = request.url.path
    pages: tuple[Page, ...] = request.app.state.pages
    return [
        {
            "title": page.title,
            "path": page.path,
            "current": here == page.path or (page.path != "/" and here.startswith(f"{page.path}/")),
        }
        for page in pages
        if page.title and request.state.person.may(page.role)
    ]
