"""A desk in this process, and somebody who visits it: `visitor(desk(PAGES, site), "steward").submit(path,
...)`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import httpx2 as httpx
from anyio.from_thread import BlockingPortal
from starlette.applications import Starlette
from starlette.testclient import TestClient

from cape.desk.access.limits import Buckets, Limits
from cape.desk.access.people import Person, Role
from cape.desk.access.trail import Trail
from cape.desk.app import Access, build
from cape.desk.page import Page
from cape.site import SiteFolder
from cape.site.admin import Desk

HOST = "127.0.0.1:8011"
PORTALS: list[BlockingPortal] = []  # the event loop of this session, if there is one


def unlimited() -> Limits:
    return Limits(Buckets(1e9, 1e9), Buckets(1e9, 1e9), Buckets(1e9, 1e9))


def desk(pages: Sequence[Page], state: Path, folder: SiteFolder | None = None, **more: Any) -> Starlette:
    """The application over a site's folder, without its daemon; `more` is of `Access`, or the kit."""
    kit = more.pop("kit", None)
    told = {"limits": unlimited(), "hosts": frozenset({HOST}), "log": print} | more
    access = Access(Trail(state / "trail.jsonl"), **told)
    reach = None if folder is None else cache(lambda person: Desk(folder, person=person))
    return build(pages, access, place="a", site=reach, kit=kit)


class Visitor(TestClient):
    """A browser with a session of its own, if it has a role."""

    def __init__(self, app: Starlette, role: Role | None = None, name: str = "ana") -> None:
        super().__init__(
            app, base_url=f"http://{HOST}", raise_server_exceptions=False, follow_redirects=False
        )
        self.portal = PORTALS[0] if PORTALS else None
        self.csrf = ""
        if role is not None:
            access: Access = app.state.access
            token = access.sessions.begin(Person(name, role))
            session = access.sessions.find(token)
            assert session is not None
            self.csrf = session.csrf
            self.cookies.set(access.cookie, token)

    def submit(self, path: str, **fields: str) -> httpx.Response:
        """Send a form with the token of this session."""
        return self.post(path, data={"csrf": self.csrf} | fields)

    def words(self, path: str) -> str:
        """Return the words of a page, without tags; fail unless it is shown."""
        found = self.get(path, follow_redirects=True)
        assert found.status_code == 200, (found.status_code, found.text)
        return " ".join(re.sub(r"<[^>]*>", " ", found.text).split())
