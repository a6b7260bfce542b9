"""Releases in which sites add noise that cancels in the sum: their exact mu, and its inverse.

Site s sends q_s + e_s + g_s: the e_s sum to zero (`correlated_std`), the g_s are its own
(`local_std`).

Claim: against every message, the broadcast sum of the ê, and the data, ê_s and g_s of the colluding
sites, the release is exactly mu-GDP with

    mu² = sensitivity² * [ 1 / (H local²) + (1 - 1/H) / (correlated² + local²) ],    H honest sites.

Reason: given what the colluders know, the H honest messages are Gaussian with covariance
correlated² (I - 11'/H) + local² I, the same for both adjacent data sets, and one record moves one
coordinate of their mean by the sensitivity; mu² is that shift in the norm of the inverse
covariance. The first term is what the sum of the messages shows, the second what their differences
show.

In every function `correlated_std` is a number (e_s = ê_s - mean ê, with ê_s of that standard
deviation), `math.inf` (masks uniform over a ring, as in secure aggregation: the second term
vanishes), 0 (the conventional scheme), or "paper": the paper's choice, correlated² = sites *
local².

`sensitivity` is that of the sum that one site reports, in the L2 norm, when one record is replaced.

Persons. One who appears at up to q sites (`person_sites`) moves q of the H coordinates, each by at most the
sensitivity of a site's sum, in the worst case all in the same direction. Then

    mu² = sensitivity² * [ q² / (H local²) + (q - q²/H) / (correlated² + local²) ].

With ring masks that is q times the mu of one site, with the conventional scheme sqrt(q) times. If q > H, it
is at most that of H = q, which more honest sites than H attain: H is only their smallest number.

Tested in tests/unit/privacy/test_correlated.py and test_view.py, against the joint covariance of the
whole view in exact arithmetic. `graph_mu` and the functions beside it are for noise that cancels along
the edges of any graph: see `graph`.
"""

from __future__ import annotations

import math
import warnings
from typing import Literal, TypeAlias

from cape.core import check
from cape.core.errors import InvalidInput, PrivacyLeakWarning, outside
from cape.privacy.graph import complete, graph_mu, graph_mus, isolated_sites, star, tree

__all__ = [
    "aggregate_std",
    "complete",
    "default_colluding",
    "gain",
    "graph_mu",
    "graph_mus",
    "isolated_sites",
    "local_std",
    "mu",
    "pooled_ratio",
    "star",
    "tree",
]

CorrelatedStd: TypeAlias = float | Literal["paper"]


def mu(
    sensitivity: float,
    local_std: float,
    correlated_std: CorrelatedStd,
    sites: int,
    colluding: int = 0,
    *,
    missing: int = 0,
    person_sites: int = 1,
) -> float:
    """Return the exact mu of one release, for a person who appears at so many sites.

    `missing` counts honest sites whose message is lost after the correlated noise was fixed with
    them in it. With Gaussian noise the adversary then sees fewer messages of the same
    joint distribution: mu falls. With ring masks the missing sites are unmasked, and only the survivors'
    noise is left: mu rises. (Sites that drop out before the noise is fixed are not among
    `sites`.)
    """
    sensitivity = check.real("sensitivity", sensitivity, above=0.0)
    local_std = check.real("local_std", local_std, above=0.0)
    honest, survivors = _honest(sites, colluding, missing)
    ratio = _variance_ratio(correlated_std, local_std, sites)
    return sensitivity / local_std * math.sqrt(_loss(ratio, honest, survivors, _spread(person_sites, sites)))


def local_std(
    mu: float,
    sensitivity: float,
    sites: int,
    colluding: int,
    correlated_std: CorrelatedStd,
    min_sites: int | None = None,
    *,
    person_sites: int = 1,
) -> float:
    """Return the local noise with which the release costs mu even at `min_sites` surviving sites.

    The worst case is H = min_sites - colluding honest sites *before* the correlated noise is fixed:
    mu falls as H grows, and for a given number of honest survivors it falls with every further site
    whose correlated noise is in the sum but whose message is not (Gaussian noise), or
    does not depend on it (ring masks). So whenever at least `min_sites` sites send, whichever sites
    drop out and when, the release costs at most mu. By default no site may be missing. All of it holds for
    a person at any number of sites (`person_sites`).
    """
    mu = check.real("mu", mu, above=0.0)
    sensitivity = check.real("sensitivity", sensitivity, above=0.0)
    _honest(sites, colluding, 0)
    if min_sites is None:
        min_sites = sites
    honest = check.integer("min_sites", min_sites, least=colluding + 1, most=sites) - colluding
    pooled = sensitivity / mu  # what a trusted curator would add
    ratio = _variance_ratio(correlated_std, pooled, sites)
    spread = _spread(person_sites, sites)
    if isinstance(correlated_std, str):
        share = _loss(ratio, honest, honest, spread)
    else:
        share = _smallest_share(ratio, honest, spread)
    return pooled * math.sqrt(share)


