"""An attack: a function that tries to win, with a name and a sentence of what the attacker wants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from assurance.attacks.sites import World

__all__ = ["Attack", "attack"]


@dataclass(frozen=True)
class Attack:
    """One attack: who plays it and what for is in its sentence."""

    name: str
    wants: str
    play: Callable[[World], None]

    def __call__(self, world: World) -> None:
        """Play it."""
        self.play(world)


def attack(play: Callable[[World], None]) -> Attack:
    """Make an attack of a function: its name is the function's, what it wants the first line of its text."""
    wants = (play.__doc__ or "").strip().splitlines()[0]
    return Attack(play.__name__.replace("_", " "), wants, play)
