"""What `cape desk` does: imported when it is run, and not where options are listed."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from pathlib import Path

import typer

from cape.app import words
from cape.cli import screen
from cape.cli.desk import VARIABLE
from cape.core import check
from cape.core.errors import InvalidInput, MissingExtra
from cape.core.files import as_owner
from cape.site.admin import SOCKET

__all__ = ["link", "serve", "trail"]

_EXTRA = ("starlette", "uvicorn", "jinja2", "tomlkit")
_OF_OIDC = ("authlib", "httpx2", "joserfc")


def serve(
    folder: Path | None,
    *,
    socket: Path | None,
    coordinator: bool,
    kit: Path | None,
    host: str,
    port: int,
    cert: Path | None,
    key: Path | None,
    url: str | None,
    oidc: Path | None,
    idle: int,
    state: Path | None,
    work: Path | None,
    notices: bool,
    desk_may_read_rows: bool,
) -> None:
    """Carry out `cape desk`."""
    _require(_EXTRA + (_OF_OIDC if oidc is not None else ()))
    if (coordinator or kit is not None) and (not coordinator or kit is None or folder or socket or notices):
        raise InvalidInput(
            "a coordinator's desk needs --coordinator and --kit, and takes nothing of a site's"
        )
    from cape.desk import start
    from cape.desk.server import Address

    address = Address(host, port, cert, key, url)
    address.check()
    if kit is not None:
        place = start.of_coordinator(kit)
    else:
        place = start.of_site(_socket(folder, socket), may_read_rows=desk_may_read_rows)
        if desk_may_read_rows:
            typer.echo("cape: warning: the desk may read the site's rows and key: for rehearsals", err=True)
    home = state or _default_root() / re.sub(r"[^A-Za-z0-9_-]", "_", place.name)
    start.serve(place, address, home, oidc=oidc, idle=idle * 60, work=work, notices=notices, say=typer.echo)


def link(name: str, *, role: str, state: Path | None) -> None:
    """Carry out `cape desk link`."""
    _require(_EXTRA)
    from cape.core import documents
    from cape.desk.access.links import Links
    from cape.desk.access.people import ROLES, Person
    from cape.desk.start import find

    documents.one_of("role", role, ROLES)
    home = state or _only_desk()
    found = next(each for each in ROLES if each == role)
    with as_owner(home):  # the desk's user could lead root anywhere
        running = find(home)
        if not running.links:
            raise InvalidInput("this desk logs people in by a provider (--oidc), so it takes no links")
        path = Links(home).make(Person(name, found))
    typer.echo(check.plain(running.url, 300) + path)


def trail(state: Path | None, *, as_json: bool) -> None:
    """Carry out `cape desk trail`."""
    from cape.desk.access.trail import check as check_trail

    home = state or _only_desk()
    path = home / "trail.jsonl"
    with as_owner(home):
        if not path.is_file():
            raise InvalidInput(f"there is no trail {path}; name the desk's own folder with --state")
        found = check_trail(path)
        with open(path, "rb") as file:
            lines = [json.loads(line) for line in file.read(found.size).splitlines()]
    if as_json:
        screen.print_json({"lines": lines, "head": found.head, "wrong": found.wrong})
    else:
        for each in lines:
            typer.echo(_told(each))
        typer.echo(f"{words.count(found.lines, 'line')}, head {found.head[:16]}")
    if found.wrong is not None:
        typer.echo(f"cape: line {found.wrong} of {path} is not what the desk wrote", err=True)
        raise typer.Exit(1)


def _told(line: dict[str, object]) -> str:
    fields = line.get("fields")
    pairs = fields.items() if isinstance(fields, dict) else ()
    what = " ".join(f"{name}={value!r}" for name, value in pairs)
    done = f"{line['outcome']} (line {line['of']})" if "outcome" in line else ""
    who = f"{line['person']} ({line['role']})"
    told = [line["number"], line["at"], who, line["what"], what, done]
    return check.plain(" ".join(str(each) for each in told if each), 2000)


def _require(names: tuple[str, ...]) -> None:
    if any(importlib.util.find_spec(name) is None for name in names):
        raise MissingExtra("desk", "cape desk")


def _socket(folder: Path | None, socket: Path | None) -> Path:
    if folder is not None and socket is not None:
        raise InvalidInput("give --site or --socket, not both")
    if folder is not None:
        return folder / SOCKET
    if socket is None and os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    if socket is None:
        raise InvalidInput(
            "give the administrative socket of the site's daemon with --socket, or its folder with --site"
        )
    return socket


def _default_root() -> Path:
    given = os.environ.get("STATE_DIRECTORY")  # of systemd
    if given:
        return Path(given.partition(":")[0])
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "cape-desk"


def _only_desk() -> Path:
    """Return the folder of the desk that runs, if there is only one."""
    from cape.desk.start import RUNNING

    found = sorted(path.parent for path in _default_root().glob(f"*/{RUNNING}"))
    if len(found) == 1:
        return found[0]
    seen = ", ".join(map(str, found)) or "none"
    raise InvalidInput(f"name the desk's own folder with --state; desks that run: {seen}")
