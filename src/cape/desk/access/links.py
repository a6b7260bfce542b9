"""Links that log a person in once: the one that `cape desk` prints, and those that `cape desk link` makes.

Claim. A link works once, for a few minutes, at this desk only; only the desk's user and root can make one.
Reason. Its token has 256 random bits. The desk's state folder, which nobody else can enter, holds a file
named after the token's hash, with the person and the time until which it counts. Entering removes the file
first: of two who try at the same time, the file system lets one. Attempts with a wrong token are limited.
Tested in tests/desk/test_links.py.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from cape.desk.access.people import ROLES, Person, require_name
from cape.desk.app import Access, enter
from cape.desk.page import Page, render
from cape.errors import InvalidInput
from cape.files import give_to_owner

__all__ = ["LASTS", "Links", "pages"]

LASTS = 15 * 60
"""Seconds for which a link can be used."""
_PATH = "/login/link/"


class Links:
    """The links of a desk that nobody has used.

    >>> links = Links(state)
    >>> links.make(Person("ana", "steward"))
    '/login/link/...'
    """

    def __init__(self, state: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._clock = state / "links", clock
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise InvalidInput(f"{self._folder} cannot be made: {error.strerror}") from None

    def make(self, person: Person) -> str:
        """Return the path of a new link."""
        self._sweep()
        require_name(person.name)
        token = secrets.token_urlsafe(32)
        told = {"name": person.name, "role": person.role, "until": self._clock() + LASTS}
        beside = self._folder / f"{secrets.token_hex(8)}.new"
        handle = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(told, file)
        give_to_owner(beside)  # of the folder, if root makes the link: the desk must be able to read it
        os.replace(beside, self._file(token))
        return _PATH + token

    def take(self, token: str) -> Person | None:
        """Return the person of a link and use it up; None if there is no such link, or no more."""
        path = self._file(token)
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            path.unlink()  # one of two at the same time fails here
            person = Person(told["name"], told["role"])
            if person.role in ROLES and self._clock() < told["until"]:
                return person
        except (OSError, ValueError, LookupError, TypeError):
            pass
        return None

    def _file(self, token: str) -> Path:
        return self._folder / f"{sha256(token.encode('utf-8', 'surrogatepass')).hexdigest()}.json"

    def _sweep(self) -> None:
        """Remove links that nobody used in time."""
        for path in self._folder.iterdir():
            try:
                if path.stat().st_mtime < self._clock() - LASTS:
                    path.unlink()
            except OSError:  # somebody has just entered
                pass


def pages(links: Links) -> tuple[Page, ...]:
    """Return the pages of those who have not logged in."""

    def login(request: Request) -> Response:
        return render(request, "login.html", provider=None)

    def follow(request: Request) -> Response:
        access: Access = request.app.state.access
        address = request.client.host if request.client is not None else ""
        if not access.limits.logins.take(address):
            raise HTTPException(429, "too many attempts to log in; wait a minute")
        person = links.take(request.path_params["token"])
        if person is None:
            raise HTTPException(
                403,
                "this link was used, is too old, or was never made; make another one with `cape desk link`",
            )
        return enter(request, person)

    return Page("/login", login), Page(_PATH + "{token}", follow)
