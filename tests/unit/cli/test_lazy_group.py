"""What help and completion list without importing it is what is there."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import typer.main

from cape.cli import deploy, site
from cape.cli import run as run_declared
from cape.cli.commands import app
from cape.cli.lazy_group import Command, LazyGroup, load
from cape.engine.schemes import SECAGG_ROUNDS

GROUPS = {"cape": app, "cape site": site.site, "cape deploy": deploy.deploy}
LISTED = [
    pytest.param(each, id=f"{group} {each.name}")
    for group, made in GROUPS.items()
    for each in typer.main.get_group(made).listing  # type: ignore[attr-defined]
]
AS_TYPED = "import sys; sys.argv = ['cape', *sys.argv[1:]]; from cape.cli import main; main()"
HEAVY = {"numpy", "scipy", "polars", "narwhals", "cryptography", "msgspec", "sqlglot"}


@pytest.mark.parametrize("listed", LISTED)
def test_the_list_has_the_name_and_the_first_line_of_help_of_each_command(listed: Command):
    command = load(listed)
    assert command.name == listed.name
    assert command.help.split("\n\n")[0] == listed.help
    assert not command.short_help
    assert not command.hidden
    assert not command.deprecated
    assert not command.rich_help_panel


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
def test_help_is_the_same_once_commands_are_imported(group: typer.Typer, capsys):
    def shown() -> str:
        assert command.main(["--help"], prog_name="cape", standalone_mode=False) in (0, None)
        return capsys.readouterr().out

    command = typer.main.get_group(group)
    assert isinstance(command, LazyGroup)
    before = shown()
    assert all(name in before for name in command.commands)
    command.commands.update({each.name: load(each) for each in command.listing})
    assert shown() == before


def after(code: str, *arguments: str, **variables: str) -> tuple[str, set[str]]:
    """What a command prints in a process of its own, and what it has imported by its end."""
    watched = f"import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); {code}"
    done = subprocess.run(
        [sys.executable, "-c", watched, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        timeout=60,
    )
    return done.stdout, set(done.stderr.split())


def test_version_help_and_completion_import_no_command():
    by_bash = {"_CAPE_COMPLETE": "complete_bash"}
    for arguments, variables, expected in (
        (["--version"], {}, "cape "),
        (["--help"], {}, "Show noise, expected error and guarantee"),
        ([], by_bash | {"COMP_WORDS": "cape site ", "COMP_CWORD": "2"}, "export-key"),
        ([], {"_CAPE_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "cape de"}, '"deploy":"Kits for'),
    ):
        printed, loaded = after(AS_TYPED, *arguments, **variables)
        assert expected in printed
        assert "cape.cli.commands" in loaded
        assert not HEAVY & loaded
        assert "cape.cli.plan" not in loaded


def test_what_is_typed_is_imported_alone():
    typed = {"_CAPE_COMPLETE": "complete_bash", "COMP_WORDS": "cape bench --", "COMP_CWORD": "2"}
    printed, loaded = after(AS_TYPED, **typed)
    assert "--json" in printed
    assert "cape.cli.bench" in loaded
    assert not {"cape.cli.plan", "cape.cli.site", "cape.cli.deploy"} & loaded


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("plan", "--json"),
        ("run", "--rehearse"),
        ("check", "--site"),
        ("init", "--from-data"),
        ("submit", "--resume"),
        ("results", "--format"),
        ("synth", "--rows"),
        ("serve", "--help"),
        ("join", "--link"),
        ("status", "--json"),
        ("desk", "--coordinator"),
        ("site serve", "--steward"),
    ],
)
def test_completion_of_options_imports_no_action(command, option):
    words = f"cape {command} --"
    place = str(len(words.split()) - 1)
    typed = {"_CAPE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": place}
    printed, loaded = after(AS_TYPED, **typed)
    assert option in printed.split()
    assert not HEAVY & loaded
    assert not {name for name in loaded if name.startswith("cape.cli.") and name.endswith("_action")}


def test_the_rounds_that_help_names_are_those_of_the_scheme():
    assert run_declared._ROUNDS == SECAGG_ROUNDS


def test_a_name_that_is_not_listed_is_refused_with_the_nearest(cape):
    done = cape("plna")
    assert done.code == 2
    assert "Did you mean 'plan'?" in done.err
    assert cape("site", "legder").code == 2
