from __future__ import annotations

import math

import numpy as np
import pytest

from cape.core.errors import InvalidInput
from reproduction.literature import laplace
from reproduction.literature.laplace import discrete_laplace
from tests.unit.noise.statistics import ERROR_RATE, binned_p_value

COUNT = 1_000_000
SCALES = [0.3, 1.0, 2.5, 40.0, 1e3, 2.0**35]


def fit(samples, scale):
    def below(edges):  # P(X < e), from the geometric tails
        tail = 1 / (1 + math.exp(-1 / scale))  # P(X >= 0)
        e = np.asarray(edges, float)
        left = tail * np.exp((np.minimum(e, 1) - 1) / scale)  # e <= 1
        right = 1 - tail * np.exp(-np.maximum(e, 0) / scale)  # e >= 0
        return np.where(e <= 0, left, right)

    levels = np.arange(1, 60) / 60
    quantiles = np.sign(levels - 0.5) * -np.log(1 - np.abs(2 * levels - 1)) * scale
    edges = np.unique(np.rint(quantiles)).astype(np.int64)
    return binned_p_value(samples, below, edges if edges.size > 3 else np.arange(-1, 3))


@pytest.mark.one_in(3, seconds=0.4)
@pytest.mark.parametrize("scale", SCALES)
def test_the_law_is_accepted_and_a_scale_two_percent_off_is_rejected(scale, stream):
    samples = discrete_laplace(scale, COUNT, stream)
    assert samples.dtype == np.int64
    assert fit(samples, scale) > ERROR_RATE
    for wrong in (scale / 1.02, scale * 1.02):
        assert fit(samples, wrong) < ERROR_RATE
        assert fit(discrete_laplace(wrong, COUNT, stream), scale) < ERROR_RATE


@pytest.mark.slow(2)
def test_the_ratio_of_neighbours_is_the_privacy_parameter(stream):
    samples = discrete_laplace(2.0, 4_000_000, stream)
    counts = np.bincount(samples + 100, minlength=201)[94:107]  # -6 ... 6
    ratios = np.log(counts[1:] / counts[:-1])
    spread = np.sqrt(1 / counts[1:] + 1 / counts[:-1])
    assert np.all(np.abs(np.abs(ratios) - 0.5) < 5.5 * spread)


def test_beyond_the_table_the_count_starts_again(monkeypatch, stream):
    monkeypatch.setattr(laplace, "_REACH", 2)  # the table now ends near exp(-2), so 1 in 7 starts again
    laplace._powers.cache_clear()
    try:
        assert fit(discrete_laplace(40.0, COUNT, stream), 40.0) > ERROR_RATE
    finally:
        laplace._powers.cache_clear()


@pytest.mark.slow(1.8)
def test_unclear_comparisons_are_settled_exactly(monkeypatch, stream):
    monkeypatch.setattr(laplace, "_CLEAR", 1.0)
    assert fit(discrete_laplace(40.0, 60_000, stream), 40.0) > ERROR_RATE


class Chosen:
    def __init__(self, *values: int) -> None:
        self.values = list(values)

    def bytes(self, count: int) -> bytes:
        return self.values.pop(0).to_bytes(count, "big")


def test_more_bits_are_drawn_until_the_comparison_is_certain():
    # exp(-1) = 0.5E2D58D8B3BCDF1A BADEC7829054F90D ... in hexadecimal
    first, second = 0x5E2D58D8B3BCDF1A, 0xBADEC7829054F90D
    assert laplace._below(first - 2, 1, 1.0, Chosen())
    assert not laplace._below(first + 2, 1, 1.0, Chosen())
    assert laplace._below(first, 1, 1.0, Chosen(second - 9))
    assert not laplace._below(first, 1, 1.0, Chosen(second + 9))
    assert laplace._below(first, 1, 1.0, Chosen(second, 0))


def test_a_tie_with_a_power_is_settled_with_more_bits():
    powers = laplace._powers(1.0)

    class Tied(Chosen):
        def words(self, count):
            return powers[-1:]  # the leading 64 bits of exp(-1)

    assert laplace._quotient(1, 1.0, Tied(0))[0] == 1
    assert laplace._quotient(1, 1.0, Tied((1 << 64) - 1))[0] == 0


@pytest.mark.parametrize("scale", [0.0, -1.0, 0.01, 2.0**41, math.nan, math.inf, None])
def test_bad_input(scale, stream):
    with pytest.raises(InvalidInput, match=r"scale must be a finite number at least 0\.0625"):
        discrete_laplace(scale, 3, stream)
