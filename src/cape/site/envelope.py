"""A signed message as it travels: a key, a signature, and a body that is not read before both are checked.

Claim. The body is only hashed until size, key and signature have been checked, in this order; it was then
written by the holder of that key, for this purpose.
Reason. `open` is the only way to the body, and checks first. Key and signature are at the front, with fixed
sizes, so nothing has to be decoded to find them. The signature is Ed25519 over a label that is unique to this
kind of message, the key, and the SHA-256 of the body.
Tested in tests/unit/site/test_envelope.py; memory in benchmarks/edge.py.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from cape.core.errors import BadMessage, InvalidInput
from cape.core.unix import MOST_BYTES
from cape.secagg.keys import KEY_BYTES, Identity, Verifier
from cape.secagg.messages import SIGNATURE_BYTES
from cape.site.decide.codes import Code, Denied

__all__ = ["FRONT_BYTES", "MOST_INSIDE", "Envelope"]

FRONT_BYTES = KEY_BYTES + SIGNATURE_BYTES
MOST_INSIDE = MOST_BYTES - (1 << 16)
"""The largest envelope: a message that carries it must fit into a frame."""


class Envelope:
    """Received bytes, not yet trusted.

    >>> body = Envelope(data).open(label, trusted=lambda key: key in known)
    """

    __slots__ = ("_body", "key", "signature")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        if not FRONT_BYTES < len(view) <= MOST_INSIDE:
            raise Denied(Code.REQUEST, f"a signed request has {FRONT_BYTES + 1} to {MOST_INSIDE} bytes")
        self.key = bytes(view[:KEY_BYTES])
        """The key that it names; that of the signer once `open` has returned."""
        self.signature = bytes(view[KEY_BYTES:FRONT_BYTES])
        self._body = view[FRONT_BYTES:]

    def open(self, label: bytes, trusted: Callable[[bytes], bool]) -> memoryview:
        """Return the body if a trusted key has signed it under this label, else raise."""
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
    """Return the signature that `Envelope.open` verifies."""
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
