"""What is signed as it travels: a key, a signature, and bytes that nobody sees before both were checked.

Claim. Whatever comes, no more is done with it than to hash it, until its size, its key and its signature have
been found right, in this order; and what is in it was written by the holder of that key, for this purpose.
Reason. The body has no other way out than `open`, which checks first. Key and signature stand at the front,
in places of fixed size, so that nothing has to be decoded to find them. Ed25519 over a label, which nothing
else that is signed starts with, the key, and the SHA-256 of the body.
Tested in tests/steward/test_envelope.py; memory in benchmarks/edge.py.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from cape.errors import BadMessage, InvalidInput
from cape.secagg.keys import KEY_BYTES, Identity, Verifier
from cape.secagg.messages import SIGNATURE_BYTES
from cape.steward.codes import Code, Denied
from cape.unix import MOST_BYTES

__all__ = ["FRONT_BYTES", "MOST_INSIDE", "Envelope"]

FRONT_BYTES = KEY_BYTES + SIGNATURE_BYTES
MOST_INSIDE = MOST_BYTES - (1 << 16)
"""The largest envelope: a message that carries it must fit into a frame."""


class Envelope:
    """Bytes that came, not believed yet.

    >>> body = Envelope(data).open(label, trusted=lambda key: key in known)
    """

    __slots__ = ("_body", "key", "signature")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        if not FRONT_BYTES < len(view) <= MOST_INSIDE:
            raise Denied(Code.REQUEST, f"a signed request has {FRONT_BYTES + 1} to {MOST_INSIDE} bytes")
        self.key = bytes(view[:KEY_BYTES])
        """The key that it names: whoever signed it, once `open` has returned."""
        self.signature = bytes(view[KEY_BYTES:FRONT_BYTES])
        self._body = view[FRONT_BYTES:]

    def open(self, label: bytes, trusted: Callable[[bytes], bool]) -> memoryview:
        """Return what is inside, if a key that is trusted has signed it under this label; else raise."""
        if not trusted(self.key):
            raise Denied(
                Code.COORDINATOR,
                "this site does not trust this coordinator's key",
                f"key {self.key.hex()[:16]}",
            )
        self.verify(label)
        return self._body

    def verify(self, label: bytes) -> None:
        """Raise unless its key has signed it under this label."""
        try:
            Verifier().check(
                self.key, self.signature, _to_sign(label, self.key, self._body), "the coordinator"
            )
        except BadMessage:
            raise Denied(
                Code.SIGNATURE,
                "the coordinator's signature does not fit the request",
                f"key {self.key.hex()[:16]}",
            ) from None


def sign(identity: Identity, label: bytes, body: bytes) -> bytes:
    """Return the signature that `Envelope.open` asks for."""
    return identity.sign(_to_sign(label, identity.public, body))


def pack(key: bytes, signature: bytes, body: bytes) -> bytes:
    """Return the bytes that travel."""
    if len(key) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        raise InvalidInput(f"a key has {KEY_BYTES} bytes, and a signature {SIGNATURE_BYTES}")
    if FRONT_BYTES + len(body) > MOST_INSIDE:
        raise InvalidInput(f"a request has at most {MOST_INSIDE} bytes; ask for fewer numbers or stages")
    return b"".join((key, signature, body))


def _to_sign(label: bytes, key: bytes, body: bytes | memoryview) -> bytes:
    return label + key + sha256(body).digest()
