"""Attacks by what is asked: requests that nobody signed, or that a coordinator who lies has signed.

A coordinator may ask what it likes, and tell each site something else. What it cannot do is to lower the
noise that a site pays its budget for, or the number of honest sites that it hides among.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from assurance.attacks.attack import attack
from assurance.attacks.lists import two_stories
from assurance.attacks.session import Session
from assurance.attacks.sites import (
    ABSENT,
    COLLUDER,
    DESCENT,
    HISTOGRAM,
    HONEST,
    NAMES,
    SCHEMA,
    World,
    new_run,
    study,
)
from cape.core.errors import InvalidInput
from cape.engine.session import StageResult
from cape.secagg.keys import Identity
from cape.site import envelope, wire
from cape.site.decide.request import LABEL, Request, grid_of
from cape.site.keyring import public_text
from cape.site.persons import Person

__all__ = [
    "a_lower_threshold",
    "a_price_of_its_own_for_each_site",
    "a_stage_asked_again_with_other_answers",
    "a_trial_sent_as_a_request",
    "an_approved_study_changed",
    "earlier_answers_made_up",
    "fewer_honest_sites_than_the_policy",
    "going_on_without_trust",
    "inquiry_by_another_coordinator",
    "inquiry_by_somebody_else",
    "less_noise",
    "nobody_colludes",
    "other_bounds",
    "parameters_that_differ",
    "request_of_a_stranger",
    "run_of_another_coordinator",
    "signature_of_another_study",
]


def attempt(world: World, request: Request) -> None:
    """Play a request as far as sites let it, for a sum over as few of them as it allows."""
    masked = request.study["scheme"] == "cape"
    try:
        session = Session(world, request) if masked else None
    except InvalidInput:  # no parameters can be agreed on: ask all the same
        session = None
    if session is not None:
        session.fewest()
        return
    for name in HONEST:
        world.ask(name, request)


@attack
def a_trial_sent_as_a_request(world: World) -> None:
    """The aggregator keeps what the coordinator signed for review only, and has it answered."""
    for scheme in ("cape", "conventional"):
        trial = world.request(study(scheme=scheme), trial=True)
        attempt(world, trial)
        attempt(world, replace(trial, trial=False))


@attack
def signature_of_another_study(world: World) -> None:
    """The aggregator puts the signature of one request under another: a study, run or price of its own."""
    real = world.request(study(HISTOGRAM | {"share": 0.01}))
    dear = replace(world.request(study(HISTOGRAM | {"share": 1.0})), signature=real.signature)
    for forged in (dear, replace(real, run=new_run()), replace(dear, run=real.run)):
        attempt(world, forged)
    inquiry = wire.Inquiry(0, real.run, 0, world.office.public).signed(world.office)
    attempt(world, replace(dear, signature=inquiry.signature))


@attack
def request_of_a_stranger(world: World) -> None:
    """Somebody whom no site trusts asks, in its own name and in the coordinator's."""
    real = world.request()
    attempt(world, replace(real, run=new_run(), coordinator=world.stranger.public).signed(world.stranger))
    stolen = replace(real, run=new_run())
    attempt(world, replace(stolen, signature=envelope.sign(world.stranger, LABEL, stolen._body())))


@attack
def less_noise(world: World) -> None:
    """The coordinator asks for a finer grid, more epsilon than allowed, or a scheme without noise."""
    real = world.request()
    finer = tuple((bits + 1, factor) for bits, factor in real.grid)
    coarser = tuple((bits, 2 * factor) for bits, factor in real.grid)
    for grid in (finer, coarser, ()):
        attempt(world, world.sign(replace(real, grid=grid)))
    for changes in ({"epsilon": 50.0}, {"epsilon": 1.5}, {"delta": 0.1}):
        attempt(world, world.request(study(HISTOGRAM | {"share": 1.0}, **changes)))
    for scheme in ("none", "pooled", "local", "cape-gaussian"):
        attempt(world, world.request(study(scheme=scheme)))
    for share in (2.0, -1.0, 0.0):
        attempt(world, world.sign(replace(real, study=study(HISTOGRAM | {"share": share}))))


@attack
def other_bounds(world: World) -> None:
    """Bounds of the coordinator's own, around one person's value or so wide that one person stands out."""
    for low, high in ((0.0, 1e6), (71.0, 72.0), (18.0, 90.5)):
        schema = SCHEMA | {"age": {"low": low, "high": high, "missing": True}}
        attempt(world, world.request(study(schema=schema)))


