"""The list of commands, and how warnings are printed."""

from __future__ import annotations

from typing import TextIO

import typer

from cape import __version__
from cape.cli.lazy_group import Command, LazyGroup
from cape.core import check

__all__ = ["app", "warn"]


class _Commands(LazyGroup):
    """All commands, in the order of `cape --help`."""

    listing = (
        Command(
            "demo",
            "cape.cli.demo",
            "Describe 569 patients at five sites that do not pool their rows: the first table of a "
            "clinical paper.",
        ),
        Command(
            "init",
            "cape.cli.init",
            "Write a study file with the columns of one site's file, and places for bounds and categories.",
        ),
        Command(
            "check",
            "cape.cli.check",
            "List everything that is wrong with the rows of a study's sites, at once. Nothing is "
            "spent or sent.",
        ),
        Command(
            "plan",
            "cape.cli.plan",
            "Show noise, expected error and guarantee of every analysis, beside other schemes. Reads "
            "no data.",
        ),
        Command("run", "cape.cli.run", "Answer every analysis of a study, on the files that it names."),
        Command(
            "results",
            "cape.cli.exports",
            "Show the results of a study again, or export their tables. Nothing is run, and nothing "
            "is spent.",
        ),
        Command(
            "synth",
            "cape.cli.synth",
            "Make up a file of rows for every site from the schema alone, to rehearse a study before "
            "there is data.",
        ),
        Command(
            "audit",
            "cape.cli.audit",
            "Try to break the guarantee: lower bounds on what an adversary learns, beside the claims.",
        ),
        Command(
            "bench",
            "cape.cli.bench",
            "Measure speed, memory and error, each against its bar, and compare with other libraries.",
        ),
        Command(
            "serve",
            "cape.cli.machines",
            "Run the aggregator until Ctrl-C. Nobody has to trust it: it has no key and sees no "
            "site's numbers.",
        ),
        Command("join", "cape.cli.machines", "Connect a site's daemon to its aggregator until Ctrl-C."),
        Command(
            "submit",
            "cape.cli.submit",
            "Run a study at sites on machines of their own. The paths in the study file are not used.",
        ),
        Command(
            "status",
            "cape.cli.machines",
            "Ask the aggregator which sites are connected and which studies are running.",
        ),
        Command(
            "site",
            "cape.cli.site",
            "A site's policy, keys and ledger: what its data steward allows, and what was released.",
        ),
        Command(
            "deploy",
            "cape.cli.deploy",
            "Kits for a study across machines: for the aggregator, the coordinator and every site.",
        ),
        Command(
            "desk",
            "cape.cli.desk",
            "Serve pages to a browser until Ctrl-C: a site's inbox, ledger and policy, or a "
            "coordinator's studies.",
        ),
    )


app = typer.Typer(
    cls=_Commands,
    name="cape",
    help="""Private statistics across sites, with the accuracy of a trusted curator.

    Example: [bold]cape demo[/bold]

    Example: [bold]cape plan study.toml[/bold], then [bold]cape run study.toml --out results[/bold]""",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"cape {__version__}")
        raise typer.Exit


_NEXT = """Private statistics across sites, with the accuracy of a trusted curator.

  cape demo               a whole study on data that ships with cape, in seconds
  cape init FILE.csv      write a study file for your own data
  cape plan STUDY.toml    what a study will tell and what it will cost, before any row is read

Then cape check finds what does not fit in your files, cape run answers the study, and cape results shows
the answers again. All commands: cape --help"""


@app.callback()
def _options(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(_NEXT)


def warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning as one line, without its place in the code."""
    typer.echo(f"cape: warning: {check.plain(' '.join(str(message).split()), 600)}", err=True)
