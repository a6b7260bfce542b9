"""What the aggregator and the colluders see depends on honest vectors through their sum alone.

Exact: the whole protocol is played, by the real machines, once for *every* value of every mask. Masks and
inputs are multiples of 2^63 (or 2^62), a subgroup of Z_{2^64} with 2 (or 4) elements, so all of them can be
listed. Keystreams are idealised: each key stands for an independent uniform element. The view is every
masked vector that leaves a site, also of one that is then called dropped, and the value of every mask whose
keystream the aggregator or a colluder computes. All other messages do not depend on vectors or masks.
"""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest

from cape.noise import SecureStream
from cape.secagg import masks, simulate
from cape.secagg import messages as m
from tests.unit.secagg.ideal import Ideal


def view(cast, monkeypatch, inputs, values, *, size, drop, colluders, leak=()) -> tuple:
    """Play a run with the given inputs and masks; return what the adversary sees."""
    unit = (1 << 64) // size
    ideal = Ideal(values, unit)
    monkeypatch.setattr(masks, "keystream", ideal)
    play = cast(len(inputs), 1, colluding=len(colluders))
    for name, value in zip(play.sites, inputs, strict=True):
        play.vectors[name] = np.array([value * unit], np.uint64).view(np.int64)
    play.until("mask")
    up = {}
    for name, data in play.down.items():
        ideal.user = name
        up[name] = play.sites[name].handle(data)
    words = {name: m.unpack_signed(data, play.parameters).words for name, data in up.items()}
    ideal.user = "aggregator"
    play.deliver(up, drop)
    while play.finished is None:
        play.deliver(play.answers())
    total = int(play.finished.total.view(np.uint64)[0]) // unit
    survivors = [value for name, value in zip(play.sites, inputs, strict=True) if name not in drop]
    assert total == sum(survivors) % size
    known = ideal.known_to("aggregator", *colluders)
    return tuple(words.values()), known, tuple(values[number] for number in leak)


def views(cast, monkeypatch, inputs, *, size=2, **how) -> Counter:
    number_of_masks = len(inputs) * (len(inputs) + 1) // 2
    return Counter(
        view(cast, monkeypatch, inputs, values, size=size, **how)
        for values in product(range(size), repeat=number_of_masks)
    )


def test_same_sum_same_view_with_nobody_dropped(cast, monkeypatch):
    how = {"drop": (), "colluders": ()}
    base = views(cast, monkeypatch, (0, 1, 1), **how)
    assert views(cast, monkeypatch, (0, 0, 0), **how) == base
    assert views(cast, monkeypatch, (1, 1, 0), **how) == base
    assert views(cast, monkeypatch, (1, 1, 1), **how) != base  # another sum is another view


def test_same_sum_same_view_with_a_dropped_site_whose_vector_was_seen(cast, monkeypatch):
    how = {"drop": ("c",), "colluders": ()}
    base = views(cast, monkeypatch, (0, 1, 0), **how)
    assert views(cast, monkeypatch, (1, 0, 0), **how) == base
    assert views(cast, monkeypatch, (0, 1, 1), **how) == base  # the dropped vector does not show at all
    assert views(cast, monkeypatch, (1, 1, 0), **how) != base


def test_the_view_shows_it_when_both_secrets_of_a_dropped_site_come_out(cast, monkeypatch):
    # All masks leak, among them the self mask of the dropped site. The test can fail.
    how = {"drop": ("c",), "colluders": (), "leak": range(6)}
    assert views(cast, monkeypatch, (0, 1, 1), **how) != views(cast, monkeypatch, (0, 1, 0), **how)


@pytest.mark.slow(5)
def test_same_sum_same_view_with_a_colluder(cast, monkeypatch):
    # c colludes: what counts is the sum over the honest a and b.
    how = {"drop": (), "colluders": ("c",)}
    base = views(cast, monkeypatch, (0, 1, 0), **how)
    assert views(cast, monkeypatch, (1, 0, 0), **how) == base
    assert views(cast, monkeypatch, (0, 0, 1), **how) != base  # the same sum over all, not over the honest


@pytest.mark.slow(3)
def test_same_sum_same_view_with_a_colluder_of_four(cast, monkeypatch):
    how = {"drop": (), "colluders": ("d",)}
    base = views(cast, monkeypatch, (0, 1, 1, 0), **how)
    assert views(cast, monkeypatch, (1, 0, 1, 0), **how) == base
    assert views(cast, monkeypatch, (1, 0, 0, 0), **how) != base


@pytest.mark.slow(3)
@pytest.mark.parametrize("drop", [(), ("c",)])
def test_same_sum_same_view_in_a_ring_of_four(cast, monkeypatch, drop):
    how = {"drop": drop, "colluders": (), "size": 4}
    base = views(cast, monkeypatch, (0, 3, 1), **how)
    assert views(cast, monkeypatch, (2, 1, 1), **how) == base
    assert views(cast, monkeypatch, (2, 2, 1), **how) != base


@pytest.mark.slow(3)
def test_same_sum_same_view_with_a_colluder_and_a_dropped_site(cast, monkeypatch):
    how = {"drop": ("c",), "colluders": ("d",)}
    base = views(cast, monkeypatch, (0, 1, 0, 0), **how)
    assert views(cast, monkeypatch, (1, 0, 1, 0), **how) == base
    assert views(cast, monkeypatch, (1, 1, 0, 0), **how) != base


# --- the real keystream, in the real ring: chi-square -----------------------------------------------


def features(inputs, runs: int, seed: int) -> np.ndarray:
    """Return counts of (top 2 bits of a's word, of b's word) over runs with fresh keys."""
    root = SecureStream(seed.to_bytes(32, "big"))
    counts = np.zeros(16)
    for number in range(runs):
        tops = []

        def look(batch, tops=tops):
            for wire in batch:
                if wire.round == "mask" and wire.sender in ("a", "b"):
                    tops.append(wire.data[-1] >> 6)
            return batch

        named = dict(zip("abc", inputs, strict=True))
        simulate(named, hook=look, colluding=0, stream=root.fork(str(number)))
        counts[4 * tops[0] + tops[1]] += 1
    return counts


@pytest.mark.slow(4.7)
def test_masked_words_have_the_same_law_for_inputs_with_the_same_sum():
    big = 1 << 61
    one = [np.array([value]) for value in (0, big, -big)]
    two = [np.array([value]) for value in (-big, 0, big)]
    runs = 400
    first, second = features(one, runs, 1), features(two, runs, 2)
    pooled = (first + second) / 2
    assert ((first - pooled) ** 2 / pooled + (second - pooled) ** 2 / pooled).sum() < 44.3  # 15 df: 1e-4
    for counts in (first, second):  # and uniform
        assert ((counts - runs / 16) ** 2 / (runs / 16)).sum() < 44.3


def test_the_chi_square_sees_vectors_without_masks(monkeypatch):
    monkeypatch.setattr(masks, "apply", lambda words, keys: None)
    one = [np.array([value]) for value in (0, 1 << 62, -1)]
    counts = features(one, 20, 3)
    assert (counts > 0).sum() == 1
