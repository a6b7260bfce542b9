"""Known answers, in vectors.json; and the primitives once more, from their definitions alone."""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

HERE = Path(__file__).parent
KNOWN = json.loads((HERE / "vectors.json").read_text())
PRIMITIVES = KNOWN["primitives"]


def made():
    spec = importlib.util.spec_from_file_location("make_vectors", HERE / "make_vectors.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.everything()


@pytest.fixture(scope="module")
def now():
    return made()


@pytest.mark.parametrize("name", list(PRIMITIVES))
def test_primitive(now, name):
    assert now["primitives"][name] == PRIMITIVES[name]


def test_full_run(now):
    assert now["full run"] == KNOWN["full run"]
    assert now["many steps"] == KNOWN["many steps"]
    assert now["version"] == KNOWN["version"]


# --- the same values without cape ------------------------------------------------------------------


def raw(number: int) -> bytes:
    return bytes([number]) * 32


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """RFC 5869 for one block of output."""
    return expand(hmac.digest(salt, secret, "sha256"), info)


def expand(key: bytes, info: bytes) -> bytes:
    return hmac.digest(key, info + b"\1", "sha256")


def label(text: str) -> bytes:
    return b"cape secagg 3 " + text.encode() + b"\0"


def numbers(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, "big") for value in values)


def hashed(name: str, *parts: bytes) -> bytes:
    return hashlib.sha256(label(name) + b"".join(numbers(len(p)) + p for p in parts)).digest()


def agreed() -> bytes:
    other = X25519PublicKey.from_public_bytes(
        X25519PrivateKey.from_private_bytes(raw(2)).public_key().public_bytes_raw()
    )
    return X25519PrivateKey.from_private_bytes(raw(1)).exchange(other)


def test_derived_keys_are_hkdf():
    assert hkdf(raw(1), raw(2), label("label") + numbers(3, 4)).hex() == PRIMITIVES["derive"]
    assert agreed().hex() == PRIMITIVES["x25519 agreed"]
    for step, text in enumerate(["", " of step 1"]):
        pair = hkdf(agreed(), raw(5), label("pair mask") + numbers(3, 7, step))
        own = hkdf(raw(6), raw(5), label("self mask") + numbers(7, step))
        assert pair.hex() == PRIMITIVES["pair key" + text]
        assert own.hex() == PRIMITIVES["self key" + text]


def test_the_secrets_of_steps_are_hkdf_of_a_chain():
    link = raw(1)
    for step, known in enumerate(PRIMITIVES["secrets of steps"]):
        made = [hkdf(link, raw(2), label(name) + numbers(step)).hex() for name in ("step seed", "step key")]
        assert made == known
        link = hkdf(link, raw(2), label("step next") + numbers(step))


def test_surplus_keys_are_hkdf_of_a_chain():
    key = raw(1)
    for level, known in enumerate(PRIMITIVES["surplus keys"]):
        assert key.hex() == known
        key = hkdf(key, raw(2), label("surplus next") + numbers(7, 3, level))


def test_hashes_are_sha256_over_lengths_and_parts():
    assert hashed("label", b"one", b"", b"three").hex() == PRIMITIVES["digest"]
    assert hashed("seed", raw(5), numbers(7), numbers(0), raw(6)).hex() == PRIMITIVES["commitment"]
    assert hashed("seed", raw(5), numbers(7), numbers(1), raw(6)).hex() == PRIMITIVES["commitment of step 1"]
    assert hashed("step", raw(1), numbers(3)).hex() == PRIMITIVES["at step"]
    assert hashed("adverts", raw(1), b"one", b"two").hex() == PRIMITIVES["after adverts"]
    assert hashed("sharers", raw(1), bytes(7) + b"\2").hex() == PRIMITIVES["after shares"]


@pytest.mark.parametrize("bits", [32, 64])
def test_masks_are_aes_in_counter_mode_block_by_block(bits):
    def words(key: bytes) -> np.ndarray:
        cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
        blocks = b"".join(cipher.update(counter.to_bytes(16, "big")) for counter in range(2))
        return np.frombuffer(blocks, f"<u{bits // 8}")[:3]

    expected = words(raw(3)) - words(raw(4))
    assert expected.tolist() == PRIMITIVES[f"mask of {bits} bits"]


def test_shares_lie_on_a_line_through_the_secret():
    prime = 2**256 + 297
    points = [int(share, 16) for share in PRIMITIVES["shares"]]
    secret = int.from_bytes(raw(6), "big")
    slope = (points[0] - secret) % prime
    assert [(secret + x * slope) % prime for x in (1, 2, 5)] == points
    assert PRIMITIVES["combined"] == raw(6).hex()


def test_a_signature_is_over_the_hash_of_the_body():
    data = bytes.fromhex(PRIMITIVES["signed consent"])
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public = Ed25519PrivateKey.from_private_bytes(raw(11)).public_key().public_bytes_raw()
    signed = b"cape secagg 3 message\0" + hashlib.sha256(data[64:]).digest()
    Ed25519PublicKey.from_public_bytes(public).verify(data[:64], signed)


def test_the_full_run_added_up():
    run = KNOWN["full run"]
    assert run["survivors"] == ["a", "b", "d", "e"]
    assert run["total"] == [0 + 1 + 3 + 4, -8, 4 * 10**15]


def test_the_many_steps_added_up():
    first, second, last = KNOWN["many steps"]["totals"]
    assert last == [10, 1000]  # nobody was lost: all surplus noise was taken off
    for noisy, exact in (
        (first, [9, 0]),
        (second, [10, 500]),
    ):  # of all sites, or of the one that fell silent
        assert noisy != exact
        assert max(abs(a - b) for a, b in zip(noisy, exact, strict=True)) < 5 * 12 * 1000
