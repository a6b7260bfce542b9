"""The commands, registered with typer, and how warnings are printed."""

from __future__ import annotations

import inspect
from typing import TextIO

import typer

from cape import __version__
from cape.cli.audit import audit
from cape.cli.bench import bench
from cape.cli.check import check as check_rows
from cape.cli.demo import demo
from cape.cli.deploy import deploy
from cape.cli.desk import desk
from cape.cli.exports import results
from cape.cli.init import init
from cape.cli.machines import join, serve, status
from cape.cli.plan import plan
from cape.cli.run import run
from cape.cli.site import site
from cape.cli.submit import submit
from cape.cli.synth import synth
from cape.core import check

__all__ = ["app", "warn"]

app = typer.Typer(
    name="cape",
    help="""Private statistics across sites, with the accuracy of a trusted curator.

    Example: [bold]cape demo[/bold]

    Example: [bold]cape plan study.toml[/bold], then [bold]cape run study.toml --out results[/bold]""",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for command in (demo, init, check_rows, plan, run, results, synth, audit, bench, serve, join, submit, status):
    app.command(command.__name__)(command)
app.add_typer(site)
app.add_typer(deploy)
app.add_typer(desk)
for group in (app, site, deploy, desk):
    documented = [
        each for each in (*group.registered_commands, group.registered_callback) if each is not None
    ]
    for registered in documented:  # typer would break help where a docstring's lines end
        paragraphs = (inspect.getdoc(registered.callback) or "").split("\n\n")
        registered.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


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
