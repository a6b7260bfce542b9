"""Whoever watches a run is shown what went over the wire and what machines hold, and changes nothing."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from cape import secagg
from cape.analyses import Mean
from cape.core.errors import Refused
from cape.data import Number, Schema
from cape.engine.calibration import RESOLUTION
from cape.engine.consortium import Consortium
from cape.engine.observer import Observer
from cape.engine.schemes import SCHEMES
from cape.noise import SecureStream
from cape.noise.ring import zero_sum_share
from cape.privacy import Budget
from cape.secagg import masks
from cape.secagg import messages as m

SITES = {name: pl.DataFrame({"age": [20.0 + row for row in range(40)]}) for name in ("a", "b", "c")}
SCHEMA = Schema(age=Number(18, 90))
KEY = bytes(range(32))


class Written(Observer):
    """Writes down what it is shown."""

    def __init__(self):
        self.told, self.wires, self.keys, self.machines = [], [], {}, None

    def asked(self, query, calibration):
        self.told.append(("asked", query, calibration))

    def cancelling(self, noise, announced, drew):
        self.told.append(("cancelling", noise, announced, drew))

    def sent(self, messages, ring):
        self.told.append(("sent", messages, ring))

    def released(self, outcome):
        self.told.append(("released", outcome))

    def began(self, sites, aggregator):
        self.machines = sites, aggregator

    def carried(self, wire):
        self.wires.append(wire)
        if wire.round == "mask" and wire.receiver == "c":
            self.keys = self.machines[0]["c"].pair_keys()


def run(scheme, observer=None):
    consortium = Consortium(
        SITES,
        SCHEMA,
        Budget(1.0, 1e-6),
        colluding=1,
        scheme=scheme,
        stream=SecureStream(KEY),
        observer=observer,
    )
    return consortium.release(Mean("age"), share=0.5)


@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name != "none"])
def test_a_run_that_is_watched_gives_the_same_answer(scheme):
    watched, alone = run(scheme, Written()), run(scheme)
    assert [e.value for e in watched.estimates] == [e.value for e in alone.estimates]


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("cape", ["asked", "released"]),
        ("conventional", ["asked", "sent", "released"]),
        ("cape-gaussian", ["asked", "cancelling", "sent", "released"]),
    ],
)
def test_what_is_shown_comes_in_order(scheme, expected):
    written = Written()
    run(scheme, written)
    assert [told[0] for told in written.told] == expected


def test_messages_are_shown_by_site_and_add_up_to_the_total():
    written = Written()
    run("conventional", written)
    _, (_, messages, ring), (_, outcome) = written.told
    assert set(messages) == set(SITES)
    assert np.array_equal(sum(ring.decode(each) for each in messages.values()), outcome.total)


def test_noise_that_cancels_is_shown_with_the_sum_that_was_announced():
    written = Written()
    run("cape-gaussian", written)
    noise, announced, drew = written.told[1][1:]
    assert not sum(noise.values()).any()
    drawn = [noise[name] + zero_sum_share(announced, len(drew), drew.index(name)) for name in drew]
    assert np.array_equal(sum(drawn), announced)


def test_every_message_of_every_round_is_shown():
    written = Written()
    run("cape", written)
    up = [(wire.round, wire.sender) for wire in written.wires if wire.receiver == secagg.AGGREGATOR]
    assert up == [(round_, site) for round_ in secagg.ROUNDS for site in SITES]
    assert all(wire.data for wire in written.wires if wire.round != "advertise")


def test_what_machines_hold_takes_the_masks_off_a_colluder_s_vector_and_off_no_other():
    written = Written()
    run("cape", written)
    sites, aggregator = written.machines
    ring, numbers = aggregator.parameters.ring, {name: site.number for name, site in sites.items()}
    assert set(aggregator.self_keys) == set(numbers.values())
    near = {}
    for wire in written.wires:
        if wire.round != "mask" or wire.receiver != secagg.AGGREGATOR:
            continue
        me = numbers[wire.sender]
        message = m.unpack_signed(wire.data, aggregator.parameters)
        words = np.frombuffer(message.words, ring.dtype).copy()
        known = {numbers["c"]: written.keys[me]} if me in written.keys else written.keys
        off = [(key, -masks.sign(me, peer)) for peer, key in known.items()]
        masks.apply(words, [(aggregator.self_keys[me], -1), *off])
        near[wire.sender] = bool((np.abs(ring.decode(words)) < 1000 * RESOLUTION).all())
    assert near == {"a": False, "b": False, "c": True}


def test_a_site_that_has_masked_its_vector_has_no_keys_to_tell():
    written = Written()
    run("cape", written)
    with pytest.raises(Refused, match="has forgotten the keys"):
        written.machines[0]["c"].pair_keys()
