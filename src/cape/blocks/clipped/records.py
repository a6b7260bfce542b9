"""A site's records, prepared once, and the arrays that chunks of them pass through in every step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cape.blocks.network import Network
from cape.blocks.steps import ONE
from cape.core import check
from cape.core.errors import InvalidInput

__all__ = ["MOST_CHUNK", "Records"]

_CHUNK_ROWS = 1250  # what stays in cache
MOST_CHUNK = 1 << 13
"""How many records at most are added up in float64: see (3) of `cape.blocks.clipped`."""


class Records:
    """A site's records as `clipped_sum` wants them: prepared once, used in every step.

    Args:
        network: which inputs and targets to expect.
        x: (rows, inputs) of float64, clamped to [-1, 1] and rounded toward zero to multiples of 2^-20.
        y: (rows,) of 0 or 1 for one output with "cross-entropy", of class numbers for several; for
            "squared", (rows,) or (rows, outputs), clamped to [-1, 1].

        chunk: how many records are computed at a time.

    A row with anything that is not finite, or with a class that there is not, is left out.
    """

    def __init__(self, network: Network, x: ArrayLike, y: ArrayLike, *, chunk: int = _CHUNK_ROWS) -> None:
        rows, targets = np.asarray(x, np.float64), np.asarray(y, np.float64)
        if rows.ndim != 2 or rows.shape[1] != network.inputs:
            raise InvalidInput(f"x must have {network.inputs} columns, not the shape {rows.shape}")
        columns = network.outputs if network.loss == "squared" else 1
        if targets.shape not in ((len(rows), columns), (len(rows),) if columns == 1 else ()):
            raise InvalidInput(f"y must have as many rows as x, and {columns} columns")
        targets = targets.reshape(len(rows), columns)
        good = np.isfinite(rows).all(axis=1) & np.isfinite(targets).all(axis=1)
        if network.loss == "cross-entropy":
            label = targets[:, 0]
            good &= (label >= 0) & (label <= max(network.outputs - 1, 1)) & (label == np.floor(label))
        if not good.all():
            rows, targets = rows[good], targets[good]
        self.network = network
        self.steps = np.empty((len(rows), network.inputs + 1))
        inputs = self.steps[:, :-1]
        np.clip(rows, -1.0, 1.0, out=inputs)
        np.multiply(inputs, ONE, out=inputs)
        np.trunc(inputs, out=inputs)
        self.steps[:, -1] = ONE
        self.targets: NDArray[Any]
        if network.loss == "squared":
            self.targets = np.clip(targets, -1.0, 1.0)
        elif network.outputs > 1:
            self.targets = targets[:, 0].astype(np.int64)
        else:
            self.targets = np.ascontiguousarray(targets)
        self.squares = np.empty(len(rows))
        for start in range(0, len(rows), MOST_CHUNK):
            part = self.steps[start : start + MOST_CHUNK].astype(np.int64)
            self.squares[start : start + MOST_CHUNK] = np.einsum("ij,ij->i", part, part)
        self.squares /= ONE * ONE
        self.chunk = check.integer("chunk", chunk, least=1, most=MOST_CHUNK)
        self.inputs = np.empty((chunk, network.inputs + 1))
        self.layers = [np.empty((chunk, width)) for _, width in network.shapes]
        self.signals = [np.empty_like(layer) for layer in self.layers]
        # numpy is twice as fast at max(a, b) when b is an array
        self.zeros, self.ones = np.zeros_like(self.layers[0]), np.ones_like(self.layers[0])

    def __len__(self) -> int:
        return len(self.steps)
