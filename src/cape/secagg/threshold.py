"""How many sites must answer: enough that colluders cannot answer alone, or on two different lists."""

from __future__ import annotations

from cape.core import check

__all__ = ["smallest_threshold"]


def smallest_threshold(sites: int, colluding: int, *, lying: bool = True) -> int:
    """Return the smallest number t of answers that is safe, of `sites` sites.

    A secret is shared so that t sites recover it. With n sites of which n_C collude:

    - The aggregator follows the protocol and is only curious: t > n_C, so that the colluders' key shares
      reveal nothing. (At least 2: a sum over one site is that site's vector.)
    - The aggregator lies: 2t > n + n_C. It may tell some sites that u survived, to get the seed of u's
      self mask, and others that u dropped, to get the key of u's pairwise masks; with both, u's vector
      is exposed. Each version needs t answers. An honest site answers one version only, a colluder both, so
      the two versions together get at most (n - n_C) + 2 n_C = n + n_C answers, fewer than 2t. The
      same count shows that two different lists of survivors cannot both be signed by t sites.

    Args:
        sites: n, all sites on the roster.
        colluding: n_C, how many of them may collude with the aggregator.
        lying: whether the aggregator may depart from the protocol.
    """
    n = check.integer("sites", sites, least=2)
    bad = check.integer("colluding", colluding, least=0, most=n - 1)
    return max(2, (n + bad) // 2 + 1 if lying else bad + 1)
