from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.special import betainc

from cape.core.errors import InvalidInput
from cape.noise import SecureStream, polya_difference
from cape.noise import polya as sampler
from cape.noise.polya import _PRECISE, _blocks, _Heights, _table_of, largest, polya
from tests.unit.noise.statistics import ERROR_RATE, binned_p_value

COUNT = 300_000
FIFTH = Fraction(1, 5)
LAWS = [(FIFTH, 1.0), (FIFTH, 1000.0), (FIFTH, 2.0**20), (Fraction(1, 20), 1e6), (Fraction(1), 30.0)]


def probability_below(edges, shape, scale):
    """P(X < e) of a Polya variable: a regularised incomplete beta function."""
    return betainc(shape, np.maximum(edges, 1e-300), -math.expm1(-1 / scale)) * (np.asarray(edges) > 0)


def fit(samples, shape, scale):
    a, q = float(shape), -math.expm1(-1 / scale)
    edges = np.unique(stats.nbinom.ppf(np.arange(1, 60) / 60, a, q)).astype(np.int64) + 1
    return binned_p_value(samples, lambda e: probability_below(e, a, scale), edges)


@pytest.mark.quick_cases("shape2-1048576.0", seconds=0.8)
@pytest.mark.parametrize(("shape", "scale"), LAWS)
def test_the_law_is_accepted_and_a_wrong_shape_or_scale_is_rejected(shape, scale, stream):
    samples = polya(shape, scale, COUNT, stream)
    assert samples.dtype == np.int64
    assert fit(samples, shape, scale) > ERROR_RATE
    assert fit(samples, shape * Fraction(21, 20), scale) < ERROR_RATE
    assert fit(samples, shape, 1.1 * scale) < ERROR_RATE
    assert fit(polya(shape * Fraction(19, 20), scale, COUNT, stream), shape, scale) < ERROR_RATE


def laplace_fit(samples, scale):
    """P value of discrete Laplace, P(k) proportional to exp(-|k|/scale)."""
    p = math.exp(-1 / scale)

    def below(edges):
        k = np.asarray(edges, float)  # P(X < k)
        return np.where(k <= 0, np.exp((k - 1) / scale) / (1 + p), 1 - np.exp(-k / scale) / (1 + p))

    edges = np.unique(np.rint(stats.laplace.ppf(np.arange(1, 60) / 60) * scale)).astype(np.int64)
    return binned_p_value(samples, below, edges)


@pytest.mark.parametrize("scale", [3.0, 2.0**20])
def test_five_sites_of_a_fifth_make_laplace_noise_and_four_do_not(scale, stream):
    parts = [polya_difference(FIFTH, scale, COUNT, stream) for _ in range(5)]
    assert laplace_fit(sum(parts), scale) > ERROR_RATE
    assert laplace_fit(sum(parts[:4]), scale) < ERROR_RATE
    assert laplace_fit(sum(parts), 1.02 * scale) < ERROR_RATE


def test_a_base_and_its_surplus_make_the_next_level(stream):
    """Shapes of a ladder: 1/4 and the step to 1/3, three sites of which make Laplace noise."""
    parts = [
        polya_difference(shape, 50.0, COUNT, stream)
        for shape in (Fraction(1, 4), Fraction(1, 12))
        for _ in range(3)
    ]
    assert laplace_fit(sum(parts), 50.0) > ERROR_RATE


def test_a_difference_is_symmetric_and_its_samples_are_independent(stream):
    samples = polya_difference(FIFTH, 1e6, COUNT, stream).astype(float)
    limit = stats.norm.isf(ERROR_RATE / 2) / math.sqrt(COUNT)
    assert abs(samples.mean()) < limit * samples.std()
    assert samples.std() == pytest.approx(1e6 * math.sqrt(2 / 5), rel=0.03)
    ranks = stats.rankdata(samples) / COUNT - 0.5
    for lag in (1, 2, 1 << 15):
        assert abs(np.mean(ranks[lag:] * ranks[:-lag]) * 12) < limit * 1.01


