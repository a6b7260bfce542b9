"""Rows that pass cells of an axis of time at a known hazard: what they expect there, and sums by cell.

Claim of `CellSums`. Sums are exact; what a row adds is at most `reach` and, for k cells, sqrt(k) + 3 steps of
2^-20 of it long.
Reason. What a row adds is a whole number in the cell where it leaves, and -q_j times one whole number in each
cell j that it passed, with whole q_j <= 2^20: the sums are exact. The length of its vector is that of few
numbers, since sums of q_j² are whole numbers below 2^53; the vector is shortened if it is longer than
`reach`, before its numbers are rounded, each by half a step, or by one and a half in the cells where the row
enters and leaves. An amount that is cut at 2^32 shortens what is expected, which leaves a vector between the
event alone, of length at most 1 <= `reach`, and the whole.
Tested in tests/unit/blocks/test_hazard_scores.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cape.blocks.block import T_BITS
from cape.blocks.follow_up import Stretches
from cape.blocks.parts import Pass
from cape.blocks.steps import ONE
from cape.core.arrays import Floats, Integers

__all__ = ["CellSums", "Rates", "away_along", "finer"]

_NEARLY = 1 - 1e-9


class Rates:
    """A hazard by cell: what is expected up to a point of the axis, by a row whose hazard is 1 times it.

    `late` says whether rows start elsewhere than at the first cell.
    """

    def __init__(self, hazards: Sequence[int], unit: float, late: bool) -> None:
        self.hazards, self.unit, self.late = tuple(hazards), unit, late
        self.rate = np.array(hazards) * (unit / ONE)
        self.expected = np.concatenate([[0.0], np.cumsum(self.rate)])
        whole = np.cumsum(np.array(hazards, np.float64) ** 2)  # at most 2^13 of them: exact
        self.squares = np.concatenate([[0.0], whole])
        self.scale = (unit / ONE) ** 2

    def between(self, rows: Stretches, cell: Integers, part: Floats) -> Floats:
        """Return what is expected from where rows start to a cell and a part of it."""
        begun = self.expected[rows.start] + rows.start_part * self.rate[rows.start]
        return np.asarray(np.maximum(self.expected[cell] + part * self.rate[cell] - begun, 0.0))

    def passing(self, values: Floats, rows: Stretches, cell: Integers, part: Floats) -> Floats:
        """Return the integrals of numbers by cell, one row each, against the hazard over each stretch."""
        steps = self.rate * values
        sums = np.cumsum(steps, axis=1) - steps  # at the start of each cell
        found = steps.take(cell, axis=1)
        found *= part
        found += sums.take(cell, axis=1)
        if self.late:
            found -= sums.take(rows.start, axis=1) + rows.start_part * steps.take(rows.start, axis=1)
        return found


class CellSums:
    """Adds up events less what is expected, by cell; less of a row that moves them by more than `reach`.

    Numbers are rounded to steps that are finer by `bits` than 2^-20.
    """

    def __init__(self, rates: Rates, reach: float, bins: int, run: Pass, bits: int = 0) -> None:
        cells = len(rates.rate)
        self._rates, self._reach, self._bins, self._fine = rates, reach, bins, 2.0**bits
        self._events, self._passed, self._left = run.total(cells), run.total(cells), run.total(cells)

    def add(self, rows: Stretches, cell: Integers, part: Floats, weights: Floats, rates: Floats) -> None:
        """Add rows whose events count `weights`, and whose hazards are `rates` times the known one."""
        rate, axis, reach = self._rates.rate, self._rates, self._reach
        same = cell == rows.start
        after = np.where(same, part - rows.start_part, part) * rate[cell]
        before = np.where(same, 0.0, (1 - rows.start_part) * rate[rows.start])
        between = np.where(same, 0.0, axis.squares[cell] - axis.squares[np.minimum(rows.start + 1, cell)])
        length = np.sqrt(
            (weights - rates * after) ** 2 + (rates * before) ** 2 + rates**2 * axis.scale * between
        )
        kept = _NEARLY * ONE * self._fine / reach * (reach / np.maximum(length, reach))
        # amounts are counted in units of the largest hazard: q_j of them, over 2^20, are what cell j expects
        amounts = np.rint(kept * rates * axis.unit).clip(None, 2.0**32)
        cells = len(rate)
        self._events.add(_whole(np.bincount(cell, np.rint(kept * weights), cells)))
        self._passed.add(_whole(np.bincount(cell, amounts, cells) - np.bincount(rows.start, amounts, cells)))
        self._left.add(
            _whole(
                np.bincount(cell, np.rint(amounts * part), cells)
                - np.bincount(rows.start, np.rint(amounts * rows.start_part), cells)
            )
        )

    def result(self) -> Integers:
        """Return 2^20 times the events less q_j times those that passed cell j, in steps, within strata."""
        events, passed, left = (
            [int(n) for n in each.result()] for each in (self._events, self._passed, self._left)
        )
        found, later = [0] * len(events), 0
        for cell in range(len(events) - 1, -1, -1):
            if (cell + 1) % self._bins == 0:
                later = 0
            found[cell] = (events[cell] << T_BITS) - self._rates.hazards[cell] * (later + left[cell])
            later += passed[cell]
        fits = all(abs(n) < 1 << 62 for n in found)
        return np.array(found, np.int64 if fits else object)


def away_along(weights: Sequence[float], columns: Floats, centre: Sequence[float]) -> Floats:
    """Return weights·(x - centre) of each row, x in steps: column by column, whatever a row's place."""
    total, product = np.zeros(columns.shape[1]), np.empty(columns.shape[1])
    for column, weight in zip(columns, weights, strict=True):
        np.multiply(column, weight / ONE, out=product)
        total += product
    total -= math.fsum(weight * middle for weight, middle in zip(weights, centre, strict=True))
    return total


def finer(columns: Floats, rows: Integers, bound: float, bits: int) -> Integers:
    """Return rows in steps finer by so many bits, each entry within half a step of the rounded."""
    half = 1 << (bits - 1)
    exact = np.rint((columns.T * (ONE / bound) - rows) * (2 * half)).clip(-half, half)
    return (rows << bits) + exact.astype(np.int64)


def _whole(sums: Floats | Integers) -> Integers:
    return np.asarray(sums).astype(np.int64)
