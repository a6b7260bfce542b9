"""Attacks on surplus noise: have more of it taken off than the sites that are missing from a sum allow.

A site reveals the key of the parts that its signed list of survivors does not need. Who gets the keys of a
long list and the sum over a short one has a sum with too little noise. What an attack could take off, the
referee counts (`assurance.attacks.noise`).
"""

from __future__ import annotations

from assurance.attacks.attack import attack
from assurance.attacks.crowd import Crowd
from assurance.attacks.session import Session
from assurance.attacks.sites import COLLUDER, DESCENT, HONEST, NAMES, World, study

__all__ = [
    "a_level_before_the_list_is_signed",
    "a_level_for_another_list",
    "a_site_alive_said_to_be_gone",
    "a_vanished_site_said_to_be_alive",
    "an_old_steps_keys",
    "sites_that_never_shared",
    "sites_that_were_never_there",
    "two_levels_of_one_site",
]

_SHORT = tuple(name for name in NAMES if name != "d")


def _masked(world: World) -> Session:
    session = Session(world, world.request()).setup()
    session.mask()
    return session


@attack
def two_levels_of_one_site(world: World) -> None:
    """Get the keys of the list with d, and the sum without d: two lists of one step, in either order."""
    for first, second, early in ((NAMES, _SHORT, True), (_SHORT, NAMES, True), (NAMES, _SHORT, False)):
        session = _masked(world)
        signed = {name: session.tell(name, 0, first) for name in (*HONEST, COLLUDER) if name in first}
        for name in HONEST if early else ():  # signed, and not yet revealed: another list
            session.tell(name, 0, second)
        consents = {name: data for name, data in signed.items() if data is not None}
        for name in HONEST:
            session.reveal(name, 0, first, consents)
            session.reveal(name, 0, first, consents)  # and once more
        session.finish(alive=second, to=HONEST)  # revealed: another list, with all signatures on it
        session.finish(alive=first, to=HONEST)
        session.loot()


@attack
def a_level_for_another_list(world: World) -> None:
    """Have the list without d signed, and ask for keys with the signatures, or the length, of the one with d.

    The number of signatures says nothing: the same one may come twice.
    """
    session = _masked(world)
    signed = {name: session.tell(name, 0, _SHORT) for name in _SHORT}
    consents = {name: data for name, data in signed.items() if data is not None}
    longer = {name: session.consent(COLLUDER, 0, session.listed(name, 0, NAMES)) for name in NAMES}
    for name in _SHORT[:3]:
        session.reveal(name, 0, NAMES, longer)
        session.reveal(name, 0, _SHORT, consents | {"d": longer["d"]})
        session.reveal(name, 0, _SHORT, consents | {"d": consents[COLLUDER]})
        session.reveal(name, 0, _SHORT, consents)
    session.loot()


@attack
def a_level_before_the_list_is_signed(world: World) -> None:
    """Ask for keys before enough sites have signed: tell a that d survived, and b and c that it did not."""
    session = _masked(world)
    stories = {"a": NAMES, "b": _SHORT, "c": _SHORT}
    for name, alive in stories.items():  # before it was told any list
        own = session.consent(COLLUDER, 0, session.listed(name, 0, alive))
        session.reveal(name, 0, alive, {COLLUDER: own})
    signed = {name: session.tell(name, 0, alive) for name, alive in stories.items()}
    for name, alive in stories.items():  # with the signatures that there are, and with one of them many times
        own = session.consent(COLLUDER, 0, session.listed(name, 0, alive))
        same = {peer: data for peer, data in signed.items() if data is not None and stories[peer] == alive}
        session.reveal(name, 0, alive, dict.fromkeys(NAMES, own))
        session.reveal(name, 0, alive, same | {COLLUDER: own})
    session.loot()


@attack
def a_vanished_site_said_to_be_alive(world: World) -> None:
    """d falls silent before it shares, or before its vector, and is listed as a survivor, or not at all."""
    for silent in ("share", "mask"):
        session = Session(world, world.request())
        session.setup()
        if silent == "share":
            del session.shares["d"]
        session.mask(silent=("d",))
        for alive in (NAMES, _SHORT):
            session.finish(alive=alive)
        session.loot()


@attack
def a_site_alive_said_to_be_gone(world: World) -> None:
    """Take d's vector and call d dropped, for a sum over three with the keys that are due for four."""
    session = _masked(world)
    session.finish(alive=_SHORT)
    session.loot()
    for alive in (
        NAMES,
        _SHORT,
    ):  # and what is due for the other list
        session.finish(alive=alive, to=HONEST)
    session.loot()


@attack
def an_old_steps_keys(world: World) -> None:
    """Get all keys of a step in which nobody is lost; lose d in the next, and use or ask for them there."""
    document = study(DESCENT)
    first = world.request(document, steps=3)
    later = world.request(document, run=first.run, stage=1, first=0, steps=3)
    session = Session(world, first).setup()
    session.mask()
    signed = {name: session.tell(name, 0, NAMES) for name in NAMES}
    consents = {name: data for name, data in signed.items() if data is not None}
    for name in HONEST[1:]:  # a has not revealed in step 0 when step 1 begins
        session.reveal(name, 0, NAMES, consents)
    session.mask(1, request=later)
    for name in HONEST:
        session.reveal(name, 0, NAMES, consents)
        message = session.consents_message(name, 0, NAMES, consents)
        world.must_refuse(name, session.name, message, "for the keys of a step that is past")
    session.finish(1, alive=_SHORT)
    session.loot((0, 1))


@attack
def sites_that_were_never_there(world: World) -> None:
    """Suppress advertisements, and list their sites as sharers and survivors: nobody seems to be missing."""
    session = Session(world, world.request())
    session.advertise()
    del session.adverts["d"]
    session.share()
    session.honest = tuple(name for name in HONEST if name != "d")
    session.mask(sharers=dict.fromkeys(session.honest, NAMES))
    if COLLUDER in session.told:
        session.told[COLLUDER] = NAMES
    session.finish(alive=NAMES)
    session.loot()
    for sites, least in ((10, 7), (64, 44)):
        crowd = Crowd(world, sites, least)
        crowd.advertise(without=min(sites - least, 6))
        crowd.share()
        crowd.mask(dict.fromkeys(crowd.shares, crowd.roster.names))
        crowd.finish(crowd.roster.names)


@attack
def sites_that_never_shared(world: World) -> None:
    """Suppress what some sites shared, and list them as survivors to those who are not their neighbours.

    Their neighbours are told the truth, so that they add no masks that nobody could take off.
    """
    for sites, least in ((10, 7), (64, 44)):
        crowd = Crowd(world, sites, least)
        crowd.advertise()
        crowd.share()
        missing = crowd.side_by_side(crowd.room)
        for name in missing:
            del crowd.shares[name]
        near = {peer for name in missing for peer in crowd.peers(name)} if crowd.sparse else set()
        true = tuple(name for name in crowd.roster.names if name not in missing)
        crowd.mask({name: true if name in near else crowd.roster.names for name in crowd.shares})
        crowd.finish(crowd.roster.names)
