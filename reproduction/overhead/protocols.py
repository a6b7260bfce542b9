"""One sum of D numbers over S sites by each protocol, with every byte that a site and the aggregator handle.

Bytes are those of messages, without what a transport adds (TLS, HTTP). Numbers are 64 bits wide everywhere.
No site is lost. A site's bytes are those of the site with most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cape.core.errors import InvalidInput
from cape.engine.calibration import RESOLUTION
from cape.noise import Ring, SecureStream
from cape.privacy.correlated import default_colluding
from cape.secagg import Aggregator, Traffic, Verifier, ZeroSumSite, drive, simulate
from cape.secagg.session import gather
from reproduction.overhead.compute_nodes import sum_by_nodes

__all__ = ["NODES", "PROTOCOLS", "Measured", "measure"]

NODES = (3, 10)  # compute nodes of Heikkilä et al.
Vectors = list[NDArray[np.int64]]


@dataclass(frozen=True)
class Measured:
    """Bytes of one sum. With compute nodes, the aggregator is all M of them and the one who adds up."""

    site_sent: int
    site_received: int
    aggregator_sent: int
    aggregator_received: int
    neighbours: int

    @property
    def site(self) -> int:
        """What the site with most sends and receives."""
        return self.site_sent + self.site_received

    @property
    def aggregator(self) -> int:
        """What the aggregator sends and receives."""
        return self.aggregator_sent + self.aggregator_received


def measure(protocol: str, sites: int, entries: int, stream: SecureStream) -> Measured:
    """Play one sum, check that it is right, and return what it took."""
    if protocol not in PROTOCOLS:
        raise InvalidInput(f"protocol must be one of {', '.join(PROTOCOLS)}, not {protocol!r}")
    words = stream.fork("vectors").words((sites, entries), np.int64)
    return PROTOCOLS[protocol]([word >> np.int64(24) for word in words], stream.fork("run"))


def _plain(vectors: Vectors, stream: SecureStream) -> Measured:
    """Bonawitz et al. (2017): every site shares masks with every other."""
    return _secure_sum(vectors, stream, "all")


def _ring(vectors: Vectors, stream: SecureStream) -> Measured:
    """CAPE with ring masks: the noisy vector itself is aggregated, above 50 sites on a sparse graph."""
    return _secure_sum(vectors, stream, "auto")


def _secure_sum(vectors: Vectors, stream: SecureStream, neighbours: str) -> Measured:
    outcome = simulate(
        vectors,
        colluding=_colluding(len(vectors)),
        neighbours="all" if neighbours == "all" else "auto",
        stream=stream,
    )
    _right(outcome.total, vectors)
    return _counted(outcome.traffic.values(), outcome.parameters.neighbours)


def _gaussian(vectors: Vectors, stream: SecureStream) -> Measured:
    """The paper's Algorithms 1 and 2: aggregate the noise, announce its sum, then one message a site."""
    names = [f"{number:04d}" for number in range(len(vectors))]
    entries = vectors[0].size
    parameters, identities = gather(names, entries, stream, colluding=_colluding(len(names)))
    verifier = Verifier(remember=True)
    std = RESOLUTION * math.sqrt(len(names))
    machines = {
        name: ZeroSumSite(
            parameters, name, identities[name], std, stream=stream.fork(f"site {name}"), verifier=verifier
        )
        for name in names
    }
    aggregator = Aggregator(parameters, verifier=verifier)
    outcome = drive(machines, aggregator, {name: site.drawn for name, site in machines.items()})
    announcement = aggregator.announcement()
    ring, total = Ring(64), np.zeros(entries, np.uint64)
    last = Traffic(received=dict.fromkeys(names, len(announcement)))
    for name, vector in zip(names, vectors, strict=True):
        message = ring.encode(vector + machines[name].finish(announcement)).tobytes()
        last.sent[name] = len(message)
        ring.add(total, np.frombuffer(message, ring.dtype))
    _right(ring.decode(total), vectors)  # the noise has cancelled; a site's own noise takes no bytes
    return _counted([*outcome.traffic.values(), last], parameters.neighbours)


def _nodes(count: int) -> Callable[[Vectors, SecureStream], Measured]:
    def run(vectors: Vectors, stream: SecureStream) -> Measured:
        done = sum_by_nodes(vectors, count, stream)
        _right(done.total, vectors)
        passed_on = done.aggregator_received
        return Measured(done.site_sent, 0, passed_on, done.nodes_received + passed_on, count)

    return run


def _messages(vectors: Vectors, stream: SecureStream) -> Measured:
    """The conventional scheme: each site sends its noisy vector, and that is all."""
    ring, total = Ring(64), np.zeros(vectors[0].size, np.uint64)
    sent = []
    for vector in vectors:
        message = ring.encode(vector).tobytes()  # a site's own noise takes no bytes
        sent.append(len(message))
        ring.add(total, np.frombuffer(message, ring.dtype))
    _right(ring.decode(total), vectors)
    return Measured(max(sent), 0, 0, sum(sent), 0)


PROTOCOLS: dict[str, Callable[[Vectors, SecureStream], Measured]] = {
    "cape-gaussian": _gaussian,
    "cape": _ring,
    "secure-aggregation": _plain,
    "conventional": _messages,
    **{f"compute-nodes-{count}": _nodes(count) for count in NODES},
}


def _counted(rounds: Iterable[Traffic], neighbours: int) -> Measured:
    rounds = list(rounds)
    names = {name for traffic in rounds for name in (*traffic.sent, *traffic.received)}
    sent = {name: sum(traffic.sent.get(name, 0) for traffic in rounds) for name in names}
    received = {name: sum(traffic.received.get(name, 0) for traffic in rounds) for name in names}
    most = max(names, key=lambda name: sent[name] + received[name])
    return Measured(sent[most], received[most], sum(received.values()), sum(sent.values()), neighbours)


def _colluding(sites: int) -> int:
    return default_colluding(sites)


def _right(total: NDArray[np.int64], vectors: Vectors) -> None:
    assert np.array_equal(total, np.sum(vectors, axis=0)), "the sum is wrong"
