"""Links that log a person in once: the one that `cape desk` prints, and those that `cape desk link` makes.

Claim. A link works once, for a few minutes, at this desk only; only the desk's user and root can make one.
Reason. Its token has 256 random bits. The desk's state folder, which nobody else can enter, holds a file
named after the token's hash, with the person and the time until which it counts. Entering removes the file
first: of two who try at the same time, the file system lets one. Attempts with a wrong token are limited.
The folder of links is opened once for what is done in it, must belong to whoever does it, and is no symbolic
link; only files that are named like links are removed. `cape desk link`, run by root, works with the rights
of the desk's user (`cape.core.files.as_owner`): that user could lead root anywhere.
Tested in tests/unit/desk/test_links.py.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from cape.core.errors import InvalidInput
from cape.desk.access.people import ROLES, Person, require_name
from cape.desk.app import Access, enter
from cape.desk.page import Page, render

__all__ = ["LASTS", "Links", "pages"]

LASTS = 15 * 60
"""Seconds for which a link can be used."""
_PATH = "/login/link/"
_OWN = re.compile(r"[0-9a-f]{64}\.json|[0-9a-f]{16}\.new")


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
        require_name(person.name)
        token = secrets.token_urlsafe(32)
        told = {"name": person.name, "role": person.role, "until": self._clock() + LASTS}
        with self._opened() as folder:
            self._sweep(folder)
            beside = f"{secrets.token_hex(8)}.new"
            handle = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600, dir_fd=folder)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(told, file)
            os.replace(beside, _name(token), src_dir_fd=folder, dst_dir_fd=folder)
        return _PATH + token

    def take(self, token: str) -> Person | None:
        """Return the person of a link and use it up; None if there is no such link, or no more."""
        name = _name(token)
        try:
            with self._opened() as folder:
                handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
                with os.fdopen(handle, encoding="utf-8") as file:
                    told = json.load(file)
                os.unlink(name, dir_fd=folder)  # one of two at the same time fails here
            person = Person(told["name"], told["role"])
            if person.role in ROLES and self._clock() < told["until"]:
                return person
        except (OSError, ValueError, LookupError, TypeError):
            pass
        return None

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the folder, if it is one, belongs to this user, and nobody else can enter it."""
        try:
            handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            raise InvalidInput(f"{self._folder} cannot be opened: {error.strerror}; remove it") from None
        try:
            found = os.fstat(handle)
            if found.st_uid != os.geteuid() or found.st_mode & 0o077:
                raise InvalidInput(
                    f"{self._folder} must belong to the desk's user, and to nobody else; remove it, and make "
                    "links as that user"
                )
            yield handle
        finally:
            os.close(handle)

    def _sweep(self, folder: int) -> None:
        """Remove links that nobody used in time, and nothing else."""
        for name in filter(_OWN.fullmatch, os.listdir(folder)):
            with suppress(OSError):  # somebody has just entered
                if os.lstat(name, dir_fd=folder).st_mtime < self._clock() - LASTS:
                    os.unlink(name, dir_fd=folder)


def _name(token: str) -> str:
    return f"{sha256(token.encode('utf-8', 'surrogatepass')).hexdigest()}.json"


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
