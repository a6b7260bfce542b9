"""The paper's Algorithms 1 and 2: zero-sum Gaussian noise made beforehand, then one message a site."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, replace
from typing import Literal

from cape import secagg
from cape.core import check
from cape.core.errors import InvalidInput
from cape.engine.calibration import RESOLUTION
from cape.engine.schemes.cape import by_round, graph_failure, secagg_choices, secagg_cost
from cape.engine.schemes.messages import Messages
from cape.engine.schemes.scheme import ROUNDS, Cost, Int64, Outcome, Parties, Task
from cape.noise import Kind
from cape.noise.gaussian import MAX_STD, MIN_STD
from cape.privacy import correlated

__all__ = ["CapeGaussian"]

_MOST_AHEAD = 1 << 22  # numbers of a site that are made at once: 32 MB


@dataclass(frozen=True)
class _Stock:
    """Zero-sum noise not used yet: each site's, the sum that was announced of what `drew` drew, and its scale
    in steps, for which sites.

    A site lost late in the offline run has drawn noise that is in the sum, and holds none.
    """

    noise: dict[str, Int64]
    announced: Int64
    drew: tuple[str, ...]
    std: float
    sites: frozenset[str]

    @property
    def left(self) -> int:
        return self.announced.size

    def part(self, start: int, stop: int) -> _Stock:
        noise = {name: noise[start:stop] for name, noise in self.noise.items()}
        return replace(self, noise=noise, announced=self.announced[start:stop])


class CapeGaussian(Messages):
    """The paper's Algorithms 1 and 2: zero-sum Gaussian noise from an offline run, then one message.

    `correlated_std` is the standard deviation of what each site draws for the zero-sum noise, per unit of
    sensitivity, or "paper" for the paper's choice, alpha² = sites gamma². With the paper's choice the noise
    has the same size in steps for every release, so `prepare` can make it for many in one run.

    A site's own noise is made for the worst loss that is accepted, and none of it is taken off again: a lower
    min_sites costs noise even if nobody is lost, so by default all sites must take part.
    """

    name = "cape-gaussian"
    rounds = ROUNDS
    keeps_keys = True
    cryptography = "AES-256, X25519 or Ed25519"

    def __init__(self, correlated_std: float | Literal["paper"] = "paper", noise: Kind = "gaussian") -> None:
        if noise != "gaussian":
            raise InvalidInput(
                'scheme "cape-gaussian" makes Gaussian noise, which needs a delta such as 1e-6; use scheme '
                '"cape" for Laplace noise'
            )
        if correlated_std != "paper":
            correlated_std = check.real("correlated_std", correlated_std, above=0.0)
        self.correlated_std = correlated_std
        self._stock: _Stock | None = None
        self._ahead = 0  # how many numbers' noise to make when the stock is used up; 0 for what is asked
        self._lock = threading.Lock()  # no part of the stock may be handed out twice

    def local_std(self, mu: float, parties: Parties) -> float:
        p = parties
        noise = self.correlated_std
        return correlated.local_std(
            mu, 1.0, p.sites, p.colluding, noise, p.min_sites, person_sites=p.person_sites
        )

    def cost_mu(self, local_std: float, parties: Parties) -> float:
        alpha = local_std * math.sqrt(self._ratio(local_std, parties))
        sites = max(parties.honest, parties.person_sites)
        return correlated.mu(1.0, local_std, alpha, sites, person_sites=parties.person_sites)

    def total_std(self, local_std: float, parties: Parties) -> float:
        return correlated.aggregate_std(local_std, 0.0, parties.sites)

    def default_min_sites(self, sites: int, colluding: int) -> int:
        return sites

    def growth(self, lost: int, parties: Parties, local_std: float) -> float:
        return super().growth(lost, parties, local_std) * math.sqrt(
            1 + _left_over(lost, parties.sites, self._ratio(local_std, parties))
        )

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

    def series(self, task: Task, steps: int) -> CapeGaussian:
        """Return a scheme of its own that makes the noise of all steps, or of many, in one run."""
        size = next(iter(task.vectors.values())).size
        if self._stock is not None and self._stock.left >= steps * size:
            return self
        ahead = CapeGaussian(self.correlated_std)
        ahead._ahead = size * max(1, min(steps, _MOST_AHEAD // size))
        return ahead

    def run(self, task: Task) -> Outcome:
        size = next(iter(task.vectors.values())).size
        made = Cost(0, 0, 0, 0.0)
        std, sites = self._std(task), frozenset(task.vectors)
        stock = self._take(size, std, sites)
        if stock is None and self._ahead:  # everyone makes noise; who is lost now may be back later
            made = self.prepare(replace(task, drop={}), self._ahead)
            stock = self._take(size, std, sites)
        if stock is None:
            stock, made = self._make(task, size)
        task.observer.cancelling(stock.noise, stock.announced, stock.drew)
        drop = {site: when for site, when in task.drop.items() if site in stock.noise}
        vectors = {name: task.vectors[name] + noise for name, noise in stock.noise.items()}
        outcome = super().run(replace(task, vectors=vectors, drop=drop))
        missing = len(stock.drew) - len(outcome.participants)
        left_over = _left_over(missing, len(stock.drew), (stock.std / RESOLUTION) ** 2)
        return replace(outcome, noise=outcome.noise * math.sqrt(1 + left_over), cost=made + outcome.cost)

    def _take(self, size: int, std: float, sites: frozenset[str]) -> _Stock | None:
        """Return noise for `size` numbers out of the stock, which forgets it; None if there is too little."""
        with self._lock:
            stock = self._stock
            if stock is None or stock.std != std or stock.left < size or stock.sites != sites:
                return None
            self._stock = stock.part(size, stock.left)
        return stock.part(0, size)

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
            drop=by_round(task.drop),
            observer=task.observer,
            stream=task.keys,
            **secagg_choices(task.parties),
        )
        noise = {name: part[0] for name, part in made.noise.items()}
        stock = _Stock(noise, made.outcome.total, made.outcome.survivors, std, frozenset(task.vectors))
        return stock, secagg_cost(made.outcome, time.perf_counter() - began)

    def _std(self, task: Task) -> float:
        return RESOLUTION * math.sqrt(self._ratio(task.local_std, task.parties))

    def _ratio(self, local_std: float, parties: Parties) -> float:
        """Return alpha² / gamma²."""
        if self.correlated_std == "paper":
            return float(parties.sites)
        return (float(self.correlated_std) / local_std) ** 2


def _left_over(missing: int, drew: int, ratio: float) -> float:
    """Return the variance of zero-sum noise that does not cancel, over that of the senders' own noise.

    Of the sites that drew it, so many sent no message; `ratio` is alpha² / gamma².
    """
    return missing * ratio / drew
