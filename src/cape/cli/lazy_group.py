"""Commands that are listed with the first line of their help, and imported when they are typed.

So `cape --version`, `cape --help` and the completion of a command's name import no analysis. A list cannot
differ from its commands: tests/unit/cli/test_lazy_group.py compares them.

A command whose work needs more than typer declares its options in `x.py` and does it in `x_action.py`, which
is imported when it runs: help, and the completion of options, do without.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["Command", "LazyGroup", "load"]


class Command(NamedTuple):
    """What help and completion show of a command, and the module that has it, as a function or a group."""

    name: str
    module: str
    help: str


class LazyGroup(TyperGroup):
    """A group of the commands in `listing`: `typer.Typer(cls=...)` takes a subclass that has one."""

    listing: ClassVar[tuple[Command, ...]] = ()

    def __init__(self, **settings: Any) -> None:
        listed = {each.name: TyperCommand(each.name, help=each.help) for each in self.listing}
        super().__init__(**{**settings, "commands": listed})
        self._not_loaded = {each.name: each for each in self.listing}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that was typed, imported; what only lists commands does not come here."""
        name, command, rest = super().resolve_command(ctx, args)
        if name in self._not_loaded:
            command = self.commands[name] = load(self._not_loaded.pop(name))
        return name, command, rest


def load(command: Command) -> Any:
    """Import a command, and return what typer makes of it."""
    found = getattr(importlib.import_module(command.module), command.name.replace("-", "_"))
    if isinstance(found, typer.Typer):
        _join_lines(found)
        return typer.main.get_group(found)
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    alone.command(command.name)(found)
    _join_lines(alone)
    return typer.main.get_command(alone)


def _join_lines(group: typer.Typer) -> None:
    """Make a line of each paragraph of help, which typer would break where a docstring's lines end."""
    for each in (*group.registered_commands, group.registered_callback):
        if each is not None:
            paragraphs = (inspect.getdoc(each.callback) or "").split("\n\n")
            each.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
