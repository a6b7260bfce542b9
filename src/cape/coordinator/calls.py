"""Messages between a coordinator and the aggregator, as plain structs.

They are bounded before they are decoded, as in `cape.site.wire`: size, number of values, depth and texts.
A request that goes to several sites is in a call once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Protocol, TypeAlias

import msgspec
from msgspec import Meta

from cape.core.errors import BadMessage
from cape.secagg.keys import MAX_SITES
from cape.site.wire import (
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
    decode,
)

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

_MOST_ASKED = 1 << 16  # values in a call: a few for each site, and a request for each analysis
_MOST_SAID = 1 << 21  # values in a reply: each site's refusal of each analysis
_MOST_TEXT = 20_000
Size = Annotated[int, Meta(ge=0, le=MOST_NUMBERS)]
Names = Annotated[tuple[Name, ...], Meta(max_length=MAX_SITES)]
Text = Annotated[str, Meta(max_length=_MOST_TEXT)]
_few = Meta(max_length=MAX_SITES)


class Channel(Protocol):
    """How the aggregator reaches sites. It carries opaque bytes."""

    def exchange(self, round_: str, messages: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        """Send each site its message; yield (site, answer) as they arrive, (site, None) for a lost site.

        A site that was not yielded when the iterator ends is lost too. Answers may be repeated, late or
        invalid: the relay takes the first valid one of each site, and stops when it has them all.
        """
        ...


class Link(Protocol):
    """How a coordinator reaches the aggregator: `Relay.call`, or something that carries bytes to it."""

    def call(self, data: bytes) -> bytes:
        """Return the aggregator's answer."""
        ...


class Event(msgspec.Struct, frozen=True, array_like=True):
    """Progress for a live table: `what` is asked, answered, refused (with `why`) or lost."""

    round: str
    site: str
    what: str
    why: str = ""


class _Call(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    pass


class AskHello(_Call, frozen=True, tag="hello"):
    """Asks the sites for their names and keys."""

    sites: Names


class AskReview(_Call, frozen=True, tag="review"):
    """Trial requests for all of these sites."""

    sites: Names
    requests: Annotated[tuple[Closed, ...], Meta(max_length=10_000)]


class AskStage(_Call, frozen=True, tag="stage"):
    """Requests for one stage, the index of each site's request, and how many numbers the stage releases."""

    requests: Annotated[tuple[Closed, ...], _few]
    sites: Annotated[dict[Name, Annotated[int, Meta(ge=0)]], _few]
    size: Size

    @classmethod
    def of(cls, requests: Mapping[str, bytes], size: int) -> AskStage:
        """Return the call; equal requests travel once."""
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
    """Each site's name and key; None if it did not answer."""

    sites: Annotated[dict[Name, Present | None], _few]


class GotReview(_Call, frozen=True, tag="review"):
    """Each site's review, its refusal of the whole study, or None if it did not answer."""

    sites: Annotated[dict[Name, Reviewed | Refused | None], _few]


class GotKnown(_Call, frozen=True, tag="known"):
    """Each site's signed statement; None if it did not answer or refused."""

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
        participants: the sites in the sum.
        late: those of them whose surplus noise could not be taken off.
        rows: their numbers of rows, where public.
        refusals: the sites that refused, and why.
        lost: the sites that were lost, and in which round.
        traffic: the rounds, in order.
        per_site: the most bytes that one site sent in all rounds.
        failure: why there is no total; None if there is one.
        sent: whether a vector may have left a site.
        heads: the ledger heads that sites sent with their vectors.
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
    late: Names = ()


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
    return decode(_calls, data, values=_MOST_ASKED, depth=6, text=4 * _MOST_TEXT)


def unpack_reply(data: bytes) -> Reply:
    """Read what the aggregator answers, or raise `BadMessage`."""
    return decode(_replies, data, values=_MOST_SAID, depth=6, text=4 * _MOST_TEXT)
