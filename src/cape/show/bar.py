"""A progress bar for a release in many stages, in a terminal and in Jupyter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["Advance", "bar"]


class Advance(Protocol):
    """How far a run is."""

    @property
    def done(self) -> int:
        """The stages that are done."""
        ...

    @property
    def of(self) -> int:
        """The stages in all."""
        ...

    @property
    def note(self) -> str:
        """What the analysis says of itself."""
        ...


@contextmanager
def bar(title: str, console: Console | None = None) -> Iterator[Callable[[Advance], None]]:
    """Show a bar while a release runs; what it gives is called after each stage."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("stage {task.completed:.0f} of {task.total:.0f} {task.fields[note]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as shown:
        task = shown.add_task(title, total=1, note="")

        def advance(to: Advance) -> None:
            shown.update(task, total=to.of, completed=to.done, note=to.note)

        yield advance
