from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cape.core.errors import CapeError, InvalidInput, OverflowRisk
from cape.noise import Ring, discrete_gaussian, zero_sum_share
from cape.noise.gaussian import largest

int64s = hnp.arrays(np.int64, st.integers(1, 8), elements=st.integers(-(2**62), 2**62))


@pytest.mark.parametrize("bits", [32, 64])
def test_every_integer_in_range_comes_back(bits):
    ring = Ring(bits)
    edges = np.array([0, 1, -1, ring.half - 1, -ring.half], np.int64)
    assert ring.encode(edges).dtype == ring.dtype
    assert ring.decode(ring.encode(edges)).tolist() == edges.tolist()


def test_what_does_not_fit_would_wrap():
    assert Ring(32).decode(Ring(32).encode(np.array([2**31], np.int64))).tolist() == [-(2**31)]


@given(int64s, st.data())
def test_masks_that_cancel_change_nothing(values, data):
    ring = Ring(64)
    masks = data.draw(hnp.arrays(np.uint64, (3, values.size)))
    total = ring.encode(values)
    for mask in masks:
        ring.add(total, mask)
    for mask in masks[::-1]:
        ring.subtract(total, mask)
    assert np.array_equal(ring.decode(total), values)


def test_arithmetic_is_in_place():
    ring, target = Ring(32), np.full(3, 2**32 - 1, np.uint32)
    alias = target
    ring.add(target, np.ones(3, np.uint32))
    assert alias.tolist() == [0, 0, 0]


@given(int64s, st.integers(1, 50))
def test_zero_sum_shares_add_up_to_the_total_exactly(total, sites):
    shares = [zero_sum_share(total, sites, index) for index in range(sites)]
    assert [sum(int(s[i]) for s in shares) for i in range(total.size)] == total.tolist()
    assert max(np.ptp([s[0] for s in shares]), 0) <= 1


def test_fitting_is_certain_not_likely(stream):
    std, sites = 1000.0, 5
    limit = Ring(32).half - sites * largest(std)
    Ring(32).require_fits(limit - 1, std, sites)
    with pytest.raises(OverflowRisk, match="32 bits hold less than"):
        Ring(32).require_fits(limit, std, sites)
    noise = sum(discrete_gaussian(std, 10_000, stream) for _ in range(sites))
    assert np.abs(noise).max() <= sites * largest(std)


def test_the_narrowest_ring_that_fits_is_chosen():
    assert Ring.fitting(2**31 - 1).bits == 32
    assert Ring.fitting(2**31).bits == 64
    assert Ring.fitting(10, noise_std=2.0**30, sites=3).bits == 64
    with pytest.raises(OverflowRisk, match="coarser step"):
        Ring.fitting(2**63)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Ring(16), "bits must be 32 or 64, not 16"),
        (lambda: Ring(32).encode(np.zeros(2)), "values must be an array of int64, not float64"),
        (lambda: Ring(32).decode(np.zeros(2, np.uint64)), "elements must be an array of uint32, not uint64"),
        (lambda: Ring(64).add(np.zeros(2, np.int64), np.zeros(2, np.uint64)), "target must be"),
        (lambda: Ring(64).add(np.zeros(2, np.uint64), [1, 2]), "other must be an array of uint64, not list"),
        (lambda: Ring(64).require_fits(-1), "magnitude must be an integer at least 0, not -1"),
        (lambda: Ring(64).require_fits(1.5), "magnitude must be an integer"),
        (lambda: Ring(64).require_fits(1, 10.0, 0), "sites must be an integer at least 1, not 0"),
        (
            lambda: zero_sum_share(np.zeros(1, np.int64), 3, 3),
            "index must be an integer at least 0 and at most 2",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(CapeError, match=message) as caught:
        call()
    assert isinstance(caught.value, InvalidInput)
