"""Messages between a site and the aggregator, around secure aggregation: strict, small, numbered.

Every message to a site has a number, and its answer has the same, so that a late answer is not mistaken for
that of another message. No security rests on it; a site believes only what is signed by its coordinator
(requests) or by other sites (the messages of secure aggregation, which travel inside).

Claim. Reading a message takes at most twice its size in memory, whatever is in it, or 4 MiB if it is small;
signed contents are still unopened then.
Reason. Its size is checked, then the number of its values, their depth and the length of its texts
(`cape.core.packed`), then it is decoded into types with limits. Large contents are bytes, which need no more
memory than their length.
Tested in tests/unit/site/test_wire.py, where decoders are fuzzed too; measured in benchmarks/edge.py.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from cape.core import packed
from cape.core.errors import BadMessage
from cape.core.unix import MOST_BYTES
from cape.secagg.keys import KEY_BYTES, Identity, Verifier
from cape.secagg.messages import SIGNATURE_BYTES
from cape.secagg.parameters import MAX_STEPS, RUN_BYTES
from cape.site.decide.codes import Refusal
from cape.site.envelope import FRONT_BYTES
from cape.site.ledger.heads import MOST_BYTES as MOST_HEAD

__all__ = [
    "MOST_NUMBERS",
    "Ask",
    "Carried",
    "Carry",
    "FromSite",
    "Happened",
    "Hello",
    "Inquiry",
    "Known",
    "Offered",
    "Present",
    "Refused",
    "Review",
    "Reviewed",
    "Seen",
    "ToSite",
    "Watch",
    "decode",
    "pack",
    "refused",
    "unpack_from_site",
    "unpack_to_site",
]

MOST_NUMBERS = (MOST_BYTES - (1 << 20)) // 8
"""The longest vector that a site can send: 67 million numbers."""
_MOST_ANALYSES = 10_000
_LONGEST = 8000  # bytes of a sentence
_LABEL = b"cape inquiry 1\0"
_KNOWN = b"cape known 1\0"
_Any = TypeVar("_Any")

Number = Annotated[int, Meta(ge=0, lt=1 << 62)]
Rows = Annotated[int, Meta(ge=0, lt=1 << 53)]
Run = Annotated[bytes, Meta(min_length=RUN_BYTES, max_length=RUN_BYTES)]
Key = Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
Short = Annotated[str, Meta(max_length=40)]
Name = Annotated[str, Meta(max_length=200)]
Sentence = Annotated[str, Meta(max_length=2000)]
Signature = Annotated[bytes, Meta(max_length=SIGNATURE_BYTES)]
Closed = Annotated[bytes, Meta(min_length=FRONT_BYTES)]  # an envelope
HeadBytes = Annotated[bytes, Meta(max_length=MOST_HEAD)]


class _Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    number: Number


class Hello(_Message, frozen=True, tag="hello"):
    """Asks the site for its name and key."""


class Present(_Message, frozen=True, tag="present"):
    """The site's version, name and key. It is not signed: the roster of a request is what counts."""

    version: Short
    name: Name
    key: Key


class Review(_Message, frozen=True, tag="review"):
    """Trial requests, one for each analysis of a study."""

    requests: Annotated[tuple[Closed, ...], Meta(max_length=_MOST_ANALYSES)]


class Ask(_Message, frozen=True, tag="ask"):
    """A signed request for a stage; in an open session, with the message that opens its step."""

    request: Closed
    opening: bytes = b""


class Offered(_Message, frozen=True, tag="offered"):
    """A site's answer to a request: rows where public, and its first message in the stage.

    That is an advertisement of keys if the request opens a session, a masked vector in an open one, and in
    scheme "conventional" the vector with its noise. The ledger's head comes with a vector.
    """

    rows: Rows | None
    data: bytes
    head: HeadBytes = b""


class Carry(_Message, frozen=True, tag="carry"):
    """A message of the aggregator in a session of secure aggregation."""

    session: Run
    data: bytes


class Carried(_Message, frozen=True, tag="carried"):
    """The site's answer in it; the ledger's head comes with a masked vector."""

    data: bytes
    head: HeadBytes = b""


