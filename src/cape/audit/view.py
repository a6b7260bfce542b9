"""The adversary's view of a real run: every message, the announced sums, and all that colluding sites hold.

The audited code runs unchanged. `Watch` is its observer and sees every message on the wire, what the
aggregator computes (the masks that it removes) and what colluding sites hold (the keys of the masks that
they share). The view does not contain what honest sites keep to themselves. `Stage.exact` and `Stage.other`
are the data, which the adversary of differential privacy knows except for one row: it does not know which
of the two is true.

Timing is not part of the view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape import secagg
from cape.audit.sampled import Draw
from cape.audit.world import Remembered, rate_of
from cape.engine.calibration import Calibration
from cape.engine.contribution import exact_sums
from cape.engine.observer import Observer
from cape.engine.query import Query
from cape.engine.schemes import Outcome
from cape.noise import Ring
from cape.noise.ring import zero_sum_share
from cape.privacy.ladder import Ladder
from cape.secagg import masks, messages

__all__ = ["Stage", "Watch"]

Int64 = NDArray[np.int64]


@dataclass
class Stage:
    """One question and its answer, as the adversary sees it.

    Attributes:
        exact: each site's sums in steps, as they are in this run.
        other: the sums of the target's site in the neighbouring table, with what changes at other sites where
            a person is at several.
        total: what is released.
        seen: each site's message, without the masks that the adversary knows.
        held: what each colluding site contributed: its sums and noise.
        told: the announced sum of the noise that cancels (the paper's scheme), else None.
        drawn: each colluding site's part of that noise.
        draw: with sampling, what the target's site drew; `other` is then over the same sample.
        variance: that of each site's noise in the total, in units of the grid's, by the design.
    """

    query: Query
    calibration: Calibration
    exact: dict[str, Int64]
    other: Int64
    draw: Draw | None = None
    total: Any = None
    seen: dict[str, Any] = field(default_factory=dict)
    held: dict[str, Int64] = field(default_factory=dict)
    told: Int64 | None = None
    drawn: dict[str, Int64] = field(default_factory=dict)
    variance: dict[str, float] = field(default_factory=dict)


class Watch(Observer):
    """Keeps the view of one run after another.

    `trusted` says that whoever adds up the messages is trusted: they are not in the view. `rungs` says how
    much noise of a site is left, by the design, in a total with surplus noise.
    """

    def __init__(
        self, target: str, colluders: Iterable[str], *, trusted: bool = False, rungs: Ladder | None = None
    ) -> None:
        self.target, self.colluders, self._trusted = target, frozenset(colluders), trusted
        self._rungs = rungs
        self.stages: list[Stage] = []
        self._tables: Mapping[str, Remembered] = {}
        self._also: Mapping[str, Remembered] = {}  # the same of other sites where the person is
        self._neighbour: Remembered | None = None  # the target's table in the world that this run is not in
        self._shared = 0  # how many rows the target's table shares with it: the row at stake comes after them
        self._machines: Mapping[str, secagg.Site] = {}
        self._aggregator: secagg.Aggregator | None = None
        self._pair_keys: dict[tuple[int, int], bytes] = {}  # (colluder, peer)
        self._masked: dict[str, bytes] = {}
        self._view: dict[str, Any] = {}  # what the present stage has shown

    def start(
        self, tables: Mapping[str, Remembered], neighbours: Mapping[str, Remembered], shared: int
    ) -> None:
        """Start a new run; `neighbours` are the tables to be told from the real ones.

        The target's start with the same `shared` rows, all complete.
        """
        self._tables, self._neighbour, self._shared = tables, neighbours[self.target], shared
        self._also = {
            name: each
            for name, each in neighbours.items()
            if name != self.target and each is not tables[name]
        }
        self.stages = []

    def asked(self, query: Query, calibration: Calibration) -> None:
        """Remember what is asked."""
        self._view = {"query": query, "calibration": calibration}

    def began(self, sites: Mapping[str, secagg.Site], aggregator: secagg.Aggregator) -> None:
        """Watch other machines from now on."""
        self._machines, self._aggregator = sites, aggregator
        self._pair_keys, self._masked = {}, {}

    def carried(self, wire: secagg.Wire) -> None:
        """Keep masked vectors, and a colluding site's keys just before it masks its own vector."""
        if wire.round != "mask":
            return
        if wire.receiver in self.colluders:
            machine = self._machines[wire.receiver]
            self._pair_keys |= {(machine.number, peer): key for peer, key in machine.pair_keys().items()}
        elif wire.receiver == secagg.AGGREGATOR:
            self._masked[wire.sender] = wire.data

    def cancelling(self, noise: Mapping[str, Int64], announced: Int64, drew: Sequence[str]) -> None:
        """Keep the announced sum, and what colluders drew for it."""
        drawn = {
            name: noise[name] + zero_sum_share(announced, len(drew), list(drew).index(name))
            for name in self.colluders
        }
        self._view |= {"told": announced, "drawn": drawn}

    def sent(self, messages: Mapping[str, NDArray[Any]], ring: Ring) -> None:
        """Keep messages, unless they are for a trusted curator."""
        self._masked = {}  # those were for the noise that cancels: this stage has no masks
        if not self._trusted:
            self._view["seen"] = {name: ring.decode(message) for name, message in messages.items()}

    def released(self, outcome: Outcome) -> None:
        """Assemble the stage."""
        query, calibration = self._view["query"], self._view["calibration"]
        exact = {name: _encoded(calibration, self._tables[name].given) for name in outcome.participants}
        if rate_of(query.blocks) < 1:
            draw, other = self._draw(query, calibration)
        else:
            assert self._neighbour is not None
            draw, other = None, exact_sums(self._neighbour, query, calibration)
            for name, table in self._also.items():  # of a sum over sites, only the whole change shows
                other = other + exact_sums(table, query, calibration) - exact[name]
        self.stages.append(Stage(**self._view, exact=exact, other=other, draw=draw, total=outcome.total))
        self.unmask(self.stages[-1], outcome.participants, outcome.late)

    def unmask(self, stage: Stage, participants: Sequence[str], late: Sequence[str]) -> None:
        """Remove from masked vectors all masks that the adversary knows, and surplus noise that was given up.

        Who is `late` gave up nothing.
        """
        if self._rungs is not None:
            rungs, kept = self._rungs, self._rungs.level(self._rungs.sites - len(participants))
            levels = {name: len(rungs.losses) - 1 if name in late else kept for name in participants}
            stage.variance = {name: float(rungs.variance(level)) for name, level in levels.items()}
        for name, data in self._masked.items():
            assert self._aggregator is not None
            parameters, own = self._aggregator.parameters, self._aggregator.self_keys
            number = parameters.roster.index(name)
            message: Any = messages.unpack_signed(data, parameters)
            words = np.frombuffer(message.words, parameters.ring.dtype).copy()
            shared = {
                site if peer == number else peer: key
                for (site, peer), key in self._pair_keys.items()
                if number in (site, peer)
            }
            known = [(key, -masks.sign(number, other)) for other, key in shared.items()]
            masks.apply(words, [(own[number], -1), *known])
            if (surplus := self._aggregator.surplus_keys.get(number)) is not None:
                surplus.apply(words, -1)
            part = stage.held if name in self.colluders else stage.seen
            part[name] = parameters.ring.decode(words)
        self._masked = {}

    def _draw(self, query: Query, calibration: Calibration) -> tuple[Draw, Int64]:
        """Return what the target's site drew, and the neighbour's sums over the same sample.

        What rows add is computed by the site's own code: over the others that were drawn, and over those and
        the row at stake.
        """
        true, neighbour, shared = self._tables[self.target], self._neighbour, self._shared
        assert true.drawn is not None
        assert neighbour is not None
        others = [int(row) for row in true.drawn if row < shared]

        def sums(table: Remembered, stake: range) -> Int64:
            return _encoded(calibration, table.over((*others, *stake), query.blocks))

        taken, rest = len(true.drawn) > len(others), sums(true, range(0))
        row = sums(true, range(shared, true.rows())) - rest
        other = sums(neighbour, range(shared, neighbour.rows())) - rest
        return Draw(rate_of(query.blocks), taken, row, other), rest + taken * other


def _encoded(calibration: Calibration, sums: Iterable[tuple[Int64, ...]]) -> Int64:
    return calibration.encode(tuple(part for parts in sums for part in parts))
