from __future__ import annotations

import math
from decimal import Decimal, localcontext

import mpmath
import numpy as np
import pytest
from scipy import stats

from cape.core.errors import InvalidInput
from cape.noise import SecureStream, discrete_gaussian, gaussian
from cape.noise.gaussian import _POINT, _PRECISE, _table, largest
from tests.unit.noise.statistics import ERROR_RATE, binned_p_value

COUNT = 2_000_000
STDS = [0.5, 1.0, 3.7, 10.0, 63.9, 127.9, 128.0, 1e3, 1e6, 2.0**20, 2.0**24 + 0.5, 2.0**40]


def probability_below(edges, std):
    """P(X < e) for integers e: summed where that is short, else by the midpoint rule, good to 1/std^2."""
    if std < 200:
        reach = math.ceil(14 * std)
        x = np.arange(-reach, reach + 1)
        mass = np.exp(-(x**2) / (2 * std**2))
        return (np.cumsum(mass) / mass.sum())[np.asarray(edges) - 1 + reach]
    return stats.norm.cdf((np.asarray(edges, float) - 0.5) / std)


def edges_of(std):
    if std < 3:
        return np.arange(-2, 4) if std > 0.9 else np.arange(-1, 3)
    return np.unique(np.rint(stats.norm.ppf(np.arange(1, 120) / 120) * std)).astype(np.int64)


def fit(samples, std):
    return binned_p_value(samples, lambda edges: probability_below(edges, std), edges_of(std))


@pytest.mark.slow_cases("1000.0", "16777216.5", "128.0", "63.9", seconds=0.9)
@pytest.mark.parametrize("std", STDS)
def test_the_law_is_accepted_and_a_scale_one_percent_off_is_rejected(std, stream):
    samples = discrete_gaussian(std, COUNT, stream)
    assert samples.dtype == np.int64
    assert fit(samples, std) > ERROR_RATE
    for wrong in (std / 1.01, std * 1.01):
        assert fit(samples, wrong) < ERROR_RATE
        if 0.5 <= wrong <= 2.0**40:
            assert fit(discrete_gaussian(wrong, COUNT, stream), std) < ERROR_RATE


@pytest.mark.parametrize("std", STDS)
def test_moments_and_their_rejection_of_one_percent(std, stream):
    with mpmath.workdps(40):
        powers = (
            [
                mpmath.nsum(
                    lambda x, j=j: x**j * mpmath.exp(-(x**2) / (2 * mpmath.mpf(std) ** 2)), [0, mpmath.inf]
                )
                for j in (0, 2)
            ]
            if std < 8
            else None
        )
        variance = float(2 * powers[1] / (2 * powers[0] - 1)) if powers else std**2
    samples = discrete_gaussian(std, COUNT, stream).astype(float)
    limit = stats.norm.isf(ERROR_RATE / 2)
    assert abs(samples.mean()) < limit * math.sqrt(variance / COUNT)
    spread = np.var(samples**2) ** 0.5 / math.sqrt(COUNT)  # standard error of the second moment
    assert abs(np.mean(samples**2) - variance) < limit * spread
    assert abs(np.mean(samples**2) * 1.01**2 - variance) > limit * spread


@pytest.mark.parametrize("std", [1e3, 1e6, 2.0**40])
def test_low_bits_are_uniform(std, stream):
    samples = discrete_gaussian(std, 500_000, stream)
    bits = min(6, int(math.log2(std)) - 4)
    counts = np.bincount(samples & ((1 << bits) - 1), minlength=1 << bits)
    assert stats.chisquare(counts).pvalue > ERROR_RATE


@pytest.mark.parametrize("std", [2.0, 1e3, 2.0**40])
def test_neighbouring_samples_are_uncorrelated(std, stream):
    samples = discrete_gaussian(std, 500_000, stream) / std
    for lag in (1, 2, 1 << 15):
        r = np.mean(samples[lag:] * samples[:-lag]) * math.sqrt(samples.size)
        assert abs(r) < stats.norm.isf(ERROR_RATE / 2)


