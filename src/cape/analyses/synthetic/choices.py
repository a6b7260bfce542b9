"""What synthetic data asks next, from released numbers alone: groups of values, and pairs of columns.

Everything here is a function of released numbers and public facts, so it costs nothing, and every site
computes the same from them. Whatever they are, also made up, groups and pairs are valid: what is asked then
has the sensitivity that `SyntheticData` proves for any groups and pairs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cape.core.arrays import Floats, Integers

__all__ = [
    "Coarse",
    "Pair",
    "beyond_noise",
    "choose_pairs",
    "groups_of",
    "many_groups",
    "merged_counts",
    "nearest_counts",
    "scales_of",
    "total_cells",
]

Pair = tuple[int, int]
_NOISE = 0.05  # of the rows: what noise may add up to in the cells of a table, by which groups are chosen
_FEWEST, _MOST = 2, 24  # groups of a column
_DISTANCE = 0.4  # of cells times noise: half the mean of |noise| is the distance that it makes
_SHAPE = 0.8  # the mean of |x| over its root mean square
_MOST_CELLS = 6000  # of all cliques of a model
_MOST_TRIED = 100  # pairs that would make a model too large
_ROUNDS = 20  # of proportional fitting
_LEAST = 1e-3


def scales_of(cells: Iterable[int]) -> tuple[float, ...]:
    """Return relative noise of tables: the sum of distances, cells times noise, is least for cells^(-1/3).

    With sum 1/s² fixed, the sum of c s is least where c = 2 lambda / s³.
    """
    return tuple(many ** (-1 / 3) for many in cells)


def nearest_counts(counts: Floats, total: float) -> Floats:
    """Return the counts nearest to these that are not negative and add up to `total`."""
    falling = np.sort(counts)[::-1]
    over = (np.cumsum(falling) - total) / np.arange(1, len(counts) + 1)
    last = int(np.nonzero(falling - over > 0)[0][-1])
    return np.asarray(np.maximum(counts - over[last], 0.0))


def merged_counts(counts: Floats, groups: Sequence[int]) -> Floats:
    """Return the counts of groups of levels."""
    return np.bincount(np.array(groups), counts, max(groups) + 1).astype(np.float64)


def many_groups(levels: Sequence[int], rows: float, noise: float) -> tuple[int, ...]:
    """Return how many groups each column gets in tables of two with this noise: cells times noise is limited.

    A column of many levels gets more groups where the others have few.
    """
    cells = _NOISE * rows / max(noise, _LEAST * _NOISE)
    each = [math.log(min(many, max(math.sqrt(cells), _FEWEST))) for many in levels]
    others = [math.exp((math.fsum(each) - own) / max(len(each) - 1, 1)) for own in each]
    return tuple(int(min(max(round(cells / other), _FEWEST), _MOST)) for other in others)


def groups_of(shares: Floats, many: int, apart: Sequence[int], ordered: bool) -> tuple[int, ...]:
    """Return the group of each level: `many` groups, or as few more as `apart` needs.

    Levels that differ in `apart` are never merged. Ordered levels are merged with their neighbours, so that
    the sum of squared shares of merged groups is least: common ones stay alone. Others are merged into the
    rest.
    """
    if len(shares) <= many:
        return tuple(range(len(shares)))
    labels = np.asarray(apart)
    found = _runs(shares, many, labels) if ordered else _rest(shares, many, labels)
    return tuple(found.tolist())


def _runs(shares: Floats, many: int, apart: Integers) -> Integers:
    size = len(shares)
    changes = np.concatenate([[0], np.cumsum(apart[1:] != apart[:-1])])
    many = max(many, int(changes[-1]) + 1)
    ends = np.concatenate([[0.0], np.cumsum(shares)])
    best = np.full((many + 1, size + 1), np.inf)
    cuts = np.zeros((many + 1, size + 1), np.int64)
    best[0, 0] = 0.0
    for k in range(1, many + 1):
        for end in range(k, size + 1):
            start = np.arange(end)
            share = np.where(end - start > 1, ends[end] - ends[start], 0.0)
            cost = np.where(changes[start] == changes[end - 1], best[k - 1, start] + share**2, np.inf)
            cuts[k, end] = np.argmin(cost)
            best[k, end] = cost[cuts[k, end]]
    found, last = np.zeros(size, np.int64), size
    for k in range(many, 0, -1):
        first = int(cuts[k, last])
        found[first:last] = k - 1
        last = first
    return found


def _rest(shares: Floats, many: int, apart: Integers) -> Integers:
    order = np.argsort(-shares, kind="stable")
    alone = 0
    while alone < len(shares) and alone + len(np.unique(apart[order[alone:]])) <= many:
        alone += 1  # the next common level stays alone, while there is room for the rest of each kind
    alone = max(alone - 1, 0)
    found = np.full(len(shares), -1, np.int64)
    found[np.sort(order[:alone])] = np.arange(alone)
    for following, kind in enumerate(np.unique(apart[order[alone:]]), alone):
        found[(apart == kind) & (found < 0)] = following
    return found


@dataclass(frozen=True)
class Coarse:
    """All tables of two columns, measured coarsely, and the counts of each column's groups.

    Attributes:
        counts: for each column the counts of its groups: not negative, and they add up to `rows`.
        tables: the released table of each pair.
        noise: its standard deviation, by pair.
    """

    rows: float
    counts: tuple[Floats, ...]
    tables: Mapping[Pair, Floats]
    noise: Mapping[Pair, float]

    def distance(self, pair: Pair, expected: Floats) -> float:
        """Return how many rows a pair's table has elsewhere than expected, beyond what noise does."""
        return beyond_noise(self.tables[pair] - expected, self.noise[pair])

    def independent(self, pair: Pair) -> Floats:
        """Return the table of a pair if its columns were independent."""
        return np.outer(self.counts[pair[0]], self.counts[pair[1]]) / self.rows

    def fitted(self, pair: Pair) -> Floats:
        """Return a pair's table without negative counts, with the counts of its columns."""
        first, second = (self.counts[i] for i in pair)
        table = _centred(self.tables[pair])
        table += np.add.outer(first / len(second), second / len(first)) - self.rows / table.size
        table = np.maximum(table, _LEAST)
        for _ in range(_ROUNDS):
            table *= (first / table.sum(1))[:, None]
            table *= second / np.maximum(table.sum(0), _LEAST)
            table = np.maximum(table, _LEAST * _LEAST)
        return table