def exact(k, shape, scale):
    """P(k), in mpmath."""
    a = mpmath.mpf(shape.numerator) / shape.denominator
    log_p = -1 / mpmath.mpf(scale)
    log = mpmath.loggamma(k + a) - mpmath.loggamma(k + 1) - mpmath.loggamma(a)
    return mpmath.exp(log + a * mpmath.log(-mpmath.expm1(log_p)) + k * log_p)


@pytest.mark.quick_cases("shape0-1.0", "shape2-1048576.0", seconds=0.8)
@pytest.mark.parametrize(
    ("shape", "scale"), [*LAWS, (Fraction(1, 902_500), 1e3), (Fraction(3, 4), 2.0**34), (Fraction(1, 7), 0.5)]
)
def test_tables_equal_the_law_in_many_digits(shape, scale):
    heights, table = _Heights(shape, scale), _table_of(shape, scale)
    first, width = _blocks(scale)
    assert table.first.tolist() == first
    assert [1 << int(bits) for bits in table.bits] == width
    assert all(a + w == b for a, w, b in zip(first, width, first[1:], strict=False))
    with mpmath.workdps(70):
        assert first[-1] + width[-1] >= 72 * scale
        for k in (0, 1, 63, 64, 65, 100, int(scale), int(71 * scale)):
            ratio = mpmath.mpf(str(heights.at(k))) / exact(k, shape, scale)
            assert abs(ratio - 1) < mpmath.mpf(2) ** -160
        for b in {0, 1, *range(0, len(first), 97), len(first) - 1}:
            ends = [65536 * width[b] * exact(k, shape, scale) for k in (first[b], first[b] + width[b] - 1)]
            assert table.covered[b] == int(ends[1])
            assert table.peak[b] == pytest.approx(float(ends[0]), rel=1e-15)
            assert table.rest[b] == pytest.approx(float(ends[0] - int(ends[1])), rel=1e-9)
    covered = table.covered.astype(int)
    assert table.base[: table.fast_cells].tolist() == np.repeat(table.first, covered).tolist()


@pytest.mark.slow_cases("shape1-70.3", seconds=2.0)
@pytest.mark.parametrize(("shape", "scale"), [(FIFTH, 3.0), (Fraction(1, 2), 70.3)])
def test_the_two_parts_add_up_to_the_law_exactly(shape, scale):
    """Recomputes, from the very tables that are used, the law that the docstring proves."""
    table, heights = _table_of(shape, scale), _Heights(shape, scale)
    left = Decimal(65536 - table.fast_cells)
    law, proposals = {}, {}
    with localcontext(_PRECISE):
        shares = np.diff([0, *table.bounds, 1 << 192])
        for b, (first, bits) in enumerate(zip(table.first.tolist(), table.bits.tolist(), strict=True)):
            width, n = 1 << bits, int(table.covered[b])
            peak = heights.at(first) * 65536 * width
            for x in range(first, first + width):
                height = heights.at(x) * 65536 * width
                assert n <= height <= peak
                accept = (height - n) / (peak - n) if width > 1 else 1
                proposals[x] = Decimal(int(shares[b])) / (1 << 192) / width * accept
                law[x] = Decimal(n) / 65536 / width
        accepted = sum(proposals.values())
        law = {x: p + left / 65536 * proposals[x] / accepted for x, p in law.items()}
    with mpmath.workdps(60):
        distance = mpmath.fsum(abs(mpmath.mpf(str(p)) - exact(x, shape, scale)) for x, p in law.items()) / 2
        assert distance < mpmath.mpf(2) ** -100


class Chosen:
    """A stand-in for the stream where a test chooses the extra bits."""

    def __init__(self, value: int) -> None:
        self.value, self.drawn = value, 0

    def bytes(self, count: int) -> bytes:
        self.drawn += 1
        return self.value.to_bytes(count, "big")


