"""How noise is made: six schemes behind one interface.

Each scheme says how much noise a site adds per unit of sensitivity so that the release costs at most mu
(`local_std`), what a given noise really costs (`cost_mu`), how much of it ends up in the sum (`total_std`),
and how the sites' exact integers become one noisy total (`run`).

| scheme | noise at a site | what the aggregator sees | variance over pooled |
|---|---|---|---|
| cape | sensitivity / (mu sqrt(honest)) | the sum alone (secure aggregation) | sites / honest |
| cape-gaussian | alpha² = sites gamma² | messages with zero-sum Gaussian noise | see `correlated` |
| conventional | sensitivity / mu | messages, each private by itself | sites |
| local | sensitivity / mu, at the largest site alone | that site's message | 1, on fewer rows |
| pooled | sensitivity / mu, by a trusted curator | everything | 1 |
| none | none | everything | 0: not private |

Claim. Whichever sites are lost and when, a total over at least `min_sites` sites costs at most mu.
Reason. `correlated.local_std` is calibrated to the smallest number of honest survivors, and fewer are never
answered for: secure aggregation runs with a threshold of at least `min_sites`, below which no site unmasks.
Noise is added before a vector enters the protocol, so nothing that happens in it can take noise away.
Tested in tests/release/test_schemes.py: one contract for all, and the variance of each.
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from cape import check, secagg
from cape.errors import InvalidInput, TooFewSites
from cape.noise import Ring, SecureStream, discrete_gaussian
from cape.noise.gaussian import MAX_STD, MIN_STD
from cape.privacy import correlated
from cape.release.calibration import RESOLUTION

__all__ = ["SCHEMES", "Cost", "Outcome", "Parties", "Scheme", "Task"]

Int64 = NDArray[np.int64]

SECAGG_ROUNDS = ("advertise", "share", "mask", "consistency", "unmask")
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
        vectors: each site's exact sums, in steps.
        rows: how many rows each site holds.
        parties: who may collude or be lost.
        local_std: a site's own noise per unit of sensitivity; it is RESOLUTION steps.
        ring: where messages live; the total cannot wrap in it.
        drop: site -> the round from which on it says nothing.
        streams: each site's own randomness.
        keys: the randomness of the run's keys.
    """

    vectors: Mapping[str, Int64]
    rows: Mapping[str, int]
    parties: Parties
    local_std: float
    ring: Ring
    drop: Mapping[str, str]
    streams: Mapping[str, SecureStream]
    keys: SecureStream


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


class Scheme(ABC):
    """One way to make noise."""

    name: ClassVar[str]

    @abstractmethod
    def local_std(self, mu: float, parties: Parties) -> float | None:
        """Return a site's own noise per unit of sensitivity, for a release that costs at most mu."""

    def published_std(self, tau: float, parties: Parties) -> float | None:
        """Return the same for the paper's calibration, from its tau per unit of sensitivity."""
        return tau

    @abstractmethod
    def cost_mu(self, local_std: float, parties: Parties) -> float:
        """Return the exact mu that this noise per unit of sensitivity costs, in the worst accepted case."""

    @abstractmethod
    def total_std(self, local_std: float, parties: Parties) -> float:
        """Return the noise in the total when all sites take part, given that of a site."""

    @abstractmethod
    def run(self, task: Task) -> Outcome:
        """Return the noisy total over the sites that were left.

        Raises `TooFewSites`, whose `sent` says whether anything that depends on data had left a site.
        """

    def failure(self, parties: Parties) -> float:
        """Return the chance that what should hide a site does not, for reasons other than noise."""
        return 0.0

    def rows(self, rows: Mapping[str, int]) -> int:
        """Return how many rows the answer is about when all sites take part."""
        return sum(rows.values())

    def reach(self, parties: Parties, local_std: float) -> int:
        """Return how many sites' own noise, at its largest, bounds the noise in the total."""
        return parties.sites


