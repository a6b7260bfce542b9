"""Bins of predicted risk at released quantiles, and what the order of risks inside of a bin is measured by.

A first, cheap stage counts risks in many narrow *cells*, which depend on the schema and the model alone. From
its noisy counts, smoothed (`Ranks.likely`), follow which neighbouring cells make a *bin*, so that bins have
about equal numbers of rows; and the rank of each cell among the rows of its bin, ties half, stretched to
[-1, 1]. In a bin that is one cell, the rank is where in it the risk lies. All of this is post-processing; the
last stage then counts by bin and outcome, and adds up ranks by bin and outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from cape.blocks.predicted import inverse
from cape.core.arrays import Floats
from cape.stats.ranks import Counted, Ranks

__all__ = ["Bins", "cell_edges", "how_many", "smoothed"]

_TYPICAL, _EVEN = 128, 57
_ROOM = 1.1
_LEAST_SPREAD = 1e-3
_LEAST, _MOST = 1e-12, 1 - 1e-12
_FEWEST, _USUAL = 5, 20
_FULL = 25.0  # rows of a bin for each row of noise in one of its counts


def cell_edges(middle: float, spread: float, link: str, more: Sequence[float] = ()) -> tuple[float, ...]:
    """Return edges of cells from 0 to 1, with `more` among them.

    They are quantiles, if the linear predictor is around this mean with this SD, of Student's distribution
    with three degrees of freedom, which leaves room for rows that are not typical; and even steps of a
    quarter in the log-odds. Rounded, so that everybody computes the same from public numbers.
    """
    at = middle + _ROOM * max(spread, _LEAST_SPREAD) * stdtrit(3, np.arange(1, _TYPICAL) / _TYPICAL)
    risks = np.concatenate([inverse(link, at), inverse("logit", np.linspace(-7.0, 7.0, _EVEN))])
    found = {float(f"{risk:.6g}") if risk < 0.5 else 1 - float(f"{1 - risk:.6g}") for risk in risks}
    return (0.0, *sorted({*more, *(risk for risk in found if _LEAST < risk < _MOST)} - {0.0, 1.0}), 1.0)


def smoothed(counts: Floats, noise: float, total: float | None) -> Floats:
    """Return the likely share of all rows below each edge of the cells, from their noisy counts."""
    cells = len(counts)
    ranks = Ranks(0.0, float(cells), (Counted(np.arange(1.0, cells), counts, noise),), total)
    return ranks.likely


def how_many(rows: float, noise: float) -> int:
    """Return how many bins there are by default: fewer, where noise outweighs the rows of a bin."""
    return _USUAL if not noise else int(min(max(rows / (_FULL * noise), _FEWEST), _USUAL))


@dataclass(frozen=True, eq=False)
class Bins:
    """Cells of predicted risk, and the bins that they make.

    Attributes:
        edges: of the cells.
        starts: the first cell of each bin.
        ranks: the rank of a risk at the lower and at the upper end of each cell, from -1 to 1.
        reach: of each bin, half of the distance between the ranks -1 and 1, in shares of its rows.
        predicted: the mean risk of each bin, as far as the first stage knows it.
    """

    edges: tuple[float, ...]
    starts: tuple[int, ...]
    ranks: tuple[tuple[float, float], ...]
    reach: Floats
    predicted: Floats

    @property
    def ends(self) -> Floats:
        """The edges of the bins."""
        return np.array([*(self.edges[start] for start in self.starts), 1.0])

    @classmethod
    def of(cls, edges: tuple[float, ...], shares: Floats, inner: Sequence[int]) -> Bins:
        """Return the bins that start at these cells, given the share of rows below each cell's edge."""
        starts = (0, *sorted({i for i in inner if 0 < i < len(edges) - 1}))
        middles, masses = (shares[1:] + shares[:-1]) / 2, np.diff(shares)
        risks = (np.array(edges[1:]) + np.array(edges[:-1])) / 2
        ranks: list[tuple[float, float]] = []
        reach, predicted = np.empty(len(starts)), np.empty(len(starts))
        for i, (start, end) in enumerate(zip(starts, (*starts[1:], len(edges) - 1), strict=True)):
            cells, mass = slice(start, end), float(shares[end] - shares[start])
            predicted[i] = (edges[start] + edges[end]) / 2
            if mass > 0:
                predicted[i] = np.clip(masses[cells] @ risks[cells] / mass, edges[start], edges[end])
            first, last = float(middles[start]), float(middles[end - 1])
            if last > first:
                reach[i] = (last - first) / 2 / mass
                at = np.clip((2 * middles[cells] - first - last) / (last - first), -1.0, 1.0).tolist()
                ranks += [(each, each) for each in at]
            else:
                reach[i], width = 0.5, 2 / (end - start)
                ranks += [(k * width - 1, min((k + 1) * width - 1, 1.0)) for k in range(end - start)]
        return cls(edges, starts, tuple(ranks), reach, predicted)

    @classmethod
    def at_quantiles(cls, edges: tuple[float, ...], shares: Floats, many: int, threshold: float) -> Bins:
        """Return about as many bins, with about equal numbers of rows; the threshold is one of the edges."""
        wanted = np.arange(1, many) / many
        nearest = np.abs(shares[:, None] - wanted).argmin(axis=0)
        return cls.of(edges, shares, [*nearest.tolist(), edges.index(threshold)])

    @classmethod
    def at(cls, edges: tuple[float, ...], shares: Floats, inner: Sequence[float]) -> Bins:
        """Return the bins between some of the edges."""
        return cls.of(edges, shares, [edges.index(each) for each in inner])
