"""`cape deploy`: kits for a study across machines, the coordinator's keys, and a rehearsal on one machine.

Not here: what is in a kit (`flare`).
"""

from __future__ import annotations

import typer

from cape.cli.lazy_group import Command, LazyGroup

__all__ = ["deploy"]


class _Commands(LazyGroup):
    """All commands, in the order of `cape deploy --help`."""

    listing = (
        Command(
            "demo",
            "cape.cli.deploy.demo",
            "Deploy an aggregator and four sites on this machine, run a study over them, and stop all of it.",
        ),
        Command(
            "init",
            "cape.cli.deploy.kits",
            "Make a kit for the aggregator, the coordinator and each site, with a README that its "
            "owner can follow.",
        ),
        Command(
            "export-key",
            "cape.cli.deploy.kits",
            "Print the coordinator's public key as a file for the sites; the first time, make the key.",
        ),
        Command(
            "trust",
            "cape.cli.deploy.kits",
            "Pin the keys of sites. Compare the fingerprints by telephone first.",
        ),
    )


deploy = typer.Typer(
    cls=_Commands,
    name="deploy",
    help="""Kits for a study across machines: for the aggregator, the coordinator and every site.

    Example: [bold]cape deploy init --sites a,b,c --server cape.example.org[/bold]""",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
