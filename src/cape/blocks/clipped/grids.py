"""The grids that weights, activations and signals are rounded to, chosen from the parameters alone.

Every weighted sum is then one of whole multiples of a step, fewer than 2^53 of them: see (1) of
`cape.blocks.clipped`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cape.blocks.network import Network
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput

__all__ = ["INPUT_BITS", "Layer", "choose_signal_grids", "exponent", "grids", "truncate"]

INPUT_BITS = 20
_EXACT = 52  # sums of at most 2^52 steps: one bit less than float64 has, for the rounding of the bounds


@dataclass
class Layer:
    """A layer on its grids."""

    weights: Floats  # from inputs in steps to sums, in steps of the activations or natural
    bias: Floats | None  # None where the inputs have a column for it
    back: Floats  # natural
    in_bits: int  # the inputs' grid is 2^-in_bits
    out_bits: int  # the activations'
    cap: float | None  # activations in steps are cut off here
    most: float  # what a sum can come to
    bounds: Floats  # what the activations can come to
    signal_bits: int = 0


def grids(network: Network, vector: Floats) -> list[Layer]:
    """Choose the grids from the parameters, and put the weights on them."""
    magnitudes = np.abs(vector)
    if not magnitudes.max() <= 2.0**64:
        raise InvalidInput("parameters must be finite and at most 2^64 in magnitude")
    layers: list[Layer] = []
    bounds, bits, typical = None, INPUT_BITS, math.sqrt(network.inputs / 3)
    for matrix, magnitude in zip(network.matrices(vector), network.matrices(magnitudes), strict=True):
        # what the sums can come to
        bounds = magnitude.sum(axis=0) if bounds is None else bounds @ magnitude[:-1] + magnitude[-1]
        most = float(bounds.max())
        places = min(_EXACT - bits - exponent(most), 60)
        whole = matrix * 2.0**places
        np.trunc(whole, out=whole)
        out_bits, cap, scale = 0, None, 0
        if len(layers) < len(network.hidden):
            fan_in, units = len(matrix) - 1, matrix.shape[1]
            square = float(np.vdot(matrix, matrix)) * max(typical * typical / fan_in, 1.0 / 16)
            typical = min(math.sqrt(square / 2), 2.0**INPUT_BITS)
            if network.activation in ("tanh", "sigmoid"):
                bounds = np.minimum(bounds, 1.0)
                typical = min(typical, math.sqrt(units))
            # the coarser for the activations, the finer for the signals; squares have to be exact
            room = (_EXACT - exponent(float(np.dot(bounds, bounds)))) // 2
            wanted = INPUT_BITS - round(math.log2(max(typical, 1.0)))
            out_bits = max(min(wanted, room), 0)
            if room < 0:
                cap = math.floor(2.0 ** (_EXACT / 2) / math.sqrt(units))
                bounds = np.minimum(bounds, cap)
            scale = out_bits if network.activation in ("relu", "identity") else 0
        whole *= 2.0 ** (scale - places - bits)
        weights, bias = (whole[:-1], whole[-1] * 2.0**bits) if layers else (whole, None)
        layers.append(Layer(weights, bias, matrix[:-1], bits, out_bits, cap, most, bounds))
        bits = out_bits
    return layers


def choose_signal_grids(network: Network, layers: list[Layer]) -> None:
    """Choose the grids of the signals, from the last layer to the first."""
    bounds = np.ones(network.outputs) if network.loss == "cross-entropy" else layers[-1].bounds + 1.0
    for layer in layers[::-1]:
        if len(bounds) == 1:
            layer.signal_bits = 50 - exponent(float(bounds[0]))
        else:
            layer.signal_bits = (_EXACT - exponent(float(np.dot(bounds, bounds)))) // 2
        below = np.matmul(np.abs(layer.back), bounds)
        most = float(below.max())
        if not most <= 2.0**400:
            raise InvalidInput(
                "parameters must be smaller: the gradients they make leave the range of float64"
            )
        if len(bounds) > 1:
            layer.back = _on_grid(layer.back, _EXACT - layer.signal_bits - exponent(most))
        bounds = below


def exponent(value: float) -> int:
    """Return e with value <= 2^e, and not far below; -60 for what is smaller still."""
    return max(math.frexp(value)[1], -60)


def _on_grid(values: Floats, bits: int) -> Floats:
    return np.asarray(np.trunc(values * 2.0**bits) * 2.0**-bits)


def truncate(values: Floats, bits: int) -> None:
    """Round toward zero to multiples of 2^-bits, in place."""
    np.multiply(values, 2.0**bits, out=values)
    np.trunc(values, out=values)
    np.multiply(values, 2.0**-bits, out=values)
