"""Many sites, without folders and ledgers: the machines of secure aggregation alone, and who lies to them.

For attacks that need more sites than there are folders: on a sparse graph a site checks its neighbours only.
The last two sites collude. They sign whatever the aggregator likes, and give it all they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from assurance.attacks.loot import Loot
from assurance.attacks.noise import shortfall, stays
from assurance.attacks.sites import World, new_run
from assurance.attacks.words import Words
from cape.core.errors import ProtocolError
from cape.engine.schemes import Parties
from cape.engine.schemes.cape import cape_choices
from cape.secagg import Identity, Parameters, Roster, Site
from cape.secagg import messages as m
from cape.secagg.keys import Verifier
from cape.secagg.surplus import SurplusKey

__all__ = ["Crowd"]

_LENGTH, _COLLUDING = 4, 2


class Crowd(Words):
    """One session of many sites: a method for each round, which sends what it is told to.

    Args:
        world: where refusals and what was won are written down.
        sites: how many there are.
        least: how many of them must be in a sum.
    """

    def __init__(self, world: World, sites: int, least: int) -> None:
        identities = {f"{number:02d}": Identity() for number in range(sites)}
        roster = Roster.of({name: identity.public for name, identity in identities.items()})
        choices = cape_choices(Parties(sites, _COLLUDING, least)) | {"dropping": sites // 10, "lying": True}
        parameters = Parameters.agree(new_run(), roster, _LENGTH, **choices)
        self.colluders = roster.names[-_COLLUDING:]
        super().__init__(parameters, {name: identities[name] for name in self.colluders})
        self.world = world
        verifier = Verifier(remember=True)
        self.machines = {
            name: Site(parameters, name, identity, verifier=verifier) for name, identity in identities.items()
        }
        self.vectors = {name: np.arange(_LENGTH) + number for number, name in enumerate(identities)}
        self.taken = Loot(self)
        self._surplus: dict[str, SurplusKey] = {}  # for the referee alone

    @property
    def room(self) -> int:
        """How many sites side by side may be missing, so that enough sign who are not their neighbours."""
        p = self.parameters
        return max(1, min(p.sites - p.threshold - p.neighbours, p.neighbours + 1 - p.helpers))

    @property
    def sparse(self) -> bool:
        """Whether not all sites are neighbours."""
        return self.parameters.neighbours < self.parameters.sites - 1

    def side_by_side(self, count: int) -> list[str]:
        """Return honest sites that are next to each other: who are near have most neighbours in common."""
        first = self.roster.names[0]
        own = set(self.peers(first))
        near = sorted(own, key=lambda peer: -len(own & set(self.peers(peer))))
        return [first, *(name for name in near if name not in self.colluders)][:count]

    def advertise(self, without: int = 0) -> None:
        """Take everybody's keys, except those of the first sites, which are suppressed."""
        self.adverts = {name: machine.start() for name, machine in self.machines.items()}
        for name in self.roster.names[:without]:
            del self.adverts[name]
        for name in self.colluders:
            self.taken.own[name] = list(self.machines[name]._chain.walk(1))

    def share(self) -> None:
        """Show all keys that were not suppressed."""
        shown = tuple(self.adverts)
        for name in shown:
            self.shown[name] = shown
            message = self._handed(name, self.keys_message(shown))
            if isinstance(message, m.Shares):
                self.shares[name] = message

    def mask(self, told: Mapping[str, Iterable[str]]) -> None:
        """Tell sites who shared, and take their vectors. Colluders open what is for them."""
        true = tuple(self.shares)
        for name in true:
            sharers = true if name in self.colluders else tuple(told[name])
            self.machines[name].begin(0, self.vectors[name])
            message = self._handed(name, self.delivery(name, 0, sharers))
            self.told[name] = tuple(told[name])
            if name in self.colluders:
                self._tell_all(name)
            elif isinstance(message, m.Masked):
                self.taken.words[0, name], self.taken.tips[0, name] = message.words, message.tip
                key = self.machines[name]._surplus
                assert key is not None
                self._surplus[name] = key

    def _tell_all(self, name: str) -> None:
        machine = self.machines[name]
        for number, held in machine._held.items():
            seed, key = held.at(0)
            self.taken.add(0, self.roster.names[number], machine.number + 1, seed=seed, key=key)

    def finish(self, alive: Iterable[str]) -> bool:
        """Say who survived, to each site of those it knows; return whether the sum opens, and look at it."""
        living = set(alive)
        lists = {name: tuple(each for each in self.told[name] if each in living) for name in self.told}
        signed: dict[bytes, dict[str, bytes]] = {}
        asked = [name for _, name in self.taken.words]
        for name in asked:
            at = self.listed(name, 0, lists[name])
            mine = {each: self.consent(each, 0, at) for each in self.colluders if each in lists[name]}
            found = self._raw(name, self.list_message(name, 0, lists[name]))
            if found is not None:
                signed.setdefault(at, mine)[name] = found
        for name in asked:
            consents = signed.get(self.listed(name, 0, lists[name]), {})
            message = self._handed(name, self.consents_message(name, 0, lists[name], consents))
            if isinstance(message, m.Reveal):
                self._keep(name, message, set(lists[name]))
        return self._look(tuple(asked))

    def _keep(self, name: str, message: m.Reveal, living: set[str]) -> None:
        committee = {*self.peers(name), name}
        held = [each for each in self.told[name] if each in committee]
        for whose, part in zip([each for each in held if each in living], message.seeds, strict=True):
            self.taken.add(0, whose, message.sender + 1, seed=part)
        for whose, part in zip([each for each in held if each not in living], message.keys, strict=True):
            self.taken.add(0, whose, message.sender + 1, key=part)
        self.taken.surplus.setdefault(name, []).append(message.surplus)

    def _look(self, asked: tuple[str, ...]) -> bool:
        """Open the sum over all vectors, if it can be, and write down what it has too little of."""
        found = self.taken.over(0, asked) if asked else None
        if found is None:
            return False
        total, left = found
        right = sum(
            self.vectors[name] + stays(self._surplus[name], parts, _LENGTH) for name, parts in left.items()
        )
        if not np.array_equal(total, right):
            return False
        short = shortfall(self.parameters.surplus, left, self.parameters.sites - _COLLUDING)
        self.world.won += [short] if short else []
        return True

    def _handed(self, name: str, data: bytes) -> m.FromSite | None:
        found = self._raw(name, data)
        return None if found is None else self.read(found)

    def _raw(self, name: str, data: bytes) -> bytes | None:
        try:
            return self.machines[name].handle(data)
        except ProtocolError:
            self.world.refused["crowd"] += 1
            return None
