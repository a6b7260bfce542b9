"""What `cape serve`, `join` and `status` do: imported when they are run, not where options are listed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import typer
from rich.markup import escape
from rich.table import Table

from cape.cli import screen
from cape.core.errors import CapeError, InvalidInput
from cape.core.unix import Client
from cape.flare.kits import require_coordinator, require_flare
from cape.site import wire
from cape.site.apart import require_apart
from cape.site.daemon import link_socket
from cape.site.keyring import fingerprint

__all__ = ["join", "serve", "status"]

_PATIENCE = 10.0  # seconds for the daemon to answer


def serve(kit: Path) -> None:
    """Carry out `cape serve`."""
    require_flare()
    from cape.flare import process

    process.serve(kit, typer.echo)


def join(kit: Path, *, link: Path | None) -> None:
    """Carry out `cape join`."""
    require_flare()
    from cape.flare import process

    name = process.kit_name(kit)
    require_apart(kit, None)
    place = link or link_socket(name)
    typer.echo(_meet(place, name))
    process.join(kit, place, typer.echo)


def _meet(place: Path, name: str) -> str:
    """Return which daemon answers at a socket; raise if it belongs to another site."""
    try:
        with Client(place, timeout=_PATIENCE) as client:
            present = wire.unpack_from_site(client.call(wire.pack(wire.Hello(1))))
    except CapeError as error:
        return f"The site's daemon does not answer yet ({error}); start `cape site serve`. Retrying."
    if not isinstance(present, wire.Present):
        return f"The site's daemon answers, but does not identify itself: {present}"
    if present.name != name:
        raise InvalidInput(f"the kit is for site {name!r}, but the daemon at {place} is {present.name!r}")
    return f"The daemon of site {name} answers at {place}; fingerprint {fingerprint(present.key)}"


def status(kit: Path, *, as_json: bool) -> None:
    """Carry out `cape status`."""
    from cape.coordinator import CoordinatorFolder
    from cape.flare.link import status as ask

    require_coordinator(kit)
    folder = CoordinatorFolder(kit)
    found = ask(kit)
    since = None if found.since is None else datetime.fromtimestamp(found.since, UTC)
    names = sorted({*folder.sites, *found.sites})
    if as_json:
        screen.print_json(
            {
                "aggregator": {"since": None if since is None else since.isoformat(timespec="seconds")},
                "sites": [
                    {"name": name, "connected": name in found.sites, "pinned": name in folder.sites}
                    for name in names
                ],
                "jobs": list(found.jobs),
            }
        )
        return
    console = screen.console()
    running = "" if since is None else f" since {since:%Y-%m-%d %H:%M} UTC"
    console.print(f"The aggregator is up{running}; running studies: {len(found.jobs)}.")
    table = Table(box=None, header_style="bold")
    for header in ("site", "connected", "key pinned"):
        table.add_column(header)
    for name in names:
        connected = "[green]yes[/green]" if name in found.sites else "[red]no[/red]"
        table.add_row(escape(name), connected, "yes" if name in folder.sites else "[yellow]no[/yellow]")
    console.print(table)
