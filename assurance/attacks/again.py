"""Attacks that ask twice: a second noisy view of the same data is refused, or paid for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from assurance.attacks.attack import attack
from assurance.attacks.session import Session
from assurance.attacks.sites import DESCENT, HISTOGRAM, HONEST, NAMES, World, study
from cape.site import wire
from cape.site.decide.request import Request

__all__ = [
    "asked_again_after_a_failure",
    "asked_again_after_a_restart",
    "asked_again_until_the_budget_is_out",
    "asked_from_many_threads_at_once",
    "kept_and_sent_later",
    "more_offers_than_the_budget_covers",
    "one_run_for_two_analyses",
    "said_to_be_unpaid_and_asked_again",
    "two_runs_with_other_survivors",
]

_THREADS = 4
_MOST = 40  # runs: many more than the budget covers


@attack
def asked_again_after_a_failure(world: World) -> None:
    """Say that a run failed after the vectors were sent, and ask in its name for vectors with new noise."""
    request = world.request()
    Session(world, request).whole()
    for again in (
        request,
        world.sign(replace(request, steps=2)),
        world.request(study(HISTOGRAM | {"share": 0.125}), run=request.run),
    ):
        Session(world, again).whole()
    plain = world.request(study(scheme="conventional"), run=request.run)
    for name in HONEST:
        world.ask(name, plain)


@attack
def asked_again_after_a_restart(world: World) -> None:
    """Wait until sites were started anew and have forgotten everything but their files, and ask again."""
    request = world.request()
    session = Session(world, request).setup()
    session.mask()
    for name in HONEST:
        world.restart(name)
    session.finish()
    again = Session(world, request).whole()
    plain = world.request(study(scheme="conventional"))
    for name in HONEST:
        world.ask(name, plain)
        world.restart(name)
        world.ask(name, plain)
    for each in (session, again):
        each.loot()


@attack
def asked_again_until_the_budget_is_out(world: World) -> None:
    """Ask the same in one new run after the other, to be rid of the noise in the mean of the answers.

    The study ends when it has what it states; so the same is asked under new names, until the policy ends it.
    """
    document = study(HISTOGRAM | {"share": 1.0})
    again = sum(_answered(world, document) for _ in range(2))
    if again > 1:
        world.won.append("a study that was paid for once was answered twice")
    for number in range(_MOST):
        if not _answered(world, document | {"name": f"lungs {number}"}):
            break
    else:
        world.won.append(f"{_MOST} runs, and the budget never ran out")
    if world.refused["budget"] < 2 * len(HONEST):
        world.won.append("no site said that its budget is spent")


def _answered(world: World, document: Mapping[str, Any]) -> bool:
    return bool(Session(world, world.request(document)).whole().taken.words)


@attack
def one_run_for_two_analyses(world: World) -> None:
    """Give two analyses one run's name, so that one line of the ledger pays for both."""
    document = study(
        HISTOGRAM, {"kind": "histogram", "column": "ill", "share": 0.25}, DESCENT | {"share": 0.25}
    )
    first = world.request(document)
    others = [
        world.request(document, number=2, run=first.run),
        world.request(document, number=3, run=first.run),
        world.request(document, number=3, run=first.run, stage=1, first=1),
    ]
    opened = [Session(world, each) for each in (first, *others)]
    for session in opened:  # all at once, then one after the other
        session.setup()
    for session in opened:
        session.mask()
        session.finish()
        session.loot()
    for each in (first, *others):
        Session(world, each).whole()
    for name in HONEST:
        world.ask(name, world.request(study(document["analyses"][1], scheme="conventional"), run=first.run))


@attack
def asked_from_many_threads_at_once(world: World) -> None:
    """Ask for one vector many times at the same moment, so that several leave before one is paid for."""
    session = Session(world, world.request()).setup()
    plain = world.request(study(scheme="conventional"))
    for name in HONEST:
        opening = wire.Carry(0, session.name, session.delivery(name, 0, NAMES))
        for message in (opening, wire.Ask(0, plain.pack()), wire.Ask(0, world.request().pack())):
            world.at_once(name, [message] * _THREADS)
        world.at_once(name, [wire.Ask(0, world.sign(plain).pack()) for _ in range(_THREADS)])


@attack
def kept_and_sent_later(world: World) -> None:
    """Keep a request that sites refused, and send it when their policies allow it: nobody waits for it."""
    plain = world.request(study(scheme="conventional"))
    for name in HONEST:
        world.change_policy(name, '"histogram"', '"count"')
        world.say(name, wire.Ask(0, plain.pack()))
        world.change_policy(name, '"count"', '"histogram"')
        world.restart(name)
        if isinstance(world.say(name, wire.Ask(0, plain.pack())), wire.Offered):
            world.won.append(f"{name} answered a request that it had refused")


@attack
def more_offers_than_the_budget_covers(world: World) -> None:
    """Have more runs begun than the budget covers, before any is paid for, and ask for all vectors."""

    def dear(number: int, scheme: str) -> Request:
        return world.request(study(HISTOGRAM | {"share": 1.0}, name=f"lungs {number}", scheme=scheme))

    opened = [Session(world, dear(number, "cape")).setup() for number in range(2)]
    plain = [wire.Ask(0, dear(number, "conventional").pack()) for number in range(_THREADS)]
    for name in HONEST:
        world.at_once(name, plain)
    for session in opened:
        session.mask()
        session.finish()
        session.loot()


@attack
def two_runs_with_other_survivors(world: World) -> None:
    """Ask the same in two runs, of which one leaves d out, so that the sums' difference is about d alone."""
    Session(world, world.request()).whole()
    session = Session(world, world.request()).setup()
    session.mask()
    session.finish(alive=tuple(name for name in NAMES if name != "d"))
    session.loot()


@attack
def said_to_be_unpaid_and_asked_again(world: World) -> None:
    """Have the run closed by the coordinator as unpaid, and use its request afterwards for a free vector."""
    request = world.request()
    session = Session(world, request).setup()
    inquiry = wire.Inquiry(0, request.run, 0, world.office.public).signed(world.office)
    said = {name: world.say(name, inquiry) for name in HONEST}
    unpaid = [name for name, found in said.items() if isinstance(found, wire.Known) and not found.known]
    session.mask()
    session.finish()
    session.loot()
    Session(world, request).whole()
    for name in unpaid:
        if world.left[name]:
            world.won.append(f"{name} said that nothing was paid, and gave a vector afterwards")
