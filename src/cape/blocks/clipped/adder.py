"""What a site adds up over the records of one step, and what every way of adding it up has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.blocks.clipped.grids import grids
from cape.blocks.clipped.records import Records
from cape.core.arrays import Floats, Integers

__all__ = ["BITS", "KEEP", "LOSS_BITS", "Adder", "GradientSum"]

BITS = 40
"""Sums of gradients count in units of clip times 2^-BITS."""

LOSS_BITS = 20
"""Sums of losses count in units of 2^-LOSS_BITS."""

KEEP = 1.0 - 2.0**-24
"""What is left of a gradient after clipping: it covers all rounding."""


@dataclass(frozen=True)
class GradientSum:
    """What a site adds up over the records of one step; all of it private.

    Attributes:
        sums: the clipped gradients, in units of clip 2^-40, in the order of the parameters.
        below: how many records had a gradient no longer than the clip.
        loss: the losses, each cut off at the bound, in units of 2^-20; None if they were not asked for.
    """

    sums: Integers
    below: int
    loss: int | None = None


class Adder(ABC):
    """What every way of adding shares: the grids, the loss, and the totals."""

    def __init__(self, records: Records, vector: Floats, clip: float, loss_bound: float | None) -> None:
        self.records, self.clip, self.loss_bound = records, clip, loss_bound
        self.network = network = records.network
        self.layers = grids(network, vector)
        self.below, self.loss = 0, 0
        self.totals = np.zeros(network.size, np.int64)
        self.parts: list[Integers] = network.matrices(self.totals)
        self.prepare(vector)

    @abstractmethod
    def prepare(self, vector: Floats) -> None:
        """Compute from the parameters what every chunk needs."""

    @abstractmethod
    def add(self, steps: Floats, squares: Floats, targets: NDArray[Any]) -> None:
        """Add a chunk of records: as in `Records`."""

    def result(self) -> GradientSum:
        """Return the totals."""
        return GradientSum(self.totals, self.below, None if self.loss_bound is None else self.loss)

    def divisors(self, lengths: Floats) -> Floats:
        """Count the gradients that are short enough, and return what to divide each by."""
        self.below += int(np.count_nonzero(lengths <= self.clip))
        return np.maximum(lengths, self.clip, out=lengths)

    def add_loss(self, losses: Floats) -> None:
        """Add the losses of a chunk, each cut off at the bound."""
        assert self.loss_bound is not None
        self.loss += int(np.trunc(np.clip(losses, 0.0, self.loss_bound) * 2.0**LOSS_BITS).sum())
