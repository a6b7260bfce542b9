"""Attacks on the order of things: messages again, in another session or step, too early, or not at all.

Whatever a site answers out of turn counts as won.
"""

from __future__ import annotations

from typing import Any

import msgspec

from assurance.attacks.attack import attack
from assurance.attacks.session import Session
from assurance.attacks.sites import COLLUDER, DESCENT, HONEST, NAMES, World, new_run, study
from cape.secagg import messages as m

__all__ = [
    "replay_in_another_session",
    "replay_in_another_step",
    "replay_in_the_same_session",
    "rounds_in_another_order",
    "rounds_skipped",
    "steps_backward",
]


def _bent(session: Session, data: bytes, **changes: Any) -> bytes:
    """Return a message to a site with other words in it."""
    return m.pack(msgspec.structs.replace(m.unpack(data, session.parameters), **changes))


@attack
def replay_in_the_same_session(world: World) -> None:
    """Send every message again, at once and at the end, to every site, for a second answer to any of them."""
    request = world.request()
    session = Session(world, request)

    def again(round_: str, name: str) -> None:
        for _, whose, data in list(session.sent):
            if whose == name and data:
                world.must_refuse(name, session.name, data, "a message twice")

    session.before = again
    session.whole()
    for name in HONEST:
        for _, _, data in list(session.sent):
            world.must_refuse(name, session.name, data, "a message twice")
        if world.ask(name, request) is not None:
            world.won.append(f"{name} answered a request twice")
    session.finish()
    session.loot()


@attack
def replay_in_another_session(world: World) -> None:
    """Use each message of one run in the next, as it was and with the next run's name on it."""
    old = Session(world, world.request()).whole()
    new = Session(world, world.request())

    def replay(round_: str, name: str) -> None:
        for _, whose, data in old.sent:
            if whose == name and data:
                world.must_refuse(name, new.name, data, "a message of another session")
                renamed = _bent(old, data, run=new.name)
                world.must_refuse(name, new.name, renamed, "a message of another session")

    new.before = replay
    new.setup()
    new.mask()
    old_signed = {name: old.got["consistency", name] for name in HONEST if ("consistency", name) in old.got}
    for name in HONEST:
        new.tell(name, 0, NAMES)
        new.reveal(name, 0, NAMES, old_signed)
    new.loot()


@attack
def replay_in_another_step(world: World) -> None:
    """Use each message of one step in the next, as it was and with the next step's number on it."""
    document = study(DESCENT)
    first = world.request(document, steps=3)
    later = world.request(document, run=first.run, stage=1, first=0, steps=3)
    session = Session(world, first).setup()
    session.mask()
    session.finish()
    old = [each for each in session.sent if each[2]]

    def replay(round_: str, name: str) -> None:
        for _, whose, data in old:
            if whose != name:
                continue
            world.must_refuse(name, session.name, data, "a message of another step")
            if not isinstance(m.unpack(data, session.parameters), m.Adverts | m.Delivery):
                bent = _bent(session, data, step=1)
                world.must_refuse(name, session.name, bent, "a message of another step")

    session.before = replay
    session.mask(1, request=later)
    signed = {name: session.got["consistency", name] for name in HONEST}
    for name in HONEST:
        session.tell(name, 1, NAMES)
        session.reveal(name, 1, NAMES, signed)
    session.loot((0, 1))


@attack
def rounds_in_another_order(world: World) -> None:
    """Ask in every round for what belongs to the others, with the transcript of either, for any answer."""
    session = Session(world, world.request())
    order = ("share", "mask", "consistency", "unmask")

    def other_rounds(round_: str, name: str) -> None:
        for other in order:
            if other != round_ and round_ in order:
                for data in _of_round(session, other, name):
                    for words in (data, _bent(session, data, transcript=_at(session, round_, name))):
                        world.must_refuse(name, session.name, words, f"round {other!r} in round {round_!r}")

    session.before = other_rounds
    session.whole()


def _at(session: Session, round_: str, name: str) -> bytes:
    """Return the transcript that a site has before it answers in a round."""
    match round_:
        case "share":
            return session.parameters.digest()
        case "mask":
            return session.keys_at(name)
        case "consistency":
            return session.at_step(name, 0)
    return session.listed(name, 0, NAMES)


def _of_round(session: Session, round_: str, name: str) -> list[bytes]:
    """Return messages of a round as they would be right for a site, as far as the attacker can make them."""
    if round_ == "share":
        return [session.keys_message(session.adverts)]
    if round_ == "mask":
        ready = len(session.shares) == len(NAMES)
        return [session.begin_message(name, 0), *([session.delivery(name, 0, NAMES)] if ready else [])]
    if round_ == "consistency":
        return [session.list_message(name, 0, NAMES)]
    signed = {COLLUDER: session.consent(COLLUDER, 0, session.listed(name, 0, NAMES))}
    signed |= {n: session.got["consistency", n] for n in HONEST if ("consistency", n) in session.got}
    return [session.consents_message(name, 0, NAMES, signed)]


@attack
def rounds_skipped(world: World) -> None:
    """Leave out the rounds in which sites check something: keys, shares, or the list of survivors."""
    document = study(DESCENT)
    first = world.request(document, steps=3)
    later = world.request(document, run=first.run, stage=1, first=0, steps=3)
    session = Session(world, first)
    session.advertise()
    for name in HONEST:  # a vector before any keys were shown
        world.must_refuse(name, session.name, session.delivery_of(name, 0, NAMES, ()), "without keys")
        world.must_refuse(name, session.name, session.begin_message(name, 0), "without keys")
    session.share()
    for name in HONEST:  # shares of secrets before there was a vector
        world.must_refuse(name, session.name, session.list_message(name, 0, NAMES), "without a vector")
    session.mask()
    for name in HONEST:  # and before a list was signed
        own = {COLLUDER: session.consent(COLLUDER, 0, session.listed(name, 0, NAMES))}
        data = session.consents_message(name, 0, NAMES, own)
        world.must_refuse(name, session.name, data, "without a list")
        session.tell(name, 0, NAMES)
        session.reveal(name, 0, NAMES, own)
    for name in HONEST:  # a vector that is paid for, and that no message has come for that fits
        world.ask(name, later, _bent(session, session.begin_message(name, 1), transcript=bytes(32)))
        data = session.list_message(name, 1, NAMES)
        world.must_refuse(name, session.name, data, "without a vector")
    session.mask(1, request=later)
    session.finish(1)
    session.loot((0, 1))


@attack
def steps_backward(world: World) -> None:
    """Go on to a later step and come back, for the vector or the shares of one that is past."""
    document, run = study(DESCENT), new_run()
    stages = {stage: world.request(document, run=run, stage=stage, first=0, steps=3) for stage in range(3)}
    session = Session(world, stages[0]).setup()
    session.mask(1, request=stages[1])
    session.finish(1)
    before = dict(world.left)
    for step in (0, 1):
        for name in HONEST:
            for data in (session.delivery(name, step, NAMES), session.begin_message(name, step)):
                world.ask(name, stages[step], data)
                world.must_refuse(name, session.name, data, f"step {step} after step 1")
            world.must_refuse(name, session.name, session.list_message(name, step, NAMES[1:]), "a past step")
    if dict(world.left) != before:
        world.won.append("a vector of a past step left")
    session.mask(2, request=stages[2])
    session.finish(2)
    session.loot(range(3))
