"""Rows of any function's results, each clipped to an L2 norm of 1 in whole steps.

Claim. Every row comes back as integers w with sum of w_i^2 <= 2^40, certainly, and the same row gives the
same w in every batch.
Reason. A row with an entry that is not finite comes back as 0. Any other is divided by the larger of the
bound and its largest entry and rounded, so its entries are integers q with |q_i| <= 2^20 and the sum of their
squares is exact in int64. A row that is within 2^40 stays as it is. One that is not is divided by its norm,
truncated, and checked in integers; if floating point put it outside, every entry that is not 0 moves one step
toward 0 until it is inside.

Claim of `clip_products`. The vectors z_1, z_2, ... of every row come back as integers for which the root of
the sum of squares of the entries of sum z_l z_l' is at most 2^40 (1 + 2^-44), certainly, and the same row
gives the same integers in every batch.
Reason. That sum of squares is the sum of (z_l·z_m)² over all l and m. Products of integers below 2^21 are
exact in int64, and below 2^53 as floats; adding up the squares of fewer than 2^9 of them, all positive, is
wrong by less than a part of 2^-43, and its root by half of that. Rows that are longer are made shorter and
truncated until none is. All that is done before that is done for each row by itself, in one order, and in
units of its largest entry, so that no square is 0 or infinite: no integer exceeds 2^20 when it is rounded.

Claim of `clip_sums`. A sum of at most 1000 such rows comes back as integers of length at most that of one
row, certainly, and depends on nothing else.
Reason. Entries are rounded up to multiples of 2^shift, whose squares add up exactly in int64 (below 2^60) to
S: the true length is at most 2^shift sqrt(S). A sum that this shows to be short enough stays as it is. Any
other is multiplied by (1 - 2^-24) times what is allowed over that bound, one number at a time, and truncated,
which only shrinks; the factor covers the rounding of floating point.
Tested in tests/unit/blocks/test_custom.py and test_clipped_persons.py.
"""

from __future__ import annotations

import math

import numpy as np

from cape.blocks.steps import ONE
from cape.core.arrays import Floats, Integers

__all__ = ["LARGEST_SIZE", "clip_products", "clip_rows", "clip_sums", "inside"]

LARGEST_SIZE = 1 << 22
"""How many entries a row may have: the sum of their squares then stays below 2^62."""

_LIMIT = int(ONE) ** 2
_FINE = 20
_KEEP = 1.0 - 2.0**-24
_LESS = 1.0 - 2.0**-18
_TINY = 1e-300


def clip_rows(rows: Floats, bound: float, *, nearest: bool = False) -> Integers:
    """Return rows in units of bound / 2^20, none longer than the bound, rounded toward zero.

    `nearest` rounds to the nearest integer what is not too long then, which has no bias. A row that is not
    finite is 0: as an integer, what is not a number would be -2^63.
    """
    largest = np.max(np.abs(rows), axis=1, keepdims=True, initial=bound)
    finite = np.isfinite(largest)
    if not finite.all():
        rows, largest = np.where(finite, rows, 0.0), np.where(finite, largest, bound)
    steps: Integers = (np.rint if nearest else np.trunc)(rows / largest * ONE).astype(np.int64)
    squares = _squares(steps)
    outside = np.flatnonzero(squares > _LIMIT)
    if outside.size:
        norms = np.sqrt(squares[outside].astype(np.float64))[:, None]
        steps[outside] = inside(np.trunc(steps[outside] * (ONE / norms)).astype(np.int64))
    return steps


def clip_products(roots: Floats, bound: float) -> Integers:
    """Return (rows, several, entries) in units of sqrt(bound) / 2^20, rounded to the nearest integers where
    products of a row add up to a matrix whose norm is then at most the bound; other rows are shortened to it.

    The norm is the root of the sum of squares of entries. A row that is not finite is 0.
    """
    largest = np.max(np.abs(roots), axis=(1, 2), initial=0.0)
    finite = np.isfinite(largest)
    if not finite.all():
        roots, largest = np.where(finite[:, None, None], roots, 0.0), np.where(finite, largest, 0.0)
    # in units of a row's largest entry no product is too large or too small for a float
    scaled = roots / np.maximum(largest, _TINY)[:, None, None]
    gram, square = np.zeros((len(roots), roots.shape[1], roots.shape[1])), np.zeros(len(roots))
    for i in range(roots.shape[2]):
        gram += scaled[:, :, None, i] * scaled[:, None, :, i]
    for each in gram.reshape(len(roots), -1).T:
        square += each * each
    unit = np.maximum(np.sqrt(np.sqrt(square)) * largest, math.sqrt(bound))
    steps: Integers = np.rint(roots / unit[:, None, None] * ONE).astype(np.int64)
    over = np.arange(len(steps))
    while over.size:
        norms = _norms(steps[over])
        longer = norms > _LIMIT
        over, norms = over[longer], norms[longer]
        shorter = np.sqrt(_LIMIT / norms) * _LESS
        steps[over] = np.trunc(steps[over] * shorter[:, None, None]).astype(np.int64)
    return steps


def _norms(steps: Integers) -> Floats:
    """Return the norm of the sum of products of each row's vectors."""
    gram = np.einsum("rli,rmi->rlm", steps, steps).astype(np.float64)
    return np.asarray(np.sqrt(np.einsum("rlm,rlm->r", gram, gram)))


def clip_sums(sums: Integers, bits: int) -> Integers:
    """Return sums of at most 1000 rows, none of them longer than 2^bits, as no longer than that, in place."""
    shift = max(bits - _FINE, 0)
    coarse = -(-np.abs(sums) >> shift)  # rounded up
    squares = _squares(coarse)
    outside = np.flatnonzero(squares > 1 << 2 * (bits - shift))
    if outside.size:
        factor = _KEEP * 2.0 ** (bits - shift) / np.sqrt(squares[outside].astype(np.float64))
        sums[outside] = np.trunc(sums[outside] * factor[:, None]).astype(np.int64)
    return sums


def inside(steps: Integers, limit: int = _LIMIT) -> Integers:
    """Move rows whose squares add up to more than the limit toward zero, until integers say that none do."""
    while (over := np.flatnonzero(_squares(steps) > limit)).size:
        steps[over] -= np.sign(steps[over])
    return steps


def _squares(steps: Integers) -> Integers:
    return np.asarray(np.einsum("ij,ij->i", steps, steps), np.int64)
