"""Bytes on the wire: right sums, counted honestly, and powers that a fit can tell apart."""

from __future__ import annotations

import numpy as np
import pytest

from cape import InvalidInput
from cape.noise import Ring
from cape.secagg import simulate
from reproduction import find
from reproduction.overhead import PROTOCOLS, grows, measure
from reproduction.overhead.compute_nodes import share, sum_by_nodes

pytestmark = pytest.mark.filterwarnings("ignore::cape.PrivacyLeakWarning")


@pytest.mark.slow_cases("cape-gaussian", seconds=1.8)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_bytes_do_not_depend_on_what_is_sent(protocol, stream):
    first, second = (measure(protocol, 5, 40, stream.fork(name)) for name in "ab")
    assert first == second
    assert first.site_sent >= 8 * 40
    assert first.aggregator_received >= 5 * 8 * 40


def test_what_sites_send_is_what_the_aggregator_receives(stream):
    found = measure("cape", 6, 30, stream)
    outcome = simulate([np.ones(30, np.int64)] * 6, colluding=1)
    received = sum(traffic.aggregator_received for traffic in outcome.traffic.values())
    assert found.aggregator_received == received
    assert found.aggregator_sent == sum(traffic.aggregator_sent for traffic in outcome.traffic.values())


def test_the_papers_algorithm_sends_three_vectors(stream):
    short, long = (
        measure("cape-gaussian", 5, entries, stream.fork(str(entries))) for entries in (1000, 2000)
    )
    ring = [measure("cape", 5, entries, stream.fork(f"r{entries}")) for entries in (1000, 2000)]
    assert long.site_sent - short.site_sent == pytest.approx(2 * 8000, abs=8)  # noise and message
    assert long.site_received - short.site_received == pytest.approx(8000, abs=8)  # the announced sum
    assert ring[1].site_sent - ring[0].site_sent == pytest.approx(8000, abs=8)
    assert ring[1].site_received == ring[0].site_received


def test_compute_nodes_add_up_and_cost_what_the_paper_says(stream):
    vectors = [np.arange(-4, 4, dtype=np.int64) * (i + 1) for i in range(3)]
    done = sum_by_nodes(vectors, 4, stream)
    np.testing.assert_array_equal(done.total, np.sum(vectors, axis=0))
    assert done.site_sent == 4 * 8 * 8
    assert done.nodes_received + done.aggregator_received == 8 * (3 + 1) * 8 * 4  # 8 (S + 1) D M


def test_all_but_one_share_say_nothing(stream):
    ring = Ring(64)
    vector = ring.encode(np.zeros(4000, np.int64))
    shares = share(vector, 3, ring, stream)
    for left_out in range(3):
        seen = np.concatenate([part for i, part in enumerate(shares) if i != left_out])
        bits = np.unpackbits(seen.view(np.uint8))
        assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(bits.size)
    assert not np.any(sum(shares[1:], shares[0]))


def test_a_fit_finds_the_power_and_not_another():
    x = np.array([5.0, 10, 20, 50, 100])
    for power in (1.0, 2.0, 0.5):
        found = grows(x, 300 + 7 * x**power)
        assert found.exponent == pytest.approx(power, abs=0.01)
        assert found.error < 1e-3
    mixed = grows(x, x * np.log(x))
    assert 1.1 < mixed.exponent < 1.5
    with pytest.raises(InvalidInput, match="at least 3"):
        grows([1, 2], [1, 2])


def test_an_unknown_protocol_is_refused(stream):
    with pytest.raises(InvalidInput, match="cape-gaussian"):
        measure("pigeons", 5, 10, stream)


def test_claims_are_judged_by_the_numbers():
    figure = find("table-1")
    cells = figure.cells(True)

    def rows(power):
        out = []
        for cell in cells:
            s, d, protocol = cell.integer("sites"), cell.integer("entries"), cell.text("protocol")
            nodes = protocol.startswith("compute")
            site = {"conventional": 8 * d, "cape-gaussian": 500 + 200 * s**power + 24 * d}.get(
                protocol, 8 * 3 * d if nodes else 500 + 200 * s**power + 8 * d
            )
            counted = {"aggregator_received": 8 * (s + 1) * d * 3, "neighbours": 3 if nodes else s - 1}
            out.append({**dict(cell.settings), "site": site, "aggregator": s * site, **counted})
        return out

    assert all(claim.holds for claim in figure.claims(rows(1.0), None))
    quadratic = {claim.says: claim.holds for claim in figure.claims(rows(2.0), None)}
    assert not any(holds for says, holds in quadratic.items() if "O(S + D)" in says)
    assert all(holds for says, holds in quadratic.items() if "Heikkilä" in says)
    assert "| CAPE, ring masks | O(S + D) | 1.00 | 1.00 | O(S² + SD) | 2.00 | 1.00 |" in figure.notes(
        rows(1.0)
    )
    assert set(figure.draw(rows(1.0), None)) == {"bytes"}
    more = [{**row, "site": row["site"] + 8 * row["entries"]} for row in rows(1.0)]
    both = [a if a["protocol"] == "cape-gaussian" else b for a, b in zip(more, rows(1.0), strict=True)]
    assert next(c for c in figure.claims(both, None) if "Beside secure" in c.says).holds is False


def test_one_message_a_site_is_the_least_there_is(stream):
    found = measure("conventional", 5, 40, stream)
    assert (found.site, found.aggregator) == (8 * 40, 5 * 8 * 40)
