"""What `cape site serve` does: imported when it is run, and not where options are listed."""

from __future__ import annotations

import contextlib
import os
import pwd
import resource
import signal
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path

import typer

from cape.core.errors import CapeError, InvalidInput
from cape.site import admin as desks
from cape.site.daemon import Daemon, link_socket, make_place
from cape.site.decide.policy import Policy
from cape.site.folder import SiteFolder
from cape.site.keyring import fingerprint

__all__ = ["serve"]


def serve(
    folder: Path,
    *,
    link: Path | None,
    admin: Path | None,
    steward: list[str] | None,
    desk: str | None,
    link_may_read_rows: bool,
) -> None:
    """Carry out `cape site serve`."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no rows in a core file
    here = SiteFolder(folder)
    if os.geteuid() == 0 and here.path.stat().st_uid != 0:
        raise InvalidInput(
            f"{here.path} belongs to another user, who could lead root to any file; run this as that user"
        )
    policy = here.policy
    here.ledger.spent()  # finds an unusable ledger now, and not at the first study
    _warn(here, policy)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    place = link or link_socket(policy.name)
    stewards = frozenset(_user_id("--steward", each) for each in steward or ())
    of_desk = None if desk is None else _user_id("--desk", desk)
    deciding = stewards if of_desk is None else stewards | {of_desk}
    daemon = Daemon(here, place, stewards=deciding, link_may_read_rows=link_may_read_rows, say=typer.echo)
    if admin is not None:
        make_place(admin)
    socket = admin or here.path / desks.SOCKET
    server = desks.serve(socket, here, stewards, desk=of_desk, linked=lambda: daemon.connected)
    with daemon, server:
        threading.Thread(target=_begin, args=(socket,), name="cape-begin", daemon=True).start()
        typer.echo(f"Site {policy.name} waits for its link at {place}; Ctrl-C stops it.")
        typer.echo(f"Fingerprint of this site's key: {fingerprint(here.identity.public)}")
        stop.wait()
    typer.echo("Stopped.")


def _begin(socket: Path) -> None:
    """Ask the desk once, as a steward would: events begin now, and a long ledger is read in good time."""
    with contextlib.suppress(CapeError), desks.Client(socket) as desk:
        desk.status()


def _warn(here: SiteFolder, policy: Policy) -> None:
    """Warn of what prevents the site from answering, and of what weakens it."""
    if not policy.coordinators:
        _say(
            "the policy trusts no coordinator yet, so nothing is answered; see `cape site trust FILE "
            "--coordinator`"
        )
    if policy.expires < datetime.now(UTC).date():
        _say(f"the policy expired on {policy.expires}, so nothing is answered")
    for path in policy.data.where:
        if _world_readable(path):
            _say(f"every user of this machine can read {path}, and so can the link; run: chmod o-r {path}")
    try:
        here.table(policy).check()
    except CapeError as error:  # found now, and not after other sites have paid
        _say(f"the table cannot be used: {error}")


def _world_readable(name: str) -> bool:
    """Return whether every user of the machine can read a file; False if there is no such file."""
    try:
        path = Path(name).resolve(strict=True)
        modes = [os.stat(each).st_mode for each in (path, *path.parents)]
    except (OSError, ValueError):
        return False
    return bool(modes[0] & stat.S_IROTH) and all(mode & stat.S_IXOTH for mode in modes[1:])


def _say(line: str) -> None:
    typer.echo(f"cape: warning: {line}", err=True)


def _user_id(option: str, name: str) -> int:
    """Return the number of a user, given by name or number."""
    try:
        return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise InvalidInput(f"{option}: there is no user {name!r} on this machine") from None
