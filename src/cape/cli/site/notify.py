"""`cape site notify`: sends notices of what happens at a site."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import typer

from cape.cli.site.reach import Folder, Socket, reach
from cape.core.errors import InvalidInput
from cape.site.admin import Client, Desk

__all__ = ["notify"]


def notify(folder: Folder = None, socket: Socket = None) -> None:
    """Send notices of what happens at a site, as \\[notify] in site.toml says, until Ctrl-C.

    It asks the site's daemon, which has no network, over the administrative socket; run it as a steward. A
    notice names the site, the study and who asks, and contains nothing of the data.

    Example: [bold]cape site notify --site our-site[/bold]
    """
    from cape.site.admin.notices import Notifier

    with reach(folder, socket) as desk:
        _require_own(desk, folder or Path())
        ways = desk.notify().ways
        name = desk.mine().name
    if not ways:
        raise InvalidInput("site.toml says no way to send notices; write one in [notify]")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    typer.echo(f"Notices of site {name} go out by {', '.join(ways)}; Ctrl-C stops it.")
    Notifier(lambda: reach(folder, socket), typer.echo).follow(stop)
    typer.echo("Stopped.")


def _require_own(desk: Desk | Client, folder: Path) -> None:
    """Raise if root would run a command that another user has written."""
    owner = desk.owner if isinstance(desk, Client) else folder.stat().st_uid
    if os.getuid() == 0 and owner not in (None, 0) and desk.notify().command is not None:
        raise InvalidInput(
            "[notify] names a command that the site's own user chose, and root would run it; start "
            "`cape site notify` as a steward"
        )
