"""A multi-layer perceptron: its shape, its parameters as one vector, what it predicts.

Parameters and architecture are public; this module sees no table. What a site adds up over its records is
in `cape.blocks.clipped`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.noise.stream import SecureStream

__all__ = ["ACTIVATIONS", "LOSSES", "Network"]

_AT_ONCE = 1 << 20  # weights that are drawn at once

ACTIVATIONS = ("relu", "tanh", "sigmoid", "identity")
LOSSES = ("cross-entropy", "squared")


@dataclass(frozen=True)
class Network:
    """Layers of weighted sums, with an activation after each but the last.

    The parameters are one flat vector of float64: for each layer its weights, (fan in, fan out) row by
    row, then its biases.

    Attributes:
        inputs: how many features a record has, each in [-1, 1].
        hidden: how many units each hidden layer has; none make it a linear model.
        outputs: 1 for two classes (the logit of the second) or one target; with "cross-entropy", two or
            more are the scores of as many classes; with "squared", as many targets.
        activation: what each hidden unit applies to its sum.
        loss: "cross-entropy" for classes, or "squared" for half of the squared error to targets in
            [-1, 1].
    """

    inputs: int
    hidden: tuple[int, ...] = ()
    outputs: int = 1
    activation: Literal["relu", "tanh", "sigmoid", "identity"] = "relu"
    loss: Literal["cross-entropy", "squared"] = "cross-entropy"

    def __post_init__(self) -> None:
        check.integer("inputs", self.inputs, least=1, most=1 << 20)
        for units in self.hidden:
            check.integer("hidden", units, least=1, most=1 << 20)
        check.integer("outputs", self.outputs, least=1, most=1 << 12)
        object.__setattr__(self, "hidden", tuple(self.hidden))
        if self.activation not in ACTIVATIONS:
            raise InvalidInput(f"activation must be one of {', '.join(ACTIVATIONS)}, not {self.activation!r}")
        if self.loss not in LOSSES:
            raise InvalidInput(f"loss must be one of {', '.join(LOSSES)}, not {self.loss!r}")
        if self.size > 1 << 24:
            raise InvalidInput(f"a network must have at most 2^24 parameters, not {self.size}")

    @cached_property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        return tuple(itertools.pairwise((self.inputs, *self.hidden, self.outputs)))

    @cached_property
    def size(self) -> int:
        return sum((fan_in + 1) * fan_out for fan_in, fan_out in self.shapes)

    def matrices(self, parameters: NDArray[Any]) -> list[NDArray[Any]]:
        """Return each layer as a view of (fan in + 1, fan out): its weights, and its biases below them."""
        matrices, place = [], 0
        for fan_in, fan_out in self.shapes:
            stop = place + (fan_in + 1) * fan_out
            matrices.append(parameters[place:stop].reshape(fan_in + 1, fan_out))
            place = stop
        return matrices

    def initial(self, seed: bytes | SecureStream) -> Floats:
        """Return weights to start from, uniform after He (ReLU) or Glorot, and biases of 0.

        They are public: a seed of 32 bytes that all sites know gives all of them the same.
        """
        stream = seed if isinstance(seed, SecureStream) else SecureStream(seed).fork("cape initial weights")
        parameters = np.zeros(self.size)
        for matrix in self.matrices(parameters):
            fan_in, fan_out = len(matrix) - 1, matrix.shape[1]
            fans = fan_in if self.activation == "relu" else fan_in + fan_out
            rows = max(1, _AT_ONCE // fan_out)
            for start in range(0, fan_in, rows):
                part = matrix[start : min(start + rows, fan_in)]
                uniform = (stream.words(part.shape) >> np.uint64(11)) * 2.0**-52 - 1.0
                part[:] = uniform * math.sqrt(6.0 / fans)
        return parameters

    def check_parameters(self, parameters: ArrayLike) -> Floats:
        """Return the parameters as a contiguous vector, or raise `InvalidInput`."""
        vector = np.ascontiguousarray(parameters, np.float64)
        if vector.shape != (self.size,):
            raise InvalidInput(f"parameters must be a vector of {self.size}, not of shape {vector.shape}")
        return vector

    def forward(self, parameters: ArrayLike, x: ArrayLike) -> Floats:
        """Return the sums of the last layer, (rows, outputs), in plain floating point."""
        rows = np.asarray(x, np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.inputs:
            raise InvalidInput(f"x must have {self.inputs} columns, not the shape {rows.shape}")
        matrices = self.matrices(self.check_parameters(parameters))
        for i, matrix in enumerate(matrices):
            rows = rows @ matrix[:-1] + matrix[-1]
            if i < len(matrices) - 1:
                rows = self._activate(rows)
        return rows

    def predict(self, parameters: ArrayLike, x: ArrayLike) -> Floats:
        """Return what the network says of each row.

        The probability of the second class, (rows,); of each class, (rows, outputs); or the targets.
        """
        last = self.forward(parameters, x)
        if self.loss == "cross-entropy":
            if self.outputs > 1:
                last = np.exp(last - last.max(axis=1, keepdims=True))
                return np.asarray(last / last.sum(axis=1, keepdims=True))
            last = _sigmoid(last)
        return last[:, 0] if self.outputs == 1 else last

    def _activate(self, sums: Floats) -> Floats:
        if self.activation == "relu":
            return np.maximum(sums, 0.0)
        if self.activation == "tanh":
            return np.tanh(sums)
        return _sigmoid(sums) if self.activation == "sigmoid" else sums


def _sigmoid(sums: Floats) -> Floats:
    small = np.exp(-np.abs(sums))
    return np.where(sums >= 0, 1.0, small) / (1.0 + small)
