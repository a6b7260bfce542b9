"""A session of secure aggregation with the attacker in the middle: it tells everybody what it likes.

Nothing here follows the protocol unless an attack calls for it. The attacker builds every message by itself
(`assurance.attacks.words`), keeps all that comes back, adds what its puppets hold, and computes all that can
be computed from it (`assurance.attacks.loot`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np

from assurance.attacks.loot import Loot
from assurance.attacks.sites import COLLUDER, World
from assurance.attacks.words import Words
from cape import secagg
from cape.core.errors import ProtocolError
from cape.secagg import messages as m
from cape.secagg.keys import Identity, Roster, Verifier
from cape.secagg.parameters import Parameters
from cape.site.decide.request import Request
from cape.study.document import read

__all__ = ["Session", "parameters_of", "puppet"]

Before = Callable[[str, str], None]  # what to do before a round's message goes to a site: (round, site)


class _Gullible(Verifier):
    """Believes everything: for sites of the attacker's own."""

    def check(self, public: bytes, signature: bytes, message: bytes, who: str) -> None:
        """Never raise."""


def parameters_of(request: Request) -> Parameters:
    """Return a session's parameters, as everybody computes them."""
    asked = read(request.study, request.number)
    return request.parameters(asked.setting.parties, asked.session().calibrate()[0].size)


def puppet(parameters: Parameters, name: str, identity: Identity) -> secagg.Site:
    """Return a site of the attacker's own, whatever key the roster has for it."""
    place = parameters.roster.index(name)
    keys = (*parameters.roster.keys[:place], identity.public, *parameters.roster.keys[place + 1 :])
    mine = replace(parameters, roster=Roster(parameters.roster.names, keys))
    machine = secagg.Site(mine, name, identity, verifier=_Gullible())
    machine.parameters = parameters
    machine._transcript = parameters.digest()
    return machine


