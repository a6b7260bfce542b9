"""A run on disk: where it stands, and how many of its steps have begun, so that it can go on after a crash.

Claim. A run that goes on never releases more steps than were planned, whenever it was cut off.
Reason. The file is replaced in one move, after a sync, before each step is asked for, and already counts
that step as begun. Whoever goes on from it counts the step as spent, whether or not its answer was seen.
Tested in tests/learning/test_checkpoint.py.

A checkpoint holds released numbers only (parameters, the optimiser's memory): it is as public as the result.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.errors import InvalidInput
from cape.noise import SecureStream
from cape.release.query import Begun

__all__ = ["Checkpoint", "State", "begun", "new_run"]

Floats = NDArray[np.float64]


def new_run() -> str:
    """Return a name for a new run."""
    return SecureStream().bytes(16).hex()


@dataclass
class State:
    """Where a run stands, after `done` steps of which `begun` were begun."""

    run: str
    parameters: Floats
    clip: float
    memory: dict[str, Floats] = field(default_factory=dict)  # of the optimiser
    history: Floats = field(default_factory=lambda: np.empty((0, 4)))
    done: int = 0
    begun: int = 0


@dataclass(frozen=True)
class Checkpoint:
    """A file for the state of runs of one analysis; `terms` tell its runs from those of another."""

    path: Path
    terms: str

    def read(self) -> State | None:
        """Return the state of the run that was cut off, None if there is no file."""
        if not self.path.exists():
            return None
        found = _arrays(self.path)
        if str(found["terms"]) != self.terms:
            raise InvalidInput(
                f"{self.path} is the checkpoint of another analysis or schema; remove it, or name another"
            )
        return State(
            str(found["run"]),
            found["parameters"],
            float(found["clip"]),
            {name[7:]: found[name] for name in found if name.startswith("memory ")},
            found["history"],
            *map(int, found["steps"]),
        )

    def write(self, state: State) -> None:
        """Replace the file; when this returns, it is on disk."""
        arrays: Mapping[str, NDArray[np.generic]] = {
            "terms": np.array(self.terms),
            "run": np.array(state.run),
            "parameters": state.parameters,
            "clip": np.array(state.clip),
            "history": state.history,
            "steps": np.array([state.done, state.begun]),
            **{f"memory {name}": array for name, array in state.memory.items()},
        }
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        beside = self.path.with_name(self.path.name + ".new")
        with open(beside, "wb") as file:
            file.write(buffer.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def begun(path: Path) -> Begun | None:
    """Return the run that a file holds, and how many of its steps have begun; None if there is no file."""
    if not path.exists():
        return None
    found = _arrays(path)
    return Begun(str(found["run"]), int(found["steps"][1]))


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile):
        found = {}
    if not {"terms", "run", "parameters", "clip", "history", "steps"} <= found.keys():
        raise InvalidInput(f"{path} is not a checkpoint; remove it, or name another file")
    return found
