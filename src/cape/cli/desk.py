"""`cape desk`: pages in a browser, for a site's stewards or for a coordinator."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from pathlib import Path
from typing import Annotated

import typer

from cape.app import words
from cape.cli import screen
from cape.cli.options import AsJson
from cape.core import check
from cape.core.errors import InvalidInput, MissingExtra
from cape.core.files import as_owner
from cape.site.admin import SOCKET

__all__ = ["desk"]

PORT = 8011
_VARIABLE = "CAPE_ADMIN"
_EXTRA = ("starlette", "uvicorn", "jinja2", "tomlkit")
_OF_OIDC = ("authlib", "httpx2", "joserfc")

desk = typer.Typer(name="desk", invoke_without_command=True, rich_markup_mode="rich")

State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        help="The desk's own folder: trail of decisions, log; by default ~/.local/state/cape-desk/NAME.",
        show_default=False,
    ),
]


@desk.callback()
def serve(
    context: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Option("--site", metavar="DIR", help="The site's folder; its daemon runs.", show_default=False),
    ] = None,
    socket: Annotated[
        Path | None,
        typer.Option(
            "--socket",
            metavar="PATH",
            help=f"The daemon's administrative socket instead; by default {_VARIABLE}.",
            show_default=False,
        ),
    ] = None,
    coordinator: Annotated[
        bool, typer.Option("--coordinator", help="The coordinator's desk; needs --kit.")
    ] = False,
    kit: Annotated[
        Path | None,
        typer.Option("--kit", metavar="DIR", help="The coordinator's kit.", show_default=False),
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; others than loopback need TLS.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="0 takes a free one.")] = PORT,
    cert: Annotated[
        Path | None,
        typer.Option("--cert", metavar="FILE", help="The certificate for TLS (PEM).", show_default=False),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", metavar="FILE", help="The key of the certificate (PEM).", show_default=False),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url", metavar="URL", help="How browsers reach it, behind a proxy of TLS.", show_default=False
        ),
    ] = None,
    oidc: Annotated[
        Path | None,
        typer.Option(
            "--oidc",
            metavar="FILE",
            help="Log in by a provider of OpenID Connect: its address, and who has which role (TOML).",
            show_default=False,
        ),
    ] = None,
    idle: Annotated[
        int,
        typer.Option(metavar="MINUTES", min=1, max=720, help="Log out who does nothing for so long."),
    ] = 30,
    state: State = None,
    work: Annotated[
        Path | None,
        typer.Option(
            "--work",
            metavar="DIR",
            help="Where a coordinator's drafts and submissions are kept; by default in --state.",
            show_default=False,
        ),
    ] = None,
    notices: Annotated[
        bool,
        typer.Option(
            "--notices",
            help="Send mail and webhooks of \\[notify]; variables of their secrets start with CAPE_NOTIFY_.",
        ),
    ] = False,
    desk_may_read_rows: Annotated[
        bool,
        typer.Option(
            "--desk-may-read-rows",
            help="Start as a user who can read the site's rows and key: for rehearsals on one machine.",
        ),
    ] = False,
) -> None:
    """Serve pages to a browser until Ctrl-C: a site's inbox, ledger and policy, or a coordinator's studies.

    It asks the site's daemon, so no page allows what [bold]cape site[/bold] would not. Run it as a user of
    its own, whom [bold]cape site serve --desk USER[/bold] names. Open the link that it prints: it works once.

    Example: [bold]cape desk --socket /run/cape/cleveland/admin.sock[/bold]

    Example: [bold]cape desk --coordinator --kit kits/coordinator[/bold]

    Example: [bold]cape desk --socket /run/cape/cleveland/admin.sock --host 0.0.0.0 --port 443 --cert desk.pem
    --key desk.key --oidc login.toml[/bold]
    """
    if context.invoked_subcommand is not None:
        return
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


@desk.command()
def link(
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Who gets it, as the logs will say.", show_default=False)
    ],
    role: Annotated[
        str, typer.Option(metavar="ROLE", help="viewer reads, steward decides on studies, admin also edits.")
    ] = "viewer",
    state: State = None,
) -> None:
    """Print a link that logs a person in once, at the desk that runs here. It can be used for 15 minutes.

    Example: [bold]cape desk link --name ana --role steward[/bold]
    """
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


@desk.command()
def trail(state: State = None, as_json: AsJson = False) -> None:
    """Check the trail of decisions, and print it: who clicked what, and when.

    The exit status is 1 if a line was changed, removed or inserted.

    Example: [bold]cape desk trail --state /var/lib/cape-desk[/bold]
    """
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
    if socket is None and os.environ.get(_VARIABLE):
        return Path(os.environ[_VARIABLE])
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
