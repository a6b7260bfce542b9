"""Results of cells on disk: a run that was stopped goes on, and a second run computes nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

from cape.core.errors import InvalidInput
from reproduction.figure import Cell, Row

__all__ = ["Store", "write"]


class Store:
    """A folder with a file for each cell."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, cell: Cell, version: int) -> list[Row] | None:
        """Return what was computed before, if it was, and if the file is whole."""
        try:
            held = json.loads(self._path(cell, version).read_text())
            if held["settings"] != [list(each) for each in cell.settings] or held["seed"] != cell.seed:
                return None
            return list(held["rows"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, cell: Cell, version: int, rows: list[Row]) -> None:
        """Keep what was computed. Floats come back as they were, to the last bit."""
        held = {"figure": cell.figure, "settings": cell.settings, "seed": cell.seed, "rows": rows}
        write(self._path(cell, version), json.dumps(held, indent=1) + "\n")

    def _path(self, cell: Cell, version: int) -> Path:
        return self._folder / cell.figure / f"{cell.key(version)}.json"


def write(path: Path, text: str) -> None:
    """Write a whole file or none."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise InvalidInput(f"--out: {path.parent} cannot be written: {error.strerror}") from None