class _Messages(Scheme):
    """Schemes in which each site sends one message, and the aggregator adds them up."""

    def run(self, task: Task) -> Outcome:
        began = time.perf_counter()
        left = [name for name in task.vectors if name not in task.drop]
        if len(left) < task.parties.min_sites:
            raise too_few(len(left), task.parties.min_sites, sent=bool(left))
        messages = [task.ring.encode(self.contribution(task, name, left)) for name in left]
        total = aggregate(task.ring, messages)
        size = messages[0].nbytes
        cost = Cost(1, size * len(messages), size, time.perf_counter() - began)
        return Outcome(total, self.noise(task, len(left)), tuple(left), cost)

    def contribution(self, task: Task, name: str, left: list[str]) -> Int64:
        """Return what a site sends, before it enters the ring: its sums and its own noise."""
        return add_noise(task.vectors[name], task.streams[name])

    def noise(self, task: Task, participants: int) -> float:
        """Return the noise in the total, in steps."""
        return RESOLUTION * math.sqrt(participants)


class Conventional(_Messages):
    """Every site protects its message by itself; nothing cancels."""

    name = "conventional"

    def local_std(self, mu: float, parties: Parties) -> float:
        return 1.0 / mu

    def cost_mu(self, local_std: float, parties: Parties) -> float:
        return 1.0 / local_std

    def total_std(self, local_std: float, parties: Parties) -> float:
        return local_std * math.sqrt(parties.sites)


class Local(Conventional):
    """The largest site answers alone, from its own rows."""

    name = "local"

    def run(self, task: Task) -> Outcome:
        largest = max(task.vectors, key=lambda name: (task.rows[name], name))
        drop = {site: when for site, when in task.drop.items() if site == largest}
        vectors = {largest: task.vectors[largest]}
        return super().run(replace(task, vectors=vectors, parties=Parties(1, 0, 1), drop=drop))

    def total_std(self, local_std: float, parties: Parties) -> float:
        return local_std

    def rows(self, rows: Mapping[str, int]) -> int:
        return max(rows.values())


class Pooled(Conventional):
    """A trusted curator sees the exact sums and adds noise once: what no site here would agree to."""

    name = "pooled"

    def total_std(self, local_std: float, parties: Parties) -> float:
        return local_std

    def contribution(self, task: Task, name: str, left: list[str]) -> Int64:
        exact = task.vectors[name]
        return add_noise(exact, task.streams[name]) if name == left[0] else exact

    def noise(self, task: Task, participants: int) -> float:
        return float(RESOLUTION)


class NoNoise(_Messages):
    """No noise at all: the exact answer, for comparison. It is not private."""

    name = "none"

    def local_std(self, mu: float, parties: Parties) -> None:
        return None

    def published_std(self, tau: float, parties: Parties) -> None:
        return None

    def cost_mu(self, local_std: float, parties: Parties) -> float:
        return math.inf

    def total_std(self, local_std: float, parties: Parties) -> float:
        return 0.0

    def contribution(self, task: Task, name: str, left: list[str]) -> Int64:
        return task.vectors[name]

    def noise(self, task: Task, participants: int) -> float:
        return 0.0


class Cape(Scheme):
    """Masks uniform over a ring, by secure aggregation: the aggregator learns the noisy sum alone."""

    name = "cape"

    def local_std(self, mu: float, parties: Parties) -> float:
        p = parties
        return correlated.local_std(mu, 1.0, p.sites, p.colluding, math.inf, p.min_sites)

    def published_std(self, tau: float, parties: Parties) -> float:
        return tau / math.sqrt(parties.sites)

    def cost_mu(self, local_std: float, parties: Parties) -> float:
        return correlated.mu(1.0, local_std, math.inf, parties.honest)

    def total_std(self, local_std: float, parties: Parties) -> float:
        return correlated.aggregate_std(local_std, math.inf, parties.sites)

    def failure(self, parties: Parties) -> float:
        return graph_failure(parties)

    def run(self, task: Task) -> Outcome:
        noisy = {name: add_noise(vector, task.streams[name]) for name, vector in task.vectors.items()}
        began = time.perf_counter()
        sent = False

        def watch(round_: str, done: int, due: int) -> None:
            nonlocal sent
            sent = sent or round_ == "mask"

        try:
            run = secagg.simulate(
                noisy,
                bits=task.ring.bits,
                drop=_by_round(task.drop),
                progress=watch,
                stream=task.keys,
                **secagg_choices(task.parties),
            )
        except TooFewSites as error:
            error.sent = sent
            raise
        noise = RESOLUTION * math.sqrt(len(run.survivors))
        return Outcome(run.total, noise, run.survivors, secagg_cost(run, time.perf_counter() - began))


