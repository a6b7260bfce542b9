"""Attacks on the sum itself: a colluding site forges what it shares or reveals, against an honest aggregator.

It can make a run fail. It must not be able to make the sum of the others wrong without anybody noticing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec
import numpy as np

from assurance.attacks.attack import attack
from assurance.attacks.noise import stays
from assurance.attacks.session import parameters_of, puppet
from assurance.attacks.sites import COLLUDER, HONEST, World
from cape.core.errors import ProtocolError
from cape.noise import SecureStream
from cape.privacy.ladder import ladder
from cape.secagg import Aggregator, Event, Finished, Send
from cape.secagg import messages as m
from cape.secagg.chain import Chain
from cape.secagg.keys import KEY_BYTES
from cape.secagg.shamir import SHARE_BYTES
from cape.secagg.site import commitment
from cape.secagg.surplus import SurplusKey
from cape.site.decide.request import Request
from cape.study.document import read

__all__ = ["forged_commitment", "forged_key", "forged_shares", "forged_surplus_key", "tampered_on_the_wire"]

Bend = Callable[[str, m.FromSite], m.FromSite]  # (sender, message) -> what is sent in its place


def add_up(
    world: World,
    bend: Bend,
    *,
    silent: Mapping[str, str] | None = None,
    wire: bool = False,
    chain: Callable[[Chain], Chain] = lambda chain: chain,
) -> None:
    """Let an honest aggregator add up, with messages bent on their way; look whether the sum is right.

    Args:
        bend: changes messages. The colluder signs its own again; others' keep the signature that they had.
        silent: from which round on a site says nothing.
        wire: whether others' messages are bent too, and not the colluder's alone.
        chain: changes where the colluder's secrets come from.
    """
    request = world.request()
    parameters = parameters_of(request)
    own: list[SurplusKey] = []  # of the colluder's vector, if it sent one
    machine, liar = Aggregator(parameters), puppet(parameters, COLLUDER, world.identities[COLLUDER])

    def bent(name: str, data: bytes) -> bytes:
        message = bend(name, m.unpack_signed(data, parameters))
        if name == COLLUDER:
            return m.pack_signed(message, world.identities[COLLUDER])
        return data[: m.SIGNATURE_BYTES] + m.pack(message) if wire else data

    def answer(event: Send, round_: str) -> tuple[Event, ...]:
        since = (silent or {}).get(event.to)
        if since is not None and m.ROUNDS.index(round_) >= m.ROUNDS.index(since):
            return machine.gone([event.to])
        found: bytes | None
        if event.to != COLLUDER:
            found = world.carry(event.to, request.session, event.data)
        else:
            if round_ == "mask":
                liar.begin(0, np.zeros(parameters.length, np.int64))
            found = liar.handle(event.data)
            if round_ == "mask" and liar._surplus is not None:
                own.append(liar._surplus)
        return machine.gone([event.to]) if found is None else machine.handle(bent(event.to, found))

    try:
        events: list[Event] = []
        for name in HONEST:
            events += machine.handle(bent(name, world.ask(name, request) or b""))
        liar._advert = bent(COLLUDER, liar.start())
        liar._chain = chain(liar._chain)
        events += machine.handle(liar._advert)
        for round_ in m.ROUNDS[1:]:
            asked = machine.begin() if round_ == "mask" else tuple(events)
            events = []
            for event in asked:
                if isinstance(event, Send):
                    events += answer(event, round_)
    except ProtocolError:
        world.refused["no sum"] += 1
        return
    for event in events:
        if isinstance(event, Finished):
            _look(world, request, event, own)


def _look(world: World, request: Request, finished: Finished, own: list[SurplusKey]) -> None:
    """Win if the aggregator believes in a sum that is not that of the sites on its list.

    The sum is over their vectors, with as much surplus noise as must be left. The colluder's vector is zeros.
    """
    parties = read(request.study, request.number).setting.parties
    rungs = ladder(parties.sites, parties.colluding, parties.min_sites)
    kept = rungs.level(parties.sites - len(finished.survivors))
    left = {name: len(rungs.parts) if name in finished.late else kept for name in finished.survivors}
    known = stays(own[0], left[COLLUDER], finished.total.size) if COLLUDER in left else 0
    right = np.zeros_like(finished.total) + known
    for name in finished.survivors:
        for given in world.given.get(name, []):
            if given.place == (request.coordinator, request.run, 0):
                right = right + given.noisy(left[name])
    if not np.array_equal(right, finished.total):
        world.won.append("a wrong sum was taken for right")
    honest = {name: parts for name, parts in left.items() if name in HONEST}
    world.claim(request, 0, finished.total - known, honest)


@attack
def forged_shares(world: World) -> None:
    """The colluder reveals wrong shares of others' secrets, with and without others to make up for it."""

    def wrong(name: str, message: m.FromSite) -> m.FromSite:
        if not isinstance(message, m.Reveal):
            return message
        forged = tuple(bytes([0]) + SecureStream().bytes(SHARE_BYTES - 1) for _ in message.seeds)
        return msgspec.structs.replace(message, seeds=forged)

    add_up(world, wrong)
    add_up(world, wrong, silent={"d": "unmask"})


