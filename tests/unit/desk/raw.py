"""Requests as bytes, past every client that would correct them: straight into the application."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette

from tests.unit.desk.visitor import HOST, PORTALS

Header = tuple[bytes, bytes]


@dataclass(frozen=True)
class Answer:
    """What came back; a stream is left after its first part."""

    status: int
    headers: dict[str, str]
    body: bytes


def ask(
    app: Starlette,
    method: str,
    path: str,
    *,
    query: bytes = b"",
    headers: Sequence[Header] = (),
    body: bytes = b"",
    host: bytes | None = HOST.encode(),
) -> Answer:
    """Send one request."""
    path = path.encode("utf-8", "replace").decode()  # as a server reads it: never half of a sign
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "root_path": "",
        "headers": [*([(b"host", host)] if host is not None else []), *headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8011),
        "state": {},
    }
    return PORTALS[0].call(_ask, app, scope, body)


async def _ask(app: Starlette, scope: dict[str, Any], body: bytes) -> Answer:
    answered: list[dict[str, Any]] = []
    parts, gone = [body[i : i + 1 << 16] for i in range(0, len(body), 1 << 16)] or [b""], asyncio.Event()
    given = iter(parts)

    async def receive() -> dict[str, Any]:
        part = next(given, None)
        if part is not None:
            return {"type": "http.request", "body": part, "more_body": part is not parts[-1]}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        answered.append(message)
        if message["type"] == "http.response.body":
            gone.set()

    await app(scope, receive, send)
    start = answered[0]
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in start["headers"]}
    return Answer(start["status"], headers, b"".join(each.get("body", b"") for each in answered[1:]))