def _centred(table: Floats) -> Floats:
    """Return a table less what its margins explain."""
    table = table - table.mean(1, keepdims=True)
    return np.asarray(table - table.mean(0, keepdims=True))


def beyond_noise(difference: Floats, noise: float) -> float:
    """Return half the sum of absolute interactions that a difference of tables has besides noise."""
    inner = _centred(difference)
    free = math.prod(max(n - 1, 1) for n in inner.shape)
    excess = float((inner**2).sum()) - free * noise**2
    return _SHAPE * math.sqrt(max(excess, 0.0) * inner.size) / 2


def choose_pairs(coarse: Coarse, sizes: Sequence[int], unit: float, needed: Sequence[Pair]) -> list[Pair]:
    """Return the pairs that are worth measuring finely.

    First the strongest pairs that make a forest, as far as each moves more rows than its noise will, and more
    than it adds to the noise of the others; then pairs that the forest explains worst, as long as the model
    stays small. `needed` pairs are in the model anyway.

    Args:
        coarse: what was released of all pairs.
        sizes: how many groups each column will have.
        unit: the noise of a single table that had all of the stage's budget.
        needed: pairs with a public fact about them.
    """
    chosen: list[Pair] = []
    links: dict[int, set[int]] = {i: set() for i in range(len(sizes))}
    tables = {pair: coarse.fitted(pair) for pair in coarse.tables}
    worth = {pair: coarse.distance(pair, coarse.independent(pair)) for pair in coarse.tables}
    order = sorted(worth, key=lambda pair: (-worth[pair], pair))
    root = list(range(len(sizes)))
    for pair in order:
        a, b = (_root(root, i) for i in pair)
        if a != b and (not chosen or worth[pair] > _more_noise(chosen, pair, sizes, unit)):
            root[a] = b
            _add(pair, chosen, links)
    explained = _explained(coarse, tables, links)
    left = {pair: coarse.distance(pair, explained[pair]) for pair in order if pair not in chosen}
    too_large = 0
    while left and too_large < _MOST_TRIED:
        pair = max(left, key=lambda each: (left[each], each))
        if left.pop(pair) <= _more_noise(chosen, pair, sizes, unit):
            continue
        if total_cells([*chosen, pair, *needed], sizes) > _MOST_CELLS:
            too_large += 1
        else:
            _add(pair, chosen, links)
            for other in [each for each in left if set(each) & set(pair)]:
                for middle in links[other[0]] & links[other[1]]:
                    through = _through(coarse, tables, other[0], middle).T * coarse.counts[middle]
                    found = coarse.distance(other, through @ _through(coarse, tables, other[1], middle))
                    left[other] = min(left[other], found)
    return sorted(chosen)


