"""Schemes in which each site sends one message."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from numpy.typing import NDArray

from cape.core.errors import TooFewSites
from cape.engine.schemes.scheme import Cost, Int64, Outcome, Parties, Scheme, Task
from cape.noise import Ring

__all__ = ["Conventional", "Local", "Messages", "NoNoise", "Pooled", "aggregate"]


class Messages(Scheme):
    """Schemes in which each site sends one message, and the aggregator adds them up."""

    rounds: ClassVar[tuple[str, ...]] = ("message",)

    def run(self, task: Task) -> Outcome:
        began = time.perf_counter()
        left = [name for name in task.vectors if name not in task.drop]
        if len(left) < task.parties.min_sites:
            raise too_few(len(left), task.parties.min_sites, sent=bool(left))
        messages = {name: task.ring.encode(task.vectors[name]) for name in left}
        task.observer.sent(messages, task.ring)
        total = aggregate(task.ring, list(messages.values()))
        size = messages[left[0]].nbytes
        cost = Cost(1, size * len(messages), size, time.perf_counter() - began)
        return Outcome(total, self.noise_in_total(len(left), task.parties), tuple(left), cost)


class Conventional(Messages):
    """Every site protects its message by itself; nothing cancels."""

    name = "conventional"

    def adversary(self, parties: Parties) -> str:
        return "the aggregator and all other sites together"

    def local_std(self, mu: float, parties: Parties) -> float:
        return self.moved(parties) / mu

    def cost_mu(self, local_std: float, parties: Parties) -> float:
        return self.moved(parties) / local_std

    def moved_l1(self, parties: Parties) -> int:
        q = parties.person_sites
        return min(2 * q, parties.sites) if q > 1 else 1

    def moved(self, parties: Parties) -> float:
        """Return how far one person moves all messages, in the L2 norm, if each moves by at most 1.

        One at q sites may be replaced by one at q others: then 2 q messages move, each by a row against none.
        A person at one site only is replaced there, because numbers of persons are public.
        """
        q = parties.person_sites
        return math.sqrt(min(2 * q, parties.sites) if q > 1 else 1)

    def total_std(self, local_std: float, parties: Parties) -> float:
        return local_std * math.sqrt(parties.sites)


class Local(Conventional):
    """The largest site answers alone, from its own rows."""

    name = "local"
    distributed = False

    def moved_l1(self, parties: Parties) -> int:
        return 1

    def moved(self, parties: Parties) -> float:
        return 1.0

    def noisy(self, rows: Mapping[str, int], drop: Mapping[str, str]) -> set[str]:
        return {_largest(rows)}

    def seen_by(self, parties: Parties) -> str:
        return "anyone but that site"

    def adversary(self, parties: Parties) -> str:
        return "everyone but the site that answers"

    def run(self, task: Task) -> Outcome:
        largest = _largest(task.rows)
        drop = {site: when for site, when in task.drop.items() if site == largest}
        vectors = {largest: task.vectors[largest]}
        return super().run(replace(task, vectors=vectors, parties=Parties(1, 0, 1), drop=drop))

    def total_std(self, local_std: float, parties: Parties) -> float:
        return local_std

    def noise_in_total(self, participants: int, parties: Parties, late: int = 0) -> float:
        return self.part(parties).std

    def rows(self, rows: Mapping[str, int]) -> int:
        return max(rows.values())


class Pooled(Conventional):
    """A trusted curator sees the exact sums and adds noise once: what no site here would agree to."""

    name = "pooled"
    distributed = False

    def moved_l1(self, parties: Parties) -> int:
        return parties.person_sites

    def moved(self, parties: Parties) -> float:
        return float(parties.person_sites)  # all of a person's rows move the one sum

    def total_std(self, local_std: float, parties: Parties) -> float:
        return local_std

    def noisy(self, rows: Mapping[str, int], drop: Mapping[str, str]) -> set[str]:
        return set([name for name in rows if name not in drop][:1])

    def noise_in_total(self, participants: int, parties: Parties, late: int = 0) -> float:
        return self.part(parties).std

    def seen_by(self, parties: Parties) -> str:
        return "anyone but the curator, who sees everything and is trusted"

    def adversary(self, parties: Parties) -> str:
        return "everyone but the curator, who sees everything"

    def assumptions(self, parties: Parties) -> list[str]:
        return ["The curator sees every row's contribution and is trusted by everyone."]


class NoNoise(Messages):
    """No noise at all: the exact answer, for comparison. It is not private."""

    name = "none"
    private = False

    def local_std(self, mu: float, parties: Parties) -> None:
        return None

    def cost_mu(self, local_std: float, parties: Parties) -> float:
        return math.inf

    def total_std(self, local_std: float, parties: Parties) -> float:
        return 0.0

    def noisy(self, rows: Mapping[str, int], drop: Mapping[str, str]) -> set[str]:
        return set()

    def noise_in_total(self, participants: int, parties: Parties, late: int = 0) -> float:
        return 0.0


def _largest(rows: Mapping[str, int]) -> str:
    return max(rows, key=lambda name: (rows[name], name))


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