def exactly(table):
    """The heights and the rests of all blocks, as decimals."""
    peak = [Decimal(height) / (1 << _POINT) for height in table.exact_peak]
    return peak, [high - int(low) for high, low in zip(peak, table.covered, strict=True)]


@pytest.mark.parametrize("std", [0.5, 0.7, 7.9, 8.0, 63.9, 127.9, 128.0, 2.0**15 * 2**0.5, 2.0**40])
def test_a_table_of_progressions_equals_one_exponential_an_integer(std):
    table, width = _table(std), 2 ** max(0, int(np.log2(std / 64)))
    with mpmath.workdps(110):
        of_two = 2 * mpmath.mpf(std) ** 2
        total = mpmath.sqrt(mpmath.pi * of_two)
        if std < 9:
            weights = [mpmath.exp(-mpmath.mpf(x * x) / of_two) for x in range(math.ceil(26 * std))]
            total = 2 * mpmath.fsum(weights) - 1
        scale = 65536 * width / total
        rest = []
        for b, first in enumerate(range(-largest(std), largest(std), width)):
            ends = sorted((abs(first), abs(first + width - 1)))
            peak, low = (scale * mpmath.exp(-(mpmath.mpf(x) ** 2) / of_two) for x in ends)
            assert table.first[b] == first
            assert abs(table.near[b]) == ends[0]
            assert abs(mpmath.mpf(table.exact_peak[b]) / 2**_POINT - peak) < mpmath.mpf(2) ** -265
            assert table.covered[b] == int(low)
            rest.append(peak - int(low))
            assert table.peak[b] == float(peak)
            assert table.rest[b] == float(rest[-1])
        assert b == len(table.first) - 1
        whole, running = mpmath.fsum(rest), mpmath.mpf(0)
        for part, bound in zip(rest, table.bounds, strict=False):
            running += part
            assert bound == int(running / whole * 2**192)
    assert len(table.bounds) == b
    covered = table.covered.astype(int)
    assert table.base[: table.fast_cells].tolist() == np.repeat(table.first, covered).tolist()


@pytest.mark.parametrize("std", [0.5, 127.9, 1e6])
def test_every_number_near_a_boundary_or_a_slice_is_found_in_its_block(std):
    table, one = _table(std), np.uint64(1)
    slices = np.arange(1 << 14, dtype=np.uint64) << np.uint64(50)
    bits = np.concatenate([table.top_bounds - one, table.top_bounds + one, slices, slices - one, [2**64 - 1]])
    bits = bits[~np.isin(bits, table.top_bounds)]  # a tie is settled with more bits, below
    found = gaussian._block(bits, table, Chosen(0))
    assert found.tolist() == np.searchsorted(table.top_bounds, bits, side="right").tolist()
    assert len(set(found.tolist())) > len(table.first) / 3  # in the tail, many boundaries share 64 bits


