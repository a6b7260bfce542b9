"""`cape desk`: pages in a browser, for a site's stewards or for a coordinator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cape.cli.options import AsJson

__all__ = ["VARIABLE", "desk"]

PORT = 8011
VARIABLE = "CAPE_ADMIN"

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
            help=f"The daemon's administrative socket instead; by default {VARIABLE}.",
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
    from cape.cli.desk_action import serve as act

    act(
        folder,
        socket=socket,
        coordinator=coordinator,
        kit=kit,
        host=host,
        port=port,
        cert=cert,
        key=key,
        url=url,
        oidc=oidc,
        idle=idle,
        state=state,
        work=work,
        notices=notices,
        desk_may_read_rows=desk_may_read_rows,
    )


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
    from cape.cli.desk_action import link as act

    act(name, role=role, state=state)


@desk.command()
def trail(state: State = None, as_json: AsJson = False) -> None:
    """Check the trail of decisions, and print it: who clicked what, and when.

    The exit status is 1 if a line was changed, removed or inserted.

    Example: [bold]cape desk trail --state /var/lib/cape-desk[/bold]
    """
    from cape.cli.desk_action import trail as act

    act(state, as_json=as_json)
