"""Attacks on who takes part: rosters and keys that are not what they seem, and one site as another."""

from __future__ import annotations

from dataclasses import replace

from assurance.attacks.attack import attack
from assurance.attacks.lists import forged_stories
from assurance.attacks.session import Session
from assurance.attacks.sites import COLLUDER, HONEST, World, study
from cape.secagg import messages as m
from cape.secagg.keys import Identity

__all__ = [
    "a_key_of_its_own_on_the_roster",
    "a_site_left_out_of_the_roster",
    "advertisements_that_differ",
    "keys_of_its_own_between_the_sites",
    "messages_reflected_to_their_sender",
    "names_swapped_on_the_roster",
    "one_site_as_another",
]


@attack
def a_key_of_its_own_on_the_roster(world: World) -> None:
    """Aggregator and coordinator put a key of theirs beside an honest site's name, to count it as honest."""
    mine = Identity()
    fake = world.roster(d=mine)
    real = world.request()
    bent = replace(real, roster=tuple(zip(fake.names, fake.keys, strict=True)))  # by the wire alone
    for request in (bent, world.request(roster=fake)):
        puppets = {COLLUDER: world.identities[COLLUDER], "d": mine}
        session = Session(world, request, puppets=puppets).setup()
        session.mask()
        session.finish(alive=("a", "b", *sorted(puppets)))  # one honest site fewer than it seems
        session.loot()


@attack
def a_site_left_out_of_the_roster(world: World) -> None:
    """Fewer honest sites on the roster, so that a sum over so few says something of one of them."""
    for names, least in ((("a", "b", COLLUDER), 3), (("a", COLLUDER), 2), (("a", "b", "c", COLLUDER), 4)):
        Session(world, world.request(study(sites=list(names), min_sites=least))).fewest()
    whole = world.request()
    fewer = tuple(pair for pair in whole.roster if pair[0] in ("a", "b", "c", COLLUDER))
    for name in HONEST:  # by the wire alone, and by the coordinator for one site alone
        world.ask(name, replace(whole, roster=fewer))
        world.ask(name, world.sign(replace(whole, roster=fewer)))


@attack
def names_swapped_on_the_roster(world: World) -> None:
    """The colluding site's key beside an honest site's name, and the other way round."""
    swapped = world.roster(d=world.identities[COLLUDER], e=world.identities["d"])
    Session(world, world.request(roster=swapped), puppets={"d": world.identities[COLLUDER]}).whole()
    pair = world.roster(a=world.identities["b"], b=world.identities["a"])
    Session(world, world.request(roster=pair)).whole()


@attack
def keys_of_its_own_between_the_sites(world: World) -> None:
    """Play all other sites to one site with keys that they never signed, and open all that it shares."""
    others = {name: Identity() for name in HONEST[1:]} | {COLLUDER: world.identities[COLLUDER]}
    Session(world, world.request(), puppets=others).whole()


@attack
def advertisements_that_differ(world: World) -> None:
    """Show some sites other keys than the rest: two halves that sum up apart, or masks that do not fit."""
    request = world.request()
    halves = Session(world, request), Session(world, request)
    for half, names in zip(halves, (HONEST[:2], HONEST[2:]), strict=True):  # the colluder is in both
        half.honest = names
        half.whole()
    session, other = halves
    session.honest = HONEST
    session.adverts |= {name: other.adverts[name] for name in other.honest if name in other.adverts}
    without_d = ("a", "b", "c", COLLUDER)
    session.share({"a": without_d, "b": without_d})
    session.mask(sharers={"a": without_d, "b": without_d})
    session.finish(alive=without_d, to=("a", "b"))
    session.finish(to=("c", "d"))
    session.loot()


@attack
def one_site_as_another(world: World) -> None:
    """Pass a site's keys, shares, vector or signature on as those of another, to be counted twice."""
    session = Session(world, world.request())
    session.advertise()
    real = dict(session.adverts)
    for told in ({"b": real["a"]}, {"b": _renamed(session, real["a"], "b")}, {"b": real[COLLUDER]}):
        session.adverts = real | told
        world.must_refuse("a", session.name, session.keys_message(real), "keys of one site as another's")
    session.adverts = real
    session.share()
    sharers = tuple(sorted(session.shares))
    swapped = [session.sealed(peer, "a") for peer in sharers if peer != "a"]
    swapped[0], swapped[1] = swapped[1], swapped[0]
    data = session.delivery_of("a", 0, sharers, tuple(swapped))
    world.must_refuse("a", session.name, data, "shares of one site as another's")
    session = Session(world, world.request()).setup()
    session.mask()

    def renamed(name: str, alive: tuple[str, ...], signed: bytes) -> bytes:
        if name == COLLUDER:
            return session.consent(name, 0, session.listed(name, 0, alive))
        return _renamed(session, signed, name)

    forged_stories(session, lambda name, alive, signed: signed, renamed)  # as it is, and under their names
    session.loot()


def _renamed(session: Session, data: bytes, name: str) -> bytes:
    """Return a site's message under another name, with the signature as it was."""
    number = session.roster.index(name)
    message = m.unpack_signed(data, session.parameters)
    fields = {field: getattr(message, field) for field in message.__struct_fields__} | {"sender": number}
    return data[: m.SIGNATURE_BYTES] + m.pack(type(message)(**fields))


@attack
def messages_reflected_to_their_sender(world: World) -> None:
    """Send a site its own messages back, as the aggregator's or as those of others."""
    session = Session(world, world.request())

    def reflect(round_: str, name: str) -> None:
        for data in [data for (_, whose), data in session.got.items() if whose == name]:
            world.must_refuse(name, session.name, data, "its own message")

    session.before = reflect
    session.setup()
    sharers = tuple(sorted(session.shares))
    for name in HONEST:  # what it sealed for the others, as what they sealed for it
        mirrored = tuple(session.sealed(name, peer) for peer in sharers if peer != name)
        data = session.delivery_of(name, 0, sharers, mirrored)
        world.must_refuse(name, session.name, data, "its own shares as those of others")
    session.mask()
    session.finish()
    session.loot()
