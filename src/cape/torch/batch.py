"""A batch of records, and the loss of each: shapes that say which number belongs to which record.

Claim. `per_record` returns B numbers, the i-th of which is all of record i's loss.
Reason. The loss's first dimension has to be B, and whatever else it has is added up. A loss that broadcasts
(B, 1) against (B,) returns (B, B), in which every row holds other records' targets: it is recognised by its
shape, which then changes with the size of the batch (`cape.torch.alone` compares).
Tested in tests/torch/test_losses.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from cape.core.errors import InvalidInput

__all__ = ["Batch", "per_record"]


@dataclass(frozen=True)
class Batch:
    """Inputs (one tensor for each argument of the module) and targets, records first."""

    inputs: tuple[Any, ...]
    targets: Any

    @classmethod
    def of(cls, inputs: Any, targets: Any) -> Batch:
        """Return the batch, once every tensor has as many records."""
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        if not inputs or not all(isinstance(part, torch.Tensor) for part in (*inputs, targets)):
            raise InvalidInput("inputs must be a tensor or a tuple of tensors, and targets a tensor")
        if any(part.ndim == 0 or part.shape[0] != len(inputs[0]) for part in (*inputs, targets)):
            raise InvalidInput("inputs and targets must have one entry for each record in dimension 0")
        return cls(inputs, targets)

    def __len__(self) -> int:
        return len(self.inputs[0])

    def __getitem__(self, which: Any) -> Batch:
        """Return some of the records."""
        return Batch(tuple(part[which] for part in self.inputs), self.targets[which])

    @property
    def form(self) -> tuple[Any, ...]:
        """Equal for two batches that a module and a loss treat alike."""
        return tuple((part.ndim, part.dtype) for part in (*self.inputs, self.targets))

    def losses(self, module: Any, loss: Any) -> Any:
        """Return the losses as they come, checked to have the records first."""
        losses = loss(module(*self.inputs), self.targets)
        if not isinstance(losses, torch.Tensor) or losses.ndim == 0 or losses.shape[0] != len(self):
            raise InvalidInput("loss must return one value for each record: use reduction='none'")
        return losses


def per_record(losses: Any) -> Any:
    """Return one loss for each record: the sum over all other dimensions."""
    return losses if losses.ndim == 1 else losses.flatten(1).sum(1)
