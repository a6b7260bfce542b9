"""The graph: k-regular, connected, the same for all who saw the same keys, and like a random one."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from cape.secagg.graph import Graph, _circle
from cape.secagg.keys import digest


def seed(number: int) -> bytes:
    return digest("test", number.to_bytes(8, "big"))


@pytest.mark.parametrize(("sites", "degree"), [(5, 2), (6, 4), (9, 4), (60, 14), (7, 6), (2, 1)])
def test_it_is_regular_symmetric_and_connected(sites, degree):
    graph = Graph(sites, degree, seed(1))
    around = [graph.neighbours(site) for site in range(sites)]
    for site, peers in enumerate(around):
        assert len(peers) == len(set(peers)) == degree
        assert site not in peers
        assert peers == sorted(peers)
        assert all(site in around[peer] for peer in peers)
        assert graph.committee(site) == sorted([*peers, site])
    reached, ahead = {0}, [0]
    while ahead:
        new = set(around[ahead.pop()]) - reached
        reached |= new
        ahead += new
    assert len(reached) == sites


def test_another_transcript_gives_another_graph():
    graphs = {tuple(Graph(60, 6, seed(number)).neighbours(0)) for number in range(5)}
    assert len(graphs) == 5
    assert Graph(60, 6, seed(1)).neighbours(7) == Graph(60, 6, seed(1)).neighbours(7)


def test_every_peer_is_as_likely_a_neighbour_as_any_other(monkeypatch):
    # scrypt is what makes a try dear; here it would only make the test slow.
    monkeypatch.setattr("cape.secagg.graph.scrypt", lambda secret, **_: secret)
    seen = Counter()
    tries, sites, degree = 3000, 11, 4
    for number in range(tries):
        seen.update(Graph(sites, degree, seed(number)).neighbours(0))
    expected = tries * degree / (sites - 1)
    chi_square = sum((seen[peer] - expected) ** 2 / expected for peer in range(1, sites))
    assert seen[0] == 0
    assert chi_square < 33.7  # 9 degrees of freedom: p = 1e-4 at a fixed seed


def test_the_circle_is_a_uniform_permutation(monkeypatch):
    monkeypatch.setattr("cape.secagg.graph.scrypt", lambda secret, **_: secret)
    seen = Counter(tuple(_circle.__wrapped__(4, seed(number))[0]) for number in range(4800))
    assert len(seen) == 24
    assert sum((count - 200) ** 2 / 200 for count in seen.values()) < 57  # 23 degrees: p = 1e-4


def test_the_order_has_an_inverse():
    order, position = _circle(60, seed(3))
    assert np.array_equal(np.array(order)[position], np.arange(60))


def test_a_try_costs_a_memory_hard_function(monkeypatch):
    calls = []

    def slow(secret, *, salt, n, r, p, dklen):
        calls.append(128 * n * r)
        return secret

    monkeypatch.setattr("cape.secagg.graph.scrypt", slow)
    _circle.__wrapped__(10, seed(4))
    assert calls == [16 << 20]
