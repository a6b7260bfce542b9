"""The clipped gradients of one hidden layer of ReLUs and one output: (5) of `cape.blocks.clipped`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.blocks.clipped import arithmetic
from cape.blocks.clipped.adder import BITS, KEEP, Adder, GradientSum
from cape.blocks.clipped.grids import INPUT_BITS, exponent
from cape.blocks.clipped.records import MOST_CHUNK
from cape.core.arrays import Floats, Integers

__all__ = ["OneHidden"]


class OneHidden(Adder):
    """One hidden layer of ReLUs and one output: one number per record stands for all signals (5)."""

    def prepare(self, vector: Floats) -> None:
        weights = np.ascontiguousarray(self.network.matrices(vector)[1][:-1, 0], np.float64)
        # whole numbers of at most 25 bits, and their squares rounded up to what any sum of them can hold
        self.shift = min(25 - exponent(float(np.max(np.abs(weights)))), BITS)
        whole = np.trunc(weights * 2.0**self.shift)
        self.whole = whole.astype(np.int64)
        spare = 2.0 ** len(weights).bit_length()
        self.squares = np.ceil(whole * whole / spare) * (spare * 4.0**-self.shift)
        output = self.layers[1]
        assert output.bias is not None
        self.last, self.bias = output.weights[:, 0], float(output.bias[0])
        if self.network.loss == "cross-entropy":  # in the units of the table of the sigmoid
            self.last = self.last * arithmetic.SIGMOID_PARTS
            self.bias = self.bias * arithmetic.SIGMOID_PARTS + arithmetic.SIGMOID_MIDDLE
        self.far = output.most > 2.0**40
        self.sums = np.zeros((self.network.inputs + 1, len(weights)))
        self.room = MOST_CHUNK
        self.bits = BITS - output.in_bits

    def add(self, steps: Floats, squares: Floats, targets: NDArray[Any]) -> None:
        count = len(steps)
        hidden, output = self.layers
        records = self.records
        units, active = records.layers[0][:count], records.signals[0][:count]
        arithmetic.product(steps, hidden.weights, units)
        np.maximum(units, records.zeros[:count], out=units)
        if hidden.cap is not None:
            np.minimum(units, hidden.cap, out=units)
        np.floor(units, out=units)
        np.minimum(units, records.ones[:count], out=active)  # whole steps: 0 or at least 1
        signal = self._signal(arithmetic.dot(units, self.last), targets[:, 0])
        lengths = arithmetic.squares(units)
        lengths *= 4.0**-hidden.out_bits
        lengths += 1.0
        below = arithmetic.dot(active, self.squares)
        below *= squares
        lengths += below
        np.sqrt(lengths, out=lengths)
        lengths *= np.abs(signal)
        signal /= self.divisors(lengths)
        signal *= KEEP * 2.0**self.bits
        numbers = np.trunc(signal)
        part = self.parts[1]
        part[:-1, 0] += arithmetic.dot(numbers, units).astype(np.int64)
        part[-1, 0] += int(numbers.sum()) << output.in_bits
        signal *= 2.0 ** (BITS - INPUT_BITS - self.bits)
        np.trunc(signal, out=signal)
        active *= signal[:, None]
        if count > self.room:
            self._flush()
        self.room -= count
        self.sums += arithmetic.cross(steps, active)

    def _signal(self, sums: Floats, labels: Floats) -> Floats:
        """Return the derivative of the loss, and add up the loss if it is asked for."""
        sums += self.bias
        if self.network.loss == "squared":
            sums -= labels
            if self.loss_bound is not None:
                self.add_loss(0.5 * sums * sums)
            return sums
        if self.loss_bound is not None:
            logits = (sums - arithmetic.SIGMOID_MIDDLE) * (1.0 / arithmetic.SIGMOID_PARTS)
            self.add_loss(arithmetic.cross_entropy(logits, labels))
        signal = arithmetic.sigmoid_at(sums, self.far)
        signal -= labels
        return signal

    def _flush(self) -> None:
        """Move the exact sums of at most 8192 records from float64 to int64."""
        self.parts[0][...] += self.sums.astype(np.int64)
        self.sums[...] = 0.0
        self.room = MOST_CHUNK

    def result(self) -> GradientSum:
        self._flush()
        self.parts[0][...] = _times(self.parts[0], self.whole, self.shift)
        return super().result()


def _times(sums: Integers, whole: Integers, shift: int) -> Integers:
    """Return floor(sums whole / 2^shift), which fits 63 bits, without a product that does not."""
    if shift <= 0:
        return (sums * whole) << -shift
    bits = min(shift, 26)
    high, low = sums >> bits, sums & ((1 << bits) - 1)
    high *= whole
    low *= whole
    low >>= bits
    high += low
    high >>= shift - bits
    return high
