"""Algorithm 1 of the paper: noise at every site that is large alone and exactly zero in sum.

Claim. The e_s of the survivors are integers and add up to zero, exactly. Given everything that the aggregator
and the colluders see, the honest ê_s are discrete Gaussians conditioned on their sum, and on nothing else.
Reason. Each site draws ê_s; secure aggregation gives the sum E over the survivors and nothing else; E is
announced, and site number i of the S' survivors keeps ê_s minus its part of E, by integer division: E = S' q
+ r, the first r sites subtract q + 1 and the others q. A wrong E, or different ones, shifts the noise by
amounts that the aggregator knows: that corrupts the sum, not the privacy. The ring holds E for certain
(`Ring.require_fits` with the samplers' hard bound). The noise of many iterations is one long vector and one
run; each later release is then one message per site.
Tested in tests/unit/secagg/test_zero_sum.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from cape.core import check
from cape.core.errors import BadMessage, Refused
from cape.noise import SecureStream, discrete_gaussian
from cape.noise.ring import zero_sum_share
from cape.secagg import messages as m
from cape.secagg.aggregator import Aggregator
from cape.secagg.drive import drive
from cape.secagg.keys import KEY_BYTES, Identity, Verifier
from cape.secagg.observer import Observer
from cape.secagg.parameters import Choices, Parameters
from cape.secagg.session import gather
from cape.secagg.site import Site
from cape.secagg.states import SiteState
from cape.secagg.traffic import Hook, Outcome, Progress

__all__ = ["ZeroSumNoise", "ZeroSumSite", "zero_sum_gaussian"]


class ZeroSumSite(Site):
    """A site whose vector is fresh noise ê_s; after the run, `finish(announcement)` gives its e_s.

    The run has one step: `begin(0, site.drawn)`. The aggregator is a plain `Aggregator`; when it is finished
    its `announcement()` goes to all survivors.
    """

    def __init__(
        self,
        parameters: Parameters,
        name: str,
        identity: Identity,
        std: float,
        *,
        stream: SecureStream | None = None,
        **rest: Any,
    ) -> None:
        parameters.ring.require_fits(0, std, parameters.sites)
        stream = stream or SecureStream()
        self._drawn: NDArray[np.int64] | None = discrete_gaussian(
            std, parameters.length, stream.fork("noise")
        )
        super().__init__(parameters, name, identity, stream=stream, **rest)

    @property
    def drawn(self) -> NDArray[np.int64]:
        """ê_s, until `finish` has returned e_s."""
        if self._drawn is None:
            raise Refused("a site's noise is returned once")
        return self._drawn

    def finish(self, announcement: bytes) -> NDArray[np.int64]:
        """Return e_s, once: the noise drawn less this site's part of the announced sum."""
        if self.state is not SiteState.DONE or self._drawn is None:
            raise Refused("a site's noise is returned once, after it has taken part in the whole run")
        message = m.unpack(announcement, self.parameters)
        if not isinstance(message, m.Total) or message.transcript != self.transcript:
            raise Refused("this is not the announcement of the run that this site took part in")
        if len(message.words) != self.parameters.vector_bytes:
            raise BadMessage("the announced sum does not have the length of this run's vectors")
        ring = self.parameters.ring
        total = ring.decode(np.frombuffer(message.words, ring.dtype))
        survivors = self.survivors
        noise = self._drawn - zero_sum_share(total, len(survivors), survivors.index(self.name))
        self._drawn = None
        return noise


@dataclass(frozen=True, eq=False)
class ZeroSumNoise:
    """The noise of each survivor that got the announced sum, as iterations x length, and the run."""

    noise: dict[str, NDArray[np.int64]]
    outcome: Outcome


def zero_sum_gaussian(
    std: float,
    sites: int | list[str],
    length: int,
    *,
    iterations: int = 1,
    stream: SecureStream | None = None,
    drop: Mapping[str, Iterable[str]] | None = None,
    hook: Hook | None = None,
    progress: Progress | None = None,
    observer: Observer | None = None,
    **choices: Unpack[Choices],
) -> ZeroSumNoise:
    """Make zero-sum noise for several iterations in one run, all in this process.

    Args:
        std: the scale of the discrete Gaussian that each site draws, in grid steps (the paper's tau_s,
            docs/guarantee.md's alpha).
        sites: how many, or their names.
        length: entries of one iteration's vector.
        iterations: how many releases the noise is for.
        stream, drop, hook, progress, observer, **choices: see `simulate`.

    Sites that drop in the unmask round are counted in the sum and get no noise: without them the rest
    adds up to minus what they would have held (docs/guarantee.md counts that noise). They are in
    `outcome.survivors` and not in `noise`.
    """
    iterations = check.integer("iterations", iterations, least=1)
    length = check.integer("length", length, least=1)
    names = (
        sites
        if isinstance(sites, list)
        else [f"{number:04d}" for number in range(check.integer("sites", sites, least=2))]
    )
    stream = SecureStream(stream.bytes(KEY_BYTES) if stream else None)
    parameters, identities = gather(names, iterations * length, stream, **choices)
    verifier = Verifier(remember=True)
    machines = {
        name: ZeroSumSite(
            parameters,
            name,
            identities[name],
            std,
            stream=stream.fork(f"site {name}"),
            verifier=verifier,
        )
        for name in names
    }
    aggregator = Aggregator(parameters, verifier=verifier)
    drawn = {name: site.drawn for name, site in machines.items()}
    outcome = drive(machines, aggregator, drawn, drop=drop, hook=hook, progress=progress, observer=observer)
    announcement = aggregator.announcement()
    noise = {
        name: site.finish(announcement).reshape(iterations, length)
        for name, site in machines.items()
        if site.state is SiteState.DONE
    }
    return ZeroSumNoise(noise, outcome)
