"""Where the secret of a connection is kept: in the environment, or in a file that nobody else may read.

Claim. A connection's secret is in no error, log or representation, and not in a study file.
Reason. A study says `env:NAME` or `file:PATH`; what stands there is read when the database is opened, and
given to its driver alone. Errors of drivers are dropped but for their types (`cape.data.databases.reader`).
A file that others may read is refused. An address of a file is named without user and query string, where
tokens and signatures stand (`nameable`).
Tested in tests/unit/data/databases/test_connections.py.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from cape.core import check
from cape.core.errors import DataError

__all__ = ["has_password", "nameable", "resolved"]

_SECRETS = ("password", "passwd", "pwd", "passfile", "sslpassword", "token")
_MOST_BYTES = 10_000


def has_password(uri: str) -> bool:
    """Return whether a URI holds a secret."""
    try:
        parts = urlsplit(uri)
        return bool(parts.password) or any(key.lower() in _SECRETS for key, _ in parse_qsl(parts.query))
    except ValueError:  # brackets that do not fit
        return "@" in uri


def nameable(path: str) -> str:
    """Return a path as people may see it; an address loses user, password, query string and fragment."""
    scheme, mark, rest = path.partition("://")
    if not mark:
        return path
    place = re.split(r"[?#]", rest, maxsplit=1)[0]
    if "@" in rest[len(place) :]:  # a password with such a sign, or a query with an @
        return f"{scheme}://..."
    cut = "?..." if len(place) < len(rest) else ""
    return f"{scheme}://{place.rpartition('@')[2]}{cut}"


def resolved(site: str, connection: str) -> str:
    """Return the URI that `env:NAME` or `file:PATH` stands for; any other is one itself."""
    kind, _, name = connection.partition(":")
    if kind == "env":
        found = os.environ.get(name)
        if not found:
            raise DataError(site, f"the environment variable {check.show(name)} is not set; it holds the URI")
    elif kind == "file" and not name.startswith("//"):
        found = _secret(site, Path(name).expanduser())
    else:
        return connection
    if found.partition(":")[0] in ("env", "file"):
        raise DataError(site, "the connection's secret must be a URI such as postgresql://user@host/database")
    return found


def _secret(site: str, path: Path) -> str:
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_IMODE(mode) & 0o077:
                raise DataError(site, f"others may read {str(path)!r}; chmod 600 it, and change the password")
            return file.read(_MOST_BYTES).decode().strip()
    except (OSError, ValueError) as error:
        kind = type(error).__name__
    raise DataError(site, f"{check.show(str(path), 300)} could not be read ({kind}); it holds the URI")
