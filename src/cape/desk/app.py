"""The desk as a web application: every request passes the same checks before a handler runs.

Claim. A handler runs only for a person who has logged in and whose role allows it; anything but GET only with
the CSRF token of that person's session, from a page of this desk, and only after a line in the trail of
decisions. No request can make the desk show a stack trace, hold more than `MOST_BODY` bytes, or act for
another site's page.
Reason. Pages are data (`Page`), and `build` alone makes routes of them, so no page can omit a check. Names
that a browser may use for this desk are listed: a page of another name that resolves to this address (DNS
rebinding) gets nothing. What a handler raises becomes a page with a sentence: the text of a `CapeError`, and
no text otherwise.
Tested in tests/unit/desk/test_routes.py (over all routes), test_app.py and test_fuzz.py.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import jinja2
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from cape.core.errors import CapeError, InvalidInput
from cape.desk.access.forged import require_own
from cape.desk.access.guard import Guard
from cape.desk.access.limits import Limits
from cape.desk.access.people import Person
from cape.desk.access.sessions import Session, Sessions
from cape.desk.access.trail import Trail
from cape.desk.page import Page, Reach, form, is_fragment, render

__all__ = ["MOST_BODY", "Access", "build", "enter"]

MOST_BODY = 1 << 22
"""Bytes of a form: the longest policy, URL-encoded."""

_PATIENCE = 20.0  # seconds for a form to arrive
_MOST_STREAMS, _MOST_STREAMS_EACH = 48, 6
_LOOK = 1.0  # seconds between looks whether a session has ended
_THREADS = 96  # for handlers, and for streams, which wait in theirs
_HERE = Path(__file__).parent


@dataclass
class Access:
    """Who may enter, and how.

    Attributes:
        trail: where decisions are written.
        hosts: the names, with ports, that browsers may use for this desk, lower case.
        secure: whether the desk is reached by TLS.
        cookie: the name of the session's cookie.
        login: pages that need no login, such as the one-time link or OIDC.
        entrance: the page to send people to who have not logged in.
        log: called with a line for what went wrong unexpectedly.
    """

    trail: Trail
    hosts: frozenset[str]
    secure: bool = False
    cookie: str = "cape-desk"
    login: tuple[Page, ...] = ()
    entrance: str = "/login"
    sessions: Sessions = field(default_factory=Sessions)
    limits: Limits = field(default_factory=Limits)
    log: Callable[[str], None] = lambda line: None


def build(
    pages: Sequence[Page],
    access: Access,
    *,
    place: str,
    site: Reach | None = None,
    kit: Path | None = None,
) -> Starlette:
    """Return the application.

    Args:
        pages: what is shown; `/` leads to the first one with a title, unless a page has that path.
        access: who may enter.
        place: whose desk it is, for titles: "cleveland".
        site: connects to the site's daemon, for a person's name.
        kit: the coordinator's kit.
    """
    streams = _Streams()
    home = next((page for page in pages if page.title and page.method == "GET"), None)
    routes: list[Route | Mount] = [
        Route("/static/figures.css", _figures),
        Mount("/static", StaticFiles(directory=_HERE / "static"), name="static"),
    ]
    routes += [Route(page.path, _public(page), methods=[page.method]) for page in access.login]
    routes += [Route(page.path, _checked(page, access, streams), methods=[page.method]) for page in pages]
    routes += [
        Route(page.path, _checked(page, access, streams), methods=[page.method])
        for page in _own_pages(access, home, any(each.path == "/" for each in pages))
    ]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
        yield

    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[
            Middleware(Guard, hosts=access.hosts, limits=access.limits, secure=access.secure, log=access.log)
        ],
        exception_handlers={HTTPException: _http_error, CapeError: _cape_error},
    )
    app.router.redirect_slashes = False
    app.state.pages = tuple(pages)
    app.state.access, app.state.place, app.state.site, app.state.kit = access, place, site, kit
    app.state.templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return app


def enter(request: Request, person: Person) -> Response:
    """Begin a session for a person who has just proved who it is.

    The cookie is SameSite=Strict: no request from a page of another site carries it, not even a link. A
    redirect from here would still count as one of the site that led here (a provider of OIDC, a web mail), so
    this is a page of the desk's own that leads on.
    """
    access: Access = request.app.state.access
    access.trail.write(person, "login")
    response = render(request, "enter.html", person=person, to="/")
    response.set_cookie(
        access.cookie,
        access.sessions.begin(person),
        max_age=access.sessions.longest,
        httponly=True,
        secure=access.secure,
        samesite="strict",
        path="/",
    )
    return response


def _own_pages(access: Access, home: Page | None, has_root: bool) -> list[Page]:
    def leave(request: Request) -> Response:
        access.sessions.end(request.cookies.get(access.cookie, ""))
        response = RedirectResponse(access.entrance, status_code=303)
        response.delete_cookie(
            access.cookie, path="/", secure=access.secure, httponly=True, samesite="strict"
        )
        return response

    def go_home(request: Request) -> Response:
        return RedirectResponse(home.path if home is not None else access.entrance, status_code=303)

    found = [Page("/logout", leave, method="POST")]
    if home is not None and not has_root:
        found.append(Page("/", go_home))
    return found


def _figures(request: Request) -> Response:
    """Return the style of tables and figures, which reports use too."""
    return FileResponse(_HERE.parent / "show" / "figures.css", media_type="text/css")


def _public(page: Page) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        return await run_in_threadpool(page.handler, request)

    return answer


def _checked(page: Page, access: Access, streams: _Streams) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        session = _session(request, access, page)
        if session is None:
            return await run_in_threadpool(_outside, request, page, access)
        request.state.session, request.state.person = session, session.person
        if not session.person.may(page.role):
            raise HTTPException(403, f"this needs the role {page.role}; yours is {session.person.role}")
        if page.stream:
            return await _stream(request, page, access, streams)
        if page.method == "GET":
            return await run_in_threadpool(page.handler, request)
        await _read(request)
        require_own(request, session)
        if not page.decides:
            return await run_in_threadpool(page.handler, request)
        return await run_in_threadpool(_decide, request, page, access)

    return answer


def _outside(request: Request, page: Page, access: Access) -> Response:
    """Send somebody without a session to the login.

    A link on another site's page, such as a notice in a web mail, comes without the cookie, even if there is
    a
    session: it is opened again from here, once.
    """
    if page.method != "GET" or is_fragment(request):
        raise HTTPException(401, "log in first: your session has ended")
    path = request.url.path
    if request.headers.get("sec-fetch-site") == "cross-site" and not path.startswith("//"):
        return render(request, "enter.html", to=path)
    return RedirectResponse(access.entrance, status_code=303)


def _decide(request: Request, page: Page, access: Access) -> Response:
    """Run a handler between two lines of the trail."""
    person: Person = request.state.person
    what = f"{request.method} {request.url.path[:300]}"
    number = access.trail.write(person, what, form(request))
    outcome = "failed"
    try:
        response = page.handler(request)
        outcome = "done" if response.status_code < 400 else "refused"
        return response
    except CapeError:
        outcome = "refused"
        raise
    finally:
        try:
            access.trail.write(person, what, of=number, outcome=outcome)
        except CapeError:  # it was carried out, or not, as the first line and the daemon's log say
            access.log(f"the outcome of line {number} of the trail could not be written: {outcome}")


def _session(request: Request, access: Access, page: Page) -> Session | None:
    """Return the session; a stream, or a part that refreshes itself, does not renew it."""
    token = request.cookies.get(access.cookie)
    if not token:
        return None
    by_itself = page.stream or (page.method == "GET" and is_fragment(request))
    return access.sessions.find(token, renew=not by_itself)


async def _read(request: Request) -> None:
    """Read a form, in bounded space and time."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "a form must be sent as application/x-www-form-urlencoded")
    body = bytearray()
    try:
        async with asyncio.timeout(_PATIENCE):
            async for part in request.stream():
                body += part
                if len(body) > MOST_BODY:
                    raise HTTPException(413, f"a form may have at most {MOST_BODY >> 20} MB")
    except TimeoutError:
        raise HTTPException(408, "the form did not arrive in time") from None
    except ClientDisconnect:
        raise HTTPException(400, "the form did not arrive whole") from None
    request.state.body = bytes(body)


