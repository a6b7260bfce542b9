"""Attacks on who survived: lists that differ between sites, and one site's two secrets.

Who has the seed of a site's own mask (revealed for survivors) and its masking key (revealed for those who
dropped) has its vector.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

from assurance.attacks.attack import attack
from assurance.attacks.session import Session
from assurance.attacks.sites import COLLUDER, DESCENT, HONEST, NAMES, World, study
from cape.site.decide.request import Request

__all__ = [
    "a_second_delivery",
    "a_survivor_counted_as_dropped",
    "deliveries_that_differ",
    "drop_lists_that_differ",
    "seed_of_one_step_and_key_of_another",
    "signatures_of_others_forged",
    "too_few_survivors",
    "two_survivor_sets",
]

# (whose, the list, a signature on it that the attacker has) -> what is sent as this site's signature
Forge = Callable[[str, tuple[str, ...], bytes], bytes]


def _masked(world: World) -> Session:
    session = Session(world, world.request()).setup()
    session.mask()
    return session


def two_stories(world: World, request: Request) -> None:
    """Play up to the vectors, then tell two sites that d dropped, and the others that it survived."""
    session = Session(world, request).setup()
    session.mask()
    here = tuple(session.told)
    session.finish(alive=tuple(name for name in here if name != "d"), to=("a", "b"))
    session.finish(alive=here, to=("c", "d"))
    session.loot()


def forged_stories(session: Session, *ways: Forge) -> None:
    """Tell two sites that d dropped, the others that it survived, and forge the missing signatures."""
    for alive, believers in ((_without("d"), ("a", "b")), (NAMES, ("c", "d"))):
        signed = {name: found for name in believers if (found := session.tell(name, 0, alive))}
        for forge in ways if signed else ():
            forged = {name: forge(name, alive, min(signed.values())) for name in alive if name not in signed}
            for name in believers:
                session.reveal(name, 0, alive, signed | forged)


def _without(*names: str) -> tuple[str, ...]:
    return tuple(name for name in NAMES if name not in names)


@attack
def drop_lists_that_differ(world: World) -> None:
    """Tell every site that another one dropped, to get sums that differ by one site's vector."""
    session = _masked(world)
    signed: dict[tuple[str, ...], dict[str, bytes]] = {_without(lost): {} for lost in HONEST}
    order = list(signed)
    for turn in range(len(HONEST)):  # each site another list first, and then all others
        for place, name in enumerate(HONEST):
            alive = order[(place + turn + 1) % len(order)]
            found = session.tell(name, 0, alive)
            if found is not None:
                signed[alive][name] = found
                everybody = {who: data for each in signed.values() for who, data in each.items()}
                own = session.consent(COLLUDER, 0, session.listed(name, 0, alive))
                for consents in (signed[alive], everybody):  # the right signatures, or any
                    session.reveal(name, 0, alive, consents | {COLLUDER: own})
    for alive, consents in signed.items():  # with all signatures that came by now
        for name in HONEST:
            session.tell(name, 0, alive)
            own = session.consent(COLLUDER, 0, session.listed(name, 0, alive))
            session.reveal(name, 0, alive, consents | {COLLUDER: own})
    session.loot()


@attack
def two_survivor_sets(world: World) -> None:
    """Tell half of the sites that d dropped and half that it survived, for its key and its seed."""
    two_stories(world, world.request())


@attack
def a_survivor_counted_as_dropped(world: World) -> None:
    """Take d's vector, call d dropped to get its masking key, then call it a survivor to get its seed."""
    session = _masked(world)
    session.finish(alive=_without("d"))
    session.loot()
    for alive in (NAMES, _without("a"), _without("b")):
        session.finish(alive=alive, to=HONEST)
    session.loot()


@attack
def signatures_of_others_forged(world: World) -> None:
    """Sign the missing signatures of a second list with the colluder's key, in the names of honest sites."""
    session = _masked(world)
    key = world.identities[COLLUDER]
    forged_stories(
        session, lambda name, alive, _: session.consent(name, 0, session.listed(name, 0, alive), key)
    )
    session.loot()


@attack
def too_few_survivors(world: World) -> None:
    """Call all but two sites dropped, or all but one, so that the sum bares a single vector."""
    session = _masked(world)
    for size in (1, 2):
        for chosen in combinations(HONEST, size):
            session.finish(alive=(*chosen, COLLUDER), to=chosen)
    session.loot()


@attack
def a_second_delivery(world: World) -> None:
    """Tell a site twice who shared, with other shares the second time, for its vector under other masks."""
    session = Session(world, world.request()).setup()
    session.mask()
    fewer = _without("d")
    for name in HONEST[:3]:
        session.send("mask", name, session.delivery(name, 0, fewer))
        session.send("mask", name, session.delivery(name, 0, NAMES))
        session.send("mask", name, session.begin_message(name, 0))
    session.finish()
    session.loot()


@attack
def deliveries_that_differ(world: World) -> None:
    """Tell a that few others shared, and the rest that all did and these few dropped, for all of a's masks.

    The keys of those few take its masks off, and who helps with its seed need not know what a was told.
    """
    session = Session(world, world.request()).setup()
    for few in (("b",), ("b", "c")):  # as few as a takes
        session.mask(sharers={"a": ("a", *few, COLLUDER)})
        if (0, "a") in session.taken.words:
            break
    for lost in (few, few[:1]):
        session.finish(alive=_without(*lost), to=[name for name in HONEST[1:] if name not in lost])
    session.loot()


@attack
def seed_of_one_step_and_key_of_another(world: World) -> None:
    """Let d survive one step and drop in the next: its seed of the one and its key of the other, for both."""
    document = study(DESCENT)
    first = world.request(document, steps=3)
    later = world.request(document, run=first.run, stage=1, first=0, steps=3)
    session = Session(world, first).setup()
    session.mask()
    session.finish()
    session.mask(1, request=later)
    session.finish(1, alive=_without("d"))
    for name in HONEST:  # and step 0 again, told in step 1
        session.tell(name, 0, _without("d"))
        session.tell(name, 1, NAMES)
    session.loot((0, 1))
