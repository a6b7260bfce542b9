"""Keys: a site's identity (Ed25519, pinned in a roster), and the keys of one run (X25519).

Claim. A message that passes `Verifier.check` was signed by the holder of the roster's key for that site, for
exactly those bytes; keys from `derive` with different info are independent of each other.
Reason. Ed25519 is unforgeable and the roster is given to each site by its operator, never by the
aggregator; HKDF-SHA256 is a random oracle with the transcript as salt, and the info is unambiguous (a label
that ends in a zero byte, then numbers of fixed width).
Tested in tests/unit/secagg/test_keys.py and by the known answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from typing import NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from cape.core.errors import BadMessage, InvalidInput
from cape.noise import SecureStream

__all__ = ["KEY_BYTES", "MAX_SITES", "Identity", "KeyPair", "Roster", "Verifier", "derive", "digest"]

KEY_BYTES = 32
MAX_SITES = 10_000


def digest(label: str, *parts: bytes) -> bytes:
    """Return SHA-256 of a label and parts, each after its length: no two inputs give the same bytes."""
    state = sha256(f"cape secagg 3 {label}".encode() + b"\0")
    for part in parts:
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    return state.digest()


def derive(secret: bytes, transcript: bytes, label: str, *numbers: int) -> bytes:
    """Return a 32-byte key for one purpose, bound to the run's transcript and to its users."""
    info = f"cape secagg 3 {label}".encode() + b"\0"
    info += b"".join(number.to_bytes(8, "big") for number in numbers)
    return HKDF(SHA256(), KEY_BYTES, transcript, info).derive(secret)


class Identity:
    """A site's long-lived signing key. `Identity(raw)` takes 32 secret bytes; `Identity()` makes them."""

    def __init__(self, private: bytes | None = None, *, stream: SecureStream | None = None) -> None:
        if private is None:
            private = (stream or SecureStream()).bytes(KEY_BYTES)
        if not isinstance(private, bytes) or len(private) != KEY_BYTES:
            raise InvalidInput(f"private must be {KEY_BYTES} bytes")
        self._key = Ed25519PrivateKey.from_private_bytes(private)
        self.public = self._key.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte signature."""
        return self._key.sign(message)

    def __repr__(self) -> str:
        return f"Identity(public={self.public.hex()})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Identity cannot be pickled: its key is secret")


class KeyPair:
    """An X25519 key of one run, made from 32 secret bytes."""

    def __init__(self, private: bytes) -> None:
        self.private = private
        self._key = X25519PrivateKey.from_private_bytes(private)

    @cached_property
    def public(self) -> bytes:
        """The public half. It costs as much as an agreement, so it is computed when needed."""
        return self._key.public_key().public_bytes_raw()

    def agree(self, public: bytes) -> bytes:
        """Return the secret shared with the holder of `public`."""
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:  # a point of low order: the "secret" would be zero for everyone
            raise BadMessage("a site advertised a key that agrees on nothing") from None

    @staticmethod
    def require_usable(public: bytes) -> None:
        """Raise `BadMessage` if no secret can be agreed with `public` (a point of low order)."""
        _probe().agree(public)

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public.hex()})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a KeyPair cannot be pickled: its key is secret")


@cache
def _probe() -> KeyPair:
    """Return a key that is public, to test others with."""
    return KeyPair(bytes(KEY_BYTES))


@dataclass(frozen=True)
class Roster:
    """The sites that may take part: names and Ed25519 public keys, in an order that all share."""

    names: tuple[str, ...]
    keys: tuple[bytes, ...]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.keys) or not 2 <= len(self.names) <= MAX_SITES:
            raise InvalidInput(f"a roster needs 2 to {MAX_SITES} names and as many keys")
        if not all(isinstance(name, str) and 0 < len(name) <= 200 for name in self.names):
            raise InvalidInput("a site's name must have 1 to 200 characters")
        if not all(isinstance(key, bytes) and len(key) == KEY_BYTES for key in self.keys):
            raise InvalidInput(f"a site's public key must be {KEY_BYTES} bytes")
        if len(set(self.names)) != len(self.names) or len(set(self.keys)) != len(self.keys):
            raise InvalidInput("names and keys on a roster must be distinct")

    @classmethod
    def of(cls, sites: Mapping[str, bytes]) -> Roster:
        """Return the roster of a mapping from names to public keys, sorted by name."""
        names = tuple(sorted(sites))
        return cls(names, tuple(sites[name] for name in names))

    def __len__(self) -> int:
        return len(self.names)

    def index(self, name: str) -> int:
        """Return a site's number."""
        try:
            return self.names.index(name)
        except ValueError:
            raise InvalidInput(f"{name!r} is not on the roster") from None

    def digest(self) -> bytes:
        """Return a hash of all names and keys."""
        return self._digest

    @cached_property
    def _digest(self) -> bytes:  # cached: each of S sites in one process needs it
        pairs = zip(self.names, self.keys, strict=True)
        return digest("roster", *(part for name, key in pairs for part in (name.encode(), key)))


class Verifier:
    """Checks signatures. One that is shared by many machines in a process can remember valid ones.

    A remembered signature was checked, or made by a machine that shares this verifier. Remembering is sound
    because checking is a function of its arguments: input that differs in a bit is checked. It saves an
    in-process run of S sites S^2 checks of the same S signatures; a site on its own machine checks each
    signature once either way.
    """

    def __init__(self, *, remember: bool = False) -> None:
        self._good: set[tuple[bytes, bytes, bytes]] | None = set() if remember else None

    def check(self, public: bytes, signature: bytes, message: bytes, who: str) -> None:
        """Raise `BadMessage` unless `public` signed `message`."""
        seen = (public, signature, message)
        if self._good is not None and seen in self._good:
            return
        try:
            Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
        except (InvalidSignature, ValueError):
            raise BadMessage(
                f"the signature of {who} does not fit its message and its key on the roster"
            ) from None
        if self._good is not None:
            self._good.add(seen)

    def vouch(self, public: bytes, signature: bytes, message: bytes) -> None:
        """Remember a signature that was made in this process with the key of `public`."""
        if self._good is not None:
            self._good.add((public, signature, message))

    def forget(self) -> None:
        """Forget all signatures: none of a step is used again in the next."""
        if self._good is not None:
            self._good.clear()
