from __future__ import annotations

import math

import numpy as np
import pytest

from cape.blocks import sampling
from cape.blocks.sampling import exact_rate, sample
from cape.core.errors import InvalidInput
from cape.noise import SecureStream

ROWS = 400_000


def z_score(chosen: int, rows: int, rate: float) -> float:
    return (chosen - rows * rate) / math.sqrt(rows * rate * (1 - rate))


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.3, 0.5, 0.999])
def test_as_many_are_chosen_as_the_rate_says(stream, rate):
    chosen = sample(stream, ROWS, rate)
    assert abs(z_score(len(chosen), ROWS, rate)) < 4
    assert np.all(np.diff(chosen) > 0)
    assert chosen.dtype == np.int64


@pytest.mark.parametrize("rate", [0.01, 0.3])
def test_the_test_rejects_a_wrong_rate(stream, rate):
    for wrong in (0.9 * rate, 1.1 * rate):
        assert abs(z_score(len(sample(stream, ROWS, wrong)), ROWS, rate)) > 4


def test_a_record_is_chosen_exactly_when_its_word_is_below_the_threshold():
    key, rate = bytes(32), 0.37
    words = SecureStream(key).words(1000, np.uint32)
    expected = [i for i, word in enumerate(words.tolist()) if word < math.floor(rate * 2**32)]
    assert sample(SecureStream(key), 1000, rate).tolist() == expected


def test_every_place_and_every_pair_of_places_is_chosen_alike(stream):
    # 4000 samples of 64 records, as one sample of all of them
    taken = np.zeros(4000 * 64, bool)
    taken[sample(stream, taken.size, 0.25)] = True
    taken = taken.reshape(4000, 64)
    single = (taken.sum(axis=0) - 1000) / math.sqrt(4000 * 0.25 * 0.75)
    assert np.abs(single).max() < 4.5
    both = (taken[:, :-1] & taken[:, 1:]).sum(axis=0)
    assert np.abs((both - 250) / math.sqrt(4000 / 16 * 15 / 16)).max() < 4.5


def test_blocks_do_not_matter(stream, monkeypatch):
    one = sample(SecureStream(bytes(32)), 5000, 0.2)
    monkeypatch.setattr(sampling, "_BLOCK", 1024)  # 4 bytes a word: the same bytes of the stream
    assert np.array_equal(sample(SecureStream(bytes(32)), 5000, 0.2), one)


def test_all_or_nobody(stream):
    assert sample(stream, 5, 1.0).tolist() == [0, 1, 2, 3, 4]
    assert sample(stream, 0, 0.5).tolist() == []
    assert sample(stream, 0, 0.5).dtype == np.int64
    assert len(sample(stream, 1000, 2.0**-32)) == 0


def test_the_exact_rate_is_never_above_the_one_asked_for():
    assert exact_rate(0.25) == 0.25
    assert exact_rate(1.0) == 1.0
    for rate in (0.1, 0.01, 1 / 3, 2.0**-31 * 1.3):
        assert rate - 2.0**-32 < exact_rate(rate) <= rate
        assert (exact_rate(rate) * 2**32).is_integer()


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, math.nan, 2.0**-33])
def test_rates_out_of_range_are_refused(stream, rate):
    with pytest.raises(InvalidInput, match="rate"):
        sample(stream, 10, rate)


def test_only_a_secure_stream_will_do():
    with pytest.raises(InvalidInput, match="stream must be a SecureStream"):
        sample(np.random.default_rng(1), 10, 0.5)
