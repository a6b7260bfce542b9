"""Noise that cancels along the edges of a graph: the exact mu of every site, for any weighted graph.

Each edge (i, j) is a noise z of its own: site i adds z and site j subtracts it. Pairwise masks of
secure aggregation are the complete graph; a tree or a star needs fewer keys. Claim: with H the
honest sites,

    mu_s² = sensitivity² * [ (diag(local²) + L_H)^-1 ]_ss

where L_H is the Laplacian of the honest subgraph, weighted by the variances. Reason: colluders know
the noise on their own edges and subtract it; the rest of the honest messages has that
covariance. Hence:

- only paths through honest sites protect. A star whose hub colludes leaves every leaf alone with
  its own noise, at mu = sensitivity/local_std: the conventional scheme, while its sum carries the
  noise of the correlated one. `isolated_sites` lists such sites before anything runs.
- an infinite edge is a ring mask: only the sum over sites so connected is seen, and they are
  contracted to one. If the honest sites are connected by ring masks, mu is sensitivity/sqrt(sum of
  local²), whatever the graph.
- a missing site's noise on finite edges stays unknown, so it protects its neighbours still (and
  stays in the sum); on ring edges it is unmasked, and protects nobody.

The complete graph with variance v on each edge has L_H = v (H I - 11'): the same as broadcast noise
with correlated² = v H. It takes v = correlated²/H, not correlated²/S, to match the broadcast scheme
under collusion.

The inverse is found by an elimination that never subtracts (for M-matrices given by their
off-diagonals and their row sums), so weights of very different size cost no digits. Tested in
tests/unit/privacy/test_view.py.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cape.core import check
from cape.core.errors import InvalidInput

__all__ = ["complete", "graph_mu", "graph_mus", "isolated_sites", "star", "tree"]

Edges: TypeAlias = Mapping[tuple[int, int], float]
Edge: TypeAlias = tuple[tuple[int, int], float]


def graph_mu(
    sensitivity: float,
    local_std: float | Sequence[float],
    edges: Edges,
    colluding_sites: Collection[int] = (),
    missing_sites: Collection[int] = (),
    *,
    sites: int | None = None,
) -> float:
    """Return mu of the worst honest site. The arguments are those of `graph_mus`."""
    mus = graph_mus(sensitivity, local_std, edges, colluding_sites, missing_sites, sites=sites)
    return max(mus.values())


def graph_mus(
    sensitivity: float,
    local_std: float | Sequence[float],
    edges: Edges,
    colluding_sites: Collection[int] = (),
    missing_sites: Collection[int] = (),
    *,
    sites: int | None = None,
) -> dict[int, float]:
    """Return mu of a record at each honest site whose message came: {site: mu}.

    `edges` maps a pair of sites to the standard deviation of the noise that cancels between them,
    `math.inf` for a ring mask. Sites are numbered from 0; `local_std` is one number or one for each
    site. How many there are is said by `sites`, else by a `local_std` for each, else by the edges.
    `missing_sites` are those lost after the noise was fixed.
    """
    sensitivity = check.real("sensitivity", sensitivity, above=0.0)
    stds, clean = _read(local_std, edges, sites)
    colluding = _sites("colluding_sites", colluding_sites, len(stds))
    missing = _sites("missing_sites", missing_sites, len(stds)) - colluding
    present = _present(len(stds), colluding, missing)

    group = _groups(present, [pair for pair, std in clean if std == math.inf])
    own = np.zeros(max(group.values()) + 1)
    shared = np.zeros((own.size, own.size))
    for site in present:
        own[group[site]] += stds[site] * stds[site]
    for pair, std in clean:
        if std == math.inf or colluding.intersection(pair):
            continue
        ends = [group[site] for site in pair if site in group]
        if len(ends) == 1:  # the other end is missing, and nobody learns its noise
            own[ends[0]] += std * std
        elif len(ends) == 2 and ends[0] != ends[1]:
            shared[ends, ends[::-1]] += std * std
    roots = sensitivity * np.sqrt(_inverse_diagonal(own, shared))
    return {site: float(roots[group[site]]) for site in present}


def isolated_sites(
    edges: Edges,
    sites: int,
    colluding_sites: Collection[int] = (),
    missing_sites: Collection[int] = (),
) -> tuple[int, ...]:
    """Return the honest sites that no unknown correlated noise protects: each has only its own.

    These are the sites whose every edge leads to a colluding site, is a ring mask to a missing one,
    or has no noise.
    """
    sites = check.integer("sites", sites, least=1)
    clean = _edges(edges, sites)
    colluding = _sites("colluding_sites", colluding_sites, sites)
    missing = _sites("missing_sites", missing_sites, sites) - colluding
    protected: set[int] = set()
    for pair, std in clean:
        unmasked = std == math.inf and missing.intersection(pair)
        if std > 0.0 and not unmasked and not colluding.intersection(pair):
            protected.update(pair)
    return tuple(s for s in _present(sites, colluding, missing) if s not in protected)


def complete(sites: int, std: float) -> dict[tuple[int, int], float]:
    """Return the edges between every two sites, each with noise of this standard deviation."""
    sites, std = _shape(sites, std)
    return {(i, j): std for i in range(sites) for j in range(i + 1, sites)}


def star(sites: int, std: float, hub: int = 0) -> dict[tuple[int, int], float]:
    """Return the edges from one hub to every other site. A hub that colludes leaves every other alone."""
    sites, std = _shape(sites, std)
    hub = check.integer("hub", hub, least=0, most=sites - 1)
    return {(hub, site): std for site in range(sites) if site != hub}


def tree(sites: int, std: float, branching: int = 2) -> dict[tuple[int, int], float]:
    """Return the edges of a tree rooted at site 0. A site that colludes cuts off all below it."""
    sites, std = _shape(sites, std)
    branching = check.integer("branching", branching, least=1)
    return {((site - 1) // branching, site): std for site in range(1, sites)}


def _shape(sites: int, std: float) -> tuple[int, float]:
    return check.integer("sites", sites, least=1), check.real("std", std, least=0.0, infinite=True)


def _read(
    local_std: float | Sequence[float], edges: Edges, sites: int | None
) -> tuple[list[float], list[Edge]]:
    """Return the local noise of every site and the clean edges."""
    if sites is not None:
        sites = check.integer("sites", sites, least=1)
    if isinstance(local_std, (list, tuple, np.ndarray)):
        stds = [check.real("local_std", std, least=0.0) for std in local_std]
        if not stds or (sites is not None and len(stds) != sites):
            raise InvalidInput(f"local_std must have one value for each of the sites, not {len(stds)}")
        return stds, _edges(edges, len(stds))
    std = check.real("local_std", local_std, least=0.0)
    clean = _edges(edges, sites)
    if sites is None:
        if not clean:
            raise InvalidInput("sites must be given when there are no edges and one local_std")
        sites = 1 + max(site for pair, _ in clean for site in pair)
    return [std] * sites, clean


def _edges(edges: Edges, sites: int | None) -> list[Edge]:
    most = None if sites is None else sites - 1
    clean = []
    for pair, std in edges.items():
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise InvalidInput(f"edges must have pairs of sites as keys, not {pair!r}")
        i, j = (check.integer("edges", site, least=0, most=most) for site in pair)
        if i == j:
            raise InvalidInput(f"edges must join two different sites, not {pair!r}")
        clean.append(((i, j), check.real(f"edges[{i}, {j}]", std, least=0.0, infinite=True)))
    return clean


def _sites(name: str, chosen: Iterable[int], sites: int) -> set[int]:
    return {check.integer(name, site, least=0, most=sites - 1) for site in chosen}


def _present(sites: int, colluding: set[int], missing: set[int]) -> list[int]:
    present = [site for site in range(sites) if site not in colluding and site not in missing]
    if not present:
        raise InvalidInput(
            f"colluding_sites and missing_sites must leave an honest site, not none of {sites}"
        )
    return present


def _groups(present: list[int], masked: list[tuple[int, int]]) -> dict[int, int]:
    """Number the sets of present sites that ring masks connect."""
    group = {site: number for number, site in enumerate(present)}
    for i, j in masked:
        if i in group and j in group:
            kept, gone = group[i], group[j]
            group = {site: kept if number == gone else number for site, number in group.items()}
    numbers = {number: rank for rank, number in enumerate(sorted(set(group.values())))}
    return {site: numbers[number] for site, number in group.items()}


def _inverse_diagonal(own: NDArray[np.float64], shared: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the diagonal of (diag(own) + Laplacian(shared))^-1; infinite where no own noise is within reach.

    Eliminating a node hands its own noise and its edges to its neighbours in proportion to their
    weights: only sums and products of non-negative numbers, so every entry keeps its relative
    accuracy.
    """
    from scipy.linalg import solve_triangular

    size = own.size
    own, shared = own.copy(), shared.copy()
    pivot = np.empty(size)
    factor = np.eye(size)
    for k in range(size):
        row = shared[k, k + 1 :].copy()
        pivot[k] = own[k] + row.sum()
        if pivot[k] > 0.0:
            row_share = row / pivot[k]
            factor[k, k + 1 :] = -row_share
            shared[k + 1 :, k + 1 :] += np.outer(row_share, row)
            own[k + 1 :] += row_share * own[k]
    reach = solve_triangular(factor, np.eye(size), unit_diagonal=True)
    bare = pivot == 0.0
    diagonal: NDArray[np.float64] = reach**2 @ (1.0 / np.where(bare, np.inf, pivot))
    diagonal[(reach[:, bare] > 0.0).any(axis=1)] = np.inf
    return diagonal
