"""Shamir's secret sharing of 32 bytes: any `threshold` key shares recover the secret, fewer reveal nothing.

Claim. Fewer than `threshold` shares are independent of the secret, whatever the adversary can compute.
Reason. The secret is the value at 0 of a polynomial of degree threshold - 1 whose other coefficients are
uniform on a prime field; for every candidate secret exactly one choice of coefficients fits the shares.
The field has 2^256 + 297 elements (the smallest prime above 2^256), so every 32-byte string is an
element and none is favoured. Secrets are raw bytes; nothing is encoded or padded.
Tested in tests/unit/secagg/test_shamir.py: by enumeration in a small field, by known answers, and by every
subset of shares.

It does not detect a wrong share. The caller of `combine` must check the secret; the protocol does,
against a public key or a commitment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from cape.core import check
from cape.core.errors import BadMessage, InvalidInput
from cape.noise import SecureStream

__all__ = ["PRIME", "SECRET_BYTES", "SHARE_BYTES", "combine", "share"]

PRIME = (1 << 256) + 297
SECRET_BYTES = 32
SHARE_BYTES = 33


def share(
    secret: bytes, threshold: int, points: Sequence[int], stream: SecureStream, prime: int = PRIME
) -> list[bytes]:
    """Return one share for each of the points, which are distinct and positive.

    Args:
        secret: 32 bytes.
        threshold: how many shares recover the secret.
        points: where the polynomial is evaluated, one per holder; 0 would be the secret itself.
        stream: the source of the coefficients.
        prime: the field; only tests change it, to enumerate a small one.
    """
    if not isinstance(secret, bytes) or len(secret) != SECRET_BYTES:
        raise InvalidInput(f"secret must be {SECRET_BYTES} bytes")
    _require_points(points, prime)
    check.integer("threshold", threshold, least=1, most=len(points))
    constant = int.from_bytes(secret, "big")
    if constant >= prime:
        raise InvalidInput("secret must be smaller than the prime")
    # From the highest coefficient down, as Horner's rule uses them.
    coefficients = [stream.integer(prime) for _ in range(threshold - 1)]
    coefficients.append(constant)
    return [_evaluate(coefficients, point, prime).to_bytes(SHARE_BYTES, "big") for point in points]


def combine(points: Sequence[int], shares: Sequence[bytes], prime: int = PRIME) -> bytes:
    """Return the secret from as many shares as its threshold. Raise `BadMessage` if none can fit.

    With more shares than the threshold all of them are used, so all of them have to be right.
    """
    _require_points(points, prime)
    if len(points) != len(shares):
        raise InvalidInput(f"{len(points)} points do not go with {len(shares)} shares")
    values = []
    for part in shares:
        value = int.from_bytes(part, "big")
        if len(part) != SHARE_BYTES or value >= prime:
            raise BadMessage(f"a share must be a field element in {SHARE_BYTES} bytes")
        values.append(value)
    weights = _weights_at_zero(tuple(points), prime)
    secret = sum(w * value for w, value in zip(weights, values, strict=True)) % prime
    if secret >> (8 * SECRET_BYTES):
        raise BadMessage("the shares do not belong together: their secret would not fit 32 bytes")
    return secret.to_bytes(SECRET_BYTES, "big")


def _evaluate(coefficients: list[int], point: int, prime: int) -> int:
    # Reduced every 16 steps: points are small, so that adds a few words to a number and saves 15 divisions.
    value = 0
    for start in range(0, len(coefficients), 16):
        for coefficient in coefficients[start : start + 16]:
            value = value * point + coefficient
        value %= prime
    return value


@lru_cache(maxsize=64)
def _weights_at_zero(points: tuple[int, ...], prime: int) -> tuple[int, ...]:
    """Return w_i = prod over j != i of x_j / (x_j - x_i), with one division for all of them.

    The same helpers answer for many secrets, so the weights of a set of points, which are public, are cached.
    """
    below = [math.prod([other - point for other in points if other != point]) for point in points]
    whole = math.prod(points)
    # w_i = whole / (x_i * below_i); all inverses from one (Montgomery's trick)
    divisors = [point * product % prime for point, product in zip(points, below, strict=True)]
    running, before = 1, []
    for divisor in divisors:
        before.append(running)
        running = running * divisor % prime
    inverse = pow(running, -1, prime) * whole % prime
    weights = []
    for divisor, prefix in zip(reversed(divisors), reversed(before), strict=True):
        weights.append(inverse * prefix % prime)
        inverse = inverse * divisor % prime
    return tuple(reversed(weights))


def _require_points(points: Sequence[int], prime: int) -> None:
    if not points or len(set(points)) != len(points):
        raise InvalidInput("points must be distinct, and at least one")
    if not all(0 < point < prime for point in points):
        raise InvalidInput("points must be positive and below the prime")
