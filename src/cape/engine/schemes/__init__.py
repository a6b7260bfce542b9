"""How noise is made: six schemes behind one interface.

Not here: which privacy a noise gives (`privacy`), and the protocol below the scheme "cape" (`secagg`).

Each scheme says how much noise a site adds per unit of sensitivity so that the release costs at most mu
(`local_std`), what a given noise really costs (`cost_mu`), how much of it ends up in the sum (`total_std`),
and how the sites' exact integers become one noisy total (`run`).

| scheme | noise at a site | what the aggregator sees | variance over pooled |
|---|---|---|---|
| cape | sensitivity / (mu sqrt(honest)), and surplus | the sum alone (secure aggregation) | sites / honest |
| cape-gaussian | alpha² = sites gamma² | messages with zero-sum Gaussian noise | see `correlated` |
| conventional | sensitivity / mu | messages, each private by itself | sites |
| local | sensitivity / mu, at the largest site alone | that site's message | 1, on fewer rows |
| pooled | sensitivity / mu, by a trusted curator | everything | 1 |
| none | none | everything | 0: not private |

`honest` is sites - colluding while nobody is lost. These are the standard deviations of Gaussian noise. With
Laplace noise (`Scheme.noise`) the scale is l1 / epsilon everywhere, and a site's noise has the shape 1/honest
under cape, 1 under conventional, local and pooled: the same ratios of variances. cape-gaussian has none.

Claim. Whichever sites are lost and when, a total over at least `min_sites` sites costs at most mu.
Reason. Noise is calibrated to the smallest number of honest survivors, and fewer are never answered for:
secure aggregation runs with a threshold of at least `min_sites`, below which no site unmasks. Noise is added
before a vector enters the protocol. Under `cape` alone some of it is taken off again, once the survivors are
known, and what is left suffices for them (`cape.privacy.ladder`).
Tested in tests/unit/engine/test_schemes.py: one contract for all, and the variance of each.
"""

from __future__ import annotations

from cape.engine.schemes.cape import Cape
from cape.engine.schemes.gaussian import CapeGaussian
from cape.engine.schemes.messages import Conventional, Local, NoNoise, Pooled
from cape.engine.schemes.scheme import ROUNDS, SECAGG_ROUNDS, Cost, Outcome, Parties, Scheme, Task, check_drop
from cape.noise import Kind

__all__ = [
    "ROUNDS",
    "SCHEMES",
    "SECAGG_ROUNDS",
    "CapeGaussian",
    "Cost",
    "Outcome",
    "Parties",
    "Scheme",
    "Task",
    "check_drop",
    "make_scheme",
]

SCHEMES: dict[str, type[Scheme]] = {
    kind.name: kind for kind in (Cape, CapeGaussian, Conventional, Local, Pooled, NoNoise)
}


def make_scheme(name: str, noise: Kind = "gaussian") -> Scheme:
    """Return a scheme by its name, with its kind of noise."""
    return SCHEMES[name](noise=noise)
