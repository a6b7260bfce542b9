"""The sum over records of clipped gradients, chunk by chunk."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from cape.blocks.clipped.adder import Adder, GradientSum
from cape.blocks.clipped.layers import Layers
from cape.blocks.clipped.one_hidden import OneHidden
from cape.blocks.clipped.persons import person_sum
from cape.blocks.clipped.records import Records
from cape.blocks.steps import ONE
from cape.core import check
from cape.core.arrays import Integers
from cape.core.errors import InvalidInput, OverflowRisk

__all__ = ["clipped_sum"]

_MOST_ROWS = 1 << 22  # their sum fits 63 bits


def clipped_sum(
    parameters: ArrayLike,
    records: Records,
    clip: float,
    *,
    rows: Integers | None = None,
    loss_bound: float | None = None,
    persons: Integers | None = None,
) -> GradientSum:
    """Return the sum over records of g min(1, clip / |g|), for the gradient g of a record's loss.

    Args:
        parameters: where the gradient is taken: finite and at most 2^64 in magnitude.
        records: what the site holds.
        clip: the length that longer gradients are shortened to.
        rows: the numbers of the records that take part, rising, as `cape.blocks.sampling` gives them; None
            for all.
        persons: whose each record is, as rising numbers; what a person's records add up to is then
            shortened to the clip as well. All records take part.
        loss_bound: also add up the losses, each cut off at this bound.

    Raises:
        InvalidInput: parameters that are not finite, or that no float64 could follow.
        OverflowRisk: more than 2^22 records at once.
    """
    clip = check.real("clip", clip, least=2.0**-64, most=2.0**64)
    if loss_bound is not None:
        loss_bound = check.real("loss_bound", loss_bound, above=0.0, most=ONE)
    count = len(records)
    if rows is not None:
        rows = np.asarray(rows)
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or not _rising(rows, count):
            raise InvalidInput("rows must be a vector of numbers of records that rise: each at most once")
        count = len(rows)
    if count > _MOST_ROWS:
        raise OverflowRisk("a sum of gradients takes at most 2^22 records; use a smaller rate or more sites")
    network = records.network
    vector = network.check_parameters(parameters)
    with np.errstate(over="ignore", invalid="ignore"):
        if persons is not None:
            return person_sum(records, vector, clip, loss_bound, persons)
        one_number = len(network.hidden) == 1 and network.outputs == 1 and network.activation == "relu"
        kind: type[Adder] = OneHidden if one_number else Layers
        adder = kind(records, vector, clip, loss_bound)
        size = -(-count // max(-(-count // records.chunk), 1))  # chunks as even as can be
        for start in range(0, count, max(size, 1)):
            stop = min(start + size, count)
            if rows is None:
                part = slice(start, stop)
                steps, squares, targets = records.steps[part], records.squares[part], records.targets[part]
            else:
                taken = rows[start:stop]
                steps = records.inputs[: stop - start]
                np.take(records.steps, taken, axis=0, out=steps, mode="clip")
                squares, targets = records.squares[taken], records.targets[taken]
            adder.add(steps, squares, targets)
        return adder.result()


def _rising(rows: Integers, count: int) -> bool:
    """Return whether these are numbers below `count`, each at most once."""
    if not rows.size:
        return True
    return bool(rows[0] >= 0 and rows[-1] < count and (rows[1:] > rows[:-1]).all())
