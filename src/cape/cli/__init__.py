"""The command `cape`: what people type.

Exit status 0 when it worked, 1 when it failed, 2 when it was used wrongly; errors are one or two lines.
"""

from __future__ import annotations

import sys

import typer

from cape import __version__
from cape.cli.demo import demo
from cape.errors import CapeError, InvalidInput

__all__ = ["app", "main"]

app = typer.Typer(
    name="cape",
    help="Private statistics across sites, with the accuracy of a trusted curator.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command()(demo)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"cape {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    pass


def main() -> None:
    """Run the command, and turn an error of ours into a line that says what to do."""
    try:
        app()
    except CapeError as error:
        typer.echo(f"cape: {error}", err=True)
        sys.exit(2 if isinstance(error, InvalidInput) else 1)
