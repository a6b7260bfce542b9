"""The distinguishing game of differential privacy, played with the real protocol: two tables and a coin."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cape.audit.learned import features, stack
from cape.audit.likelihood import evidence
from cape.audit.view import Stage, Watch
from cape.audit.world import Remembered, Tables, asked_of, site_names, stream_of
from cape.engine.consortium import Consortium
from cape.engine.outside_bounds import counted
from cape.engine.query import Neighbours
from cape.engine.result import ReleaseGuarantee
from cape.engine.schemes import CapeGaussian
from cape.privacy import Budget, laplace
from cape.privacy.ladder import Ladder, ladder

__all__ = ["Game", "Played", "Silent", "coin", "gather", "join", "play"]

Int64 = NDArray[np.int64]
Floats = NDArray[np.float64]
Bits = NDArray[np.bool_]
Silent = Literal["", "mask", "unmask"]
Look = Callable[[list[Stage], str, bool], float]


@dataclass(frozen=True)
class Game:
    """What is played: an analysis or a study, a scheme, the parties, the budget and the tables.

    `spare` sites may be lost, and so many honest ones are silent from the round `silent` on: before they send
    ("mask"), when they should give up surplus noise ("unmask"), or never. With `forged` the coordinator of
    deployed sites (`cape.audit.deployed`) makes up the results of earlier stages.
    """

    analysis: str
    scheme: str
    tables: Tables
    budget: Budget
    colluding: int = 1
    neighbours: Neighbours = "replace-one"
    spare: int = 0
    silent: Silent = ""
    forged: bool = False

    @property
    def sites(self) -> list[str]:
        """The sites; the row at stake is at the first, and the last ones collude."""
        return site_names(1 + len(self.tables.others))

    @property
    def colluders(self) -> list[str]:
        """The sites that side with the aggregator."""
        return self.sites[len(self.sites) - self.colluding :]

    @property
    def lost(self) -> dict[str, str]:
        """The honest sites that fall silent, and in which round; that of the row at stake does not."""
        honest = self.sites[: len(self.sites) - self.colluding]
        return dict.fromkeys(honest[len(honest) - self.spare :], self.silent) if self.silent else {}

    @property
    def min_sites(self) -> int:
        """How many sites must be in a sum."""
        return len(self.sites) - self.spare

    @property
    def rungs(self) -> Ladder | None:
        """How much surplus noise is left in a total, in the scheme that has some."""
        if self.scheme != "cape":
            return None
        return ladder(len(self.sites), self.colluding, self.min_sites)


@dataclass(frozen=True)
class Played:
    """The outcome of many runs: for each its table, its likelihood ratio, and the adversary's view."""

    present: Bits
    ratios: Floats
    views: Int64 | None
    moved: float
    squares: float
    count: int
    claim_mu: float
    claim_epsilon: float
    extra: Floats | None = None
    seconds: float = 0.0

    @property
    def attained(self) -> float:
        """The mu that these two tables attain, according to the design; with Laplace noise, the epsilon."""
        return math.sqrt(self.moved)


def coin(number: int) -> bool:
    """Return which table a run has; even and odd runs each have both tables equally often."""
    return number // 2 % 2 == 1


def play(game: Game, runs: range, seed: int, look: Look | None = None, label: str = "") -> Played:
    """Play the runs with these numbers; all noise comes from a stream keyed by the seed and the run's number.

    `look` computes one more number from a view.
    """
    target, colluders = game.sites[0], game.colluders
    one, two = game.tables.sites(Remembered)
    expected = {name: table.rows() for name, table in one.items()}  # `local` asks the largest
    asked = asked_of(game.analysis)
    watch = Watch(target, colluders, trusted=game.scheme == "pooled", rungs=game.rungs)
    scheme: Any = CapeGaussian() if game.scheme == "cape-gaussian" else game.scheme
    promises: list[ReleaseGuarantee] = []

    def run(number: int, present: bool) -> list[Stage]:
        world, neighbour = (two, one) if present else (one, two)
        consortium = Consortium(
            world,
            game.tables.schema,
            game.budget,
            colluding=game.colluding,
            min_sites=game.min_sites,
            neighbours=game.neighbours,
            sizes=expected,
            scheme=scheme,
            stream=stream_of("run", seed, label, game.analysis, game.scheme, game.neighbours, number),
            observer=watch,
        )
        watch.start(world, neighbour, game.tables.shared)
        if game.scheme == "cape-gaussian" and number == runs[0]:
            consortium.prepare(sum(_numbers(game, analysis) for analysis, _ in asked) * len(runs))
        given = [
            consortium.release(analysis, share=share, drop=game.lost).guarantee for analysis, share in asked
        ]
        if not promises or given[0].mu > promises[0].mu:  # a run may need fewer stages than another
            promises[:] = given
        return watch.stages

    return gather(game, runs, run, lambda: promises, look)