class _TwoFaced(Chain):
    """Shares another seed than the one that it masks with."""

    def __init__(self, real: Chain) -> None:
        super().__init__(real._link, real._run)
        self._false = SecureStream().bytes(KEY_BYTES)

    def walk(self, steps: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the false seed in place of each."""
        for _, key in super().walk(steps):
            yield self._false, key


@attack
def forged_commitment(world: World) -> None:
    """The colluder shares another seed than the one that it commits to, to leave a mask in the sum."""
    kept: list[Chain] = []

    def two_faced(chain: Chain) -> Chain:
        kept.append(chain)
        return _TwoFaced(chain)

    def true_seed(name: str, message: m.FromSite) -> m.FromSite:
        if not isinstance(message, m.Shares):
            return message
        seed, _ = kept[-1].secrets()
        signed = commitment(seed, message.transcript, message.sender)
        return msgspec.structs.replace(message, commitments=signed)

    def no_seed(name: str, message: m.FromSite) -> m.FromSite:
        if not isinstance(message, m.Shares):
            return message
        return msgspec.structs.replace(message, commitments=SecureStream().bytes(KEY_BYTES))

    add_up(world, true_seed, chain=two_faced)
    add_up(world, no_seed)


@attack
def forged_key(world: World) -> None:
    """The colluder advertises an honest site's keys as its own and drops, or seals garbage for the others."""
    seen: dict[str, m.Advert] = {}

    def stolen(name: str, message: m.FromSite) -> m.FromSite:
        if not isinstance(message, m.Advert):
            return message
        seen[name] = message
        return msgspec.structs.replace(message, masking=seen["a"].masking)

    def garbage(name: str, message: m.FromSite) -> m.FromSite:
        if not isinstance(message, m.Shares):
            return message
        sealed = tuple(SecureStream().bytes(len(each)) for each in message.sealed)
        return msgspec.structs.replace(message, sealed=sealed)

    add_up(world, stolen, silent={COLLUDER: "mask"})
    add_up(world, garbage)


@attack
def forged_surplus_key(world: World) -> None:
    """The colluder reveals a surplus key that is not its vector's: another site's, step's or level's."""
    chains: list[Chain] = []
    seen: dict[tuple[str, str], bytes] = {}  # (tip or key, whose)

    def noted(chain: Chain) -> Chain:
        chains.append(chain)
        return chain

    def lie(key: Callable[[], bytes], tip: Callable[[], bytes] | None = None) -> Bend:
        def bend(name: str, message: m.FromSite) -> m.FromSite:
            if isinstance(message, m.Masked):
                seen["tip", name] = message.tip
                forged = {"tip": tip()} if tip is not None else {}
            elif isinstance(message, m.Reveal):
                seen["key", name] = message.surplus
                forged = {"surplus": key()}
            else:
                return message
            return msgspec.structs.replace(message, **forged) if name == COLLUDER else message

        return bend

    def garbage() -> bytes:
        return SecureStream().bytes(KEY_BYTES)

    for key in (
        lambda: seen["key", "a"],
        lambda: seen["tip", COLLUDER],  # what would be the key of a later level
        lambda: chains[-1].surplus(),  # it has moved on to the next step
        lambda: seen["key", COLLUDER][:-1],
        garbage,
    ):
        add_up(world, lie(key), chain=noted)
    add_up(world, lie(lambda: seen["key", COLLUDER], lambda: seen["tip", "a"]))
    add_up(world, lie(garbage), silent={"d": "mask"})  # all of it has to stay


@attack
def tampered_on_the_wire(world: World) -> None:
    """Somebody on the wire changes a vector or a share on its way to an honest aggregator."""

    def shifted(name: str, message: m.FromSite) -> m.FromSite:
        if name != "a" or not isinstance(message, m.Masked):
            return message
        words = np.frombuffer(message.words, np.uint64) + np.uint64(1)
        return msgspec.structs.replace(message, words=words.tobytes())

    def swapped(name: str, message: m.FromSite) -> m.FromSite:
        if name != "a" or not isinstance(message, m.Reveal):
            return message
        return msgspec.structs.replace(message, seeds=message.seeds[::-1])

    keys: dict[str, bytes] = {}

    def stolen(name: str, message: m.FromSite) -> m.FromSite:
        if not isinstance(message, m.Reveal):
            return message
        keys[name] = message.surplus
        return msgspec.structs.replace(message, surplus=keys["a"]) if name == "b" else message

    for bend in (shifted, swapped, stolen):
        add_up(world, bend, wire=True)