@pytest.mark.parametrize("std", [0.5, 10.0, 100.3, 128.0, 200.7])
def test_the_two_parts_add_up_to_the_law_exactly(std):
    """Recomputes, from the very tables that are used, the law that the docstring proves."""
    table = _table(std)
    cells = dict(zip(*np.unique(table.base[: table.fast_cells], return_counts=True), strict=True))
    width = 1 << table.low_bits
    with localcontext(_PRECISE):
        shares = np.diff([0, *table.bounds, 1 << 192])
        exact_peak, exact_rest = exactly(table)
        total_rest = sum(exact_rest)
        left = 65536 - table.fast_cells
        law = {}
        proposals = {}
        for b, first in enumerate(table.first.tolist()):
            for x in range(first, first + width):
                drop = Decimal(x * x - int(table.near[b]) ** 2) / (2 * Decimal(std) ** 2)
                height = exact_peak[b] * (-drop).exp()
                n = int(cells.get(first, 0))
                assert n <= height
                accept = (height - n) / exact_rest[b]
                assert accept <= 1 + Decimal(10) ** -60
                proposals[x] = Decimal(int(shares[b])) / (1 << 192) / width * accept
                law[x] = Decimal(n) / 65536 / width
        accepted = sum(proposals.values())
        assert abs(accepted * total_rest - left) < Decimal(2) ** -80
        law = {x: p + Decimal(left) / 65536 * proposals[x] / accepted for x, p in law.items()}
    with mpmath.workdps(70):
        s2 = 2 * mpmath.mpf(std) ** 2
        weights = {x: mpmath.exp(-mpmath.mpf(x * x) / s2) for x in law}
        beyond = range(largest(std), math.ceil(20 * std) + 2)
        whole = mpmath.fsum(weights.values()) + 2 * mpmath.fsum(
            mpmath.exp(-mpmath.mpf(x * x) / s2) for x in beyond
        )
        distance = mpmath.fsum(abs(mpmath.mpf(str(p)) - weights[x] / whole) for x, p in law.items()) / 2
        assert distance < mpmath.mpf(2) ** -90


class Chosen:
    """A stand-in for the stream where a test chooses the extra bits."""

    def __init__(self, value: int) -> None:
        self.value, self.drawn = value, 0

    def bytes(self, count: int) -> bytes:
        self.drawn += 1
        return self.value.to_bytes(count, "big")


