"""Many sums with keys agreed once, all sites and the aggregator in this process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from cape.core.errors import InvalidInput, Refused
from cape.noise import SecureStream
from cape.secagg.aggregator import Aggregator
from cape.secagg.drive import Driver, silent_from
from cape.secagg.keys import KEY_BYTES, Identity, Roster, Verifier
from cape.secagg.messages import STEP_ROUNDS
from cape.secagg.observer import Observer
from cape.secagg.parameters import RUN_BYTES, Choices, Parameters
from cape.secagg.site import Site, require_vector
from cape.secagg.traffic import Hook, Outcome, Progress, Setup

__all__ = ["Session", "gather"]


class Session:
    """A run of many steps. Creating it runs the setup; each `step` adds up one vector of every site.

    Args:
        names: the sites.
        length: the number of entries of every vector.
        steps: how many sums there can be. Keys for all of them are agreed now.
        drop: "advertise" or "share" -> sites that are silent from that round on. They are out of all steps.
        hook, progress, observer: see `simulate`.
        stream: the source of all secrets; give one with a key for a reproducible session.
        **choices: bits, colluding, dropping, lying, threshold, neighbours: see `Parameters.agree`.

    Raises:
        TooFewSites: fewer than the threshold were left in the setup.
    """

    def __init__(
        self,
        names: Sequence[str],
        length: int,
        steps: int,
        *,
        drop: Mapping[str, Iterable[str]] | None = None,
        hook: Hook | None = None,
        progress: Progress | None = None,
        observer: Observer | None = None,
        stream: SecureStream | None = None,
        **choices: Unpack[Choices],
    ) -> None:
        stream = SecureStream(stream.bytes(KEY_BYTES) if stream else None)
        self.parameters, identities = gather(names, length, stream, steps=steps, **choices)
        self._verifier = Verifier(remember=True)
        sites = {
            name: Site(
                self.parameters,
                name,
                identity,
                stream=stream.fork(f"site {name}"),
                verifier=self._verifier,
            )
            for name, identity in identities.items()
        }
        self._aggregator = Aggregator(self.parameters, verifier=self._verifier)
        self._driver = Driver(sites, self._aggregator, hook=hook, progress=progress, observer=observer)
        self.setup: Setup = self._driver.set_up(drop)

    @property
    def left(self) -> int:
        """How many steps are left."""
        return self.parameters.steps - self._aggregator.next_step

    def step(
        self,
        vectors: Mapping[str, NDArray[np.int64]],
        *,
        drop: Mapping[str, Iterable[str]] | None = None,
    ) -> Outcome:
        """Add up the sites' vectors of the next step.

        Args:
            vectors: each site's integers (int64), by name. A site without a vector is silent in this
                step, and can take part in the next.
            drop: "mask", "consistency" or "unmask" -> sites that are silent from that round to the end
                of this step.

        Returns:
            The sum over this step's survivors, and the cost of the step without the setup.

        Raises:
            TooFewSites: fewer than the threshold were left. The step is used up; the next one can start.
        """
        parameters = self.parameters
        if not self.left:
            raise Refused(f"all {parameters.steps} steps of this session are over; more need a new session")
        for name, vector in vectors.items():
            if name not in parameters.roster.names:
                raise InvalidInput(f"vectors names {name!r}, which is not a site")
            require_vector(vector, parameters.length, parameters.ring)
        silent_from(drop or {}, parameters.roster.names, STEP_ROUNDS)
        self._verifier.forget()
        return self._driver.step(self._aggregator.next_step, vectors, drop)

    def __repr__(self) -> str:
        return f"Session({self.parameters.sites} sites, {self.left} of {self.parameters.steps} steps left)"


def gather(
    names: Sequence[str], length: int, stream: SecureStream, *, steps: int = 1, **choices: Unpack[Choices]
) -> tuple[Parameters, dict[str, Identity]]:
    """Return a fresh run's parameters and every site's identity, for a run in one process."""
    identities = {name: Identity(stream=stream.fork(f"identity {name}")) for name in names}
    roster = Roster.of({name: identity.public for name, identity in identities.items()})
    run = stream.fork("run").bytes(RUN_BYTES)
    return Parameters.agree(run, roster, length, steps=steps, **choices), identities
