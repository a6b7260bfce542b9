"""Surplus parts of Laplace noise: drawn from keys, taken off bit for bit, and bound by the transcript."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from cape.core.errors import InvalidInput
from cape.noise import LaplacePart, SecureStream, polya
from cape.secagg import LaplaceSurplus, Surplus, SurplusKey

SCALE = 2.0**12
PARTS = (LaplacePart(Fraction(1, 12), SCALE), LaplacePart(Fraction(1, 6), SCALE))
SURPLUS = LaplaceSurplus.of((0, 1, 2), PARTS)
KEY = SurplusKey(SURPLUS, b"run", 1, 0, 0, bytes(32))


def test_what_a_later_key_gives_is_taken_off_bit_for_bit():
    words = np.zeros(1000, np.uint64)
    KEY.apply(words, 1)
    whole = words.copy()
    KEY.at(1).apply(words, -1)
    first = words.view(np.int64)
    assert first.any()
    assert first.std() == pytest.approx(PARTS[0].std, rel=0.4)
    assert not np.array_equal(whole, words)
    KEY.at(0).apply(whole, -1)
    assert not whole.any()


def test_narrow_words_wrap_as_wide_ones_do():
    narrow, wide = np.zeros(100, np.uint32), np.zeros(100, np.uint64)
    for words in (narrow, wide):
        KEY.apply(words, 1)
    assert np.array_equal(narrow, wide.astype(np.uint32))


def test_the_transcript_binds_shapes_scale_and_sampler(monkeypatch):
    others = [
        LaplaceSurplus.of((0, 1, 2), (PARTS[1], PARTS[0])),
        LaplaceSurplus.of((0, 1, 2), tuple(LaplacePart(part.shape, SCALE + 1) for part in PARTS)),
        LaplaceSurplus.of((0, 1, 3), PARTS),
        Surplus((0, 1, 2), SURPLUS.stds),
    ]
    assert len({SURPLUS.digest(), *(other.digest() for other in others)}) == 5
    before = SURPLUS.digest()
    monkeypatch.setattr(polya, "SAMPLER", b"another")
    assert SURPLUS.digest() != before


def test_bounds_and_levels_are_those_of_its_parts():
    assert SURPLUS.largest == sum(part.largest for part in PARTS)
    assert [SURPLUS.kept(lost) for lost in (0, 1, 2)] == [0, 1, 2]
    stream = SecureStream(bytes(32))
    assert np.array_equal(SURPLUS.draw(1, 5, stream), PARTS[1].draw(5, SecureStream(bytes(32))))
    with pytest.raises(InvalidInput, match="steps"):
        LaplaceSurplus.of((0, 1), (LaplacePart(Fraction(1, 10**9), 100.0),))
