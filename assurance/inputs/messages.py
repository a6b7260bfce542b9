"""Messages of secure aggregation: to both machines in every state, and to decoders; whole sessions too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from assurance.attacks.noise import stays
from assurance.inputs.bend import NASTY, bend, bend_bytes, pick
from assurance.inputs.surface import Surface, WrongSum
from cape.core.errors import CapeError
from cape.noise import SecureStream
from cape.secagg import (
    Aggregator,
    Identity,
    Observer,
    Parameters,
    Roster,
    Send,
    Session,
    Site,
    Surplus,
    Wire,
)
from cape.secagg import messages as m
from cape.secagg.chain import Chain
from cape.secagg.surplus import SurplusKey

__all__ = ["Messages", "Sessions"]

NAMES = ("a", "b", "c", "d")
STEPS = 2
SECRETS = {name: np.array([48151, 62342, 7]) * 10**7 + 31 + at for at, name in enumerate(NAMES)}
SURPLUS = Surplus((0, 1), (3000.0,))  # one site may be lost
_SHOWN = tuple(str(entry) for vector in SECRETS.values() for entry in vector)
_PLAIN = [value for value in NASTY if not isinstance(value, int) or -(2**63) <= value < 2**64]


class Play:
    """All machines of a run, taken to a round of its first or second step."""

    def __init__(self, rounds: int) -> None:
        stream = SecureStream(b"messages to be bent".ljust(32, b"."))
        self.identities = {name: Identity(stream=stream.fork(f"identity {name}")) for name in NAMES}
        roster = Roster.of({name: identity.public for name, identity in self.identities.items()})
        self.parameters = Parameters.agree(
            b"a run to be bent", roster, 3, colluding=0, steps=STEPS, surplus=SURPLUS
        )
        self.sites = {
            name: Site(self.parameters, name, self.identities[name], stream=stream.fork(f"site {name}"))
            for name in NAMES
        }
        self.aggregator = Aggregator(self.parameters)
        self.down: dict[str, bytes] = {}
        self.up: dict[str, bytes] = {}
        for number in range(rounds):
            self._ask(number)
            self.up = self.answers(number)
            for name in NAMES:
                self._take(self.aggregator.handle(self.up[name]))
        self._ask(rounds)

    def answers(self, number: int) -> dict[str, bytes]:
        """Return what the sites say next."""
        if not number:
            return {name: site.start() for name, site in self.sites.items()}
        return {name: self.sites[name].handle(data) for name, data in self.down.items()}

    def _ask(self, number: int) -> None:
        if number >= 2 and (number - 2) % 3 == 0:
            step = (number - 2) // 3
            for name, site in self.sites.items():
                site.begin(step, SECRETS[name])
            self._take(self.aggregator.begin(step))

    def _take(self, events: Any) -> None:
        sends = {event.to: event.data for event in events if isinstance(event, Send)}
        self.down = sends or self.down


class Messages(Surface):
    """One bent message to a machine that waits for it. Signed again by its sender, half of the time."""

    secrets = _SHOWN
    _rounds = 2 + 3 * STEPS

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._plays: dict[tuple[int, bool], Play] = {}
        self._right: list[bytes] = []
        for number in range(self._rounds):
            play = Play(number)
            self._right += [*list(play.down.values())[:1], play.answers(number)["b"]]

    def _play(self, number: int, to_site: bool) -> tuple[Any, bytes, Play]:
        """Return the machine that waits, with the right message; made anew once it has taken one."""
        key = (number, to_site)
        if key not in self._plays:
            play = Play(number)
            play.up = {} if to_site else play.answers(number)
            self._plays[key] = play
        play = self._plays[key]
        return (play.sites["a"], play.down["a"], play) if to_site else (play.aggregator, play.up["b"], play)

    def make(self, random: np.random.Generator) -> tuple[int, bool, bytes]:
        """Return a round, to whom, and the bent message."""
        number = int(random.integers(self._rounds))
        to_site = bool(random.integers(2)) and number > 0
        _, data, play = self._play(number, to_site)
        way = random.random()
        if way < 0.4:
            return number, to_site, bend_bytes(data, random, other=pick(random, self._right))
        if way < 0.45:
            return number, to_site, pick(random, self._right)
        if way < 0.5:
            return number, to_site, random.bytes(int(random.integers(300)))
        body = msgspec.msgpack.decode(data if to_site else data[m.SIGNATURE_BYTES :])
        for _ in range(int(random.integers(1, 3))):
            body = bend(body, random, _PLAIN)
        try:
            packed = msgspec.msgpack.encode(body)
        except (OverflowError, ValueError, UnicodeEncodeError):
            packed = b"\xc0"
        if to_site:
            return number, to_site, packed
        signature = play.identities["b"].sign(m._to_sign(packed))
        return number, to_site, (signature if random.random() < 0.8 else bytes(64)) + packed

    def feed(self, given: tuple[int, bool, bytes]) -> None:
        """Give it to the machine; decoders are asked as well."""
        number, to_site, data = given
        machine, _, play = self._play(number, to_site)
        before = _standing(machine)
        try:
            if to_site:
                m.unpack(data, play.parameters)
            else:
                m.unpack_signed(data, play.parameters)
            machine.handle(data)
        finally:
            if _standing(machine) != before:  # it took it: the next input needs another machine
                del self._plays[(number, to_site)]

    def show(self, given: tuple[int, bool, bytes]) -> bytes:
        """Return the message, after a line that says where it went."""
        return f"round {given[0]} to {'site a' if given[1] else 'the aggregator'}\n".encode() + given[2]


def _standing(machine: Site | Aggregator) -> tuple[Any, ...]:
    return (machine.state, machine.waiting) if isinstance(machine, Aggregator) else (machine.state,)


class Sessions(Surface):
    """A whole session whose messages are bent, lost, repeated or swapped: the right sum, or an error.

    The sum is over the survivors' vectors and the surplus noise that must be left in it.
    """

    secrets = _SHOWN

    def make(self, random: np.random.Generator) -> tuple[int, float]:
        """Return a seed of mischief, and how much of it."""
        return int(random.integers(2**31)), float(pick(random, [0.02, 0.05, 0.2]))

    def feed(self, given: tuple[int, float]) -> None:
        """Play it."""
        seed, much = given
        random = np.random.default_rng(seed)
        stream = SecureStream(seed.to_bytes(32, "big"))
        sites = _Sites()
        session = Session(
            NAMES,
            3,
            STEPS,
            colluding=0,
            stream=stream,
            hook=_mischief(random, much),
            observer=sites,
            surplus=SURPLUS,
        )
        first: CapeError | None = None
        for step in range(STEPS):
            noise = sites.surplus(step)
            try:
                outcome = session.step(SECRETS)
            except CapeError as error:
                first = error
                continue
            late = outcome.survivors if len(outcome.survivors) < len(NAMES) else outcome.late
            right = sum(SECRETS[name] for name in outcome.survivors) + sum(noise[name] for name in late)
            if not np.array_equal(outcome.total, right):
                raise WrongSum(f"of {outcome.survivors}, with the surplus of {late}")
        if first is not None:
            raise first


class _Sites(Observer):
    """Looks up the surplus noise that sites will add in a step, from the secrets that they hold before it."""

    def began(self, sites: Mapping[str, Site], aggregator: Aggregator) -> None:
        """Remember who takes part."""
        self._sites = sites

    def surplus(self, step: int) -> dict[str, NDArray[np.int64]]:
        """Return the surplus noise of each site."""
        found = {}
        for name, site in self._sites.items():
            run, chain = site.parameters.digest(), site._chain
            ahead = Chain(chain._link, run)
            ahead.step = chain.step
            ahead.advance(step)
            key = SurplusKey(SURPLUS, run, site.number, step, 0, ahead.surplus())
            found[name] = stays(key, len(SURPLUS), site.parameters.length)
        return found


def _mischief(random: np.random.Generator, much: float) -> Callable[[list[Wire]], list[Wire]]:
    kept: list[Wire] = []

    def hook(batch: list[Wire]) -> list[Wire]:
        out = []
        for wire in batch:
            kept.append(wire)
            if random.random() >= much:
                out.append(wire)
                continue
            kind = int(random.integers(5))
            if kind == 1:
                out += [wire, wire]
            elif kind == 2:
                out.append(replace(wire, data=bend_bytes(wire.data, random)))
            elif kind == 3:
                out.append(replace(wire, data=pick(random, kept).data))
            elif kind == 4:
                out += [pick(random, kept), wire]
        if random.random() < much:
            out.reverse()
        return out

    return hook