@attack
def fewer_honest_sites_than_the_policy(world: World) -> None:
    """Ask that fewer sites must be in a sum than each site's policy demands, or suppose that more collude."""
    for changes in ({"min_sites": 3}, {"min_sites": 2}, {"colluding": 2}, {"colluding": 3}):
        attempt(world, world.request(study(**changes)))


@attack
def nobody_colludes(world: World) -> None:
    """Suppose that all sites are honest, so that each adds less noise and signs with fewer others."""
    attempt(world, world.request(study(colluding=0)))
    attempt(world, world.request(study(colluding=0, min_sites=3)))
    bent = world.request()
    attempt(world, replace(bent, study=study(colluding=0)))


@attack
def a_lower_threshold(world: World) -> None:
    """Ask that so few sites must sign a list that two groups could each sign one of its own."""
    names = [*NAMES, *ABSENT]
    for document in (study(sites=names), study(sites=names, colluding=0), study(min_sites=3)):
        request = world.request(document)
        try:
            two_stories(world, request)
        except InvalidInput:  # no parameters can be agreed on so: ask all the same
            for name in HONEST:
                world.ask(name, request)


@attack
def parameters_that_differ(world: World) -> None:
    """Open one session with another length, width or number of steps at each site, and mix what they send."""
    run = new_run()
    real = world.request(run=run)
    bent = {
        "a": world.request(study(HISTOGRAM | {"bins": 64}), run=run),
        "b": world.sign(replace(real, steps=3)),
        "c": world.sign(replace(real, bits=32)),
    }
    session = Session(world, real, requests=bent)
    session.advertise()
    session.share({name: (name, COLLUDER) for name in HONEST})  # those who fit together
    session.share()  # and all of them; and those whose messages have one form
    session.share(dict.fromkeys(NAMES, ("a", "c", "d", COLLUDER)))
    for name in session.honest:
        if name in session.shares:
            world.won.append(f"{name} took keys of sites that were told other parameters")
    session.mask()
    session.finish()
    session.loot()
    for name, request in bent.items():  # the same session a second time, with what the others were told
        world.ask(name, real)
        world.ask("d", request)


@attack
def a_price_of_its_own_for_each_site(world: World) -> None:
    """Tell other sites a higher price than the one attacked, so that they hide it with less noise."""
    run = new_run()
    dear = world.request(study(HISTOGRAM | {"share": 1.0}), run=run)
    cheap = world.request(study(HISTOGRAM | {"share": 0.04}), run=run)
    Session(world, dear, requests={"a": cheap}).whole()


@attack
def earlier_answers_made_up(world: World) -> None:
    """The coordinator makes up what earlier stages released, another lie for each site, for less noise."""
    document, run = study(DESCENT), new_run()
    lies = {
        name: world.request(document, run=run, stage=1, first=0, steps=3, told=told)
        for name, told in zip(HONEST, (0, 1, -(1 << 30), 1 << 40), strict=True)
    }
    session = Session(world, world.request(document, run=run, steps=3)).setup()
    session.mask()
    session.finish()
    session.mask(1, requests=lies)
    session.finish(1)
    session.loot((0, 1))
    grids = {grid_of(given.grant.calibration) for each in world.given.values() for given in each}
    stds = {given.grant.local_std for each in world.given.values() for given in each}
    if len(grids) > 1 or len(stds) > 1:
        world.won.append("the noise depends on answers that the coordinator made up")


@attack
def a_stage_asked_again_with_other_answers(world: World) -> None:
    """Ask for the same stage again with other earlier answers: a second question for the price of one."""
    document, run = study(DESCENT), new_run()
    session = Session(world, world.request(document, run=run, steps=3)).setup()
    session.mask()
    session.finish()
    for told in (0, 5, 7):
        request = world.request(document, run=run, stage=1, first=0, steps=3, told=told)
        session.mask(1, request=request)
        session.finish(1)
        session.loot((0, 1))
    alone = world.request(document, run=run, stage=1, first=1, told=9)
    Session(world, alone).whole()
    history = (StageResult.of(np.zeros(3, np.int64), 5, 480),)
    for name in HONEST:
        world.ask(name, world.sign(replace(alone, earlier=history)))


