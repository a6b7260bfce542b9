"""Checkpoints of runs: bytes bent, arrays changed by hand, sizes that lie, bombs."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from assurance.inputs.bend import bend_bytes, pick
from assurance.inputs.surface import Surface
from cape.data import Schema
from cape.learning import NeuralNetwork
from cape.learning.checkpoint import Checkpoint, State

__all__ = ["Checkpoints", "Overdrawn"]

_STEPS = 8
_VALUES: list[Any] = [
    np.zeros(0),
    np.zeros(3),
    np.zeros((2, 4)),
    np.full((9, 4), np.nan),
    np.array(np.nan),
    np.array(-1.0),
    np.array(1e308),
    np.array([np.inf]),
    np.array([0, -2]),
    np.array([2**63 - 1, 2**63 - 1]),
    np.array([-(2**63), 3]),
    np.array([9, 9]),
    np.array([0, 8]),
    np.array([3, 2]),
    np.array([1.0, 2.0]),
    np.array(["x", "y"]),
    np.array("x" * 1000),
    np.array(b"x"),
    np.array([True, False]),
    np.array([1j]),
    np.array([(1, 2.0)], dtype=[("a", "i8"), ("b", "f8")]),
    np.array(["2020-01-01"], dtype="M8[D]"),
    np.zeros(1 << 14),
]
_HEADERS = (
    "{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }",
    "{'descr': '<f8', 'fortran_order': True, 'shape': (2, 2), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (2" + ", 2" * 2000 + "), }",
    "(" * 3000,
    "{'descr': '<U4611686018427387904', 'fortran_order': False, 'shape': (), }",
)


class Overdrawn(Exception):
    """A run would ask more steps than it says that it has left."""


class Checkpoints(Surface):
    """`Checkpoint.read`, and the first question of the run that goes on."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._path = folder / "run.npz"
        self._schema = Schema(age=(0, 100), ill=["no", "yes"])
        self._network = NeuralNetwork("ill", ["age"], hidden=(3,), epochs=_STEPS, checkpoint=str(self._path))
        checkpoint = self._network._checkpoint(self._schema, "terms")
        assert isinstance(checkpoint, Checkpoint)
        start = self._network.start(self._schema)
        state = State("ab" * 16, start + 0.5, 1.0, done=2, begun=3)
        state.history = [(0.5, 1.0, 0.1, 0.01)] * 2
        state.memory = {"first": start, "second": start * start, "steps": np.array([2.0])}
        checkpoint.write(state)
        self._right = self._path.read_bytes()
        with np.load(self._path) as held:
            self._arrays = dict(held)

    def make(self, random: np.random.Generator) -> bytes:
        """Bend the file's bytes, or what stands in it."""
        way = random.random()
        if way < 0.05:
            return self._right
        if way < 0.45:
            return bend_bytes(self._right, random, other=self._right)
        if way < 0.5:
            return self._right[: int(random.integers(len(self._right)))]
        arrays = dict(self._arrays)
        for _ in range(int(random.integers(1, 3))):
            name = pick(random, [*self._arrays, "more", "memory velocity"])
            if random.random() < 0.1:
                arrays.pop(name, None)
            else:
                arrays[name] = pick(random, [*_VALUES, *self._arrays.values()])
        out = io.BytesIO()
        if way < 0.6:
            np.savez_compressed(out, **(arrays | {"parameters": np.zeros(1 << 16)}))
        elif way < 0.85:
            np.savez(out, **arrays)
        else:
            with zipfile.ZipFile(out, "w") as archive:
                header = pick(random, _HEADERS).encode()
                for name, array in self._arrays.items():
                    each = io.BytesIO()
                    np.lib.format.write_array(each, array)
                    bent = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
                    archive.writestr(f"{name}.npy", bent if name == "parameters" else each.getvalue())
        return out.getvalue()

    def feed(self, given: bytes) -> None:
        """Read it, and go on from it; not a step more than are left."""
        self._path.write_bytes(given)
        begun, conversation = self._network.converse(self._schema, "replace-one", "terms")
        if begun is None or not 0 <= begun.stages <= _STEPS:
            raise Overdrawn(f"{begun} of {_STEPS}")
        try:
            next(conversation)
        except StopIteration:
            return
        finally:
            conversation.close()
