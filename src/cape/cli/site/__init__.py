"""`cape site`: a site's key, policy, inbox and ledger, for its data steward. None of it needs a network."""

from __future__ import annotations

import typer

from cape.cli.site.backup import backup
from cape.cli.site.check import check
from cape.cli.site.heads import settle, verify
from cape.cli.site.inbox import approve, ask, inbox, refuse
from cape.cli.site.keys import export_key, init, revoke, trust
from cape.cli.site.ledger import ledger
from cape.cli.site.notify import notify
from cape.cli.site.policy import log, policy, status
from cape.cli.site.serve import serve
from cape.cli.site.upgrade import upgrade

__all__ = ["site"]

site = typer.Typer(
    name="site",
    help="""A site's policy, keys and ledger: what its data steward allows, and what was released.

    If the site's daemon runs, these commands ask it: through the socket in the site's folder, or the one that
    --socket or CAPE_ADMIN names. Otherwise they work on the folder.

    Example: [bold]cape site init our-site --name cleveland[/bold]

    Example: [bold]cape site ledger --site our-site[/bold]""",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
site.command()(init)
site.command("export-key")(export_key)
site.command()(trust)
site.command()(revoke)
site.command()(serve)
site.command()(status)
site.command()(check)
site.command()(policy)
site.command()(inbox)
site.command()(approve)
site.command()(refuse)
site.command()(ask)
site.command()(ledger)
site.command()(log)
site.command()(notify)
site.command()(settle)
site.command()(verify)
site.command()(backup)
site.command()(upgrade)
