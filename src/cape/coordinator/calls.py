"""What a coordinator and the aggregator say to each other, and what reaches the sites, as plain structs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from cape.errors import BadMessage
from cape.steward.wire import Inquiry, Known, Present, Refused, Reviewed

__all__ = [
    "AskHello",
    "AskKnown",
    "AskReview",
    "AskStage",
    "Call",
    "CallFailed",
    "Channel",
    "Event",
    "GotHello",
    "GotKnown",
    "GotReview",
    "Link",
    "Reply",
    "RoundTraffic",
    "StageOutcome",
    "pack",
    "unpack_call",
    "unpack_reply",
]

_Any = TypeVar("_Any")
Size = Annotated[int, Meta(ge=0, le=1 << 28)]


class Channel(Protocol):
    """How the aggregator reaches sites. It knows nothing of what it carries."""

    def exchange(self, round_: str, messages: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        """Send each site its message; yield (site, answer) as they come, (site, None) once one is given up.

        A site that is not named when the iterator ends is given up too. Answers may come twice, late or be
        garbage: the relay takes the first one that fits, and stops when it has one of each site.
        """
        ...


class Link(Protocol):
    """How a coordinator reaches the aggregator: `Relay.call`, or something that carries bytes to it."""

    def call(self, data: bytes) -> bytes:
        """Return the aggregator's answer."""
        ...


class Event(msgspec.Struct, frozen=True, array_like=True):
    """Something happened that a live table may show: `what` is asked, answered, refused or lost.

    `why` is the site's sentence if it refused.
    """

    round: str
    site: str
    what: str
    why: str = ""


class _Call(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    pass


class AskHello(_Call, frozen=True, tag="hello"):
    """Who is there?"""

    sites: tuple[str, ...]


class AskReview(_Call, frozen=True, tag="review"):
    """Each site's requests to look at."""

    requests: dict[str, tuple[bytes, ...]]


class AskStage(_Call, frozen=True, tag="stage"):
    """Each site's request for one stage, and how many numbers it releases."""

    requests: dict[str, bytes]
    size: Size


class AskKnown(_Call, frozen=True, tag="known"):
    """Close a run at these sites, and say whether a stage of it was paid for there."""

    sites: tuple[str, ...]
    inquiry: Inquiry


class GotHello(_Call, frozen=True, tag="hello"):
    """Who answered; None for who did not."""

    sites: dict[str, Present | None]


class GotReview(_Call, frozen=True, tag="review"):
    """What each site said: its review, why it refused as a whole, or None if it did not answer."""

    sites: dict[str, Reviewed | Refused | None]


class GotKnown(_Call, frozen=True, tag="known"):
    """What each site said, signed; None if it did not answer or refused."""

    sites: dict[str, Known | None]


class RoundTraffic(msgspec.Struct, frozen=True, array_like=True):
    """One round: bytes to sites and from them, the most that one site sent, and how long it took."""

    round: str
    sent: int
    received: int
    most: int
    seconds: float


class StageOutcome(_Call, frozen=True, tag="stage"):
    """What became of a stage.

    Attributes:
        total: the sum with its noise, int64, little-endian; empty if there is none.
        participants: whose sum it is.
        rows: how many rows each of them holds, where public.
        refusals: who refused, and why.
        lost: who was given up, and in which round.
        traffic: the rounds, in order.
        per_site: the most bytes that one site sent in all rounds.
        failure: why there is no total; None if there is one.
        sent: whether a vector may have left a site.
    """

    total: bytes
    participants: tuple[str, ...]
    rows: dict[str, int]
    refusals: dict[str, Refused]
    lost: dict[str, str]
    traffic: tuple[RoundTraffic, ...]
    per_site: int
    failure: str | None
    sent: bool


class CallFailed(_Call, frozen=True, tag="failed"):
    """The aggregator could not do what was asked."""

    sentence: str


Call: TypeAlias = AskHello | AskReview | AskStage | AskKnown
Reply: TypeAlias = GotHello | GotReview | GotKnown | StageOutcome | CallFailed

_encoder = msgspec.msgpack.Encoder()
_calls: msgspec.msgpack.Decoder[Call] = msgspec.msgpack.Decoder(Call)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def pack(message: Call | Reply | Event) -> bytes:
    """Return the bytes that travel."""
    return _encoder.encode(message)


def unpack_call(data: bytes) -> Call:
    """Read what a coordinator asks, or raise `BadMessage`."""
    return _unpack(_calls, data)


def unpack_reply(data: bytes) -> Reply:
    """Read what the aggregator answers, or raise `BadMessage`."""
    return _unpack(_replies, data)


def _unpack(decoder: msgspec.msgpack.Decoder[_Any], data: bytes) -> _Any:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError):
        pass
    raise BadMessage("the message between coordinator and aggregator cannot be read; are versions the same?")
