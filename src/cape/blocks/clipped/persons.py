"""Gradients of persons: what all records of one add up to, clipped like that of one record.

Claim. When a person is added or removed, with up to 1000 records, the sums change by a vector of length at
most 1 clip, certainly; what a person adds depends on nothing but that person's records and the parameters.
Reason. A record's clipped gradient is whole numbers of 2^-40 clips, products of the factors that `Layers`
proves exact, each at most 2^40. Sums of 1000 of them are below 2^53, so float64 adds them exactly;
`clip_sums` then shortens each person's.
Tested in tests/unit/blocks/test_clipped_persons.py.
"""

from __future__ import annotations

import numpy as np

from cape.blocks.clip import clip_sums
from cape.blocks.clipped.adder import BITS, GradientSum
from cape.blocks.clipped.layers import Layers
from cape.blocks.clipped.records import Records
from cape.core.arrays import Floats, Integers
from cape.core.errors import InvalidInput

__all__ = ["person_sum"]

_MOST_CELLS = 1 << 23  # of gradients that are held at once: 64 MB


def person_sum(
    records: Records, vector: Floats, clip: float, loss_bound: float | None, persons: Integers
) -> GradientSum:
    """Return the sum over persons of what their records add up to, each clipped."""
    if len(persons) != len(records) or (np.diff(persons) < 0).any():
        raise InvalidInput("persons must say whose each record is, as rising numbers")
    adder = Layers(records, vector, clip, loss_bound)
    starts = np.flatnonzero(np.diff(persons, prepend=-1))
    ends = np.append(starts[1:], len(persons))
    size = max(1, min(records.chunk, _MOST_CELLS // adder.network.size))
    first = 0
    while first < len(starts):
        last = int(np.searchsorted(ends, starts[first] + size, side="right"))
        last = max(last, first + 1)  # a person's records are never divided
        part = slice(int(starts[first]), int(ends[last - 1]))
        if part.stop - part.start > records.chunk:
            raise InvalidInput(f"a person may have at most {records.chunk} records")
        _add(adder, part, starts[first:last] - part.start)
        first = last
    return adder.result()


def _add(adder: Layers, part: slice, starts: Integers) -> None:
    """Add the persons whose records start at these places of a part."""
    records = adder.records
    inputs, signals = adder.factors(records.steps[part], records.squares[part], records.targets[part])
    sums = []
    for layer, signal, given in zip(adder.layers, signals, inputs, strict=True):
        products = given[:, :, None] * signal[:, None, :]
        found = np.add.reduceat(products, starts, axis=0).astype(np.int64)
        if layer.bias is not None:
            bias = np.add.reduceat(signal, starts, axis=0).astype(np.int64) << layer.in_bits
            found = np.concatenate([found, bias[:, None]], axis=1)
        sums.append(found.reshape(len(starts), -1))
    adder.totals += clip_sums(np.concatenate(sums, axis=1), BITS).sum(axis=0)
