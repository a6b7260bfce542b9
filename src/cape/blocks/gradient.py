"""The gradients of a network's loss, each clipped: what a site adds up in a step of training.

That one record moves the sums by at most one clip is argued in `cape.blocks.clipped`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cape.blocks.block import T_BITS, Array, Sums, VectorBlock
from cape.blocks.clipped import GradientSum, Records, clipped_sum
from cape.blocks.kept import Kept
from cape.blocks.network import Network
from cape.blocks.sampling import sample
from cape.blocks.steps import ONE
from cape.core.arrays import Floats, Integers
from cape.core.errors import InvalidInput
from cape.data.schema import Category, Schema
from cape.noise import SecureStream

__all__ = ["Gradient"]


@dataclass(frozen=True, eq=False)
class Gradient(VectorBlock):
    """Over complete rows: the gradients of a network's loss at given parameters, each clipped.

    A row takes part with probability `rate`, drawn in secret at the site. Arrays: sums (parameters,), in
    units of the clip; what all rows of a person add up to is clipped as well, `by_person`. With a
    `loss_bound` also below (1,), how many gradients were no longer than the clip, and loss (1,), the losses,
    each cut off at the bound and divided by it.
    """

    network: Network
    parameters: Floats
    clip: float
    rate: float = 1.0
    loss_bound: float | None = None
    by_person: bool = False

    at_once: ClassVar[bool] = True  # records are prepared once, for all steps

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        self.design.check(schema)
        if not self.design.cube or self.design.target is None:
            raise InvalidInput("a gradient needs a design in a cube, with a target")
        if self.design.width(schema) != self.network.inputs:
            raise InvalidInput(
                f"the network must have {self.design.width(schema)} inputs, not {self.network.inputs}"
            )
        sums = Array("sums", self.network.check_parameters(self.parameters).shape, 2 * T_BITS)
        if self.loss_bound is None:
            return (sums,)
        return (sums, Array("below", (1,), 0), Array("loss", (1,), T_BITS))

    def over(self, kept: Kept, stream: SecureStream | None) -> Sums:
        if self.by_person:
            found = self._of_persons(kept)
        else:
            records = kept.once(self.network, lambda: self._records(kept, slice(None)))
            rows = sample(stream, len(records), self.rate) if self.rate < 1 else None
            found = clipped_sum(self.parameters, records, self.clip, rows=rows, loss_bound=self.loss_bound)
        if found.loss is None or self.loss_bound is None:
            return (found.sums,)
        loss = math.floor(found.loss / self.loss_bound)
        return found.sums, np.array([found.below]), np.array([loss])

    def _of_persons(self, kept: Kept) -> GradientSum:
        persons = kept.persons
        if persons is None:
            raise InvalidInput("a sum that is clipped by person needs a schema with persons of several rows")

        def by_person() -> tuple[Records, Integers]:
            order = np.argsort(persons, kind="stable")
            return self._records(kept, order), persons[order]

        records, whose = kept.once((self.network, "persons"), by_person)
        return clipped_sum(self.parameters, records, self.clip, loss_bound=self.loss_bound, persons=whose)

    def _records(self, kept: Kept, order: slice | Integers) -> Records:
        assert kept.y is not None
        y = kept.y if isinstance(kept.schema[self.reads[-1]], Category) else kept.y / ONE
        return Records(self.network, kept.x[order] / ONE, y[order])