async def _stream(request: Request, page: Page, access: Access, streams: _Streams) -> Response:
    """Run a handler whose answer lasts, and count it until it ends; it ends with the session."""
    name = request.state.person.name
    if not streams.open(name):
        raise HTTPException(429, "too many pages of this desk are open; close some")

    def over() -> bool:
        return _session(request, access, page) is None

    try:
        return _Lasting(await run_in_threadpool(page.handler, request), over, lambda: streams.close(name))
    except BaseException:
        streams.close(name)
        raise


class _Streams:
    """How many streams are open, of each person and of all."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._lock = threading.Lock()

    def open(self, name: str) -> bool:
        with self._lock:
            if self._open.total() >= _MOST_STREAMS or self._open[name] >= _MOST_STREAMS_EACH:
                return False
            self._open[name] += 1
            return True

    def close(self, name: str) -> None:
        with self._lock:
            self._open[name] -= 1
            self._open += Counter()  # forgets names without a stream


class _Lasting(Response):
    """A response that ends when `over` says so, and says when it has `ended`."""

    def __init__(self, inner: Response, over: Callable[[], bool], ended: Callable[[], None]) -> None:
        self._inner, self._over, self._ended = inner, over, ended
        self.status_code, self.background = inner.status_code, None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with anyio.create_task_group() as both:
                both.start_soon(self._watch, both.cancel_scope)
                await self._inner(scope, receive, send)
                both.cancel_scope.cancel()
        finally:
            self._ended()
        if self._over():
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _watch(self, scope: anyio.CancelScope) -> None:
        while not self._over():
            await anyio.sleep(_LOOK)
        scope.cancel()


def _error(request: Request, status: int, sentence: str) -> Response:
    return render(request, "error.html", status, code=status, sentence=sentence)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentence = {404: "there is no such page", 405: "this page cannot be sent a form"}.get(
        error.status_code, str(error.detail)
    )
    return await run_in_threadpool(_error, request, error.status_code, sentence)


async def _cape_error(request: Request, error: Exception) -> Response:
    return await run_in_threadpool(
        _error, request, 400 if isinstance(error, InvalidInput) else 409, str(error)
    )
