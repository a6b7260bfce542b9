"""How far one row moves several sums of c(y) x⊗...⊗x at once: the joint sensitivity of regressions.

Claim. Let term j be the sum over rows of c_j(y) x^(⊗d_j), with ||x|| <= 1 and |y| <= 1, and a_j > 0 its
weight. Replacing one row by another changes the sums by at most `moved` in sum_j a_j ||change of term j||²
(Frobenius norm), and so does adding or leaving out one.
Reason. <x^(⊗d), z^(⊗d)> = (x·z)^d, so replacing (x, y) by (z, u) changes that by

    f = sum_j a_j (c_j(y)² ||x||^(2 d_j) + c_j(u)² ||z||^(2 d_j) - 2 c_j(y) c_j(u) (x·z)^d_j).

At a given s = x·z, f rises in ||x|| and in ||z||, and longer vectors may have the same s: both are 1, and
what is left is the largest value over s in [-1, 1] and y, u. With an intercept, x = (c, features) / sqrt(1
+ c²), and s is at least (c² - 1) / (c² + 1). A row that is added or left out changes it by sum_j a_j
c_j(y)² at most.

*The largest value* is found with a proof. A function whose second derivative along axis i is at least -M_i
lies, within a box of sides h_i, below the largest value at its corners plus sum_i M_i h_i² / 8. Boxes are
cut until that is within 1e-6 of the largest value found, and what is returned is the bound.

*Second moments of (1, x, y)*, with weights w_x, w_y, w_yy, w_xy and w_xx: let p = |y + u| and q = |y - u|, so
p + q <= 2. Then

    f = 2 w_x (1 - s) + 2 w_xx (1 - s²) + w_xy ((1 - s) p² + (1 + s) q²) / 2 + w_y q² + w_yy p² q²,

which rises in p and q: p = 1 + t and q = 1 - t. It is concave in s, so that the best s is known for each t
and a fine grid of t is enough.

*Rounding.* x and y lie on the grid of 2^-20, within their bounds; sums of 1, y, y², x, xy and xx' are
exact. Any other term rounds each entry of a row toward zero, which moves a difference of two rows by at
most 2^-19 an entry and makes no single row longer: `joint` adds it to the sensitivity. Tested in
tests/unit/analyses/test_tensor_sums.py, by searching for rows that move the sums further.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.polynomial import polynomial as poly

from cape.blocks import Design, Tensors, Term
from cape.blocks.block import T_BITS
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.data.schema import Category
from cape.engine.query import Neighbours, Query

__all__ = ["Target", "joint", "largest", "least_product", "moved", "second_moments"]

Target = Literal["interval", "signs"]

_TIGHT = 1e-6
_MOST_BOXES = 1 << 18
_FINE = 1 << 12
_SMALLEST, _SMALLEST_TERM = 1e-100, 1e-50  # far above where products of floats lose their digits
_ROUNDED = 2.0**-50  # more than Horner's rule loses at each of its steps, per unit of the coefficients
_FLOAT = 1 + 1e-12  # what evaluating a few dozen terms in float64 can lose, and more


def joint(
    design: Design,
    terms: tuple[Term, ...],
    weights: tuple[float, ...],
    schema: Schema,
    neighbours: Neighbours,
    *,
    count: float | None = None,
) -> Query:
    """Return the query for a design's sums, sharing out the noise by weight, and its sensitivity.

    `weights` has one number a term, 1 / scale²; `count` is the weight of the number of complete rows. Where
    nothing may be missing that number is public under replace-one and costs nothing. Where something may, a
    row can also be replaced by an incomplete one, which moves the sums by a single row and the count by 1: by
    default the count gets what is free then, or an eighth of the whole.
    """
    for term in terms:
        if largest(term.target) > 1 + 2 * _TIGHT:
            raise InvalidInput(f"c(y) of a term must be within -1 and 1, not {term.target}")
        if max(map(abs, term.target)) < _SMALLEST_TERM:  # its square would lose its digits
            raise InvalidInput(f"c(y) of a term must reach {_SMALLEST_TERM:g}, not {term.target}")
    for weight in weights:
        check.real("weights", weight, least=_SMALLEST, most=1 / _SMALLEST)
    block = Tensors(design, terms)
    block.arrays(schema)  # is refused here, by name, if it does not fit
    kind: Target = "interval"
    if design.target is None or isinstance(schema[design.target], Category):
        kind = "signs"
    least = least_product(design)
    alone = moved(terms, weights, "add-remove", kind)
    if neighbours == "add-remove":
        held = alone / 8 if count is None else count
        total = alone + held
    else:
        total = moved(terms, weights, neighbours, kind, least)
        held = max(total - alone, total / 8) if count is None else count
        if design.missing(schema):
            total = max(total, alone + held)
    width = design.width(schema)
    scales = [1 / math.sqrt(held)]
    rounding = 0.0
    for term, weight in zip(terms, weights, strict=True):
        for multiplicity in term.multiplicities(width):
            scales.append(1 / math.sqrt(weight * multiplicity))
        if neighbours == "replace-one" and not term.exact:
            rounding += weight * width**term.degree
    sensitivity = math.sqrt(total) + math.ldexp(math.sqrt(rounding), 1 - T_BITS)
    return Query((block,), (tuple(scales),), sensitivity * _FLOAT)


def least_product(design: Design) -> float:
    """Return the least x·z of two rows: above -1 where both start with the same intercept."""
    square = design.intercept**2
    rounded = math.ldexp(1.0, 2 - T_BITS) if square else 0.0  # the intercept, rounded, is a bit smaller
    return max(-1.0, (square - 1) / (square + 1) - rounded)


@lru_cache(maxsize=512)
def largest(coefficients: tuple[float, ...]) -> float:
    """Return a bound on |c(y)| for |y| <= 1: exact for a multiple of 1, y, y² and so on, else up to 1e-6."""
    if sum(c != 0 for c in coefficients) == 1:
        return max(map(abs, coefficients))
    square = np.asarray(poly.polymul(coefficients, coefficients), np.float64)
    return math.sqrt(_top_of_polynomial(square, -1.0)) * _FLOAT


@lru_cache(maxsize=512)
def moved(
    terms: tuple[Term, ...],
    weights: tuple[float, ...],
    neighbours: Neighbours,
    target: Target = "interval",
    least: float = -1.0,
) -> float:
    """Return the most that one complete row changes the terms, squared: proof at the head of the module.

    Args:
        terms: what is added up.
        weights: for each term 1 / scale², the scale being that of its Frobenius norm.
        neighbours: "replace-one", one complete row for another, or "add-remove".
        target: y is any number in [-1, 1], or one of -1 and 1.
        least: the least that x·z can be.
    """
    if len(terms) != len(weights) or not terms:
        raise InvalidInput("there must be one weight for each term, and at least one term")
    for weight in weights:
        check.real("weights", weight, above=0.0)
    check.real("least", least, least=-1.0, most=1.0)
    squares = _combined(terms, weights)
    if neighbours == "add-remove":
        if target == "signs":
            return max(float(poly.polyval(y, squares)) for y in (-1.0, 1.0)) * _FLOAT
        return _top_of_polynomial(squares, -1.0) * _FLOAT
    if target == "signs":
        return max(_top_of_signs(terms, weights, y, u, least) for y, u in _SIGNS) * _FLOAT
    named = _as_second_moments(terms, weights)
    if named is not None:
        return second_moments(*named, least=least)
    return _top_of_boxes(terms, weights, least) * _FLOAT


_SIGNS = ((-1.0, -1.0), (-1.0, 1.0), (1.0, 1.0))
_MOMENTS: tuple[tuple[int, tuple[float, ...]], ...] = (
    (1, (1.0,)),
    (0, (0.0, 1.0)),
    (0, (0.0, 0.0, 1.0)),
    (1, (0.0, 1.0)),
    (2, (1.0,)),
)


def second_moments(x: float, y: float, yy: float, xy: float, xx: float, *, least: float = -1.0) -> float:
    """Return how far replacing a row moves the sums of x, y, y², xy and xx' with these weights, squared."""
    t = np.linspace(-1.0, 1.0, _FINE + 1)
    p, q = (1 + t) ** 2, (1 - t) ** 2
    slope = 2 * x + xy * (p - q) / 2  # f = ... - slope s - 2 xx s²
    s = np.clip(-slope / (4 * xx), least, 1.0) if xx > 0 else np.where(slope >= 0, least, 1.0)
    value = 2 * x * (1 - s) + 2 * xx * (1 - s * s) + xy * ((1 - s) * p + (1 + s) * q) / 2 + y * q + yy * p * q
    # for any s the function of t curves downward by at most 4 yy: (1 - t²)² = p q, all else is convex
    bend = 4 * yy
    return (float(value.max()) + bend * (2 / _FINE) ** 2 / 8) * _FLOAT