class Inquiry(_Message, frozen=True, tag="inquiry"):
    """Asks whether a stage was paid for. The coordinator has given the run up: the site closes it first.

    It needs no expiry and no nonce: closing a run is idempotent, and the answer about a closed run never
    changes, so a repetition learns nothing new.
    """

    run: Run
    stage: Annotated[int, Meta(ge=0, lt=MAX_STEPS)]
    coordinator: Key
    signature: Signature = b""

    def signed(self, identity: Identity) -> Inquiry:
        """Return it with the coordinator's signature, which does not include the number."""
        return msgspec.structs.replace(self, signature=identity.sign(self._body()))

    def verify(self) -> None:
        """Raise `BadMessage` unless the coordinator signed it."""
        Verifier().check(self.coordinator, self.signature, self._body(), "the coordinator")

    def _body(self) -> bytes:
        return _LABEL + msgspec.msgpack.encode((self.run, self.stage, self.coordinator))


class Known(_Message, frozen=True, tag="known"):
    """Whether the ledger has the stage; if not, it never will. Signed, because an aggregator could lie."""

    known: bool
    signature: Signature = b""

    def signed(self, identity: Identity, inquiry: Inquiry) -> Known:
        """Return it with the site's signature, which binds it to the run and stage of the inquiry."""
        return msgspec.structs.replace(self, signature=identity.sign(self._body(inquiry)))

    def verify(self, key: bytes, inquiry: Inquiry) -> None:
        """Raise `BadMessage` unless this site signed it about this run and stage."""
        Verifier().check(key, self.signature, self._body(inquiry), "the site")

    def _body(self, inquiry: Inquiry) -> bytes:
        told = (inquiry.run, inquiry.stage, inquiry.coordinator, self.known)
        return _KNOWN + msgspec.msgpack.encode(told)


class Refused(_Message, frozen=True, tag="refused"):
    """A refusal: a code and a sentence of the policy (`cape.site.decide.codes`)."""

    code: Short
    sentence: Sentence

    def __str__(self) -> str:
        return f"{self.code}: {self.sentence}"


class Watch(_Message, frozen=True, tag="watch"):
    """Asks what became of studies whose messages the link has carried, after an event."""

    after: Number = 0


class Seen(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What became of a study, as the answers that the link has carried say (`cape.site.traffic`)."""

    event: Number
    at: Short
    kind: Short
    study: Name
    hash: Annotated[str, Meta(max_length=64)]
    sentence: Sentence


class Happened(_Message, frozen=True, tag="happened"):
    """All that is known of it, oldest first."""

    events: Annotated[tuple[Seen, ...], Meta(max_length=1000)]


class Reviewed(_Message, frozen=True, tag="reviewed"):
    """For each analysis why it would be refused, None where it would not; and rows where public."""

    refusals: Annotated[tuple[Refused | None, ...], Meta(max_length=_MOST_ANALYSES)]
    rows: Rows | None


ToSite: TypeAlias = Hello | Review | Ask | Carry | Inquiry | Watch
FromSite: TypeAlias = Present | Reviewed | Offered | Carried | Known | Refused | Happened

_to_site: msgspec.msgpack.Decoder[ToSite] = msgspec.msgpack.Decoder(ToSite)
_from_site: msgspec.msgpack.Decoder[FromSite] = msgspec.msgpack.Decoder(FromSite)
_encoder = msgspec.msgpack.Encoder()


def pack(message: ToSite | FromSite) -> bytes:
    """Return the bytes that travel."""
    return _encoder.encode(message)


def refused(number: int, refusal: Refusal) -> Refused:
    """Return a refusal as it travels."""
    return Refused(number, str(refusal.code), refusal.sentence[:2000])


def unpack_to_site(data: bytes | bytearray) -> ToSite:
    """Read a message to a site, or raise `BadMessage`."""
    return decode(_to_site, data, values=_MOST_ANALYSES + 16, depth=3, text=16)


def unpack_from_site(data: bytes | bytearray) -> FromSite:
    """Read a message from a site, or raise `BadMessage`."""
    return decode(_from_site, data, values=5 * _MOST_ANALYSES + 16, depth=3, text=_LONGEST)


def decode(
    decoder: msgspec.msgpack.Decoder[_Any], data: bytes | bytearray, *, values: int, depth: int, text: int
) -> _Any:
    """Decode a message within bounds (see `cape.core.packed`), or raise `BadMessage`."""
    if not isinstance(data, (bytes, bytearray, memoryview)) or len(data) > MOST_BYTES:
        raise BadMessage(f"a message must be at most {MOST_BYTES} bytes")
    try:
        packed.require(data, values=values, depth=depth, text=text)
        return decoder.decode(data)
    except (BadMessage, msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError):
        pass
    raise BadMessage("the message cannot be read; do both sides run the same version of cape?")
