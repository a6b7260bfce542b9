"""The sum over the survivors, whoever drops and whenever; or TooFewSites. Nothing in between."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.core.errors import PrivacyLeakWarning, TooFewSites
from cape.noise import SecureStream
from cape.secagg import ROUNDS, simulate
from tests.slices import examples

NEVER = len(ROUNDS)
MASK = ROUNDS.index("mask")


def vectors(sites: int, length: int = 3, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    half = 1 << 61
    return {f"{i:04d}": random.integers(-half, half, length) for i in range(sites)}


def check(data: dict[str, np.ndarray], leaves: list[int], threshold: int, **choices) -> bool:
    """Run with site i silent from round leaves[i] on; return whether there was a sum."""
    names = list(data)
    drop = {
        round_: [name for name, leave in zip(names, leaves, strict=True) if leave == number]
        for number, round_ in enumerate(ROUNDS)
    }
    enough = all(sum(leave > number for leave in leaves) >= threshold for number in range(len(ROUNDS)))
    stream = SecureStream(bytes(32))
    try:
        outcome = simulate(data, drop=drop, threshold=threshold, stream=stream, **choices)
    except TooFewSites:
        assert not enough or choices.get("neighbours", "all") != "all"
        return False
    assert enough
    survivors = [name for name, leave in zip(names, leaves, strict=True) if leave > MASK]
    assert list(outcome.survivors) == survivors
    with np.errstate(over="ignore"):
        assert np.array_equal(outcome.total, sum(data[name] for name in survivors))
    assert not outcome.refusals
    return True


@pytest.mark.parametrize(
    ("sites", "threshold", "colluding"),
    [
        (2, 2, 0),
        (3, 2, 0),
        pytest.param(4, 3, 1, marks=pytest.mark.slow(5)),
        pytest.param(4, 4, 2, marks=pytest.mark.slow(5)),
        pytest.param(5, 4, 1, marks=pytest.mark.slow(40)),
    ],
)
def test_every_subset_at_every_round(sites, threshold, colluding):
    data = vectors(sites, 1)
    outcomes = {
        check(data, list(leaves), threshold, colluding=colluding)
        for leaves in product(range(NEVER + 1), repeat=sites)
    }
    assert outcomes == {True, False}


@given(sites=st.integers(5, 12), data=st.data())
@examples(40)
def test_any_dropouts_of_more_sites(sites, data):
    colluding = data.draw(st.integers(0, sites // 3))
    threshold = data.draw(st.integers((sites + colluding) // 2 + 1, sites))
    leave = st.sampled_from([NEVER] * 6 + list(range(NEVER)))
    leaves = data.draw(st.lists(leave, min_size=sites, max_size=sites))
    bits = data.draw(st.sampled_from([32, 64]))
    inputs = vectors(sites, 5)
    if bits == 32:
        inputs = {name: vector >> 40 for name, vector in inputs.items()}
    check(inputs, leaves, threshold, colluding=colluding, bits=bits)


@pytest.mark.filterwarnings("ignore::cape.core.errors.PrivacyLeakWarning")
@given(sites=st.integers(7, 14), data=st.data())
@examples(40)
def test_any_dropouts_on_a_graph(sites, data):
    degree = 2 * data.draw(st.integers(2, (sites - 3) // 2))
    leave = st.sampled_from([NEVER] * 12 + list(range(NEVER)))
    leaves = data.draw(st.lists(leave, min_size=sites, max_size=sites))
    done = check(vectors(sites), leaves, sites // 2 + 1, colluding=0, dropping=sites // 3, neighbours=degree)
    if min(leaves) == NEVER:
        assert done


def test_a_graph_with_dropouts_at_each_round_gives_the_sum():
    leaves = [NEVER] * 16
    for number in range(NEVER):
        leaves[3 * number] = number
    with pytest.warns(PrivacyLeakWarning):
        assert check(vectors(16), leaves, 9, colluding=0, dropping=6, neighbours=12)


def test_sums_wrap_as_integers_of_the_ring_do():
    # Nothing is hidden about overflow: the plan must rule it out; the ring itself stays exact.
    data = {name: np.array([np.iinfo(np.int64).max]) for name in ("a", "b", "c")}
    assert simulate(data, colluding=0).total[0] == np.iinfo(np.int64).max - 2


def test_too_few_sites_says_how_many_and_in_which_round():
    with pytest.raises(TooFewSites, match=r"3 of 5 sites were left in the round 'mask'; the threshold is 4"):
        simulate(vectors(5), colluding=1, drop={"mask": ["0000", "0001"]})