def _as_second_moments(
    terms: tuple[Term, ...], weights: tuple[float, ...]
) -> tuple[float, float, float, float, float] | None:
    """Return the weights of x, y, y², xy and xx' if there are no other terms; multiples count as such."""
    found = [0.0] * 5
    for term, weight in zip(terms, weights, strict=True):
        shape = tuple(term.target)
        while len(shape) > 1 and shape[-1] == 0.0:
            shape = shape[:-1]
        factor = shape[-1]
        if factor == 0.0 or any(shape[:-1]):
            return None
        unit = (*shape[:-1], 1.0)
        if (term.degree, unit) not in _MOMENTS:
            return None
        found[_MOMENTS.index((term.degree, unit))] += weight * factor**2
    return found[0], found[1], found[2], found[3], found[4]


def _combined(terms: tuple[Term, ...], weights: tuple[float, ...]) -> Floats:
    """Return the coefficients of sum_j a_j c_j(y)²."""
    total = np.zeros(1)
    for term, weight in zip(terms, weights, strict=True):
        total = poly.polyadd(total, weight * poly.polymul(term.target, term.target))
    return total


def _bend(coefficients: Floats) -> float:
    """Return a bound on the second derivative of a polynomial over [-1, 1]."""
    k = np.arange(len(coefficients))
    return float(np.abs(k * (k - 1) * coefficients).sum())


