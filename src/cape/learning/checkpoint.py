"""A run on disk: where it stands, and how many of its steps have begun, so that it can go on after a crash.

Claim. A run that goes on never releases more steps than were planned, whenever it was cut off.
Reason. The file is replaced in one move, after a sync, when a step is paid for and before anything of it is
computed, and already counts that step as begun. Whoever goes on from it counts the step as spent, whether or
not its answer was seen.
Tested in tests/learning/test_checkpoint.py.

A checkpoint holds released numbers only (parameters, the optimiser's memory): it is as public as the result.
"""

from __future__ import annotations

import hashlib
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

__all__ = ["Checkpoint", "State", "fingerprint", "new_run"]

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
    history: list[tuple[float, float, float, float]] = field(default_factory=list)
    done: int = 0
    begun: int = 0

    @property
    def curve(self) -> Floats:
        """The history as rows."""
        return np.array(self.history, np.float64).reshape(-1, 4)


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
                f"{self.path} is the checkpoint of another analysis, schema, budget or share; name another"
            )
        return State(
            str(found["run"]),
            found["parameters"],
            float(found["clip"]),
            {name[7:]: found[name] for name in found if name.startswith("memory ")},
            [tuple(row) for row in found["history"].tolist()],
            *map(int, found["steps"]),
        )

    def write(self, state: State) -> None:
        """Replace the file; when this returns, it is on disk."""
        arrays: Mapping[str, NDArray[np.generic]] = {
            "terms": np.array(self.terms),
            "run": np.array(state.run),
            "parameters": state.parameters,
            "clip": np.array(state.clip),
            "history": state.curve,
            "steps": np.array([state.done, state.begun]),
            **{f"memory {name}": array for name, array in state.memory.items()},
        }
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        beside = self.path.with_name(self.path.name + ".new")
        try:
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
        except OSError as error:
            raise InvalidInput(f"the checkpoint {self.path} cannot be written: {error.strerror}") from None


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile):
        found = {}
    if not {"terms", "run", "parameters", "clip", "history", "steps"} <= found.keys():
        raise InvalidInput(f"{path} is not a checkpoint; remove it, or name another file")
    return found


def fingerprint(function: Any) -> str:
    """Return what tells functions apart that have the same name: a run may not go on with another one."""
    code = getattr(function, "__code__", None)
    if code is None:
        return ""
    told = (code.co_code, repr(code.co_consts), code.co_names, repr(getattr(function, "__defaults__", None)))
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]
