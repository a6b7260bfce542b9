"""The driver: who sent how much, hooks, progress, reproducible runs, wrong use."""

from __future__ import annotations

import numpy as np
import pytest

from cape.core.errors import InvalidInput, TooFewSites
from cape.noise import SecureStream
from cape.secagg import AGGREGATOR, ROUNDS, simulate

VECTORS = list(np.random.default_rng(3).integers(-1000, 1000, (6, 50)))


def test_the_sum_of_a_row_of_vectors():
    outcome = simulate(VECTORS)
    assert np.array_equal(outcome.total, sum(VECTORS))
    assert outcome.survivors == tuple(f"{number:04d}" for number in range(6))
    assert outcome.seconds > 0


def test_traffic_is_counted_by_round_site_and_direction():
    seen = []

    def hook(batch):
        seen.extend(batch)
        return batch

    outcome = simulate(VECTORS, hook=hook, drop={"mask": ["0005"]})
    assert tuple(outcome.traffic) == ROUNDS
    for round_, traffic in outcome.traffic.items():
        up = sum(len(w.data) for w in seen if w.round == round_ and w.receiver == AGGREGATOR)
        assert traffic.aggregator_received == up == sum(traffic.sent.values())
        assert traffic.aggregator_sent == sum(traffic.received.values())
    assert outcome.traffic["mask"].sent["0000"] > 50 * 8
    assert "0005" not in outcome.traffic["mask"].sent
    assert set(outcome.traffic["unmask"].sent) == {f"000{i}" for i in range(5)}
    assert outcome.traffic["advertise"].aggregator_sent == 0


def test_the_vector_is_sent_once_and_little_else_grows_with_its_length():
    short, long = (simulate([np.zeros(d, np.int64)] * 4) for d in (10, 1010))
    grown = sum(long.traffic[r].aggregator_received - short.traffic[r].aggregator_received for r in ROUNDS)
    assert 4 * 8000 <= grown <= 4 * 8000 + 100
    assert sum(long.traffic[r].aggregator_sent - short.traffic[r].aggregator_sent for r in ROUNDS) == 0


def test_a_run_with_a_key_can_be_repeated_and_one_without_cannot():
    def wires(stream=None):
        seen = []

        def hook(batch):
            seen.extend(batch)
            return batch

        simulate(VECTORS, hook=hook, stream=stream)
        return [wire.data for wire in seen]

    assert wires(SecureStream(bytes(32))) == wires(SecureStream(bytes(32)))
    assert wires(SecureStream(bytes(32))) != wires(SecureStream(b"\1" * 32))
    assert wires() != wires()


def test_an_outcome_prints_what_it_cost():
    text = str(simulate(VECTORS, drop={"mask": ["0001"]}))
    assert text.startswith("5 of 6 sites, 50 entries")
    assert [line.split()[0] for line in text.splitlines()[2:]] == list(ROUNDS)


def test_one_stream_serves_many_runs():
    stream = SecureStream(bytes(32))
    runs = {simulate(VECTORS, stream=stream).parameters.run for _ in range(3)}
    assert len(runs) == 3


def test_progress_is_told():
    seen = []
    simulate(VECTORS, progress=lambda *args: seen.append(args), drop={"mask": ["0001"]})
    assert seen[:6] == [("advertise", i, 6) for i in range(1, 7)]
    assert seen[-1] == ("unmask", 5, 5)


def test_refusals_are_kept():
    def hook(batch):
        return [*batch, batch[0]] if batch[0].round == "mask" and batch[0].sender else batch

    outcome = simulate(VECTORS, hook=hook)
    assert outcome.refusals == (
        ("aggregator", "a message 'Masked' is refused: the aggregator now waits for consents"),
    )


def test_the_error_notes_who_refused():
    def hook(batch):
        if batch and batch[0].round == "share" and batch[0].sender == AGGREGATOR:
            return [type(w)(w.round, w.sender, w.receiver, w.data[:-1]) for w in batch]
        return batch

    with pytest.raises(TooFewSites) as caught:
        simulate(VECTORS, hook=hook)
    assert caught.value.__notes__[0].startswith("0000 refused a message")


@pytest.mark.parametrize(
    ("vectors", "choices", "match"),
    [
        ([], {}, "at least 2 sites"),
        ([np.zeros(3, np.int64)], {}, "at least 2 sites"),
        ([np.zeros(3, np.int64), np.zeros(4, np.int64)], {"colluding": 0}, "shape"),
        ([[1, 2], [3, 4]], {}, "one-dimensional arrays"),
        ([np.zeros(3), np.zeros(3)], {"colluding": 0}, "int64"),
        (VECTORS, {"drop": {"lunch": ["0000"]}}, "rounds out of"),
        (VECTORS, {"drop": {"mask": ["x"]}}, "'x', which is not a site"),
        (VECTORS, {"colluding": 6}, "colluding"),
        (VECTORS, {"bits": 8}, "bits"),
    ],
)
def test_wrong_use(vectors, choices, match):
    with pytest.raises(InvalidInput, match=match):
        simulate(vectors, **choices)


def test_sixty_sites_choose_their_neighbours_themselves():
    vectors = list(np.random.default_rng(4).integers(-1000, 1000, (60, 3)))
    gone = ["0003", "0030"]
    outcome = simulate(vectors, colluding=3, dropping=3, drop={"mask": gone})
    assert outcome.parameters.neighbours < 59
    expected = sum(v for number, v in enumerate(vectors) if f"{number:04d}" not in gone)
    assert np.array_equal(outcome.total, expected)