@attack
def going_on_without_trust(world: World) -> None:
    """Open sessions while sites trust the coordinator, and ask for vectors when they do not any more."""
    document = study(DESCENT)
    first = world.request(document, steps=3)
    later = world.request(document, run=first.run, stage=1, first=0, steps=3)
    begun, opened = Session(world, first).setup(), Session(world, world.request()).setup()
    begun.mask()
    begun.finish()
    for name in HONEST:
        world.change_policy(name, public_text(world.office.public), public_text(world.stranger.public))
    before = dict(world.left)
    begun.mask(1, request=later)
    opened.mask()
    if dict(world.left) != before:
        world.won.append("a vector left for a coordinator that is not trusted any more")
    begun.finish(1)
    begun.loot((0, 1))
    opened.finish()
    opened.loot()


@attack
def an_approved_study_changed(world: World) -> None:
    """Have a harmless study approved by the stewards, and ask another one under its name."""
    harmless = study(HISTOGRAM | {"share": 0.01})
    for name, site in world.folders.items():
        world.change_policy(name, 'approve = "auto"', 'approve = "ask"')
        world.ask(name, world.request(harmless))
        site.approvals.approve(site.approvals.find(harmless["name"]), Person("ana"))
    for changed in (study(HISTOGRAM | {"share": 1.0}), study(DESCENT), harmless | {"description": "x"}):
        Session(world, world.request(changed)).whole()
    if world.left.total():
        world.won.append("a study was answered that no steward has seen")
    Session(world, world.request(harmless)).whole()


@attack
def inquiry_by_somebody_else(world: World) -> None:
    """Learn from a site's ledger, or have it close a run, without the coordinator's key."""
    request = world.request()
    session = Session(world, request).setup()
    session.mask()
    for identity, signer in _pretenders(world):
        bare = wire.Inquiry(0, request.run, 0, identity.public)
        signed: Any = bare.signed(signer) if signer is not None else bare
        for name in HONEST:
            if isinstance(world.say(name, signed), wire.Known):
                world.won.append(f"{name} told a stranger what its ledger holds")
    other = wire.Inquiry(0, new_run(), 0, world.office.public).signed(world.office)
    for name in HONEST:
        moved = wire.Inquiry(0, request.run, 0, world.office.public, other.signature)
        if isinstance(world.say(name, moved), wire.Known):
            world.won.append(f"{name} took the signature of another inquiry")
    session.finish()
    session.loot()


@attack
def inquiry_by_another_coordinator(world: World) -> None:
    """Close somebody's run, or learn whether it was paid for, as another coordinator whom the sites trust."""
    other = _another(world)
    paid, opened = Session(world, world.request()).whole(), Session(world, world.request()).setup()
    for session in (paid, opened):
        inquiry = wire.Inquiry(0, session.request.run, 0, other.public).signed(other)
        for name in HONEST:
            said = world.say(name, inquiry)
            if isinstance(said, wire.Known) and said.known:
                world.won.append(f"{name} told another coordinator what was paid for")
    before = world.left.total()
    opened.mask()
    if world.left.total() != before + len(HONEST):
        world.won.append("a run was closed by another coordinator")
    opened.finish()
    opened.loot()


@attack
def run_of_another_coordinator(world: World) -> None:
    """Use up the name of somebody's run, as another coordinator: each is answered, and pays for its own."""
    other = _another(world)
    request = world.request()
    taken = world.sign(replace(request, coordinator=other.public), by=other)
    before = world.left.total()
    for session in (Session(world, taken).whole(), Session(world, request).whole()):
        session.loot()
    if world.left.total() != before + 2 * len(HONEST):
        world.won.append("a run was used up by another coordinator")


def _another(world: World) -> Identity:
    """Return a second coordinator, whom all sites trust."""
    for name in HONEST:
        world.change_policy(name, "[peers]", f'other = "{public_text(world.stranger.public)}"\n[peers]')
    return world.stranger


def _pretenders(world: World) -> list[tuple[Identity, Identity | None]]:
    """Who asks: (the key it names, the key it signs with)."""
    colluder = world.identities[COLLUDER]
    return [
        (world.stranger, world.stranger),
        (colluder, colluder),
        (world.office, world.stranger),
        (world.office, None),
    ]
