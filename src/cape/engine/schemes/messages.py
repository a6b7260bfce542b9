"""The interface of a scheme, and those in which each site sends one message."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from numpy.typing import NDArray

from cape.engine.calibration import RESOLUTION
from cape.engine.schemes.task import Cost, Int64, Outcome, Parties, Task
from cape.errors import TooFewSites
from cape.noise import Ring, SecureStream, discrete_gaussian

__all__ = ["Conventional", "Local", "Messages", "NoNoise", "Pooled", "Scheme", "add_noise", "aggregate"]


class Scheme(ABC):
    """One way to make noise."""

    name: ClassVar[str]
    rounds: ClassVar[tuple[str, ...]]
    """In which rounds a site may be lost."""

    @abstractmethod
    def local_std(self, mu: float, parties: Parties) -> float | None:
        """Return a site's own noise per unit of sensitivity, for a release that costs at most mu."""

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

    def series(self, task: Task, steps: int) -> Scheme:
        """Return what runs `steps` tasks like this one: where keys or noise can be made once for all."""
        return self

    def failure(self, parties: Parties) -> float:
        """Return the chance that what should hide a site does not, for reasons other than noise."""
        return 0.0

    def rows(self, rows: Mapping[str, int]) -> int:
        """Return how many rows the answer is about when all sites take part."""
        return sum(rows.values())

    def reach(self, parties: Parties, local_std: float) -> int:
        """Return how many sites' own noise, at its largest, bounds the noise in the total."""
        return parties.sites


class Messages(Scheme):
    """Schemes in which each site sends one message, and the aggregator adds them up."""

    rounds: ClassVar[tuple[str, ...]] = ("message",)

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


class Conventional(Messages):
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


class NoNoise(Messages):
    """No noise at all: the exact answer, for comparison. It is not private."""

    name = "none"

    def local_std(self, mu: float, parties: Parties) -> None:
        return None

    def cost_mu(self, local_std: float, parties: Parties) -> float:
        return math.inf

    def total_std(self, local_std: float, parties: Parties) -> float:
        return 0.0

    def contribution(self, task: Task, name: str, left: list[str]) -> Int64:
        return task.vectors[name]

    def noise(self, task: Task, participants: int) -> float:
        return 0.0


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
