"""Masks uniform over a ring, by secure aggregation: the default scheme, and what any run of it takes.

A site's own noise is a base part, made for the case that nobody is lost, and surplus parts for the losses
that are accepted; what turns out not to be needed is taken off with the unmasking answer. The proof is in
`cape.privacy.ladder`, the keys are in `cape.secagg.surplus`. So tolerating losses costs nothing until sites
are lost.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from cape import secagg
from cape.core.errors import TooFewSites
from cape.engine.calibration import RESOLUTION, discretisation_error
from cape.engine.schemes.scheme import SECAGG_ROUNDS, SETUP_ROUNDS, Cost, Outcome, Parties, Scheme, Task
from cape.noise import Kind, LaplacePart
from cape.privacy import correlated
from cape.privacy.ladder import Ladder, ladder

__all__ = ["MOST_STEPS", "Cape", "by_round", "cape_choices", "graph_failure", "secagg_choices", "secagg_cost"]

MOST_STEPS = 1000  # for which keys are agreed at once
_FOR_ALL_LOSSES = 150  # sites: a run of 1,000 numbers with all as neighbours takes 6 s in one process


class Cape(Scheme):
    """Masks uniform over a ring, by secure aggregation: the aggregator learns the noisy sum alone."""

    name = "cape"
    rounds = SECAGG_ROUNDS
    masked = True
    keeps_keys = True
    cryptography = "AES-256, X25519 or Ed25519"

    def local_std(self, mu: float, parties: Parties) -> float:
        p = parties
        return correlated.local_std(mu, 1.0, p.sites, p.colluding, math.inf, person_sites=p.person_sites)

    def cost_mu(self, local_std: float, parties: Parties) -> float:
        return _ladder(parties).mu(float(parties.person_sites), local_std)

    def total_std(self, local_std: float, parties: Parties) -> float:
        return correlated.aggregate_std(local_std, math.inf, parties.sites)

    def shape(self, parties: Parties) -> Fraction:
        return _ladder(parties).shapes[0]

    def cost_epsilon(self, sensitivity: float, scale: float, parties: Parties) -> float:
        return _ladder(parties).epsilon(sensitivity, scale)

    def noise_in_total(self, participants: int, parties: Parties, late: int = 0) -> float:
        return self.part(parties).std * math.sqrt(_ladder(parties).left(participants, late))

    def discretisation(self, parties: Parties) -> float:
        if self.noise == "laplace":
            return 0.0
        parts = _surplus(parties).stds
        return discretisation_error(parties.sites * (1 + len(parts)), min((RESOLUTION, *parts)))

    def bears(self, parties: Parties) -> int:
        return _dropping(parties)

    def reach(self, parties: Parties, local_std: float) -> int:
        base = self.part(parties).largest
        return math.ceil(parties.sites * (base + _surplus(parties, self.noise).largest) / base)

    def failure(self, parties: Parties) -> float:
        return graph_failure(parties)

    def seen_by(self, parties: Parties) -> str:
        seen_by = super().seen_by(parties)
        if not parties.lying:
            return seen_by
        return seen_by.removesuffix(")") + "; a lying aggregator is held off too)"

    def series(self, task: Task, steps: int) -> Scheme:
        """Return what agrees on keys once for many steps."""
        return _Series(steps, self.noise)

    def run(self, task: Task) -> Outcome:
        began = time.perf_counter()
        sent = False

        def watch(round_: str, done: int, due: int) -> None:
            nonlocal sent
            sent = sent or round_ == "mask"

        try:
            run = secagg.simulate(
                task.vectors,
                bits=task.ring.bits,
                drop=by_round(task.drop),
                progress=watch,
                observer=task.observer,
                stream=task.keys,
                **cape_choices(task.parties, self.noise),
            )
        except TooFewSites as error:
            error.sent = sent
            raise
        return self._outcome(run, task.parties, secagg_cost(run, time.perf_counter() - began))

    def _outcome(self, run: secagg.Outcome, parties: Parties, cost: Cost) -> Outcome:
        noise = self.noise_in_total(len(run.survivors), parties, len(run.late))
        return Outcome(run.total, noise, run.survivors, cost, run.late)


class _Series(Cape):
    """Many tasks of one length: keys are agreed once, masks are fresh in each (see `cape.secagg.site`)."""

    def __init__(self, steps: int, noise: Kind = "gaussian") -> None:
        super().__init__(noise)
        self._steps = steps
        self._session: secagg.Session | None = None

    def run(self, task: Task) -> Outcome:
        began = time.perf_counter()
        session, cost = self._open(task)
        # Who is lost before it masks is silent in this step; the keys are agreed already.
        silent = {site for site, when in task.drop.items() if when in SETUP_ROUNDS}
        drop = {site: when for site, when in task.drop.items() if site not in silent}
        vectors = {name: vector for name, vector in task.vectors.items() if name not in silent}
        self._steps -= 1
        try:
            run = session.step(vectors, drop=by_round(drop))
        except TooFewSites as error:
            error.sent = any(drop.get(name) != "mask" for name in vectors)
            raise
        cost = cost + secagg_cost(run, time.perf_counter() - began - cost.seconds)
        return self._outcome(run, task.parties, cost)

    def _open(self, task: Task) -> tuple[secagg.Session, Cost]:
        """Return a session with a step left, and what opening it took."""
        session = self._session
        if session is not None and session.left and session.parameters.bits == task.ring.bits:
            return session, Cost(0, 0, 0, 0.0)
        began = time.perf_counter()
        length = next(iter(task.vectors.values())).size
        self._session = secagg.Session(
            list(task.vectors),
            length,
            max(1, min(self._steps, MOST_STEPS)),
            bits=task.ring.bits,
            observer=task.observer,
            stream=task.keys,
            **cape_choices(task.parties, self.noise),
        )
        return self._session, secagg_cost(self._session.setup, time.perf_counter() - began)


def _ladder(parties: Parties) -> Ladder:
    return ladder(parties.sites, parties.colluding, parties.min_sites)


@lru_cache(maxsize=1024)
def _surplus(parties: Parties, noise: Kind = "gaussian") -> secagg.Surplus:
    """Return the surplus noise of a site, in steps."""
    rungs = _ladder(parties)
    if noise == "laplace":
        parts = tuple(LaplacePart(shape, float(RESOLUTION)) for shape in rungs.shapes[1:])
        return secagg.LaplaceSurplus.of(rungs.losses, parts)
    return secagg.Surplus(rungs.losses, tuple(RESOLUTION * part for part in rungs.parts))


def cape_choices(parties: Parties, noise: Kind = "gaussian") -> dict[str, Any]:
    """Return how secure aggregation is to be run for these parties, with their surplus noise of a kind."""
    return {**secagg_choices(parties), "surplus": _surplus(parties, noise)}


def _dropping(parties: Parties) -> int:
    """Return how many lost sites the graph of masks is made for.

    All that may be lost, up to 150 sites; beyond, at most one site in 10, because each further one takes
    more neighbours. If more are lost then, there may be no sum; nothing is revealed. Where the aggregator is
    only taken to be curious, the graph hides sites as long as no more drop than it is made for: then it is
    made for all that may be lost, whatever the number of sites.
    """
    lost = parties.sites - parties.min_sites
    if parties.sites <= _FOR_ALL_LOSSES or not parties.lying:
        return lost
    return min(lost, -(-parties.sites // 10))


def secagg_choices(parties: Parties) -> dict[str, Any]:
    """Return how secure aggregation is to be run for these parties, of vectors that have all their noise."""
    return {
        "colluding": parties.colluding,
        "dropping": _dropping(parties),
        "threshold": parties.threshold,
        "lying": parties.lying,
    }


def graph_failure(parties: Parties) -> float:
    """Return the chance that the random graph of secure aggregation fails; 0 while all are neighbours."""
    if parties.sites < 2:
        return 0.0
    found = secagg.automatic(
        parties.sites, parties.colluding, _dropping(parties), parties.threshold, lying=parties.lying
    )
    return float(2.0**found.log2_failure)


def secagg_cost(run: secagg.Outcome | secagg.Setup, seconds: float) -> Cost:
    """Return what a run of secure aggregation took."""
    traffic = list(run.traffic.values())
    names = {name for round_ in traffic for name in round_.sent}
    most = max((sum(round_.sent.get(name, 0) for round_ in traffic) for name in names), default=0)
    total = sum(round_.aggregator_received + round_.aggregator_sent for round_ in traffic)
    return Cost(len(traffic), total, most, seconds)


def by_round(drop: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the sites that are lost in each round of secure aggregation."""
    return {
        round_: [site for site, when in drop.items() if when == round_]
        for round_ in SECAGG_ROUNDS
        if round_ in drop.values()
    }
