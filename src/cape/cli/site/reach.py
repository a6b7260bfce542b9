"""How a steward's command reaches a site: through its daemon's socket, or its folder if no daemon runs."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cape.core.errors import CapeError, InvalidInput
from cape.core.files import as_owner
from cape.site.admin import SOCKET, Client, Desk
from cape.site.folder import SiteFolder
from cape.site.persons import Person

__all__ = ["Asker", "Folder", "Socket", "reach"]

_VARIABLE = "CAPE_ADMIN"

Folder = Annotated[
    Path | None,
    typer.Option("--site", metavar="DIR", help="The site's folder; by default this one.", show_default=False),
]
Socket = Annotated[
    Path | None,
    typer.Option(
        "--socket",
        metavar="PATH",
        help=f"The administrative socket of the site's daemon; by default {_VARIABLE}.",
        show_default=False,
    ),
]
Asker = Annotated[
    str | None,
    typer.Option(
        "--coordinator", metavar="NAME", help="The coordinator, if several ask the same.", show_default=False
    ),
]


@contextmanager
def reach(folder: Path | None, socket: Path | None) -> Iterator[Desk | Client]:
    """Return the desk of a site, for a `with` statement.

    In the folder of another user, root works with that user's rights, under the name of root.
    """
    found = _client(folder, socket)
    if found is not None:
        with found:
            yield found
        return
    here, person = folder or Path(), Person.of_user(os.geteuid())
    with as_owner(here):
        yield Desk(SiteFolder(here), person=person)


def _client(folder: Path | None, socket: Path | None) -> Client | None:
    """Return a connection to the site's daemon; None if none runs."""
    if folder is not None and socket is not None:
        raise InvalidInput("give --site or --socket, not both")
    if folder is None and socket is None and os.environ.get(_VARIABLE):
        socket = Path(os.environ[_VARIABLE])
    if socket is not None:
        return Client(socket)
    here = SiteFolder(folder or Path())
    if _is_socket(here.path / SOCKET):
        try:
            return Client(here.path / SOCKET)
        except CapeError:  # left behind by a daemon that is gone
            pass
    return None


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return False
