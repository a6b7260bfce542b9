"""The clipped gradients of any network: signals of every layer, then one product per layer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.blocks.clipped import arithmetic
from cape.blocks.clipped.adder import BITS, KEEP, Adder
from cape.blocks.clipped.grids import Layer, choose_signal_grids, truncate
from cape.core.arrays import Floats

__all__ = ["Layers"]


class Layers(Adder):
    """Any network: signals of every layer, then one product per layer."""

    def prepare(self, vector: Floats) -> None:
        choose_signal_grids(self.network, self.layers)

    def add(self, steps: Floats, squares: Floats, targets: NDArray[Any]) -> None:
        inputs, signals = self.factors(steps, squares, targets)
        for layer, signal, given, part in zip(self.layers, signals, inputs, self.parts, strict=True):
            if layer.bias is None:
                part += arithmetic.cross(given, signal).astype(np.int64)
            else:
                part[:-1] += arithmetic.cross(given, signal).astype(np.int64)
                part[-1] += signal.sum(axis=0).astype(np.int64) << layer.in_bits

    def factors(
        self, steps: Floats, squares: Floats, targets: NDArray[Any]
    ) -> tuple[list[Floats], list[Floats]]:
        """Return the inputs and clipped signals of each layer, whose products are the gradients."""
        count, last = len(steps), len(self.layers) - 1
        inputs: list[Floats] = [steps]
        lengths: list[Floats] = [squares]  # |a|² + 1 of each layer's inputs
        for i, layer in enumerate(self.layers):
            sums = self.records.layers[i][:count]
            arithmetic.product(inputs[i], layer.weights, sums)
            if layer.bias is not None:
                sums += layer.bias
            if i < last:
                self._activate(sums, layer)
                inputs.append(sums)
                lengths.append(arithmetic.squares(sums) * 4.0**-layer.out_bits + 1.0)
        signals = [signal[:count] for signal in self.records.signals]
        self._output(sums, targets, signals[last])
        total = np.zeros(count)
        for i in range(last, -1, -1):
            layer, signal = self.layers[i], signals[i]
            if i < last:
                above = self.layers[i + 1]
                if above.back.shape[1] == 1:  # one product and no sum
                    np.multiply(signals[i + 1], above.back.T, out=signal)
                else:
                    arithmetic.product(signals[i + 1], above.back.T, signal)
                self._differentiate(inputs[i + 1], signal, layer)
            truncate(signal, layer.signal_bits)
            total += arithmetic.squares(signal) * lengths[i]
        scale = KEEP / self.divisors(np.sqrt(total))
        for layer, signal in zip(self.layers, signals, strict=True):
            bits = BITS - layer.in_bits
            signal *= (scale * 2.0**bits)[:, None]
            np.trunc(signal, out=signal)
        return inputs, signals

    def _activate(self, sums: Floats, layer: Layer) -> None:
        """Turn sums into activations in whole steps."""
        kind = self.network.activation
        if kind == "tanh":
            sums[...] = arithmetic.tanh(sums)
        elif kind == "sigmoid":
            sums[...] = arithmetic.sigmoid(sums)
        elif kind == "relu":
            np.maximum(sums, 0.0, out=sums)
        if kind in ("tanh", "sigmoid"):
            np.multiply(sums, 2.0**layer.out_bits, out=sums)
        elif layer.cap is not None:
            np.clip(sums, -layer.cap, layer.cap, out=sums)
        np.trunc(sums, out=sums)

    def _differentiate(self, activations: Floats, signal: Floats, layer: Layer) -> None:
        """Multiply a signal by the derivative of the activation."""
        kind = self.network.activation
        if kind == "relu":
            signal *= np.minimum(activations, 1.0)  # whole steps: 0 or at least 1
        elif kind != "identity":
            natural = activations * 2.0**-layer.out_bits
            signal *= 1.0 - natural * natural if kind == "tanh" else natural * (1.0 - natural)

    def _output(self, sums: Floats, targets: NDArray[Any], signal: Floats) -> None:
        """Write the derivative of the loss by the last sums."""
        if self.network.loss == "squared":
            np.subtract(sums, targets, out=signal)
            if self.loss_bound is not None:
                losses = np.zeros(len(sums))
                for column in signal.T:  # one after the other: the order is fixed
                    losses += 0.5 * column * column
                self.add_loss(losses)
        elif self.network.outputs == 1:
            np.subtract(arithmetic.sigmoid(sums), targets, out=signal)
            if self.loss_bound is not None:
                self.add_loss(arithmetic.cross_entropy(sums, targets)[:, 0])
        else:
            sums -= sums.max(axis=1, keepdims=True)
            np.trunc(arithmetic.exp(sums) * 2.0**40, out=signal)  # at most 2^12 of them: the sum is exact
            total = arithmetic.dot(signal, np.ones(signal.shape[1]))
            signal /= total[:, None]
            everyone = np.arange(len(sums))
            signal[everyone, targets] -= 1.0
            if self.loss_bound is not None:
                self.add_loss(arithmetic.log(total * 2.0**-40) - sums[everyone, targets])