@dataclass(frozen=True)
class _Stock:
    """Zero-sum noise not used yet: each site's, its scale in steps, for which sites, and how many drew it.

    A site lost late in the offline run has drawn noise that is in the sum, and holds none.
    """

    noise: dict[str, Int64]
    std: float
    sites: frozenset[str]
    drawn: int

    @property
    def left(self) -> int:
        return min(part.size for part in self.noise.values())


class CapeGaussian(_Messages):
    """The paper's Algorithms 1 and 2: zero-sum Gaussian noise from an offline run, then one message.

    `correlated_std` is the standard deviation of what each site draws for the zero-sum noise, per unit of
    sensitivity, or "paper" for the paper's choice, alpha² = sites gamma². With the paper's choice the noise
    has the same size in steps for every release, so `prepare` can make it for many in one run.
    """

    name = "cape-gaussian"

    def __init__(self, correlated_std: float | Literal["paper"] = "paper") -> None:
        if correlated_std != "paper":
            correlated_std = check.real("correlated_std", correlated_std, above=0.0)
        self.correlated_std = correlated_std
        self._stock: _Stock | None = None
        self._lock = threading.Lock()  # no part of the stock may be handed out twice

    def local_std(self, mu: float, parties: Parties) -> float:
        p = parties
        return correlated.local_std(mu, 1.0, p.sites, p.colluding, self.correlated_std, p.min_sites)

    def published_std(self, tau: float, parties: Parties) -> float:
        return tau / math.sqrt(parties.sites)

    def cost_mu(self, local_std: float, parties: Parties) -> float:
        alpha = local_std * math.sqrt(self._ratio(local_std, parties))
        return correlated.mu(1.0, local_std, alpha, parties.honest)

    def total_std(self, local_std: float, parties: Parties) -> float:
        return correlated.aggregate_std(local_std, 0.0, parties.sites)

    def failure(self, parties: Parties) -> float:
        return graph_failure(parties)

    def reach(self, parties: Parties, local_std: float) -> int:
        # what a site draws, and its share of the sum of them, may both be left over when sites are lost
        return math.ceil(parties.sites * (1 + 2 * math.sqrt(self._ratio(local_std, parties)) + 1))

    def prepare(self, task: Task, entries: int) -> Cost:
        """Make zero-sum noise for the next `entries` numbers, in one run without data."""
        stock, cost = self._make(task, entries)
        with self._lock:
            self._stock = stock
        return cost

    def run(self, task: Task) -> Outcome:
        size = next(iter(task.vectors.values())).size
        made = Cost(0, 0, 0, 0.0)
        stock = self._take(size, self._std(task), frozenset(task.vectors))
        if stock is None:
            stock, made = self._make(task, size)
        drop = {site: when for site, when in task.drop.items() if site in stock.noise}
        vectors = {name: task.vectors[name] + noise for name, noise in stock.noise.items()}
        outcome = super().run(replace(task, vectors=vectors, drop=drop))
        missing = stock.drawn - len(outcome.participants)
        left_over = missing * (stock.std / RESOLUTION) ** 2 / stock.drawn
        return replace(outcome, noise=outcome.noise * math.sqrt(1 + left_over), cost=made + outcome.cost)

    def _take(self, size: int, std: float, sites: frozenset[str]) -> _Stock | None:
        """Return noise for `size` numbers out of the stock, which forgets it; None if there is too little."""
        with self._lock:
            stock = self._stock
            if stock is None or stock.std != std or stock.left < size or stock.sites != sites:
                return None
            self._stock = replace(stock, noise={name: noise[size:] for name, noise in stock.noise.items()})
        return replace(stock, noise={name: noise[:size] for name, noise in stock.noise.items()})

    def _make(self, task: Task, entries: int) -> tuple[_Stock, Cost]:
        """Return new zero-sum noise: Algorithm 1, over the sites of the task that stay to its end."""
        began = time.perf_counter()
        std = self._std(task)
        if not MIN_STD <= std <= MAX_STD:
            raise InvalidInput(
                "correlated_std must be 2^-21 to 2^20 times a site's own noise; here it is "
                f"{std / RESOLUTION:.3g} times"
            )
        made = secagg.zero_sum_gaussian(
            std,
            list(task.vectors),
            entries,
            drop=_by_round(task.drop),
            stream=task.keys,
            **secagg_choices(task.parties),
        )
        noise = {name: part[0] for name, part in made.noise.items()}
        stock = _Stock(noise, std, frozenset(task.vectors), len(made.outcome.survivors))
        return stock, secagg_cost(made.outcome, time.perf_counter() - began)

    def _std(self, task: Task) -> float:
        return RESOLUTION * math.sqrt(self._ratio(task.local_std, task.parties))

    def _ratio(self, local_std: float, parties: Parties) -> float:
        """Return alpha² / gamma²."""
        if self.correlated_std == "paper":
            return float(parties.sites)
        return (float(self.correlated_std) / local_std) ** 2


