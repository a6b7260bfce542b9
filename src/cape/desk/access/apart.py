"""Keeps the desk away from the rows: it runs as a user who can read neither them nor the site's key.

Claim. `cape desk` starts only as a user other than root and the daemon's own, who cannot read the site's key,
its ledger or the files of its rows, as far as this process can find them; `--desk-may-read-rows` overrides
that.
Reason. The kernel says which user runs the daemon at the other end of the socket; the daemon says which files
hold rows, patterns and databases included, and whether one can be read is tried. The desk takes requests from
a browser, so a flaw in it must not reach what the daemon alone holds.
Tested in tests/unit/desk/test_apart.py.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from cape.core import unix
from cape.core.errors import CapeError, InvalidInput
from cape.site.admin import Client
from cape.site.folder import KEY, LEDGER

__all__ = ["require_no_rows"]

_INSTEAD = (
    "run `cape desk` as a user of its own, whom `cape site serve --desk USER` names; or, for a rehearsal on "
    "one machine, give --desk-may-read-rows"
)


def require_no_rows(path: Path) -> None:
    """Raise if this process could read rows, key or ledger of the site at a socket."""
    own, its_user = os.geteuid(), _user(path)
    if own == 0:
        raise InvalidInput(f"the desk runs as root, who can read the site's rows and key; {_INSTEAD}")
    if its_user is None or own == its_user:
        raise InvalidInput(f"the desk runs as the daemon's own user, who can read rows and key; {_INSTEAD}")
    for each in (path.parent / KEY, path.parent / LEDGER, *_rows(path)):
        if os.access(each, os.R_OK):
            raise InvalidInput(f"the desk's user can read {each}, which only the daemon may; {_INSTEAD}")


def _user(path: Path) -> int | None:
    """Return the user who listens at a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(os.fspath(path))
        except OSError as error:
            why = error.strerror or error
            raise CapeError(f"no process answers at the socket {str(path)!r}: {why}") from None
        return unix.peer_of(connection).uid


def _rows(path: Path) -> list[Path]:
    """Return the files of rows, as the daemon finds them."""
    try:
        with Client(path) as desk:
            return [Path(each) for each in desk.row_files()]
    except CapeError:  # a policy that cannot be read names nothing, and nothing is answered
        return []
