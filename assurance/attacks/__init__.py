"""What somebody who lies can try, played against the real sites: each attack is refused or paid for."""

from __future__ import annotations

from assurance.attacks import again, asked, keys, levels, lists, rounds, sums
from assurance.attacks.attack import Attack, attack
from assurance.attacks.crowd import Crowd
from assurance.attacks.session import Session
from assurance.attacks.sites import World
from assurance.attacks.verdict import Verdict, judge

__all__ = ["ATTACKS", "Attack", "Verdict", "World", "judge", "no_attack"]


@attack
def no_attack(world: World) -> None:
    """An aggregator that follows the protocol gets one sum, with the attacker's own tools."""
    Session(world, world.request()).whole()
    crowd = Crowd(world, 10, 9)
    crowd.advertise()
    crowd.share()
    crowd.mask(dict.fromkeys(crowd.roster.names, crowd.roster.names))
    if len(world.claims) != 1 or not crowd.finish(crowd.roster.names):
        world.won.append("the attacker's tools do not even find the sum that it is entitled to")


# What a module of attacks exports is its attacks.
ATTACKS: tuple[Attack, ...] = (
    no_attack,
    *(
        getattr(module, name)
        for module in (keys, lists, levels, rounds, again, asked, sums)
        for name in module.__all__
    ),
)
