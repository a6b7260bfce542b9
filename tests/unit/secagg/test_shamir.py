"""Secret sharing: any threshold shares give the secret back, fewer are independent of it."""

from __future__ import annotations

import contextlib
from collections import Counter
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.core.errors import BadMessage, InvalidInput
from cape.noise import SecureStream
from cape.secagg import shamir
from tests.slices import examples

SECRET = bytes(range(32))


def stream(seed: int = 0) -> SecureStream:
    return SecureStream(seed.to_bytes(32, "big"))


def test_every_subset_of_threshold_shares_gives_the_secret():
    shares = shamir.share(SECRET, 3, [1, 2, 3, 4, 5, 9], stream())
    points = [1, 2, 3, 4, 5, 9]
    for size in (3, 4, 6):
        for chosen in combinations(range(6), size):
            got = shamir.combine([points[i] for i in chosen], [shares[i] for i in chosen])
            assert got == SECRET


def test_one_share_fewer_does_not():
    shares = shamir.share(SECRET, 3, [1, 2, 3], stream())
    with contextlib.suppress(BadMessage):
        assert shamir.combine([1, 2], shares[:2]) != SECRET


class Listed(SecureStream):
    """A stream that gives the integers on a list, to enumerate all of them."""

    def __init__(self, values):
        super().__init__(bytes(32))
        self.values = list(values)

    def integer(self, bound: int) -> int:
        return self.values.pop(0)


@pytest.mark.parametrize("prime", [7, shamir.PRIME])
def test_coefficients_are_drawn_from_the_whole_field(prime):
    # What the enumeration below supposes of the stream.
    asked = []

    class Asked(SecureStream):
        def integer(self, bound: int) -> int:
            asked.append(bound)
            return super().integer(bound)

    shamir.share(bytes(32), 4, [1, 2, 3, 4, 5], Asked(bytes(32)), prime=prime)
    assert asked == [prime] * 3


def test_fewer_shares_than_the_threshold_are_uniform_whatever_the_secret():
    # All polynomials of degree 2 over the field of 7: any 2 shares are uniform on pairs, for each secret.
    for secret in range(7):
        for pair in combinations(range(4), 2):
            seen = Counter()
            for coefficients in product(range(7), repeat=2):
                shares = shamir.share(
                    secret.to_bytes(32, "big"), 3, [1, 2, 3, 5], Listed(coefficients), prime=7
                )
                seen[tuple(shares[i] for i in pair)] += 1
            assert set(seen.values()) == {1}
            assert len(seen) == 49


def test_three_shares_of_a_threshold_of_three_are_not_independent_of_the_secret():
    # The test above can fail: with as many shares as the threshold the distributions are disjoint.
    views = []
    for secret in (0, 1):
        views.append(
            {
                tuple(shamir.share(secret.to_bytes(32, "big"), 3, [1, 2, 3], Listed(c), prime=7))
                for c in product(range(7), repeat=2)
            }
        )
    assert not views[0] & views[1]


@given(
    secret=st.binary(min_size=32, max_size=32),
    points=st.lists(st.integers(1, 10_000), min_size=1, max_size=20, unique=True),
    data=st.data(),
)
@examples(60)
def test_shares_combine_for_any_points(secret, points, data):
    threshold = data.draw(st.integers(1, len(points)))
    shares = shamir.share(secret, threshold, points, stream())
    chosen = data.draw(st.permutations(range(len(points))))[:threshold]
    assert shamir.combine([points[i] for i in chosen], [shares[i] for i in chosen]) == secret


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32])
def test_the_largest_and_the_smallest_secret(secret):
    shares = shamir.share(secret, 51, range(1, 101), stream())
    assert shamir.combine(range(50, 101), shares[49:]) == secret


@pytest.mark.parametrize("points", [[1, 1, 2], [0, 1, 2], [-1, 1], [], [shamir.PRIME, 1]])
def test_points_must_be_distinct_and_not_zero(points):
    with pytest.raises(InvalidInput, match="points"):
        shamir.share(SECRET, 1, points, stream())
    with pytest.raises(InvalidInput, match="points"):
        shamir.combine(points, [bytes(33)] * len(points))


@pytest.mark.parametrize("part", [bytes(32), bytes(34), shamir.PRIME.to_bytes(33, "big"), b"\xff" * 33])
def test_a_share_that_is_no_field_element_is_refused(part):
    with pytest.raises(BadMessage, match="field element"):
        shamir.combine([1, 2], [part, bytes(33)])


def test_a_secret_that_does_not_fit_32_bytes_is_refused():
    with pytest.raises(BadMessage, match="belong together"):
        shamir.combine([1], [(1 << 256).to_bytes(33, "big")])


@pytest.mark.parametrize("secret", [b"short", bytes(33), "text" * 8, bytearray(32)])
def test_the_secret_is_32_bytes(secret):
    with pytest.raises(InvalidInput, match="32 bytes"):
        shamir.share(secret, 1, [1], stream())


def test_threshold_is_at_most_the_number_of_shares():
    with pytest.raises(InvalidInput, match="threshold"):
        shamir.share(SECRET, 4, [1, 2, 3], stream())
    with pytest.raises(InvalidInput, match="points"):
        shamir.combine([1, 2], [bytes(33)])


def test_the_prime_is_the_first_above_2_to_the_256():
    def passes(n: int) -> bool:  # Fermat, enough to rule out the others; Miller-Rabin for the one
        return pow(3, n - 1, n) == 1

    assert [n for n in range((1 << 256) + 1, shamir.PRIME + 1, 2) if passes(n)] == [shamir.PRIME]
    odd = (shamir.PRIME - 1) >> 3
    assert odd % 2 == 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        x = pow(base, odd, shamir.PRIME)
        assert x == 1 or shamir.PRIME - 1 in (x, x * x % shamir.PRIME, pow(x, 4, shamir.PRIME))