def test_a_tie_at_a_block_boundary_is_settled_with_more_bits():
    table = _table_of(FIFTH, 1000.0)
    for b in (5, len(table.bounds) // 2):
        low = table.bounds[b] & ((1 << 128) - 1)
        for extra, expected in ((low, b + 1), (low - 1, b)):
            chosen = Chosen(extra)
            assert sampler._rest_block(table.top_bounds[b : b + 1], table, chosen)[0] == expected
            assert chosen.drawn == 1


def test_an_unclear_acceptance_is_settled_in_exact_arithmetic(stream):
    table = _table_of(FIFTH, 1000.0)
    block = np.flatnonzero(table.bits > 0)[::9]
    x = table.first[block] + (stream.words(block.size) & np.uint64(1)).astype(np.int64)
    bits = stream.words(block.size)
    quick = sampler._keep(bits, x, block, table, Chosen(1 << 127))
    slow = [
        sampler._keep_exactly(int(u), int(k), int(b), table, Chosen(1 << 127))
        for u, k, b in zip(bits, x, block, strict=True)
    ]
    assert quick.tolist() == slow
    b = int(block[3])
    with localcontext(_PRECISE):  # the deciding bit itself
        cells, k = Decimal(65536 << int(table.bits[b])), int(table.first[b]) + 1
        peak, height = (table.heights.at(each) * cells for each in (k - 1, k))
        n = int(table.covered[b])
        threshold = int((height - n) / (peak - n) * (1 << 192))
    for step, expected in ((-(1 << 20), True), (1 << 20, False)):
        top, chosen = (
            np.array([threshold + step >> 128], np.uint64),
            Chosen(threshold + step & (1 << 128) - 1),
        )
        assert sampler._keep(top, np.array([k]), np.array([b]), table, chosen)[0] == expected
        assert chosen.drawn == 1


def test_a_sampler_without_the_rest_would_be_caught(monkeypatch, stream):
    monkeypatch.setattr(sampler, "_left", lambda count, table, stream: np.full(count, 3000))
    assert fit(polya(FIFTH, 1000.0, COUNT, stream), FIFTH, 1000.0) < ERROR_RATE


def test_the_largest_magnitude_is_never_exceeded(stream):
    for scale in (1.0, 1e6):
        assert np.abs(polya_difference(FIFTH, scale, 10_000, stream)).max() <= largest(scale)
        assert 72 * scale <= largest(scale) + 1 <= 74 * scale


def test_shapes_and_reproducibility():
    key = bytes(range(32))
    assert polya_difference(FIFTH, 5.0, (2, 3), SecureStream(key)).shape == (2, 3)
    assert polya_difference(FIFTH, 5.0, 0, SecureStream(key)).shape == (0,)
    one, two = (polya_difference(FIFTH, 1e6, 300_000, SecureStream(key)) for _ in range(2))
    assert np.array_equal(one, two)
    assert polya_difference(FIFTH, 2.0**20, 4, SecureStream(key)).tolist() == [-26785, 1031642, 3163, 14]


@pytest.mark.parametrize(
    ("shape", "scale", "message"),
    [
        (0.2, 3.0, "shape must be a Fraction above 0 and at most 1, not 0.2"),
        (Fraction(0), 3.0, "shape must be"),
        (Fraction(6, 5), 3.0, "shape must be"),
        (FIFTH, 0.1, "scale must be"),
        (FIFTH, math.inf, "scale must be"),
    ],
)
def test_bad_input(shape, scale, message, stream):
    with pytest.raises(InvalidInput, match=message):
        polya_difference(shape, scale, 3, stream)


def test_a_predictable_generator_is_refused():
    with pytest.raises(InvalidInput, match="stream must be a SecureStream, not Generator"):
        polya_difference(FIFTH, 10.0, 3, np.random.default_rng(1))