@pytest.mark.parametrize("std", [10.0, 1e3])
def test_a_tie_at_a_block_boundary_is_settled_with_more_bits(std):
    table = _table(std)
    middle = len(table.bounds) // 2
    for b in (5, middle, middle + len(table.bounds) // 6):  # in the tail many boundaries share 64 bits
        bits = table.top_bounds[b : b + 1]
        low = table.bounds[b] & ((1 << 128) - 1)
        for extra, expected in ((low, b + 1), (low - 1, b)):
            chosen = Chosen(extra)
            assert gaussian._block(bits, table, chosen)[0] == expected
            assert chosen.drawn == 1
    chosen = Chosen(0)
    assert (
        gaussian._block(table.top_bounds[middle : middle + 1] + np.uint64(1), table, chosen)[0] == middle + 1
    )
    assert chosen.drawn == 0


@pytest.mark.slow(1.2)
def test_an_unclear_acceptance_is_settled_in_exact_arithmetic(monkeypatch, stream):
    table = _table(1e3)
    block = np.repeat(np.arange(len(table.first)), 20)
    x = table.first[block] + (stream.words(block.size) % 8).astype(np.int64)
    bits = stream.words(block.size)
    quick = gaussian._accept(bits, x, block, table, Chosen(1 << 127))
    exact = [
        gaussian._accept_exactly(int(u), int(v), int(b), table, Chosen(1 << 127))
        for u, v, b in zip(bits, x, block, strict=True)
    ]
    assert quick.tolist() == exact
    assert 0.3 < np.mean(quick) < 0.99
    # the deciding bit itself: put u at the threshold, one unit below it and one above
    b, x0 = len(table.first) // 2 + 40, int(table.near[len(table.first) // 2 + 40]) + 3
    with localcontext(_PRECISE):
        exact_peak, exact_rest = exactly(table)
        height = (
            exact_peak[b] * (-Decimal(x0 * x0 - int(table.near[b]) ** 2) / (2 * Decimal(1000) ** 2)).exp()
        )
        threshold = int((height - int(table.covered[b])) / exact_rest[b] * (1 << 192))
    for step, expected in ((-1, True), (+1, False)):
        u = threshold + step
        top, chosen = np.array([u >> 128], np.uint64), Chosen(u & ((1 << 128) - 1))
        assert gaussian._accept(top, np.array([x0]), np.array([b]), table, chosen)[0] == expected
        assert chosen.drawn == 1
    # and with every acceptance made unclear the law stands
    monkeypatch.setattr(gaussian, "_CLEAR", 1.0)
    samples = discrete_gaussian(1e3, 400_000, stream)
    assert fit(samples, 1e3) > ERROR_RATE


class Cells(SecureStream):
    """A stream whose words name every cell once, in order."""

    def fill(self, out):
        assert out.size == 1 << 15
        start = self.filled = getattr(self, "filled", -(1 << 15)) + (1 << 15)
        out[:] = np.arange(start, start + out.size)


def test_every_cell_goes_where_the_table_says_and_all_others_to_the_rest(monkeypatch):
    table, elsewhere = gaussian._table(8.0), 1 << 40
    monkeypatch.setattr(gaussian, "_rest", lambda count, table, stream: np.full(count, elsewhere))
    drawn = discrete_gaussian(8.0, 1 << 16, Cells())
    assert np.array_equal(drawn[: table.fast_cells], table.base[: table.fast_cells])
    assert np.all(drawn[table.fast_cells :] == elsewhere)
    assert 0 < table.fast_cells < 1 << 16


@pytest.mark.parametrize("std", [10.0, 1e3])
def test_a_sampler_without_the_rest_would_be_caught(std, monkeypatch, stream):
    monkeypatch.setattr(gaussian, "_rest", lambda count, table, stream: np.full(count, int(2 * std)))
    assert fit(discrete_gaussian(std, COUNT, stream), std) < ERROR_RATE


def test_the_largest_magnitude_is_never_exceeded(stream):
    for std in (0.5, 10.0, 1e6):
        assert np.abs(discrete_gaussian(std, 100_000, stream)).max() <= largest(std)
        assert 12 * std <= largest(std) <= 12 * std + 2 * max(1, std / 64) + 1


def test_shapes_and_reproducibility():
    key = bytes(32)
    assert discrete_gaussian(5.0, (2, 3), SecureStream(key)).shape == (2, 3)
    assert discrete_gaussian(5.0, 0, SecureStream(key)).shape == (0,)
    one, two = (discrete_gaussian(1e6, 70_000, SecureStream(key)) for _ in range(2))
    assert np.array_equal(one, two)
    assert discrete_gaussian(10.0, 6, SecureStream(bytes(range(32)))).tolist() == [3, 9, 16, -20, 19, -19]
    assert discrete_gaussian(2.0**20, 3, SecureStream(bytes(range(32)))).tolist() == [
        308186,
        1687882,
        2130407,
    ]


@pytest.mark.parametrize(
    ("std", "size", "message"),
    [
        (-1.0, 3, "std must be a finite number at least 0.5 and at most 1099511627776.0, not -1.0"),
        (0.4, 3, "std must be"),
        (2.0**41, 3, "std must be"),
        (math.nan, 3, "std must be"),
        (math.inf, 3, "std must be"),
        ("10", 3, "std must be a finite number .*, not '10'"),
        (10.0, -1, "size must be a count or a shape, not -1"),
        (10.0, 1.5, "size must be a count or a shape, not 1.5"),
    ],
)
def test_bad_input(std, size, message, stream):
    with pytest.raises(InvalidInput, match=message):
        discrete_gaussian(std, size, stream)


def test_a_predictable_generator_is_refused():
    with pytest.raises(InvalidInput, match="stream must be a SecureStream, not Generator"):
        discrete_gaussian(10.0, 3, np.random.default_rng(1))


@pytest.mark.parametrize("std", [1e3, 1e6, 2.0**40])
def test_a_height_is_accepted_as_in_exact_arithmetic(std, stream):
    table = _table(std)
    block = np.arange(len(table.first)).repeat(2)
    bits, place = stream.words((2, len(block)))
    x = table.first[block] + (place >> np.uint64(64 - table.low_bits)).astype(np.int64)
    accepted = gaussian._accept(bits, x, block, table, stream)
    exact = [
        gaussian._accept_exactly(int(b), int(at), int(of), table, stream)
        for b, at, of in zip(bits, x, block, strict=True)
    ]
    assert accepted.tolist() == exact
    assert set(exact) == {True, False}
