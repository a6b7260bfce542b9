"""The command `cape`: what people type.

Exit status 0 when it worked, 1 when it failed, 2 when it was used wrongly; errors are one or two lines.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import TextIO

import typer

from cape import __version__
from cape.cli.demo import demo
from cape.cli.plan import plan
from cape.cli.run import run
from cape.errors import CapeError, InvalidInput

__all__ = ["app", "main"]

_TRACEBACK = "CAPE_TRACEBACK"

app = typer.Typer(
    name="cape",
    help="Private statistics across sites, with the accuracy of a trusted curator.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command()(demo)
app.command()(plan)
app.command()(run)


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


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    typer.echo(f"cape: warning: {message}", err=True)


def main() -> None:
    """Run the command, and turn errors into a line that says what to do."""
    warnings.showwarning = _warn
    try:
        app()
    except CapeError as error:
        typer.echo(f"cape: {error}", err=True)
        sys.exit(2 if isinstance(error, InvalidInput) else 1)
    except Exception as error:
        if os.environ.get(_TRACEBACK):
            raise
        # Other people's messages may quote a cell, so only the kind of the error is shown.
        typer.echo(
            f"cape: an error that it did not expect ({type(error).__name__}); {_TRACEBACK}=1 shows where",
            err=True,
        )
        sys.exit(1)
