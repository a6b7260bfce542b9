"""What a coordinator and the aggregator say to each other, and what reaches the sites, as plain structs.

What comes is bounded before it is decoded, as in `cape.steward.wire`: its size, the number of its values,
their depth and its texts. A request that goes to many sites is in a call once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from cape import packed
from cape.errors import BadMessage
from cape.secagg.keys import MAX_SITES
from cape.steward.wire import (
    MOST_NUMBERS,
    Closed,
    HeadBytes,
    Inquiry,
    Known,
    Name,
    Present,
    Refused,
    Reviewed,
    Rows,
    Short,
)
from cape.unix import MOST_BYTES

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
    "failed",
    "pack",
    "unpack_call",
    "unpack_reply",
]

_Any = TypeVar("_Any")
_MOST_ASKED = 1 << 16  # values in a call: a few for each site, and a request for each analysis
_MOST_SAID = 1 << 21  # values in a reply: each site's refusal of each analysis
_MOST_TEXT = 20_000
Size = Annotated[int, Meta(ge=0, le=MOST_NUMBERS)]
Names = Annotated[tuple[Name, ...], Meta(max_length=MAX_SITES)]
Text = Annotated[str, Meta(max_length=_MOST_TEXT)]
_few = Meta(max_length=MAX_SITES)


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

    sites: Names


class AskReview(_Call, frozen=True, tag="review"):
    """Requests for all of these sites to look at."""

    sites: Names
    requests: Annotated[tuple[Closed, ...], Meta(max_length=10_000)]


class AskStage(_Call, frozen=True, tag="stage"):
    """Requests for one stage, which of them each site gets, and how many numbers the stage releases."""

    requests: Annotated[tuple[Closed, ...], _few]
    sites: Annotated[dict[Name, Annotated[int, Meta(ge=0)]], _few]
    size: Size

    @classmethod
    def of(cls, requests: Mapping[str, bytes], size: int) -> AskStage:
        """Return the call of each site's request; those that are alike travel once."""
        places = {data: place for place, data in enumerate(dict.fromkeys(requests.values()))}
        return cls(tuple(places), {site: places[data] for site, data in requests.items()}, size)

    def each(self) -> dict[str, bytes]:
        """Return each site's request, or raise `BadMessage`."""
        if any(place >= len(self.requests) for place in self.sites.values()):
            raise BadMessage("a call names a request that is not in it")
        return {site: self.requests[place] for site, place in self.sites.items()}


class AskKnown(_Call, frozen=True, tag="known"):
    """Close a run at these sites, and say whether a stage of it was paid for there."""

    sites: Names
    inquiry: Inquiry


class GotHello(_Call, frozen=True, tag="hello"):
    """Who answered; None for who did not."""

    sites: Annotated[dict[Name, Present | None], _few]


class GotReview(_Call, frozen=True, tag="review"):
    """What each site said: its review, why it refused as a whole, or None if it did not answer."""

    sites: Annotated[dict[Name, Reviewed | Refused | None], _few]


class GotKnown(_Call, frozen=True, tag="known"):
    """What each site said, signed; None if it did not answer or refused."""

    sites: Annotated[dict[Name, Known | None], _few]


class RoundTraffic(msgspec.Struct, frozen=True, array_like=True):
    """One round: bytes to sites and from them, the most that one site sent, and how long it took."""

    round: Short
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
        heads: the heads of their ledgers that sites sent with their vectors.
    """

    total: bytes
    participants: Names
    rows: Annotated[dict[Name, Rows], _few]
    refusals: Annotated[dict[Name, Refused], _few]
    lost: Annotated[dict[Name, Short], _few]
    traffic: Annotated[tuple[RoundTraffic, ...], Meta(max_length=64)]
    per_site: int
    failure: Text | None
    sent: bool
    heads: dict[str, HeadBytes] = {}


class CallFailed(_Call, frozen=True, tag="failed"):
    """The aggregator could not do what was asked."""

    sentence: Text


Call: TypeAlias = AskHello | AskReview | AskStage | AskKnown
Reply: TypeAlias = GotHello | GotReview | GotKnown | StageOutcome | CallFailed

_encoder = msgspec.msgpack.Encoder()
_calls: msgspec.msgpack.Decoder[Call] = msgspec.msgpack.Decoder(Call)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def pack(message: Call | Reply | Event) -> bytes:
    """Return the bytes that travel."""
    return _encoder.encode(message)


def failed(error: Exception) -> CallFailed:
    """Return a failure as it travels."""
    return CallFailed(str(error)[:_MOST_TEXT])


def unpack_call(data: bytes) -> Call:
    """Read what a coordinator asks, or raise `BadMessage`."""
    return _unpack(_calls, data, _MOST_ASKED)


def unpack_reply(data: bytes) -> Reply:
    """Read what the aggregator answers, or raise `BadMessage`."""
    return _unpack(_replies, data, _MOST_SAID)


def _unpack(decoder: msgspec.msgpack.Decoder[_Any], data: bytes, values: int) -> _Any:
    if len(data) > MOST_BYTES:
        raise BadMessage(f"a message between coordinator and aggregator has at most {MOST_BYTES} bytes")
    try:
        packed.require(data, values=values, depth=6, text=4 * _MOST_TEXT)
        return decoder.decode(data)
    except (BadMessage, msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError):
        pass
    raise BadMessage("the message between coordinator and aggregator cannot be read; are versions the same?")
