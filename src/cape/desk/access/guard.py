"""What every request and response passes, whatever its route: names of the desk, limits, headers.

Claim. A request under a name that is not this desk's is refused before anything else is looked at. No page of
the desk can run a script or load anything of another origin, be framed, be kept in a cache, or pass its
address on.
Reason. Names are compared whole, with the port. The headers are set on every response here, the only way out;
a response may bring a stricter policy of its own, for a document that is shown in a sandbox.
Tested in tests/unit/desk/test_app.py and test_routes.py.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cape.desk.access.limits import Limits
from cape.site.decide.grant import story

__all__ = ["POLICY", "Guard"]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "cache-control": "no-store",
}
_TLS = {"strict-transport-security": "max-age=31536000"}
_MOST_TARGET = 4000  # bytes of a path and its query
_MOST_HEADERS = 1 << 14


class Guard:
    """The outermost layer of the application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: frozenset[str],
        limits: Limits,
        secure: bool,
        log: Callable[[str], None],
    ) -> None:
        self._app, self._hosts, self._limits, self._log = app, hosts, limits, log
        self._headers = _HEADERS | (_TLS if secure else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # a web socket: the desk has none
            await send({"type": "websocket.close", "code": 1008})
            return

        began = False

        async def out(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                self._dress(scope, message)
            await send(message)

        answer = self._refusal(scope) or self._app
        try:
            await answer(scope, receive, out)
        except Exception as error:  # its text may quote anything, so only its kind and place are kept
            self._log(f"a request failed: {story(error)}")
            if not began:
                await _say(500, "Something went wrong; the desk's log says where.")(scope, receive, out)

    def _dress(self, scope: Scope, message: Message) -> None:
        headers = MutableHeaders(raw=message.setdefault("headers", []))
        for name, value in self._headers.items():
            headers.setdefault(name, value)
        if scope["path"].startswith("/static/"):
            headers["cache-control"] = "no-cache"  # kept, and asked for again: it may change with the version

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        if [host.lower() for host in headers.getlist("host")] not in [[host] for host in self._hosts]:
            return _say(421, "This is not the address of this desk; use the one that it printed.")
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > _MOST_TARGET:
            return _say(414, "The address is too long.")
        if sum(len(name) + len(value) for name, value in scope["headers"]) > _MOST_HEADERS:
            return _say(431, "The headers are too long.")
        address = (scope.get("client") or ("", 0))[0]
        if not (self._limits.all.take() and self._limits.each.take(address)):
            return _say(429, "Too many requests; wait a few seconds.")
        return None


def _say(status: int, sentence: str) -> PlainTextResponse:
    return PlainTextResponse(sentence + "\n", status_code=status)
