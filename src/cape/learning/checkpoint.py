"""The state of a run on disk, with the number of steps begun, so that the run can be resumed after a crash.

Claim. A resumed run never releases more steps than planned, whenever it was interrupted.
Reason. The file is replaced in one move, after a sync, when a step is paid for and before anything of it is
computed, and already counts that step as begun. A resumed run counts the step as spent, whether or not its
answer was seen.
Tested in tests/unit/learning/test_checkpoint.py.

A file is accepted only if it is plausible: at most as many steps as planned, arrays of the run's shapes,
finite numbers. An edited file can make a run worse, and can make it repeat steps, which are then paid for
again (the session counts every query); it cannot make the run ask more than it pays for.
Nothing in a file is executed, and no more is read than a checkpoint of this run can hold: nothing is
decompressed, and sizes are compared before memory is allocated.

A checkpoint holds released numbers only (parameters, the optimiser's memory): it is as public as the result.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
import stat
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.core import check, files
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.noise import SecureStream

__all__ = ["Checkpoint", "State", "fingerprint", "new_run"]


_MEMORY = "memory "
_KINDS = {"terms": "U", "run": "U", "parameters": "f", "clip": "f", "history": "f", "steps": "i"}
_VECTORS = 3  # parameters, and what the optimiser remembers: as long, at most twice
_MOST_ARRAYS = len(_KINDS) + 3
_FRAME = 1 << 16  # bytes of a checkpoint beside its numbers


def new_run() -> str:
    """Return a name for a new run."""
    return SecureStream().bytes(16).hex()


@dataclass
class State:
    """The state of a run: `begun` steps were begun, and `done` of them are done."""

    run: str
    parameters: Floats
    clip: float
    memory: dict[str, Floats] = field(default_factory=dict)  # of the optimiser
    history: list[tuple[float, float, float, float]] = field(default_factory=list)
    done: int = 0
    begun: int = 0

    @property
    def curve(self) -> Floats:
        return np.array(self.history, np.float64).reshape(-1, 4)


@dataclass(frozen=True)
class Checkpoint:
    """A file for the state of runs of one analysis, which `terms` identify."""

    path: Path
    terms: str

    def read(self, fresh: State, planned: int) -> State | None:
        """Return the state of the interrupted run, None if there is no file.

        `fresh` is the state that the run began with, and `planned` how many steps it has.
        """
        most = _FRAME + 8 * (_VECTORS * fresh.parameters.size + 4 * planned)
        try:
            about = self.path.stat()
            size = about.st_size if stat.S_ISREG(about.st_mode) else -1
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:  # too long a name, a folder that may not be looked into
            why = getattr(error, "strerror", None) or "no path"
            raise InvalidInput(f"the checkpoint {self._shown} cannot be read: {why}") from None
        if size > most:
            raise InvalidInput(
                f"{self._shown} is not a checkpoint of this analysis: it has {size:,} bytes, and "
                f"{most:,} are possible; name another file"
            )
        found: dict[str, NDArray[Any]] = {}
        if size >= 0:
            try:
                found = _arrays(self.path)
            except Exception:  # of malformed bytes, zipfile and numpy raise ten kinds of errors
                found = {}
        if not found:
            raise InvalidInput(f"{self._shown} is not a checkpoint; remove it, or name another file")
        if str(found["terms"]) != self.terms:
            raise InvalidInput(
                f"{self._shown} is the checkpoint of another analysis, schema, budget or share; name another"
            )
        state = _state(found)
        wrong = _wrong(state, fresh, planned)
        if wrong:
            raise InvalidInput(
                f"{self._shown} is damaged: {wrong}. Steps that were asked stay spent; remove it, or name "
                "another file"
            )
        return state

    @property
    def _shown(self) -> str:
        return check.plain(str(self.path), 300)

    def write(self, state: State) -> None:
        """Replace the file; when this returns, it is on disk."""
        arrays: Mapping[str, NDArray[np.generic]] = {
            "terms": np.array(self.terms),
            "run": np.array(state.run),
            "parameters": state.parameters,
            "clip": np.array(state.clip),
            "history": state.curve,
            "steps": np.array([state.done, state.begun]),
            **{f"{_MEMORY}{name}": array for name, array in state.memory.items()},
        }
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        try:
            files.replace(self.path, buffer.getbuffer())
        except OSError as error:
            raise InvalidInput(f"the checkpoint {self._shown} cannot be written: {error.strerror}") from None


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays in the file, or raise any kind of error if it is not a checkpoint."""
    found: dict[str, NDArray[Any]] = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            kind = "f" if name.startswith(_MEMORY) else _KINDS[name]
            if name in found or member.compress_type != zipfile.ZIP_STORED:
                raise ValueError("not what we write")
            found[name] = _array(archive.read(member), kind)
            if len(found) > _MOST_ARRAYS:
                raise ValueError("more than we write")
    if not _KINDS.keys() <= found.keys():
        raise ValueError("less than we write")
    str(found["terms"]), str(found["run"])  # raises for invalid code points
    return found


def _array(data: bytes, kind: str) -> NDArray[Any]:
    """Return an array whose header says as many numbers as there are."""
    file = io.BytesIO(data)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("another version")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    start = file.tell()
    if dtype.kind != kind or (fortran and len(shape) > 1) or min(shape, default=0) < 0:
        raise ValueError("another kind of array")
    if math.prod(shape) * dtype.itemsize != len(data) - start or (kind in "fi" and dtype.itemsize != 8):
        raise ValueError("another size")
    return np.frombuffer(data, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def _state(found: Mapping[str, NDArray[Any]]) -> State:
    steps, history, clip = found["steps"], found["history"], found["clip"]
    fits = steps.shape == (2,) and history.ndim == 2 and history.shape[1] == 4 and clip.shape == ()
    return State(
        str(found["run"]),
        found["parameters"],
        float(clip) if fits else math.nan,
        {name.removeprefix(_MEMORY): array for name, array in found.items() if name.startswith(_MEMORY)},
        [tuple(row) for row in history.tolist()] if fits else [],
        *(map(int, steps) if fits else (-1, -1)),
    )


def _wrong(state: State, fresh: State, planned: int) -> str:
    """Return what is implausible about a state, "" if nothing is."""
    if not 0 <= len(state.history) <= state.done <= state.begun <= planned:
        return f"it counts {state.done} steps done and {state.begun} begun of {planned}"
    if not re.fullmatch(r"[0-9a-f]{32}", state.run):
        return "the name of its run is not valid"
    if state.parameters.shape != fresh.parameters.shape or not np.isfinite(state.parameters).all():
        return "its parameters are not those of a run"
    if not (math.isfinite(state.clip) and state.clip > 0):
        return "its clip is not a positive number"
    if not np.isfinite(state.curve[:, 1:]).all() or np.isinf(state.curve).any():  # a loss may be NaN
        return "its history is not that of a run"
    for name, array in state.memory.items():
        least, shape = (1.0, (1,)) if name == "steps" else (-math.inf, fresh.parameters.shape)
        least = 0.0 if name == "second" else least
        if array.shape != shape or not np.isfinite(array).all() or (array < least).any():
            return "the optimiser's memory is not that of a run"
    return ""


def fingerprint(function: Any) -> str:
    """Return a hash of a function's code: a run must not resume with another function of the same name."""
    code = getattr(function, "__code__", None)
    if code is None:
        return ""
    parts = (code.co_code, repr(code.co_consts), code.co_names, repr(getattr(function, "__defaults__", None)))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
