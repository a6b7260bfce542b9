"""What all commands share: the console, JSON output and the progress bar."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from cape.show.plain import to_json

__all__ = ["Steps", "console", "print_json", "progress", "say"]

_WIDTH = 110  # if there is no terminal
_PATIENCE = 1.0  # seconds before a bar appears


def console(*, stderr: bool = False) -> Console:
    """Return the console for results, or for what is said beside them."""
    plain = Console(stderr=stderr)
    return plain if plain.is_terminal or "COLUMNS" in os.environ else Console(width=_WIDTH, stderr=stderr)


def print_json(value: Any) -> None:
    """Print one JSON object."""
    typer.echo(to_json(value))


def say(lines: Iterable[str]) -> None:
    """Print lines beside the results, on stderr."""
    for line in lines:
        typer.echo(line, err=True)


class _Bar(Progress):
    """A progress bar with a line below it for a long step."""

    line = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return what is drawn."""
        yield self.make_tasks_table(self.tasks)
        if self.line:
            yield Text(self.line, no_wrap=True, overflow="ellipsis")


class Steps:
    """A progress bar that the caller advances."""

    def __init__(self, bar: _Bar, total: int) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=total)

    def start(self, what: str) -> None:
        """Name the current step."""
        self._bar.line = ""
        self._bar.update(self._task, description=what)

    def tell(self, line: str) -> None:
        """Report the progress of the current step, in the line below."""
        self._bar.line = line

    def say(self, text: str) -> None:
        """Print lines above the bar, on stderr."""
        self._bar.console.print(Text(text), soft_wrap=True)

    @property
    def width(self) -> int:
        """How many signs a line of `say` may have."""
        return self._bar.console.width

    def done(self) -> None:
        """Count one step."""
        self._bar.advance(self._task)


@contextmanager
def progress(total: int) -> Iterator[Steps]:
    """Show a progress bar on stderr if the work takes more than a second; remove it at the end."""
    bar = _Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f}"),
        TimeElapsedColumn(),
        console=console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    timer = threading.Timer(_PATIENCE, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield Steps(bar, total)
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
