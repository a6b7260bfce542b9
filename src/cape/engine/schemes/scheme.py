"""The interface of a scheme, and its plain data: who takes part, what they are given, and what comes out."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cape.core import check
from cape.core.errors import InvalidInput
from cape.engine.calibration import RESOLUTION, discretisation_error
from cape.engine.observer import Observer
from cape.noise import GaussianPart, Kind, LaplacePart, Part, Ring, SecureStream
from cape.privacy import correlated, laplace
from cape.secagg.threshold import smallest_threshold

__all__ = [
    "ROUNDS",
    "SECAGG_ROUNDS",
    "SETUP_ROUNDS",
    "Cost",
    "Int64",
    "Outcome",
    "Parties",
    "Scheme",
    "Task",
    "check_drop",
]

Int64 = NDArray[np.int64]

SETUP_ROUNDS = ("advertise", "share")
SECAGG_ROUNDS = (*SETUP_ROUNDS, "mask", "consistency", "unmask")
ROUNDS = (*SECAGG_ROUNDS, "message")


@dataclass(frozen=True)
class Parties:
    """Who takes part: how many sites, how many may collude, how many must survive.

    `person_sites` is at how many of them one person may appear.
    """

    sites: int
    colluding: int
    min_sites: int
    person_sites: int = 1

    def __post_init__(self) -> None:
        sites = check.integer("sites", self.sites, least=1)
        colluding = check.integer("colluding", self.colluding, least=0, most=sites - 1)
        needed = check.integer("min_sites", self.min_sites, least=1)
        if needed > sites:
            raise InvalidInput(f"min_sites is {needed}, but there are only {sites} sites")
        if needed <= colluding:
            raise InvalidInput(f"min_sites ({needed}) must be above colluding ({colluding})")
        if check.integer("sites of a person", self.person_sites, least=1) > sites:
            raise InvalidInput(
                f"a person may appear at {self.person_sites} sites, but there are only {sites}; lower sites "
                "under [person]"
            )

    @property
    def honest(self) -> int:
        """The smallest number of honest sites in a sum that is accepted."""
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
    """The noisy total in steps, the standard deviation of its noise, whose sum it is, and what it took.

    `late` are the participants whose surplus noise could not be taken off.
    """

    total: Int64
    noise: float
    participants: tuple[str, ...]
    cost: Cost
    late: tuple[str, ...] = ()


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


class Scheme(ABC):
    """One way to make noise."""

    name: ClassVar[str]
    rounds: ClassVar[tuple[str, ...]]
    """In which rounds a site may be lost."""
    private: ClassVar[bool] = True
    """Whether any noise is added."""
    masked: ClassVar[bool] = False
    """Whether contributions are masked by secure aggregation."""
    keeps_keys: ClassVar[bool] = False
    """Whether keys, or noise that cancels, are made once for many stages."""
    distributed: ClassVar[bool] = True
    """Whether several sites make the answer, without anybody who is trusted."""
    cryptography: ClassVar[str] = ""
    """What must stay unbroken; empty where nothing is masked."""
    noise: Kind = "gaussian"
    """The kind of noise that sites add."""

    def __init__(self, noise: Kind = "gaussian") -> None:
        self.noise = noise

    @abstractmethod
    def local_std(self, mu: float, parties: Parties) -> float | None:
        """Return a site's own noise per unit of sensitivity, for a release that costs at most mu.

        The sensitivity is that of one site's sums. What a person at several sites costs is counted here.
        """

    @abstractmethod
    def cost_mu(self, local_std: float, parties: Parties) -> float:
        """Return the exact mu that this noise per unit of sensitivity costs, in the worst accepted case."""

    @abstractmethod
    def total_std(self, local_std: float, parties: Parties) -> float:
        """Return the noise in the total when all sites take part, given that of a site."""

    def part(self, parties: Parties) -> Part:
        """Return the noise that a site adds to every number, before any is taken off, in steps."""
        if self.noise == "laplace":
            return LaplacePart(self.shape(parties), float(RESOLUTION))
        return GaussianPart(float(RESOLUTION))

    def shape(self, parties: Parties) -> Fraction:
        """Return the shape of a site's own Laplace noise: 1 where it protects by itself."""
        return Fraction(1)

    def moved_l1(self, parties: Parties) -> int:
        """Return how many times a site's L1 sensitivity one person moves what is seen."""
        return parties.person_sites

    def cost_epsilon(self, sensitivity: float, scale: float, parties: Parties) -> float:
        """Return the exact epsilon of Laplace noise of this scale, in the worst accepted case.

        `sensitivity` is that of all that is seen, in the L1 norm.
        """
        return laplace.epsilon(sensitivity, scale, self.shape(parties))

    @abstractmethod
    def run(self, task: Task) -> Outcome:
        """Return the noisy total over the sites that were left.

        Raises `TooFewSites`, whose `sent` says whether anything that depends on data had left a site.
        """

    def parties(self, sites: int, colluding: int | None = None, min_sites: int | None = None) -> Parties:
        """Return who takes part, with the defaults for what is not given."""
        sites = check.integer("sites", sites, least=1)
        self.require_sites(sites)
        if colluding is None:
            colluding = correlated.default_colluding(sites)
        colluding = check.integer("colluding", colluding, least=0, most=sites - 1)
        needed = self.default_min_sites(sites, colluding) if min_sites is None else min_sites
        return Parties(sites, colluding, needed)

    def require_sites(self, sites: int) -> None:
        """Raise an error if so few sites cannot run this scheme."""
        if self.cryptography and sites < 2:
            raise InvalidInput(
                f"scheme {self.name!r} needs at least two sites, because the sum over one site is that "
                "site's own; add a site, or answer from one site's rows with scheme 'pooled'"
            )

    def default_min_sites(self, sites: int, colluding: int) -> int:
        """Return how many sites must take part if nobody says: the fewest that hold off a lying aggregator.

        That is floor((sites + colluding)/2) + 1; `smallest_threshold` says why.
        """
        return smallest_threshold(sites, colluding) if sites > 1 else 1

    def noisy(self, rows: Mapping[str, int], drop: Mapping[str, str]) -> set[str]:
        """Return the sites that add noise of their own, of those that hold so many rows."""
        return set(rows)

    def noise_in_total(self, participants: int, parties: Parties, late: int = 0) -> float:
        """Return the standard deviation, in steps, of the noise in a total over so many sites.

        `late` of them were silent when surplus noise was taken off, in schemes that do that.
        """
        return self.part(parties).std * math.sqrt(participants)

    def bears(self, parties: Parties) -> int:
        """Return how many lost sites a release survives, but for a chance that is counted elsewhere."""
        return parties.sites - parties.min_sites

    def growth(self, lost: int, parties: Parties, local_std: float) -> float:
        """Return how many times as large the noise in a total is with so many sites lost as with nobody lost.

        They are lost before they send anything that depends on data. Where noise must cancel that is the
        worst time; where surplus noise is taken off, a site that is lost later leaves more.
        """
        everyone = self.noise_in_total(parties.sites, parties)
        return self.noise_in_total(parties.sites - lost, parties) / everyone if everyone else 1.0

    def seen_by(self, parties: Parties) -> str:
        """Return whose view the guarantee is about, for its statement."""
        if not parties.colluding:
            return "the aggregator alone (if it follows the protocol)"
        sites = f"{parties.colluding} of the {parties.sites} sites"
        return f"the aggregator and {sites} (if they follow the protocol)"

    def adversary(self, parties: Parties) -> str:
        """Return whom the guarantee holds against, in a report's words."""
        if parties.colluding:
            return f"the aggregator and {parties.colluding} of the {parties.sites} sites together"
        return "the aggregator and every reader, but not against sites that collude with the aggregator"

    def assumptions(self, parties: Parties) -> list[str]:
        """Return what the guarantee assumes besides noise, one sentence each."""
        if not self.cryptography:
            return []
        return [
            f"The parties follow the protocol; at most {parties.colluding} of the {parties.sites} sites "
            "collude with the aggregator.",
            f"Nobody can break {self.cryptography}: secure aggregation rests on them.",
            f"At least {parties.min_sites} of {parties.sites} sites answer; with fewer there is no answer.",
        ]

    def series(self, task: Task, steps: int) -> Scheme:
        """Return what runs `steps` tasks like this one: where keys or noise can be made once for all."""
        return self

    def discretisation(self, parties: Parties) -> float:
        """Return what using discrete in place of continuous noise adds to delta: nothing to Laplace noise."""
        return discretisation_error(parties.honest) if self.noise == "gaussian" else 0.0

    def failure(self, parties: Parties) -> float:
        """Return the chance that what should hide a site does not, for reasons other than noise."""
        return 0.0

    def rows(self, rows: Mapping[str, int]) -> int:
        """Return how many rows the answer is about when all sites take part."""
        return sum(rows.values())

    def reach(self, parties: Parties, local_std: float) -> int:
        """Return how many sites' own noise, at its largest, bounds the noise in the total."""
        return parties.sites
