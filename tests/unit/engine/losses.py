"""Random patterns of lost sites, and the noise that is really left in each sum.

What is left is found from outside: from the surplus keys that the sites held before they masked, and the keys
that were seen on the wire. The sum itself confirms it, to the last bit.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from cape.core.errors import TooFewSites
from cape.engine.calibration import RESOLUTION
from cape.engine.contribution import add_noise
from cape.engine.observer import Observer
from cape.engine.schemes import Parties, Task
from cape.engine.schemes.cape import Cape
from cape.engine.schemes.scheme import SECAGG_ROUNDS, Outcome
from cape.noise import Ring, SecureStream
from cape.secagg import messages as m
from cape.secagg.surplus import SurplusKey
from cape.secagg.traffic import AGGREGATOR, Wire

ENTRIES = 3
_MU = 0.75  # of a release, per unit of sensitivity: any will do


@dataclass(frozen=True)
class Pattern:
    """Who takes part, and who is lost from which round on, for each step of a session."""

    parties: Parties
    drops: tuple[dict[str, str], ...]


@dataclass(frozen=True)
class Left:
    """What one sum holds, in variances over the calibrated one of a trusted curator.

    Attributes:
        honest: what no set of `colluding` sites knows, of what the sites in the sum have not taken off.
        whole: all noise in the sum.
        told: what the outcome says of it.
    """

    honest: Fraction
    whole: Fraction
    told: float


def patterns(count: int, most_sites: int, seed: int) -> list[Pattern]:
    """Return random patterns; in one of ten steps any number of sites is lost, else as many as may be.

    They come in the order of their honest sites, so that few tables of the sampler are in use at a time.
    """
    rng = random.Random(seed)
    made = [_pattern(rng, most_sites) for _ in range(count)]
    return sorted(made, key=lambda pattern: pattern.parties.sites - pattern.parties.colluding)


def _pattern(rng: random.Random, most_sites: int) -> Pattern:
    sites = rng.randint(2, most_sites)
    colluding = rng.randint(0, sites - 1)
    parties = Parties(sites, colluding, rng.randint(colluding + 1, sites))
    drops = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        most = sites if rng.random() < 0.1 else sites - parties.threshold
        gone = rng.sample(_names(parties), rng.randint(0, most))
        drops.append({name: rng.choice(SECAGG_ROUNDS) for name in gone})
    return Pattern(parties, tuple(drops))


def left(pattern: Pattern, seed: int) -> Iterator[Left | None]:
    """Run a pattern with scheme "cape" and yield what is left in each sum; None where too few were left."""
    parties, steps = pattern.parties, len(pattern.drops)
    stream = SecureStream(seed.to_bytes(32, "big"))
    watch, scheme = _Watch(), Cape()
    local_std = scheme.local_std(_MU, parties)
    if not math.isclose(local_std**2 * (parties.sites - parties.colluding), _MU**-2, rel_tol=1e-12):
        raise AssertionError("a base is not the pooled noise, divided among the honest sites")
    carrier = None
    for step, drop in enumerate(pattern.drops):
        run = stream.fork(f"step {step}")
        rng = np.random.default_rng([seed, step])
        vectors = {
            name: add_noise(rng.integers(-1000, 1000, ENTRIES), scheme.part(parties), run.fork(name))
            for name in _names(parties)
        }
        rows = dict.fromkeys(vectors, 1)
        task = Task(vectors, rows, parties, local_std, Ring(64), drop, run.fork("keys"), watch)
        carrier = carrier or (scheme.series(task, steps) if steps > 1 else scheme)
        watch.clear()
        try:
            outcome = carrier.run(task)
        except TooFewSites:
            yield None
        else:
            yield _left(outcome, task, watch)


def _left(outcome: Outcome, task: Task, watch: _Watch) -> Left:
    surplus = np.zeros(ENTRIES, np.uint64)
    variances = []
    for name in outcome.participants:
        key, level = watch.keys[name], watch.level(name)
        key.apply(surplus, 1)
        key.at(level).apply(surplus, -1)
        kept = sum((Fraction(std) ** 2 for std in key.surplus.stds[:level]), Fraction(0))
        variances.append(RESOLUTION**2 + kept)
    given = sum(task.vectors[name] for name in outcome.participants)
    if not np.array_equal(outcome.total - given, surplus.view(np.int64)):
        raise AssertionError("a sum is not its sites' vectors and the surplus that was not revealed")
    parties = task.parties
    calibrated = RESOLUTION**2 * (parties.sites - parties.colluding)
    unknown = sorted(variances)[: len(variances) - parties.colluding]  # colluders know the largest
    told = (outcome.noise / RESOLUTION) ** 2 / (parties.sites - parties.colluding)
    return Left(sum(unknown) / Fraction(calibrated), sum(variances) / Fraction(calibrated), told)


class _Watch(Observer):
    """Keeps each site's surplus key of a step, and what it reveals on the wire."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.keys: dict[str, SurplusKey] = {}
        self._revealed: dict[str, bytes] = {}

    def began(self, sites: Any, aggregator: Any) -> None:
        self._sites, self._parameters = sites, aggregator.parameters

    def carried(self, wire: Wire) -> None:
        if wire.round == "mask" and wire.sender == AGGREGATOR:
            self.keys[wire.receiver] = self._sites[wire.receiver]._surplus_key()
        if wire.round == "unmask" and wire.receiver == AGGREGATOR:
            message = m.unpack_signed(wire.data, self._parameters)
            assert isinstance(message, m.Reveal)
            self._revealed[wire.sender] = message.surplus

    def level(self, name: str) -> int:
        """Return how many parts of a site's surplus nobody else can compute."""
        key, secret = self.keys[name], self._revealed.get(name, b"")
        levels = range(len(key.surplus))
        return next((level for level in levels if key.at(level).secret == secret), len(levels))


def _names(parties: Parties) -> list[str]:
    return [f"site {number}" for number in range(parties.sites)]
