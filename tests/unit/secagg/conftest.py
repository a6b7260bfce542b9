"""A cast of machines that tests drive by hand, message by message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pytest

from cape.noise import SecureStream
from cape.secagg import (
    Aggregator,
    AggregatorState,
    Finished,
    Identity,
    Parameters,
    Roster,
    Send,
    Site,
    Verifier,
)
from cape.secagg import messages as m

KINDS = {
    "advertise": None,
    "share": m.Adverts,
    "mask": m.Delivery,
    "consistency": m.Survivors,
    "unmask": m.Consents,
}


@dataclass
class Cast:
    """All machines of one run, and every message so far."""

    parameters: Parameters
    identities: dict[str, Identity]
    vectors: dict[str, np.ndarray]  # of the step that is being played
    sites: dict[str, Site]
    aggregator: Aggregator
    down: dict[str, bytes] = field(default_factory=dict)  # what the aggregator asks now, by site
    finished: Finished | None = None  # in the step that is being played

    def take(self, events) -> None:
        sends = {event.to: event.data for event in events if isinstance(event, Send)}
        self.down = sends or self.down
        for event in events:
            if isinstance(event, Finished):
                self.finished = event

    def begin(self) -> dict[str, bytes]:
        return {name: site.start() for name, site in self.sites.items()}

    def answers(self) -> dict[str, bytes]:
        return {name: self.sites[name].handle(data) for name, data in self.down.items()}

    def step(self, step: int, vectors: dict[str, np.ndarray] | None = None, without: str = "") -> Cast:
        """Begin a step: give all sites but some their vectors, and let the aggregator ask for them."""
        self.vectors = vectors or {name: vector + step for name, vector in self.vectors.items()}
        self.finished = None
        for name in self.aggregator.sharers:
            if name not in without:
                self.sites[name].begin(step, self.vectors[name])
        self.take(self.aggregator.begin(step))
        self.down = {name: data for name, data in self.down.items() if name not in without}
        if without:
            self.take(self.aggregator.gone(without))
        return self

    def rounds(self, drop: dict[str, tuple[str, ...]] | None = None, until: str | None = None) -> Cast:
        """Play the rounds of a step that was begun, honestly."""
        for here in m.STEP_ROUNDS:
            if here == until:
                break
            self.deliver(self.answers(), (drop or {}).get(here, ()))
        return self

    def deliver(self, up: dict[str, bytes], without: tuple[str, ...] = ()) -> None:
        for name, data in up.items():
            if name not in without:
                self.take(self.aggregator.handle(data))
        if without:
            self.take(self.aggregator.gone(without))
        if self.aggregator.state is AggregatorState.READY and not self.aggregator.next_step:
            self.step(0)  # the setup is over

    def until(self, round_: str, drop: dict[str, tuple[str, ...]] | None = None) -> Cast:
        """Play honestly until the sites are about to be asked for `round_`."""
        drop = drop or {}
        for here in KINDS:
            if here == round_:
                return self
            up = self.begin() if here == "advertise" else self.answers()
            self.deliver(up, drop.get(here, ()))
        return self

    def resign(self, name: str, data: bytes, **changes) -> bytes:
        """Return a site's message with other contents, signed by that site again."""
        message = m.unpack_signed(data, self.parameters)
        return m.pack_signed(msgspec.structs.replace(message, **changes), self.identities[name])

    def alter(self, data: bytes, **changes) -> bytes:
        """Return a message of the aggregator with other contents."""
        return m.pack(msgspec.structs.replace(m.unpack(data, self.parameters), **changes))

    def sum_of(self, names) -> np.ndarray:
        return sum((self.vectors[name] for name in names), np.zeros(self.parameters.length, np.int64))


@pytest.fixture
def cast() -> Callable[..., Cast]:
    """A function that makes a cast: the same one for the same arguments."""

    def make(sites: int = 5, length: int = 3, seed: int = 1, run: bytes = b"run number three", **agree):
        stream = SecureStream(seed.to_bytes(32, "big"))
        names = [chr(ord("a") + number) for number in range(sites)]
        identities = {name: Identity(stream=stream.fork(f"identity {name}")) for name in names}
        roster = Roster.of({name: identity.public for name, identity in identities.items()})
        agree.setdefault("colluding", 0)
        parameters = Parameters.agree(run, roster, length, **agree)
        random = np.random.default_rng(seed)
        vectors = {name: random.integers(-(10**6), 10**6, length) for name in names}
        verifier = Verifier(remember=True)
        machines = {
            name: Site(
                parameters,
                name,
                identities[name],
                stream=stream.fork(f"site {name}"),
                verifier=verifier,
            )
            for name in names
        }
        return Cast(parameters, identities, vectors, machines, Aggregator(parameters, verifier=verifier))

    return make
