"""`cape bench`: measurements against their bars. They need a checkout and run in a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from cape.cli import screen
from cape.cli.options import AsJson
from cape.core.errors import InvalidInput

__all__ = ["bench"]

_ROOT = Path(__file__).resolve().parents[3]  # of a checkout


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="Such as noise or release.time.", show_default="all"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure speed, memory and error, each against its bar, and compare with other libraries.

    It needs a checkout with its test packages, as in `make bench`. Running everything takes long: give names.
    Exit status 1 if a bar does not hold.

    Example: [bold]cape bench privacy release[/bold]
    """
    if not (_ROOT / "benchmarks" / "__main__.py").is_file():
        raise InvalidInput("measurements are not part of the package: run `make bench` in a checkout")
    found = []
    command = [sys.executable, "-m", "benchmarks", *(names or [])]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as measuring:
        assert measuring.stdout is not None
        for line in measuring.stdout:
            found.append(json.loads(line))
            if not as_json:
                screen.console().print(_said(found[-1]), highlight=False, markup=False)
    if as_json:
        screen.print_json({"measurements": found})
    raise typer.Exit(measuring.returncode)


def _said(line: Mapping[str, Any]) -> str:
    """Return a measurement as text."""
    if "skipped" in line:
        return f"{line['name']}: skipped, {line['skipped']}"
    bar = f"at {'most' if line['better'] == 'lower' else 'least'} {line['bar']:g}"
    unit = "" if line["unit"] == "ratio" else f" {line['unit']}"
    verdict = "holds" if line["holds"] else "DOES NOT HOLD"
    return f"{line['name']}: {line['value']:g}{unit}, {bar}: {verdict}"
