"""A small figure that draws noise, and the command as a user types it, in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from cape.noise import discrete_gaussian
from reproduction import FIRST_SEED, Cell, Claim, Figure, seeds, style
from reproduction.__main__ import main


class Done(NamedTuple):
    status: int
    out: str
    err: str


class Noise(Figure):
    """Gaussian numbers for two settings and three runs; `computed` counts what was not read from disk."""

    name = "figure-0"
    title = "Noise"

    def __init__(self) -> None:
        self.computed: list[Cell] = []

    def cells(self, fast: bool, seed: int = FIRST_SEED) -> list[Cell]:
        return [
            Cell.of(self.name, run, 0.01, scale=scale)
            for scale in ((10.0,) if fast else (10.0, 1000.0))
            for run in seeds(seed, 3)
        ]

    def compute(self, cell: Cell) -> list[dict]:
        self.computed.append(cell)
        drawn = discrete_gaussian(1e6, 1, cell.stream("noise"))[0] / 1e6
        return [
            {"scale": cell.number("scale"), "error": cell.number("scale") * float(drawn), "nothing": None}
        ]

    def draw(self, rows, reference):
        picture, grid = style.new(1, 1, (3, 2))
        style.band(grid[0][0], style.over_runs(rows, "scale", "error"), style.INK, "noise")
        if reference is not None:
            style.markers(grid[0][0], reference.curve("noise", "cape", "error"), style.INK)
        return {"published": picture}

    def claims(self, rows, reference):
        return [Claim("Nowhere", "Noise | is noise.", f"{len(rows)} numbers.", True, "It was drawn.")]


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep midnight from changing a page between two runs."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1600000000")


@pytest.fixture
def noise() -> Noise:
    return Noise()


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["python -m reproduction", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Done(int(left.value.code or 0), captured.out, captured.err)

    monkeypatch.setattr("warnings.showwarning", None)  # restored after the test; `main` sets its own
    return run


def files(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
