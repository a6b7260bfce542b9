"""Masks: a keystream per pair of sites, added by one and subtracted by the other, and one per site.

Claim. To anyone without the keys, a vector with its masks is uniform on the ring: every masked vector has a
self mask, and AES-256 in counter mode under a key that is used once is indistinguishable from uniform words.
Reason for the sum. Site u adds the mask of the pair (u, v) if u < v and subtracts it if u > v, so it
cancels in the sum modulo 2^bits; what does not cancel (self masks, masks of pairs with a site that
dropped) is removed with `apply` and the opposite sign.
Keys. A pair's key comes from both X25519 keys through HKDF, bound to the transcript (run, roster, threshold,
graph, all advertised keys), to both sites and to the step. Each step has X25519 keys and a seed of its own
(`cape.secagg.chain`): one that is revealed gives the masks of its step, and of no other.
Tested in tests/unit/secagg/test_masks.py and test_view.py; speed is the benchmark `secagg.masks`.

Why not a library: the ones that exist expand a short seed with a generator that is not cryptographic, and one
vector at a time, which leaves the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.noise.stream import keystream
from cape.secagg.keys import derive

__all__ = ["apply", "pair_key", "self_key", "sign"]

_BLOCK = 1 << 17  # bytes: the block and the scratch stay in the second-level cache
_ZEROS = bytes(_BLOCK)
_TOGETHER = 64  # masks per pass over the vector: more would evict each other's key schedules


def sign(site: int, peer: int) -> int:
    """Return the sign with which `site` applies the mask that it shares with `peer`."""
    return 1 if site < peer else -1


def pair_key(agreed: bytes, transcript: bytes, site: int, peer: int, step: int = 0) -> bytes:
    """Return the key of a pair's mask for a step: the same for both sites."""
    low, high = sorted((site, peer))
    return derive(agreed, transcript, "pair mask", low, high, step)


def self_key(seed: bytes, transcript: bytes, site: int, step: int = 0) -> bytes:
    """Return the key of a site's own mask for a step."""
    return derive(seed, transcript, "self mask", site, step)


def apply(words: NDArray[Any], masks: Iterable[tuple[bytes, int]]) -> None:
    """Add (sign 1) or subtract (sign -1) the mask of each key, in place.

    Block by block: a block of the vector stays in cache while every mask passes over it.
    """
    pending = iter(masks)
    while batch := list(islice(pending, _TOGETHER)):
        _apply_batch(words, batch)


def _apply_batch(words: NDArray[Any], masks: Sequence[tuple[bytes, int]]) -> None:
    streams = [
        (keystream(key).update_into, np.add if direction > 0 else np.subtract) for key, direction in masks
    ]
    step = _BLOCK // words.itemsize
    scratch = np.empty(min(step, words.size), words.dtype)
    raw = scratch.data.cast("B")
    for start in range(0, words.size, step):
        block = words[start : start + step]
        zeros, mask, into = _ZEROS, scratch, raw
        if block.nbytes < _BLOCK:
            zeros, mask, into = _ZEROS[: block.nbytes], scratch[: block.size], raw[: block.nbytes]
        for update_into, combine in streams:
            update_into(zeros, into)
            combine(block, mask, out=block)
