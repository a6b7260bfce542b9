"""Who takes part in a release, what they are given, and what comes out: plain data for every scheme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape import check
from cape.engine.observer import Observer
from cape.errors import InvalidInput
from cape.noise import Ring, SecureStream

__all__ = [
    "ROUNDS",
    "SECAGG_ROUNDS",
    "SETUP_ROUNDS",
    "Cost",
    "Int64",
    "Outcome",
    "Parties",
    "Task",
    "check_drop",
]

Int64 = NDArray[np.int64]

SETUP_ROUNDS = ("advertise", "share")
SECAGG_ROUNDS = (*SETUP_ROUNDS, "mask", "consistency", "unmask")
ROUNDS = (*SECAGG_ROUNDS, "message")


@dataclass(frozen=True)
class Parties:
    """Who takes part: how many sites, how many may collude, how many must survive."""

    sites: int
    colluding: int
    min_sites: int

    def __post_init__(self) -> None:
        sites = check.integer("sites", self.sites, least=1)
        colluding = check.integer("colluding", self.colluding, least=0, most=sites - 1)
        needed = check.integer("min_sites", self.min_sites, least=1)
        if needed > sites:
            raise InvalidInput(f"min_sites is {needed}, but there are only {sites} sites")
        if needed <= colluding:
            raise InvalidInput(f"min_sites ({needed}) must be above colluding ({colluding})")

    @property
    def honest(self) -> int:
        """The smallest number of honest survivors: what noise is calibrated to."""
        return self.min_sites - self.colluding

    @property
    def lying(self) -> bool:
        """Whether an aggregator that departs from the protocol is held off too: 2 t > sites + colluding."""
        return 2 * self.threshold > self.sites + self.colluding

    @property
    def threshold(self) -> int:
        """How many sites must answer in secure aggregation."""
        return max(2, self.min_sites)


@dataclass(frozen=True)
class Task:
    """One release as the parties run it.

    Attributes:
        vectors: what each site contributes, in steps: its sums, and its own noise where the scheme has some.
        rows: how many rows each site holds, as everyone may know it.
        parties: who may collude or be lost.
        local_std: a site's own noise per unit of sensitivity; it is RESOLUTION steps.
        ring: where messages live; the total cannot wrap in it.
        drop: site -> the round from which on it says nothing.
        keys: the randomness of the run's keys.
        observer: watches what is sent.
    """

    vectors: Mapping[str, Int64]
    rows: Mapping[str, int]
    parties: Parties
    local_std: float
    ring: Ring
    drop: Mapping[str, str]
    keys: SecureStream
    observer: Observer = field(default_factory=Observer)


@dataclass(frozen=True)
class Cost:
    """What a release took: rounds, bytes in all, the most bytes that one site sent, seconds."""

    rounds: int
    bytes: int
    bytes_per_site: int
    seconds: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.rounds + other.rounds,
            self.bytes + other.bytes,
            self.bytes_per_site + other.bytes_per_site,
            self.seconds + other.seconds,
        )


@dataclass(frozen=True)
class Outcome:
    """The noisy total in steps, the standard deviation of its noise, whose sum it is, and what it took."""

    total: Int64
    noise: float
    participants: tuple[str, ...]
    cost: Cost


def check_drop(drop: Any, sites: Mapping[str, Any], rounds: Sequence[str] = ROUNDS) -> dict[str, str]:
    """Return which site is silent from which round on, or raise an error that names the choices."""
    if not isinstance(drop, Mapping):
        raise InvalidInput(f"drop must map sites to rounds, as in {{'a': 'mask'}}, not {drop!r}")
    for site, when in drop.items():
        if site not in sites:
            raise InvalidInput(f"drop names site {site!r}; there are {', '.join(sites)}")
        if when not in rounds:
            raise InvalidInput(f"drop of {site!r} must be at one of {', '.join(rounds)}, not {when!r}")
    return dict(drop)