def gather(
    game: Game,
    runs: range,
    run: Callable[[int, bool], list[Stage]],
    promises: Callable[[], list[ReleaseGuarantee]],
    look: Look | None = None,
) -> Played:
    """Play runs, each given its number and whether the second table is true, and keep the views."""
    target, began = game.sites[0], perf_counter()
    rows: list[tuple[bool, float, float, float, int]] = []
    views: list[Int64] = []
    extra: list[float] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few rows, much noise, and a scheme without any: all on purpose
        for number in runs:
            present = coin(number)
            stages = run(number, present)
            if look is not None:
                extra.append(look(stages, target, present))
                rows.append((present, 0.0, 0.0, 0.0, 0))
                continue
            told = evidence(game.scheme, stages, target, present)
            rows.append((present, told.ratio, told.moved, told.squares, told.count))
            views.append(features(stages, target))
    return Played(
        np.array([row[0] for row in rows]),
        np.array([row[1] for row in rows]),
        stack(views) if views else None,
        float(np.mean([row[2] for row in rows])),
        math.fsum(row[3] for row in rows),
        sum(row[4] for row in rows),
        *claimed(promises(), game.budget),
        np.array(extra) if extra else None,
        perf_counter() - began,
    )


def claimed(promises: list[ReleaseGuarantee], budget: Budget) -> tuple[float, float]:
    """Return the mu and the epsilon that are tested.

    For one release that is its guarantee, but at most the budget that pays for it. For several releases,
    and for one without a guarantee, it is the budget: separate guarantees make no claim about all releases
    together.
    """
    if budget.pure:
        epsilon = budget.epsilon if len(promises) > 1 else min(promises[0].epsilon, budget.epsilon)
        return laplace.dominating_mu(epsilon), epsilon
    if len(promises) > 1 or not math.isfinite(promises[0].mu):
        return budget.mu, budget.epsilon
    return min(promises[0].mu, budget.mu), min(promises[0].epsilon, budget.epsilon)


def _numbers(game: Game, analysis: Any) -> int:
    """Return the most numbers that one release takes: noise is prepared for them."""
    schema = game.tables.schema
    query = analysis.query(schema, game.neighbours)
    size = sum(array.size for array in query.arrays(schema))
    return int(size) * len(analysis.stages()) + 3 * len(counted(query, schema))


def join(parts: list[Played]) -> Played:
    """Return the runs of several parts as one."""
    total = sum(part.present.size for part in parts)
    return Played(
        np.concatenate([part.present for part in parts]),
        np.concatenate([part.ratios for part in parts]),
        _stacked([part.views for part in parts]),
        sum(part.moved * part.present.size for part in parts) / total,
        math.fsum(part.squares for part in parts),
        sum(part.count for part in parts),
        parts[0].claim_mu,
        parts[0].claim_epsilon,
        _joined([part.extra for part in parts]),
        sum(part.seconds for part in parts),
    )


def _stacked(parts: list[Int64 | None]) -> Int64 | None:
    there = [view for part in parts if part is not None for view in part]
    return stack(there) if there else None


def _joined(parts: list[NDArray[Any] | None]) -> NDArray[Any] | None:
    there = [part for part in parts if part is not None]
    return np.concatenate(there) if there else None