def aggregate_std(local_std: float, correlated_std: CorrelatedStd, sites: int, missing: int = 0) -> float:
    """Return the standard deviation of the noise in the sum of the messages that came.

    When `missing` of the sites drop out after Gaussian correlated noise was fixed, the rest of it no
    longer cancels: the variance is (sites - missing)(local² + missing * correlated²/sites). Ring
    masks of missing sites are removed, and (sites - missing) local² is left.
    """
    local_std = check.real("local_std", local_std, above=0.0)
    sites, missing = _present(sites, missing)
    ratio = _variance_ratio(correlated_std, local_std, sites)
    return local_std * math.sqrt(_carried(ratio, sites, missing))


def pooled_ratio(
    local_std: float,
    correlated_std: CorrelatedStd,
    sites: int,
    colluding: int = 0,
    missing: int = 0,
) -> float:
    """Return the variance in the aggregate over what a trusted curator would need at the same mu.

    With ring masks it is sites / honest sites: exactly 1 without collusion, and no scheme whose
    colluders know their own noise can do better. The missing sites are taken to be honest.
    """
    local_std = check.real("local_std", local_std, above=0.0)
    honest, survivors = _honest(sites, colluding, missing)
    ratio = _variance_ratio(correlated_std, local_std, sites)
    if ratio == math.inf:
        return (sites - missing) / survivors
    return _carried(ratio, sites, missing) * _loss(ratio, honest, survivors)


def gain(
    local_std: float,
    correlated_std: CorrelatedStd,
    sites: int,
    colluding: int = 0,
    missing: int = 0,
) -> float:
    """Return the conventional scheme's variance over this one's, at the same mu and the same sites.

    Conventional sites add sensitivity/mu each, so their sum carries (sites - missing) times the
    pooled variance.
    """
    ratio = pooled_ratio(local_std, correlated_std, sites, colluding, missing)
    return (sites - missing) / ratio


def default_colluding(sites: int) -> int:
    """Return the paper's number of colluding sites, ceil(sites/3) - 1, warning where that is none."""
    sites = check.integer("sites", sites, least=1)
    colluding = max(0, math.ceil(sites / 3) - 1)
    if colluding == 0:
        warnings.warn(
            f"with {sites} site{'s' if sites > 1 else ''} the rule ceil(sites/3) - 1 allows no colluding"
            " site: the guarantee then holds only if no site shares what it knows with the aggregator or with"
            " another site",
            PrivacyLeakWarning,
            stacklevel=outside(),
        )
    return colluding


def _loss(ratio: float, honest: int, survivors: int, spread: int = 1) -> float:
    """Return mu² at sensitivity = local_std = 1, with ratio = correlated²/local².

    The covariance of the survivors is ratio (I - 11'/honest) + I; a person moves `spread` of them by 1. With
    ring masks spread² / survivors is a bound if more honest sites may survive than `spread`.
    """
    if ratio == math.inf:
        return spread**2 / survivors
    lost = honest - survivors
    survivors = max(survivors, spread)
    honest = survivors + lost
    differences = 1.0 / (1.0 + ratio)
    return spread * differences + spread**2 * (1.0 - differences) / (honest + ratio * (honest - survivors))


def _smallest_share(scaled: float, honest: int, spread: int = 1) -> float:
    """Return y = (local_std/pooled)², from 1 = q²/(honest y) + (q - q²/honest)/(scaled + y), q the spread.

    That is y² - (q - scaled) y - q² scaled/honest = 0; its positive root, without cancellation.
    """
    if scaled == math.inf:
        return spread**2 / honest
    honest = max(honest, spread)
    linear = spread - scaled
    constant = spread**2 * (scaled / honest)
    root = math.hypot(linear, 2.0 * math.sqrt(constant))
    if linear >= 0.0:
        return 0.5 * (linear + root)
    return 2.0 * (constant / (root - linear))


def _carried(ratio: float, sites: int, missing: int) -> float:
    """Return the variance in the aggregate at local_std = 1."""
    left_over = 0.0 if ratio == math.inf else ratio * missing / sites
    return (sites - missing) * (1.0 + left_over)


def _variance_ratio(correlated_std: CorrelatedStd, local_std: float, sites: int) -> float:
    if isinstance(correlated_std, str):
        if correlated_std != "paper":
            raise InvalidInput(
                f"correlated_std must be a number, math.inf or 'paper', not {correlated_std!r}"
            )
        return float(sites)
    std = check.real("correlated_std", correlated_std, least=0.0, infinite=True)
    ratio = (std / local_std) * (std / local_std)
    if ratio == math.inf and std != math.inf:
        raise InvalidInput(f"correlated_std must be below 1e154 times local_std, or math.inf, not {std!r}")
    return ratio


def _honest(sites: int, colluding: int, missing: int) -> tuple[int, int]:
    """Return the number of honest sites and of those among them whose message came."""
    sites = check.integer("sites", sites, least=1)
    colluding = check.integer("colluding", colluding, least=0, most=sites - 1)
    honest = sites - colluding
    return honest, honest - check.integer("missing", missing, least=0, most=honest - 1)


def _spread(person_sites: int, sites: int) -> int:
    return check.integer("person_sites", person_sites, least=1, most=sites)


def _present(sites: int, missing: int) -> tuple[int, int]:
    sites = check.integer("sites", sites, least=1)
    return sites, check.integer("missing", missing, least=0, most=sites - 1)