SCHEMES: dict[str, type[Scheme]] = {
    kind.name: kind for kind in (Cape, CapeGaussian, Conventional, Local, Pooled, NoNoise)
}


def add_noise(vector: Int64, stream: SecureStream) -> Int64:
    """Return exact sums plus a site's own noise: fresh, on integers, from its own stream."""
    return vector + discrete_gaussian(float(RESOLUTION), vector.size, stream)


def aggregate(ring: Ring, messages: list[NDArray[Any]]) -> Int64:
    """Return the centred sum of messages in the ring."""
    total = messages[0].copy()
    for message in messages[1:]:
        ring.add(total, message)
    return ring.decode(total)


def too_few(left: int, needed: int, sent: bool) -> TooFewSites:
    """Return the error of a release that fewer sites than `min_sites` took part in."""
    error = TooFewSites(f"{left} sites were left, and min_sites asks for {needed}; there is no answer")
    error.sent = sent
    return error


def secagg_choices(parties: Parties) -> dict[str, Any]:
    """Return how secure aggregation is to be run for these parties."""
    return {
        "colluding": parties.colluding,
        "dropping": parties.sites - parties.min_sites,
        "threshold": parties.threshold,
        "lying": parties.lying,
    }


def graph_failure(parties: Parties) -> float:
    """Return the chance that the random graph of secure aggregation fails; 0 while all are neighbours."""
    if parties.sites < 2:
        return 0.0
    dropping = parties.sites - parties.min_sites
    found = secagg.automatic(
        parties.sites, parties.colluding, dropping, parties.threshold, lying=parties.lying
    )
    return float(2.0**found.log2_failure)


def secagg_cost(run: secagg.Outcome, seconds: float) -> Cost:
    """Return what a run of secure aggregation took."""
    traffic = list(run.traffic.values())
    names = {name for round_ in traffic for name in round_.sent}
    most = max(sum(round_.sent.get(name, 0) for round_ in traffic) for name in names)
    total = sum(round_.aggregator_received + round_.aggregator_sent for round_ in traffic)
    return Cost(len(traffic), total, most, seconds)


def check_drop(drop: Any, sites: Mapping[str, Any]) -> dict[str, str]:
    """Return which site is silent from which round on, or raise an error that names the choices."""
    if not isinstance(drop, Mapping):
        raise InvalidInput(f"drop must map sites to rounds, as in {{'a': 'mask'}}, not {drop!r}")
    for site, when in drop.items():
        if site not in sites:
            raise InvalidInput(f"drop names site {site!r}; there are {', '.join(sites)}")
        if when not in ROUNDS:
            raise InvalidInput(f"drop of {site!r} must be at one of {', '.join(ROUNDS)}, not {when!r}")
    return dict(drop)


def _by_round(drop: Mapping[str, str]) -> dict[str, list[str]]:
    return {
        round_: [site for site, when in drop.items() if when == round_]
        for round_ in SECAGG_ROUNDS
        if round_ in drop.values()
    }
