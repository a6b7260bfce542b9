"""Heads of a ledger: a site's signed summary of all its lines, small enough to travel with every answer.

Claim. Whoever holds a head can detect that the ledger was cut off, restored from a backup or rewritten: its
line of that number is missing, or has another chain value. A head that is longer than the ledger bounds what
is missing.
Reason. A line's chain value is a hash of the line and of the value before it, so equal values mean equal
lines up to there; the site signs it (Ed25519, after a label of its own) together with the totals. `earlier`
holds the chain values 1, 2, 4, 8, ... lines before: where one of them is in a ledger, all lines up to it are
the same, and what lies beyond it is at most the difference of the totals.
What no head shows: lines after the newest head that anybody has kept.
Tested in tests/unit/site/test_heads.py.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, MsgspecError

from cape.core.errors import BadMessage, CapeError, InvalidInput
from cape.privacy.accounting import Amount, Basis
from cape.secagg.keys import KEY_BYTES, Identity, Verifier

__all__ = ["MOST_BYTES", "Head", "Total", "before", "chain_of", "of_json", "read_heads", "start", "to_json"]

MOST_BYTES = 1 << 18
ID_BYTES = 16
_LABEL = b"cape ledger head 1\0"
_START = b"cape ledger 2\0"
_MOST_LINES = 1 << 53
_MOST_FILE = 1 << 30

Number = Annotated[str, Meta(max_length=8000, pattern=r"\A[0-9]+(/[0-9]+)?\Z")]
Positive = Annotated[int, Meta(ge=1, lt=_MOST_LINES)]
Hash = Annotated[bytes, Meta(min_length=32, max_length=32)]


class Total(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The sum of all lines of one basis, as fractions in text."""

    adjacency: Annotated[str, Meta(max_length=20)]
    unit: Annotated[str, Meta(max_length=20)]
    rows: Positive
    sites: Positive
    sampled: bool
    mu_squared: Number
    epsilon: Number
    extra: Number

    @classmethod
    def of(cls, basis: Basis, amount: Amount) -> Total:
        """Return it as text."""
        stated = (basis.adjacency, basis.unit, basis.rows, basis.sites, basis.sampled)
        return cls(*stated, str(amount.mu_squared), str(amount.pure), str(amount.extra))

    @property
    def basis(self) -> Basis:
        """What it is stated against."""
        return Basis(self.adjacency, self.unit, self.rows, self.sites, self.sampled)

    @property
    def amount(self) -> Amount:
        """What it is."""
        return Amount(Fraction(self.mu_squared), Fraction(self.extra), Fraction(self.epsilon))


class Head(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The end of a ledger after so many lines.

    Attributes:
        ledger: the ledger's random identifier.
        lines: the number of lines.
        chain: the chain value of the last line.
        earlier: the chain values 1, 2, 4, ... lines before.
        totals: the sum of all lines, for each basis.
        key: the site's public key.
    """

    ledger: Annotated[bytes, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
    lines: Positive
    chain: Hash
    earlier: Annotated[tuple[Hash, ...], Meta(max_length=64)]
    totals: Annotated[tuple[Total, ...], Meta(max_length=64)]
    key: Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
    signature: Annotated[bytes, Meta(max_length=64)] = b""

    def signed(self, identity: Identity) -> Head:
        """Return it with the signature of the site whose key it names."""
        if identity.public != self.key:
            raise InvalidInput("a head must be signed with the key that it names")
        return msgspec.structs.replace(self, signature=identity.sign(self._body()))

    def verify(self) -> None:
        """Raise `BadMessage` unless the holder of its key signed it."""
        Verifier().check(self.key, self.signature, self._body(), "the site")

    def pack(self) -> bytes:
        """Return the bytes that travel."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def unpack(cls, data: bytes) -> Head:
        """Read one and check its signature against its own key; raise `BadMessage` if either is invalid."""
        head = cls.read(data)
        head.verify()
        return head

    @classmethod
    def read(cls, data: bytes) -> Head:
        """Read one, whose signature is not checked."""
        if len(data) <= MOST_BYTES:
            with contextlib.suppress(CapeError, MsgspecError, ArithmeticError, ValueError, RecursionError):
                head = msgspec.msgpack.decode(data, type=cls)
                _ = head.spent
                if len(head.earlier) == len(before(head.lines)):
                    return head
        raise BadMessage("this is not a ledger's head")

    @property
    def spent(self) -> dict[Basis, Amount]:
        """The totals."""
        return {total.basis: total.amount for total in self.totals}

    @property
    def digest(self) -> bytes:
        """The hash of the head."""
        return sha256(self._body()).digest()

    @property
    def known(self) -> dict[int, bytes]:
        """The chain values that it states, by number of lines."""
        return {self.lines: self.chain, **dict(zip(before(self.lines), self.earlier, strict=True))}

    def contradicts(self, other: Head) -> bool:
        """Return whether the two cannot belong to one ledger that only ever grew."""
        if self.ledger != other.ledger:
            return True
        ours, theirs = self.known, other.known
        return any(ours[lines] != theirs[lines] for lines in ours.keys() & theirs.keys())

    def _body(self) -> bytes:
        return _LABEL + msgspec.msgpack.encode(msgspec.structs.replace(self, signature=b""))


def before(lines: int) -> list[int]:
    """Return the numbers of lines whose chain values a head states beside its own."""
    return [lines - (1 << power) for power in range(lines.bit_length()) if lines > 1 << power]


def start(ledger: bytes) -> bytes:
    """Return the chain value of an empty ledger."""
    return sha256(_START + ledger).digest()


def chain_of(last: bytes, values: Sequence[object]) -> bytes:
    """Return the chain value of a line after another."""
    return sha256(json.dumps([last.hex(), *values]).encode()).digest()


def to_json(totals: Mapping[Basis, Amount]) -> str:
    """Return totals as a line states them."""
    listed = sorted((Total.of(basis, amount) for basis, amount in totals.items()), key=msgspec.json.encode)
    return msgspec.json.encode(listed).decode()


def of_json(text: str) -> tuple[Total, ...]:
    """Read them."""
    return msgspec.json.decode(text, type=tuple[Total, ...])


def read_heads(path: Path) -> list[tuple[str, Head]]:
    """Read the file in which a coordinator keeps heads: pairs of a site's name and a head, oldest first.

    Raises:
        InvalidInput: it cannot be read, or one of its lines is not a head. A torn last line is ignored.
    """
    try:
        if path.stat().st_size > _MOST_FILE:
            raise InvalidInput(f"{path} is too long for a file of heads")
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
    found = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            told: Any = json.loads(line)
            head = Head.unpack(base64.b64decode(told["head"], validate=True))
            found.append((str(told["site"]), head))
        except (ValueError, KeyError, TypeError, RecursionError, BadMessage):
            raise InvalidInput(f"{path}: line {number} is not a site's head") from None
    return found
