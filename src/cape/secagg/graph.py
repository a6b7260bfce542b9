"""The graph of neighbours: all pairs, or k each on a circle in random order (Bell et al. 2020).

Claim. The graph is the same for everyone who saw the same advertisements, is k-regular and connected, and an
aggregator cannot choose it; it can only try others by changing an advertisement, at a cost per try.
Reason. The order on the circle is a shuffle keyed by the transcript of the advertise round, which holds
fresh keys of every site. Site u is joined to the k/2 next sites on either side (a Harary graph). Colluders
who advertise last can try several keys, so the shuffle's key is stretched by scrypt: each try costs 16
MB of memory and tens of milliseconds, and the failure probability in `neighbours` is per try.
Tested in tests/unit/secagg/test_graph.py: regularity, symmetry, connectivity, uniformity of the neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import scrypt

from cape.noise import SecureStream

__all__ = ["Graph"]


@dataclass(frozen=True)
class Graph:
    """The sites 0 ... sites - 1, each with `degree` neighbours; everyone if degree = sites - 1."""

    sites: int
    degree: int
    transcript: bytes

    def neighbours(self, site: int) -> list[int]:
        """Return a site's neighbours, ascending."""
        if self.degree == self.sites - 1:
            return [other for other in range(self.sites) if other != site]
        order, position = _circle(self.sites, self.transcript)
        here, reach = position[site], self.degree // 2
        steps = [*range(-reach, 0), *range(1, reach + 1)]
        return sorted(order[(here + step) % self.sites] for step in steps)

    def committee(self, site: int) -> list[int]:
        """Return the holders of a site's key shares: its neighbours and itself, ascending."""
        return sorted([*self.neighbours(site), site])


@lru_cache(maxsize=4)
def _circle(sites: int, transcript: bytes) -> tuple[list[int], list[int]]:
    """Return the site at each position, and the position of each site.

    Sorting by 128-bit keys makes every order equally likely, up to ties (below sites^2 2^-129). The result is
    cached: it is public, and every site in one process needs it.
    """
    key = scrypt(transcript, salt=b"cape secagg 2 graph", n=1 << 14, r=8, p=1, dklen=32)
    raw = SecureStream(key).bytes(16 * sites)
    order = sorted(range(sites), key=lambda site: raw[16 * site : 16 * site + 16])
    position = [0] * sites
    for place, site in enumerate(order):
        position[site] = place
    return order, position