def _root(root: list[int], i: int) -> int:
    while root[i] != i:
        i = root[i]
    return i


def _add(pair: Pair, chosen: list[Pair], links: dict[int, set[int]]) -> None:
    chosen.append(pair)
    links[pair[0]].add(pair[1])
    links[pair[1]].add(pair[0])


def _more_noise(chosen: Sequence[Pair], pair: Pair, sizes: Sequence[int], unit: float) -> float:
    """Return how many more rows the noise of all tables moves if one more is measured."""
    parts = [(sizes[a] * sizes[b]) ** (2 / 3) for a, b in [*chosen, pair]]
    return float(_DISTANCE * unit * (math.fsum(parts) ** 1.5 - math.fsum(parts[:-1]) ** 1.5))


def _through(coarse: Coarse, tables: Mapping[Pair, Floats], of: int, given: int) -> Floats:
    """Return the shares of one column's groups given those of another: by [given, of]."""
    table = tables[given, of] if given < of else tables[of, given].T
    return np.asarray(table / np.maximum(table.sum(1, keepdims=True), _LEAST))


def _explained(
    coarse: Coarse, tables: Mapping[Pair, Floats], links: Mapping[int, set[int]]
) -> dict[Pair, Floats]:
    """Return every pair's table as a forest explains it: by conditional shares along its path."""
    found = {pair: coarse.independent(pair) for pair in tables}
    for start in links:
        reached = {start: np.diag(coarse.counts[start])}
        waiting = [start]
        while waiting:
            here = waiting.pop()
            for there in sorted(links[here] - reached.keys()):
                reached[there] = reached[here] @ _through(coarse, tables, there, here)
                waiting.append(there)
                if start < there:
                    found[start, there] = reached[there]
    return found


def total_cells(pairs: Iterable[Pair], sizes: Sequence[int]) -> int:
    """Return the cells of all cliques of a model with these pairs, eliminating the smallest clique first."""
    links: dict[int, set[int]] = {i: set() for i in range(len(sizes))}
    for a, b in pairs:
        links[a].add(b)
        links[b].add(a)
    found = 0
    while links:
        cells = {i: sizes[i] * math.prod(sizes[j] for j in links[i]) for i in links}
        i = min(cells, key=lambda each: (cells[each], each))
        found += cells[i]
        around = links.pop(i)
        for a, b in itertools.permutations(around, 2):
            links[a].add(b)
        for a in around:
            links[a].discard(i)
    return found
