"""Where quantiles lie, found in three stages: few counts, at edges that earlier answers choose.

1. Counts in equal parts of the bounds, and in ever smaller ones near the lower bound, where many columns
crowd.
2. Counts in cells of each *bracket*: the edges between which a quantile lies, noise and sampling counted.
3. Counts below one edge for each quantile, the nearest to it, with most of the budget.

A hierarchy (`tree`) knows every count below a point equally well; this one only those that matter.

Claim. One row moves a stage's counts of a column by at most `Cut.l1` in the L1 norm and `Cut.l2` in the L2
norm, whatever its edges are, and so whatever was released before, or was said to be.
Reason. Edges are finite, rise and lie within the bounds (`inner` keeps no others, `Axis` refuses them), so
that a row falls into one cell, or into none where it is missing: `one_hot`. A single count below an edge
moves by 1.
Tested in tests/unit/analyses/describe/test_quantile_search.py, also with answers that were made up.

*Cells.* K cells of a bracket with R rows and noise s in each leave noise of s sqrt(K) / 2 in counts below
edges, which the last stage takes away at one edge only, and of s K / R in the slope by which the value lies
beside that edge. With K = (R / (8 s))^(2/3) the first is a sixteenth of a cell. Intervals end at edges, so
that a cell holds no more rows than two sampling errors.
What the counts say of quantiles is in `stats/ranks.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cape.analyses.describe.histogram import one_hot
from cape.blocks import Axis, Counts
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Number
from cape.engine.query import Neighbours
from cape.stats.ranks import Counted, Ranks

__all__ = ["PARTS", "Cut", "brackets", "first", "inner", "last"]

PARTS = {False: (0.15, 0.25, 0.6), True: (0.2, 0.3, 0.5)}
"""How the share is divided among the stages, under Gaussian and under Laplace noise."""

_EVEN, _NEAR = 16, 6  # parts of the first stage, and how often the lowest of them is halved
_BRACKET = 3.0  # standard errors
_CELL = 8.0  # how many rows of a bracket there are for each row of noise in a cell and root of its cells
_FEWEST, _MOST = 4, 192  # cells of a bracket, and of all brackets together
_FAR = 4.0  # noise that a quantile may be away from an edge


def inner(edges: Iterable[float], low: float, high: float) -> Floats:
    """Return those of some numbers that can be edges: rising, finite, strictly within the bounds."""
    found = np.unique(np.asarray(list(edges), np.float64))
    return found[np.isfinite(found) & (found > low) & (found < high)] + 0.0


@dataclass(frozen=True, eq=False)
class Cut:
    """What a stage asks of one column: counts between edges, or the one count below a single edge."""

    name: str
    column: Number
    edges: Floats
    below: bool = False

    @property
    def block(self) -> Counts:
        axis = Axis(self.name, [self.column.low, *self.edges.tolist(), self.column.high])
        return Counts((axis,), (0,) if self.below else None)

    def l1(self, neighbours: Neighbours) -> float:
        """The most that one row changes the counts in the L1 norm: proof at the head of the module."""
        return 1.0 if self.below else one_hot(neighbours, len(self.edges) + 1)

    def l2(self, neighbours: Neighbours) -> float:
        """That in the L2 norm."""
        return math.sqrt(self.l1(neighbours))

    def counted(self, counts: Floats, noise: float) -> Counted:
        """Return what was released."""
        return Counted(self.edges, np.asarray(counts, np.float64).reshape(-1), noise)


def first(name: str, column: Number) -> Cut:
    """Return the cut of the first stage, which depends on the bounds alone."""
    low, high = column.low, column.high
    if not math.isfinite(high - low):
        raise InvalidInput(f"the bounds of {name!r} are too far apart for quantiles: {low:g} and {high:g}")
    even = np.linspace(low, high, _EVEN + 1)
    near = low + (even[1] - low) * 0.5 ** np.arange(1, _NEAR + 1)
    return Cut(name, column, inner([*even, *near], low, high))


def brackets(
    name: str, column: Number, ranks: Ranks, probs: Sequence[float], noise: float, public: bool
) -> Cut:
    """Return the cut of the second stage, given the noise that its counts will have."""
    low, high = column.low, column.high
    edges: list[float] = []
    for prob in probs:
        reach = _BRACKET * np.hypot(ranks.errors(prob)[0], ranks.sampling(prob))
        start, end = ranks.between(prob, reach)
        held = np.interp([start, end], ranks.edges, ranks.likely) * ranks.count
        inside = max(float(held[1] - held[0]), 1.0)
        for_value = (inside / (_CELL * noise)) ** (2 / 3) if noise else math.inf
        wanted = max(for_value, inside / (2 * ranks.sampling(prob)))
        cells = int(min(max(wanted, _FEWEST), max(_MOST // len(probs), _FEWEST)))
        edges += np.linspace(start, end, cells + 1).tolist()
    return Cut(name, column, inner(edges, low, high))


def last(name: str, column: Number, ranks: Ranks, probs: Sequence[float], noise: float, public: bool) -> Cut:
    """Return the cut of the last stage; with a public total one count is enough for one quantile."""
    inside, shares = ranks.edges[1:-1], ranks.likely[1:-1] * ranks.count
    edges: list[float] = []
    for prob in probs:
        value = ranks.value(prob)
        if not len(inside):
            continue
        away = np.abs(shares - prob * ranks.count)
        place = int(np.argmin(away))
        edges.append(float(inside[place]) if away[place] <= _FAR * noise else value)
    found = inner(edges, column.low, column.high)
    return Cut(name, column, found, public and len(found) == 1)
