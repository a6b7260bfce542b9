"""How many neighbours are enough: the smallest k whose probability of failure is below 2^-40.

Masks and shares on a k-regular graph are safe unless the random order on the circle is unlucky. With n
sites, n_C colluding, n_D dropping, k neighbours each and t helpers needed to recover a secret (out of a
*committee* of k + 1: the neighbours and the site itself), four things can fail. H(N, K, m) is the
hypergeometric number of marked sites among m drawn out of N of which K are marked.

1. Secrecy. Some honest site has t colluding neighbours, who hold enough key shares of its secrets:
       n P[ H(n-1, n_C, k) >= t ].
2. Recovery. Some site has more than k + 1 - t dropped neighbours, so its secrets cannot be recovered:
       n P[ H(n-1, n_D, k) > k + 1 - t ].
   (The run then ends without a sum. Nothing is revealed.)
3. Connection. The honest survivors split into groups that share no mask, and a sum per group is visible. On
   the circle a cut needs two disjoint runs of k/2 places with no honest survivor: with fewer, each honest
   survivor has the next one within its reach. Counts in disjoint runs are negatively associated, so the
   bound is
       n (n-1)/2 w^2,
   where w is the chance of one run:
   - curious aggregator: all k/2 collude or drop:         w = P[ H(n, n_C + n_D, k/2) = k/2 ];
   - lying aggregator, which chooses who "dropped" after it has seen the graph. The honest site at the
     edge of a run is unmasked only by t helpers, so at most k + 1 - t of its neighbours were
     declared dropped, and the rest of the run has to collude:
                                                          w = P[ H(n, n_C, k/2) >= t - k/2 - 1 ].

4. Two deliveries. A lying aggregator tells one site u that only t - 1 of its neighbours shared, tells all
   others that everyone did, and declares the honest ones of those t - 1 dropped and u a survivor: with u's
   seed and their masking keys u's vector would be exposed. The t helpers that recover u's seed are honest
   neighbours who got another list than u, and colluders, who answer for both: it takes 2 t - k - 1 colluding
   neighbours,
       n P[ H(n-1, n_C, k) >= 2 t - k - 1 ].
   (When all are neighbours this is the count in `smallest_threshold`, and cannot happen.)

`best` picks t to make the sum of these smallest, and `automatic` the smallest even k. That all honest
sites act on one list of survivors is not a matter of the graph: the consistency round asks for signatures of
`threshold` sites out of all n.
Tested in tests/unit/secagg/test_neighbours.py: tails against scipy, each event against simulated circles.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cape.core import check

__all__ = ["COMPLETE_UP_TO", "FAILURE_BITS", "Neighbourhood", "automatic", "best"]

FAILURE_BITS = 40
COMPLETE_UP_TO = 50

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Neighbourhood:
    """k neighbours, t helpers, and log2 of the probability that the graph fails (-inf: it cannot)."""

    neighbours: int
    helpers: int
    log2_failure: float


def automatic(
    sites: int,
    colluding: int,
    dropping: int,
    threshold: int,
    *,
    lying: bool = True,
    bits: int = FAILURE_BITS,
) -> Neighbourhood:
    """Return the smallest neighbourhood that fails with probability below 2^-bits.

    All sites are neighbours up to 50 of them, and when no smaller number is enough.
    """
    if sites > COMPLETE_UP_TO:
        for k in range(4, sites - 1, 2):
            found = best(sites, k, colluding, dropping, lying=lying)
            if found.log2_failure < -bits:
                return found
    return Neighbourhood(sites - 1, threshold, -np.inf)


def best(sites: int, neighbours: int, colluding: int, dropping: int, *, lying: bool = True) -> Neighbourhood:
    """Return the number of helpers that makes failure least likely for `neighbours` = k < sites - 1."""
    k = check.integer("neighbours", neighbours, least=2, most=sites - 2)
    helpers = np.arange(k // 2 + 1, k + 2)
    pairs = np.log(sites * (sites - 1) / 2)
    secrecy = np.log(sites) + _at_least(sites - 1, colluding, k)[helpers]
    answers = np.log(sites) + _at_least(sites - 1, dropping, k)[k + 2 - helpers]
    if lying:
        run = _at_least(sites, colluding, k // 2)[helpers - k // 2 - 1]
        stories = np.log(sites) + _at_least(sites - 1, colluding, k)[np.maximum(2 * helpers - k - 1, 0)]
    else:
        run = np.full(helpers.size, _at_least(sites, min(sites, colluding + dropping), k // 2)[k // 2])
        stories = np.full(helpers.size, -np.inf)
    total = np.logaddexp.reduce([secrecy, answers, pairs + 2 * run, stories], axis=0) / np.log(2)
    chosen = int(np.argmin(total))
    return Neighbourhood(k, int(helpers[chosen]), min(0.0, float(total[chosen])))


def _at_least(total: int, marked: int, drawn: int) -> Floats:
    """Return log P[H(total, marked, drawn) >= x] for x = 0 ... drawn + 1."""
    x = np.arange(drawn + 1)
    possible = (x <= marked) & (drawn - x <= total - marked)
    likely = np.full(drawn + 2, -np.inf)
    some = x[possible]
    likely[some] = (
        _log_choose(marked, some)
        + _log_choose(total - marked, drawn - some)
        - _log_choose(total, np.array([drawn]))
    )
    return np.minimum(np.logaddexp.accumulate(likely[::-1])[::-1], 0.0)


def _log_choose(n: int, k: NDArray[np.int64]) -> Floats:
    logs = _log_factorials(n)
    return np.asarray(logs[n] - logs[k] - logs[n - k], float)


@lru_cache(maxsize=8)
def _log_factorials(n: int) -> Floats:
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
