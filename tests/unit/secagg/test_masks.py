"""Masks cancel exactly, block by block, and each key serves one pair, one run and one step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.noise.ring import Ring
from cape.noise.stream import keystream
from cape.secagg import masks
from tests.slices import examples

TRANSCRIPT = bytes(32)


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def plain(key_: bytes, size: int, dtype) -> np.ndarray:
    out = np.empty(size, dtype)
    keystream(key_).update_into(bytes(out.nbytes), out.data.cast("B"))
    return out


BLOCK = masks._BLOCK


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("extra", [-1, 0, 1, 7])
def test_a_mask_is_the_keystream_whatever_the_blocks(bits, extra):
    dtype = Ring(bits).dtype
    size = 2 * BLOCK // dtype.itemsize + extra
    words = np.zeros(size, dtype)
    masks.apply(words, [(key(1), 1), (key(2), -1)])
    assert np.array_equal(words, plain(key(1), size, dtype) - plain(key(2), size, dtype))


def test_more_masks_than_one_pass_takes():
    count = 2 * masks._TOGETHER + 3
    words = np.zeros(5, np.uint64)
    masks.apply(words, ((key(number), 1) for number in range(count)))
    expected = sum((plain(key(number), 5, np.uint64) for number in range(count)), np.uint64(0))
    assert np.array_equal(words, expected)


@given(sites=st.integers(2, 7), size=st.integers(1, 40), bits=st.sampled_from([32, 64]))
@examples(40)
def test_pairwise_masks_cancel_in_the_sum(sites, size, bits):
    total = np.zeros(size, Ring(bits).dtype)
    for site in range(sites):
        words = np.zeros(size, total.dtype)
        masks.apply(words, _all_pairs(site, sites))
        if sites > 1:
            assert words.any()
        total += words
    assert not total.any()


def test_pairwise_masks_with_the_same_sign_on_both_sides_do_not_cancel():
    total = np.zeros(4, np.uint64)
    for site in range(3):
        masks.apply(total, [(k, 1) for k, _ in _all_pairs(site, 3)])
    assert total.any()


def _all_pairs(site: int, sites: int) -> list[tuple[bytes, int]]:
    agreed = {frozenset((a, b)): key(a * sites + b) for a in range(sites) for b in range(a)}
    return [
        (masks.pair_key(agreed[frozenset((site, peer))], TRANSCRIPT, site, peer), masks.sign(site, peer))
        for peer in range(sites)
        if peer != site
    ]


def test_both_sites_of_a_pair_have_the_same_key_and_opposite_signs():
    assert masks.pair_key(key(5), TRANSCRIPT, 3, 8) == masks.pair_key(key(5), TRANSCRIPT, 8, 3)
    assert masks.sign(3, 8) == -masks.sign(8, 3) == 1


def test_a_key_is_bound_to_the_secret_the_transcript_the_sites_and_the_step():
    base = masks.pair_key(key(5), TRANSCRIPT, 3, 8)
    others = [
        masks.pair_key(key(6), TRANSCRIPT, 3, 8),
        masks.pair_key(key(5), b"\1" * 32, 3, 8),
        masks.pair_key(key(5), TRANSCRIPT, 3, 9),
        masks.pair_key(key(5), TRANSCRIPT, 2, 8),
        masks.pair_key(key(5), TRANSCRIPT, 3, 8, step=1),
        masks.self_key(key(5), TRANSCRIPT, 3),
        masks.self_key(key(5), TRANSCRIPT, 8),
        masks.self_key(key(5), TRANSCRIPT, 3, step=1),
    ]
    assert len({base, *others}) == 1 + len(others)


def test_masked_words_are_uniform():
    # 8 bits at the top of each word, against uniform: chi-square with 255 degrees of freedom.
    words = np.full(1 << 16, 12345, np.uint64)
    masks.apply(words, [(key(1), 1), (key(2), -1), (key(3), 1)])
    assert _chi_square(words) < 360  # p below 2e-5; the seed is fixed
    assert _chi_square(np.full(1 << 16, 12345, np.uint64)) > 360


def _chi_square(words: np.ndarray) -> float:
    counts = np.bincount((words >> np.uint64(56)).astype(int), minlength=256)
    expected = words.size / 256
    return float(((counts - expected) ** 2 / expected).sum())
