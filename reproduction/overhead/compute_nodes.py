"""Heikkilä et al. (2017): sites hand additive shares of their vectors to M compute nodes, which add them up.

Claim. Any M - 1 nodes together see uniform numbers; all M nodes' sums add up to the sum of the vectors.
Reason. A vector is the ring sum of M shares of which any M - 1 are independent and uniform.
Tested in tests/unit/reproduction/test_table_1.py. It is here to count bytes, and has no protection against
lost sites.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cape.noise import Ring, SecureStream

__all__ = ["Shared", "share", "sum_by_nodes"]

Words = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Shared:
    """The sum, and the bytes that one site sends, that all nodes receive, and that they pass on."""

    total: NDArray[np.int64]
    site_sent: int
    nodes_received: int
    aggregator_received: int


def share(vector: Words, nodes: int, ring: Ring, stream: SecureStream) -> list[Words]:
    """Return one share of a vector for each node."""
    shares: list[Words] = [stream.words(vector.size, ring.dtype) for _ in range(nodes - 1)]
    last = vector.copy()
    for each in shares:
        last -= each  # unsigned: modulo the ring
    return [*shares, last]


def sum_by_nodes(vectors: Sequence[NDArray[np.int64]], nodes: int, stream: SecureStream) -> Shared:
    """Add up vectors with M compute nodes, and count every byte that is sent."""
    ring = Ring(64)
    sums: list[Words] = [np.zeros(vectors[0].size, ring.dtype) for _ in range(nodes)]
    sent = [0] * len(vectors)
    received = 0
    for number, vector in enumerate(vectors):
        for node, part in enumerate(share(ring.encode(vector), nodes, ring, stream)):
            message = part.tobytes()
            sent[number] += len(message)
            received += len(message)
            sums[node] += np.frombuffer(message, ring.dtype)
    messages = [each.tobytes() for each in sums]
    total = np.zeros(vectors[0].size, ring.dtype)
    for message in messages:
        total += np.frombuffer(message, ring.dtype)
    return Shared(ring.decode(total), max(sent), received, sum(map(len, messages)))