def _lost(coefficients: Floats) -> float:
    """Return a bound on what evaluating a polynomial on [-1, 1] in float64 loses."""
    return _ROUNDED * len(coefficients) * float(np.abs(coefficients).sum())


def _second(coefficients: Floats) -> Floats:
    """Return the coefficients of the second derivative."""
    return np.asarray(poly.polyder(coefficients, 2), np.float64)


def _reach(coefficients: Floats) -> float:
    """Return a bound on the size of a polynomial on [-1, 1]."""
    return max(_top_of_polynomial(coefficients, -1.0), _top_of_polynomial(-coefficients, -1.0))


def _top_of_polynomial(coefficients: Floats, low: float) -> float:
    """Return a bound on a polynomial over [low, 1], where -1 <= low, from a grid that is cut where needed."""
    bend = _bend(coefficients)
    lost = _lost(coefficients)
    edges = np.linspace(low, 1.0, _FINE + 1)
    left, right = edges[:-1], edges[1:]
    settled = -math.inf
    while True:
        ends = np.maximum(poly.polyval(left, coefficients), poly.polyval(right, coefficients))
        bounds = ends + bend * (right - left) ** 2 / 8
        best = float(ends.max())
        open_ = bounds > best + _TIGHT * abs(best)
        if not open_.any() or right[0] - left[0] < 1e-7:
            return max(settled, float(bounds.max())) + lost
        settled = max(settled, float(bounds[~open_].max(initial=-math.inf)))
        left, right = left[open_], right[open_]
        middle = (left + right) / 2
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])


def _top_of_signs(
    terms: tuple[Term, ...], weights: tuple[float, ...], y: float, u: float, least: float
) -> float:
    """Return the most that changing (x, y) to (z, u) does, over s alone."""
    coefficients = np.zeros(1 + max(term.degree for term in terms))
    for term, weight in zip(terms, weights, strict=True):
        at, to = (float(poly.polyval(v, term.target)) for v in (y, u))
        coefficients[0] += weight * (at**2 + to**2)
        coefficients[term.degree] -= 2 * weight * at * to
    return _top_of_polynomial(coefficients, least)


def _top_of_boxes(terms: tuple[Term, ...], weights: tuple[float, ...], least: float) -> float:
    """Return a bound on f over s, y and u, y <= u by symmetry: boxes are cut until it is tight."""
    bend_s = bend_y = lost = 0.0
    for term, weight in zip(terms, weights, strict=True):
        c = np.asarray(term.target, np.float64)
        size = _reach(c)
        square = np.asarray(poly.polymul(c, c), np.float64)
        bend_s += 2 * weight * size**2 * term.degree * (term.degree - 1)
        bend_y += weight * (_reach(_second(square)) + 2 * size * _reach(_second(c)))
        lost += 8 * weight * size * _lost(c)
    bends = np.array([bend_s, bend_y, bend_y])
    # |a - b|² <= 2 (|a|² + |b|²), whatever boxes say
    most = 4 * _top_of_polynomial(_combined(terms, weights), -1.0)

    def value(s: Floats, y: Floats, u: Floats) -> Floats:
        total = np.zeros(np.broadcast_shapes(s.shape, y.shape, u.shape))
        for term, weight in zip(terms, weights, strict=True):
            at, to = poly.polyval(y, term.target), poly.polyval(u, term.target)
            total = total + weight * (at**2 + to**2 - 2 * at * to * s**term.degree)
        return total

    cuts = [np.linspace(least, 1.0, 9), np.linspace(-1.0, 1.0, 9), np.linspace(-1.0, 1.0, 9)]
    lows = np.stack([g.ravel() for g in np.meshgrid(*(c[:-1] for c in cuts), indexing="ij")], axis=1)
    sides = np.array([c[1] - c[0] for c in cuts])
    lows = lows[lows[:, 1] <= lows[:, 2]]
    best, settled = 0.0, 0.0
    while len(lows):
        corners = np.full(len(lows), -math.inf)
        for place in np.ndindex(2, 2, 2):
            at = lows + sides * np.array(place)
            corners = np.maximum(corners, value(at[:, 0], at[:, 1], at[:, 2]))
        best = max(best, float(corners.max()))
        excess = float((bends * sides**2).sum()) / 8
        bounds = corners + excess
        open_ = bounds > best * (1 + _TIGHT)
        if open_.sum() > _MOST_BOXES:
            return min(max(settled, float(bounds.max())) + lost, most)
        settled = max(settled, float(bounds[~open_].max(initial=0.0)))
        axis = int(np.argmax(bends * sides**2))
        lows, sides = lows[open_], sides.copy()
        sides[axis] /= 2
        shift = np.zeros(3)
        shift[axis] = sides[axis]
        lows = np.concatenate([lows, lows + shift])
    return min(max(best, settled) + lost, most)