class Session(Words):
    """One session: a method for each round, which sends what it is told to and keeps what comes back.

    Args:
        world: whom it is played against.
        request: what is asked.
        requests: what some sites are asked instead.
        puppets: sites that the attacker plays, with the keys that it has for them.
    """

    def __init__(
        self,
        world: World,
        request: Request,
        *,
        requests: Mapping[str, Request] | None = None,
        puppets: Mapping[str, Identity] | None = None,
    ) -> None:
        identities = {COLLUDER: world.identities[COLLUDER]} if puppets is None else puppets
        super().__init__(parameters_of(request), identities)
        self.world, self.request, self.name = world, request, request.session
        self.requests = dict(requests or {})
        self.puppets = {name: puppet(self.parameters, name, key) for name, key in identities.items()}
        self.honest = tuple(n for n in self.roster.names if n not in self.puppets and n in world.members)
        self.before: Before = lambda round_, name: None
        self.sent: list[tuple[str, str, bytes]] = []  # (round, site, message), to send again elsewhere
        self.got: dict[tuple[str, str], bytes] = {}  # (round, site) -> its answer
        self.taken = Loot(self)

    def advertise(self) -> None:
        """Ask for everybody's keys."""
        for name in self.honest:
            self.before("advertise", name)
            found = self.world.ask(name, self.requests.get(name, self.request))
            if found is not None:
                self._keep("advertise", name, b"", found)
                self.adverts[name] = found
        for name, machine in self.puppets.items():
            self.adverts[name] = machine.start()
            self.taken.own[name] = list(machine._chain.walk(self.parameters.steps))

    def share(self, shown: Mapping[str, Iterable[str]] | None = None) -> None:
        """Show keys, to each site those of the names given: by default everybody's."""
        for name in sorted(self.adverts):
            chosen = (shown or {}).get(name, self.adverts)
            self.shown[name] = tuple(n for n in self.roster.names if n in chosen and n in self.adverts)
            message = self._said(self.send("share", name, self.keys_message(self.shown[name])))
            if isinstance(message, m.Shares):
                self.shares[name] = message

    def mask(
        self,
        step: int = 0,
        *,
        request: Request | None = None,
        requests: Mapping[str, Request] | None = None,
        sharers: Mapping[str, Iterable[str]] | None = None,
        silent: Iterable[str] = (),
    ) -> None:
        """Ask for the vectors of a step; with a request where it is not the first of the session.

        `sharers` has who is said to have shared, to some; `silent` are sites that are not asked.
        """
        everyone = tuple(name for name in self.roster.names if name in self.shares)
        for name in (name for name in everyone if name not in silent):
            first = name not in self.told
            if first:
                chosen = (sharers or {}).get(name, everyone)
                self.told[name] = tuple(each for each in self.roster.names if each in chosen)
                data = self.delivery(name, step, self.told[name])
            else:
                data = self.begin_message(name, step)
            message = self._said(self._open(name, step, data, (requests or {}).get(name, request)))
            if isinstance(message, m.Masked):
                self.taken.words[step, name] = message.words
                self.taken.tips[step, name] = message.tip
            elif first:
                del self.told[name]

    def tell(self, name: str, step: int, alive: Iterable[str]) -> bytes | None:
        """Tell a site who survived, and return its signature; a puppet signs anything."""
        if name in self.puppets:
            return self.consent(name, step, self.listed(name, step, alive))
        return self.send("consistency", name, self.list_message(name, step, alive))

    def reveal(self, name: str, step: int, alive: Iterable[str], consents: Mapping[str, bytes]) -> bool:
        """Show a site signatures on a list, keep the shares that it gives, and return whether it did."""
        message = self._said(self.send("unmask", name, self.consents_message(name, step, alive, consents)))
        if not isinstance(message, m.Reveal):
            return False
        living, point = set(alive), message.sender + 1
        committee = {*self.peers(name), name}
        held = [each for each in self.told[name] if each in committee]
        for whose, part in zip([each for each in held if each in living], message.seeds, strict=False):
            self.taken.add(step, whose, point, seed=part)
        for whose, part in zip([each for each in held if each not in living], message.keys, strict=False):
            self.taken.add(step, whose, point, key=part)
        self.taken.surplus.setdefault(name, []).append(message.surplus)
        return True

    def finish(self, step: int = 0, alive: Iterable[str] | None = None, to: Iterable[str] = ()) -> int:
        """Go through with one story for some sites: signatures, then shares. Return how many gave shares."""
        words = self.taken.words
        living = tuple(n for n in self.roster.names if (step, n) in words) if alive is None else tuple(alive)
        asked = [n for n in self.honest if (step, n) in words and n in (tuple(to) or living)]
        signed = {n: self.tell(n, step, living) for n in (*asked, *self.puppets) if n in self.told}
        consents = {n: data for n, data in signed.items() if data is not None}
        return sum(self.reveal(n, step, living, consents) for n in asked)

    def loot(self, steps: Iterable[int] = (0,)) -> None:
        """Claim the sum over every set of honest sites that can be computed from what was got."""
        for step in steps:
            for total, left in self.taken.sums(step, self.honest):
                self.world.claim(self.request, self.request.first + step, total, left)

    def setup(self) -> Session:
        """Agree on keys, as the protocol has it."""
        self.advertise()
        self.share()
        return self

    def whole(self) -> Session:
        """Play one step as the protocol has it, as far as sites let it, and take what comes of it."""
        self.setup()
        self.mask()
        self.finish()
        self.loot()
        return self

    def fewest(self) -> Session:
        """The same, with as few honest sites in the sum as the session's threshold allows."""
        self.setup()
        self.mask()
        here = [name for name in self.honest if (0, name) in self.taken.words]
        self.finish(alive=(*here[: max(1, self.parameters.threshold - len(self.puppets))], *self.puppets))
        self.loot()
        return self

    def send(self, round_: str, name: str, data: bytes) -> bytes | None:
        """Carry a message to a site, or to a puppet."""
        if name in self.puppets:
            with suppress(ProtocolError):  # too few have answered for a puppet to go on
                return self.puppets[name].handle(data)
            return None
        self.before(round_, name)
        found = self.world.carry(name, self.name, data)
        self._keep(round_, name, data, found)
        return found

    def _open(self, name: str, step: int, data: bytes, request: Request | None) -> bytes | None:
        """Ask for a vector."""
        if name in self.puppets:
            with suppress(ProtocolError):
                return self._puppeteer(name, step, data)
            return None
        if request is None:
            return self.send("mask", name, data)
        self.before("mask", name)
        found = self.world.ask(name, request, data)
        if found is None:  # it may have been paid for by now, and still wait for the message
            found = self.world.carry(name, self.name, data)
        self._keep("mask", name, data, found)
        return found

    def _puppeteer(self, name: str, step: int, data: bytes) -> bytes:
        """Let a puppet answer with zeros; the first time it opens, and keeps, its shares of all steps."""
        machine, zeros = self.puppets[name], np.zeros(self.parameters.length, np.int64)
        if machine._setup is None:
            machine.begin(0, zeros)
            found = machine.handle(self.delivery(name, 0, self.told[name]))
            for number, held in machine._held.items():
                for each in range(self.parameters.steps):
                    seed, key = held.at(each)
                    self.taken.add(each, self.roster.names[number], machine.number + 1, seed=seed, key=key)
            if step == 0:
                return found
            data = self.begin_message(name, step)
        machine.begin(step, zeros)
        return machine.handle(data)

    def _keep(self, round_: str, name: str, data: bytes, answer: bytes | None) -> None:
        self.sent.append((round_, name, data))
        if answer is not None:
            self.got[round_, name] = answer

    def _said(self, data: bytes | None) -> m.FromSite | None:
        return None if data is None else self.read(data)
