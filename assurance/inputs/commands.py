"""The command as people type it, on bent studies and bent tables: one or two lines, and the right status."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from assurance.inputs.bend import bend, pick, to_toml
from assurance.inputs.studies import PASSWORD, document, written
from assurance.inputs.surface import Surface
from cape.cli import main
from cape.core.errors import CapeError

__all__ = ["Commands", "Unexpected", "play"]

_WORD = "canary-" + "91bb07"
_OPTIONS: tuple[list[str], ...] = (
    [],
    [],
    ["--json"],
    ["--scheme", "none"],
    ["--drop", "a@mask"],
    ["--only", "1"],
)


class Unexpected(Exception):
    """The command said that it did not expect an error, said too much, or left with another status."""


class _Refused(CapeError):
    """The command said no, as it should."""


class Commands(Surface):
    """`cape plan` and `cape run`, in this process."""

    secrets = (PASSWORD, _WORD)

    def make(self, random: np.random.Generator) -> tuple[list[str], bytes, str]:
        """Return arguments, a study file and a table."""
        right = document(random)
        right["analysis"] = [each for each in right["analysis"] if each["kind"] != "neural-network"] or [
            {"kind": "count"}
        ]
        sites = {name: f"{name}.csv" for name in "abcd"}
        if random.random() < 0.1:
            sites = bend(sites, random)
        right["sites"] = sites
        study = written(random, right) if random.random() < 0.4 else _plainly(right)
        rows = [
            f"{20 + i},{50 + i},{'female' if i % 2 else 'male'},{'no' if i % 3 else 'yes'},{i % 3}"
            for i in range(30)
        ]
        if random.random() < 0.5:
            cells = rows[7].split(",")
            cells[int(random.integers(5))] = pick(
                random, [_WORD, "", "1e999", f'"{_WORD}', f"{_WORD},{_WORD}"]
            )
            rows[7] = ",".join(cells)
        table = "\n".join(["age,weight,sex,ill,visits", *rows]) + "\n"
        what = pick(random, ["plan", "run", "run"])
        options = pick(random, _OPTIONS)
        if what == "plan":
            options = [each for each in options if each == "--json"]
        return [what, "study.toml", *options], study, table

    def feed(self, given: tuple[list[str], bytes, str]) -> None:
        """Run it, and look at what it said and how it left."""
        arguments, study, table = given
        (self.folder / "study.toml").write_bytes(study)
        for name in "abcd":
            (self.folder / f"{name}.csv").write_text(table)
        play(self.folder, arguments, self.secrets)

    def show(self, given: Any) -> bytes:
        """Return the study, after a line with the arguments; the table last."""
        return b"".join((f"# {given[0]}\n".encode(), given[1], b"\n--- rows\n", given[2].encode()))


def _plainly(right: dict[str, Any]) -> bytes:
    return to_toml(right).encode()


def play(folder: Path, arguments: list[str], secrets: tuple[str, ...]) -> None:
    """Run the command; raise unless it works, or leaves with the right status after a line or two."""
    code, out, err = _run(folder, arguments)
    for text in (out, err):
        if any(secret in text for secret in secrets):
            raise Unexpected("a secret was shown")
    beside = ("cape: warning: ", "  ")  # the latter: what is wrong with tables
    lines = [line for line in err.splitlines() if not line.startswith(beside)]
    if code not in (0, 1, 2) or "did not expect" in err or "Traceback" in err:
        raise Unexpected(f"status {code}: {err[:300]}")
    if code and not 1 <= len(lines) <= 3:  # `cape run` adds what is left of the budget
        raise Unexpected(f"{len(lines)} lines: {err[:300]}")
    if code:
        raise _Refused(lines[0])


def _run(folder: Path, arguments: list[str]) -> tuple[int, str, str]:
    out, err, before, shown = io.StringIO(), io.StringIO(), sys.argv, warnings.showwarning
    sys.argv = ["cape", *arguments]
    code: Any = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.chdir(folder):
            main()
    except SystemExit as left:
        code = left.code or 0
    finally:
        sys.argv, warnings.showwarning = before, shown
    return int(code), out.getvalue(), err.getvalue()
