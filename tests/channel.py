"""A channel to members in this process, that a test can break."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from cape.site import wire
from cape.site.endpoint import SiteEndpoint


class LocalChannel:
    """Members in this process. `silent` maps a site to the round from which on it says nothing.

    A site that is silent "request" does not even say hello. `bend` may change what comes back of a round.
    """

    ROUNDS = (
        "request",
        "hello",
        "review",
        "inquiry",
        "message",
        "advertise",
        "share",
        "mask",
        "consistency",
        "unmask",
    )

    def __init__(self, members: Mapping[str, SiteEndpoint]) -> None:
        self.members = dict(members)
        self.silent: dict[str, str] = {}
        self.deaf: dict[str, str] = {}  # as silent, but nothing reaches the site either
        self.bend: Callable[[str, str, bytes], list[bytes | None]] | None = None
        self.left: dict[str, list[bytes]] = {}  # the vectors that have left each site

    def _is(self, which: Mapping[str, str], site: str, round_: str) -> bool:
        return site in which and self.ROUNDS.index(round_) >= self.ROUNDS.index(which[site])

    def exchange(self, round_: str, messages: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        for site, message in messages.items():
            if self._is(self.deaf, site, round_):
                yield site, None
                continue
            answer = self.members[site].handle(message)
            self._note(site, answer)
            if self._is(self.silent, site, round_):
                yield site, None
                continue
            for each in self.bend(round_, site, answer) if self.bend else [answer]:
                yield site, each

    def _note(self, site: str, answer: bytes) -> None:
        """See that the ledger holds as many lines as vectors have left, the moment that one does."""
        vector = vector_in(wire.unpack_from_site(answer))
        if vector is None:
            return
        left = self.left.setdefault(site, [])
        assert vector not in left, "no vector leaves twice"
        left.append(vector)
        assert len(self.members[site].folder.ledger.entries()) >= len(left), "paid before it leaves"


def vector_in(answer: wire.FromSite) -> bytes | None:
    """Return the vector in an answer, masked or with its own noise, if there is one."""
    if not isinstance(answer, wire.Offered | wire.Carried) or not answer.data:
        return None
    try:
        message = msgspec.msgpack.decode(memoryview(answer.data)[64:])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        message = None
    if isinstance(message, list) and message and isinstance(message[0], str):
        return answer.data if message[0] == "masked" else None
    return answer.data  # of scheme "conventional"
