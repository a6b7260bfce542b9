"""Arithmetic whose results depend on nothing but the numbers that go in, wherever they stand.

Sums over several numbers are made by `dot`, `product`, `cross` and `squares` only, and the grids see to it
that all of them are exact. Functions of one number are made of operations that IEEE 754 rounds exactly.
"""

from __future__ import annotations

import math

import numpy as np

from cape.core.arrays import Floats

__all__ = [
    "SIGMOID_MIDDLE",
    "SIGMOID_PARTS",
    "cross",
    "cross_entropy",
    "dot",
    "exp",
    "log",
    "product",
    "sigmoid",
    "sigmoid_at",
    "squares",
    "tanh",
]

_SMALL_PRODUCT = 10**6  # OpenBLAS multiplies up to so many numbers a quarter faster


def dot(left: Floats, right: Floats) -> Floats:
    """Return left @ right."""
    return np.asarray(np.matmul(left, right))


def product(left: Floats, right: Floats, out: Floats) -> None:
    """Write left @ right, in blocks of rows that BLAS multiplies without packing them first."""
    count, rows = _blocks(len(left), right.size)
    whole = count * rows
    if count > 1:
        np.matmul(left[:whole].reshape(count, rows, -1), right, out=out[:whole].reshape(count, rows, -1))
    if count <= 1 or whole < len(left):
        whole = whole if count > 1 else 0
        np.matmul(left[whole:], right, out=out[whole:])


def cross(left: Floats, right: Floats) -> Floats:
    """Return left.T @ right, in the same blocks."""
    count, rows = _blocks(len(left), left.shape[1] * right.shape[1])
    if count <= 1:
        return np.asarray(left.T @ right)
    whole = count * rows
    stacked = left[:whole].reshape(count, rows, -1).transpose(0, 2, 1)
    sums: Floats = np.add.reduce(np.matmul(stacked, right[:whole].reshape(count, rows, -1)), axis=0)
    if whole < len(left):
        sums += left[whole:].T @ right[whole:]
    return sums


def _blocks(rows: int, size: int) -> tuple[int, int]:
    """Return how many blocks of how many rows to multiply by a matrix of `size` entries."""
    most = _SMALL_PRODUCT // size
    if most < 64 or rows <= most:
        return 1, rows
    count = -(-rows // most)
    return count, rows // count


def row_squares(values: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->i", values, values))


def row_dots(values: Floats) -> Floats:
    return np.asarray(np.vecdot(values, values))


squares = row_dots if hasattr(np, "vecdot") else row_squares  # faster, from numpy 2 on


_EXP_PARTS = 32
_EXP_LOWEST = -60
_EXP_TABLE = np.array([math.exp(-i / _EXP_PARTS) for i in range(-_EXP_LOWEST * _EXP_PARTS + 1)])


def exp(values: Floats) -> Floats:
    """Return exp of values that are at most 0, to a part in 2^36; of less than -60, as of -60."""
    rest = np.maximum(values, _EXP_LOWEST)
    parts = np.rint(rest * -_EXP_PARTS)
    rest += parts * (1.0 / _EXP_PARTS)
    power = rest * (1 / 24)
    power += 1 / 6
    power *= rest
    power += 1 / 2
    power *= rest
    power += 1.0
    power *= rest
    power += 1.0
    power *= _EXP_TABLE[parts.astype(np.intp)]
    return power


SIGMOID_PARTS = 256
SIGMOID_MIDDLE = 20 * SIGMOID_PARTS
_SIGMOID = np.array(
    [1.0 / (1.0 + math.exp(-i / SIGMOID_PARTS)) for i in range(-SIGMOID_MIDDLE, SIGMOID_MIDDLE + 1)]
)
_SIGMOID_SLOPE = _SIGMOID * (1.0 - _SIGMOID) / SIGMOID_PARTS


def sigmoid(values: Floats) -> Floats:
    """Return 1 / (1 + exp(-x)), to 2^-22."""
    return sigmoid_at(values * SIGMOID_PARTS + SIGMOID_MIDDLE, True)


def sigmoid_at(places: Floats, far: bool) -> Floats:
    """Return the sigmoid of (places - middle) / parts: a table, and its slope in between."""
    if far:
        np.maximum(places, 0.0, out=places)
        np.minimum(places, 2.0 * SIGMOID_MIDDLE, out=places)
    nearest = np.rint(places)
    places -= nearest
    index = nearest.astype(np.intp)
    places *= _SIGMOID_SLOPE.take(index, mode="clip")
    places += _SIGMOID.take(index, mode="clip")
    return places


def tanh(values: Floats) -> Floats:
    """Return the hyperbolic tangent, to 2^-30."""
    small = exp(np.abs(values) * -2.0)
    return np.copysign((1.0 - small) / (1.0 + small), values)


def cross_entropy(logits: Floats, labels: Floats) -> Floats:
    """Return the loss of logits where labels are 0 or 1."""
    return np.asarray(log(1.0 + exp(-np.abs(logits))) + np.maximum(logits, 0.0) - logits * labels)


def log(values: Floats) -> Floats:
    """Return the logarithm of values of at least 1, to 2^-30."""
    fraction, exponent = np.frexp(values)
    ratio = (1.0 - fraction) / (1.0 + fraction)
    square = ratio * ratio
    series = np.full_like(square, 1 / 19)
    for odd in range(17, 0, -2):
        series = series * square + 1 / odd
    return np.asarray(exponent * math.log(2.0) - 2.0 * ratio * series)
