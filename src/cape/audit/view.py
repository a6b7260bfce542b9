"""What the adversary sees of a real run: every message, the sums that are told, and all that colluders have.

The code that is audited runs as it is. `Watch` stands beside it: it passes the driver's hook, which copies
every message on the wire; it keeps what the aggregator's own machine works out (the masks that it takes off)
and what the machines of colluding sites work out (their noise, and the keys of the masks that they share).
What honest sites keep to themselves is not in the view; `Stage.exact` and `Stage.other` are the data, which
the adversary of differential privacy knows but for one row: it does not know which of the two is true.

Timing is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from cape import secagg
from cape.audit.sampled import Draw
from cape.blocks import gradient
from cape.engine.calibration import Calibration
from cape.engine.consortium import Consortium
from cape.engine.query import Query
from cape.engine.schemes import CapeGaussian
from cape.engine.schemes import messages as scheme_messages
from cape.errors import CapeError
from cape.noise import SecureStream
from cape.noise.ring import zero_sum_share
from cape.secagg import aggregator as aggregator_module
from cape.secagg import masks
from cape.secagg import messages as wire_messages
from cape.secagg import site as site_module
from cape.secagg.traffic import Wire

__all__ = ["Stage", "Watch", "encoded"]

Int64 = NDArray[np.int64]
Patch = Callable[[Any, str, Any], Any]


@dataclass
class Stage:
    """One question and its answer, as the adversary sees it.

    Attributes:
        exact: each site's sums in steps, as they are in this run.
        other: the sums of the target's site in the neighbouring table.
        total: what is released.
        seen: each site's message, with every mask taken off that the adversary knows.
        held: what each colluding site put in: its own sums and noise.
        told: the announced sum of the noise that cancels (the paper's scheme), else None.
        drawn: each colluding site's part of that noise.
        draw: where rows are sampled, what the target's site drew; `other` is then over the same sample.
    """

    query: Query
    calibration: Calibration
    exact: dict[str, Int64]
    other: Int64
    total: Any = None
    seen: dict[str, Any] = field(default_factory=dict)
    held: dict[str, Int64] = field(default_factory=dict)
    told: Int64 | None = None
    drawn: dict[str, Int64] = field(default_factory=dict)
    draw: Draw | None = None


@dataclass
class _Stock:
    """Noise that cancels, made ahead: what is announced of it and what colluders drew."""

    told: Int64
    drawn: dict[str, Int64]
    used: int = 0

    def take(self, size: int) -> tuple[Int64, dict[str, Int64]]:
        part = slice(self.used, self.used + size)
        self.used += size
        return self.told[part], {name: noise[part] for name, noise in self.drawn.items()}


class Watch:
    """Keeps the view of one run after another. Use `with watch.on():` around the runs."""

    def __init__(self, target: str, colluders: Iterable[str]) -> None:
        self.target, self.colluders = target, frozenset(colluders)
        self.neighbour: Any = None  # the target's table in the world that this run is not in
        self.shared = 0  # how many rows the target's table shares with it: the row at stake comes after them
        self.stages: list[Stage] = []
        self._samples: list[Int64] = []  # of each table, in the order in which they drew
        self._wanted: Callable[[int], Int64] | None = None  # a sample to be taken in place of a drawn one
        self._wires: list[Wire] = []
        self._self_keys: dict[int, bytes] = {}  # by number: the aggregator recovers these
        self._pair_keys: dict[tuple[int, int], bytes] = {}  # (colluder, peer)
        self._masking: Any = None  # the colluding machine that works now
        self._made: _Stock | None = None  # the noise that cancels that was made last
        self._stocks: WeakKeyDictionary[CapeGaussian, _Stock] = WeakKeyDictionary()  # and not used up yet
        self._taken: tuple[Int64, dict[str, Int64]] | None = None
        self._names: list[str] = []

    def start(self, neighbour: Any, shared: int) -> None:
        """Forget the run before; `neighbour` is the table that is not to be told from the real one.

        Both begin with the same rows, `shared` of them, all complete.
        """
        self.neighbour, self.shared, self.stages = neighbour, shared, []

    @contextmanager
    def on(self) -> Iterator[Watch]:
        """Stand beside the code."""
        with ExitStack() as patches:

            def patch(owner: Any, name: str, new: Any) -> None:
                patches.enter_context(mock.patch.object(owner, name, new))

            self._watch_sums(patch)
            self._watch_samples(patch)
            self._watch_secagg(patch)
            self._watch_machines(patch)
            self._watch_messages(patch)
            self._watch_stock(patch)
            yield self

    def _watch_sums(self, patch: Patch) -> None:
        inner = Consortium._contributions

        def contributions(
            of: Consortium, query: Query, calibration: Calibration, randomness: SecureStream
        ) -> dict[str, Int64]:
            self._samples.clear()
            vectors = inner(of, query, calibration, randomness)
            rate = min((block.rate for block in query.blocks), default=1.0)
            if rate < 1:
                draw, other = self._draw(of, query, calibration, rate, vectors[self.target])
            else:
                draw, other = None, encoded(self.neighbour, query, calibration)
            self.stages.append(Stage(query, calibration, dict(vectors), other, draw=draw))
            return vectors

        patch(Consortium, "_contributions", contributions)

    def _watch_samples(self, patch: Patch) -> None:
        real: Callable[[SecureStream, int, float], Int64] = vars(gradient)["sample"]  # or what was planted

        def sample(stream: SecureStream, rows: int, rate: float) -> Int64:
            if self._wanted is not None:
                return self._wanted(rows)
            self._samples.append(real(stream, rows, rate))
            return self._samples[-1]

        patch(gradient, "sample", sample)

    def _draw(
        self, of: Consortium, query: Query, calibration: Calibration, rate: float, exact: Int64
    ) -> tuple[Draw, Int64]:
        """Return what the target's site drew, and the neighbour's sums over the same sample.

        What rows add is computed by the site's own code: over the others that were drawn, and over those and
        the row at stake. One of the two must be what the site put in, to the last bit.
        """
        if len(self._samples) != len(of.sites):
            raise CapeError("a site did not draw a sample, or more than one")
        chosen = self._samples[list(of.sites).index(self.target)]
        others = chosen[chosen < self.shared]

        def sums(table: Any, with_the_row: bool) -> Int64:
            self._wanted = lambda rows: np.append(others, np.arange(self.shared, rows)[: int(with_the_row)])
            try:
                return encoded(table, query, calibration, SecureStream())
            finally:
                self._wanted = None

        true, taken = of.sites[self.target], bool(chosen.size > others.size)
        rest = sums(true, False)
        row, other = sums(true, True) - rest, sums(self.neighbour, True) - rest
        if not np.array_equal(exact, rest + taken * row):
            raise CapeError("what a site put in is not the sum over the rows that it drew")
        return Draw(rate, taken, row, other), rest + taken * other

    def _watch_secagg(self, patch: Patch) -> None:
        simulate, whole, made = secagg.simulate, secagg.Session, secagg.zero_sum_gaussian
        watch = self

        def simulated(vectors: Mapping[str, Int64], **how: Any) -> secagg.Outcome:
            self.clear()
            outcome = simulate(vectors, hook=self._hook, **how)
            self._keep(vectors, outcome)
            return outcome

        class Watched(whole):  # type: ignore[valid-type, misc]
            def __init__(self, *args: Any, **how: Any) -> None:
                super().__init__(*args, hook=watch._hook, **how)

            def step(self, vectors: Mapping[str, Int64], **how: Any) -> secagg.Outcome:
                watch.clear()
                outcome: secagg.Outcome = super().step(vectors, **how)
                watch._keep(vectors, outcome)
                return outcome

        def zero_sum(std: float, sites: list[str], length: int, **how: Any) -> secagg.ZeroSumNoise:
            noise = made(std, sites, length, hook=self._hook, **how)
            told, order = noise.outcome.total, list(noise.outcome.survivors)
            drawn = {
                name: noise.noise[name][0] + zero_sum_share(told, len(order), order.index(name))
                for name in self.colluders
            }
            self._made = _Stock(told, drawn)
            return noise

        patch(secagg, "simulate", simulated)
        patch(secagg, "Session", Watched)
        patch(secagg, "zero_sum_gaussian", zero_sum)

    def _watch_machines(self, patch: Patch) -> None:
        leftover = aggregator_module.Aggregator._leftover
        mask = site_module.Site._mask
        pair_key = masks.pair_key

        def left(machine: aggregator_module.Aggregator) -> Iterator[tuple[bytes, int]]:
            survivors = sorted(machine._survivors)
            for place, (key, sign) in enumerate(leftover(machine)):
                if place < len(survivors):  # the masks of sites that were lost come after
                    self._self_keys[survivors[place]] = key
                yield key, sign

        def masked(machine: site_module.Site, message: Any) -> bytes:
            self._masking = machine if machine.name in self.colluders else None
            return mask(machine, message)

        def keyed(agreed: bytes, transcript: bytes, site: int, peer: int, step: int = 0) -> bytes:
            key = pair_key(agreed, transcript, site, peer, step)
            if self._masking is not None and self._masking.number == site:
                self._pair_keys[site, peer] = key
            return key

        patch(aggregator_module.Aggregator, "_leftover", left)
        patch(site_module.Site, "_mask", masked)
        patch(masks, "pair_key", keyed)

    def _watch_messages(self, patch: Patch) -> None:
        run, add_up = scheme_messages.Messages.run, scheme_messages.aggregate

        def ran(scheme: scheme_messages.Messages, task: Any) -> Any:
            stage = self.stages[-1]
            if self._taken is not None:
                stage.told, stage.drawn = self._taken
                self._taken = None
            self._names = list(task.vectors)
            outcome = run(scheme, task)
            stage.total = outcome.total
            if scheme.name == "pooled":  # the curator is trusted: what sites tell it is not in the view
                stage.seen = {}
            return outcome

        def added(ring: Any, messages: list[Any]) -> Any:
            if messages[0].dtype.kind == "f":  # a planted bug
                self.stages[-1].seen = dict(zip(self._names, messages, strict=True))
            else:
                words = {name: ring.decode(one) for name, one in zip(self._names, messages, strict=True)}
                self.stages[-1].seen = words
            return add_up(ring, messages)

        patch(scheme_messages.Messages, "run", ran)
        patch(scheme_messages, "aggregate", added)

    def _watch_stock(self, patch: Patch) -> None:
        """Keep in step with noise that is made ahead and used piece by piece."""
        prepare, make, take = CapeGaussian.prepare, CapeGaussian._make, CapeGaussian._take

        def prepared(scheme: CapeGaussian, task: Any, entries: int) -> Any:
            cost = prepare(scheme, task, entries)
            assert self._made is not None
            self._stocks[scheme] = self._made
            return cost

        def made(scheme: CapeGaussian, task: Any, entries: int) -> Any:
            result = make(scheme, task, entries)
            assert self._made is not None
            self._taken = self._made.told, self._made.drawn
            return result

        def taken(scheme: CapeGaussian, size: int, *rest: Any) -> Any:
            found = take(scheme, size, *rest)
            if found is not None:
                self._taken = self._stocks[scheme].take(size)
            return found

        patch(CapeGaussian, "prepare", prepared)
        patch(CapeGaussian, "_make", made)
        patch(CapeGaussian, "_take", taken)

    def _hook(self, batch: list[Wire]) -> list[Wire]:
        self._wires.extend(batch)
        return batch

    def clear(self) -> None:
        """Forget messages and keys: another run of secure aggregation begins."""
        self._wires.clear()
        self._self_keys.clear()
        self._pair_keys.clear()

    def _keep(self, vectors: Mapping[str, Int64], outcome: secagg.Outcome) -> None:
        masked = {wire.sender: wire.data for wire in self._wires if wire.round == "mask" and wire.sender}
        held = {name: vectors[name] for name in self.colluders}
        self.keep(outcome.parameters, masked, held, outcome.total)

    def keep(
        self,
        parameters: secagg.Parameters,
        masked: Mapping[str, bytes],
        held: Mapping[str, Int64],
        total: Int64,
    ) -> None:
        """Write down what one run of secure aggregation showed: masked vectors, colluders' own, the total."""
        stage = self.stages[-1]
        stage.total, stage.held = total, dict(held)
        numbers = {name: number for number, name in enumerate(parameters.roster.names)}
        for sender, data in masked.items():
            if sender in self.colluders:
                continue
            message: Any = wire_messages.unpack_signed(data, parameters)
            words = np.frombuffer(message.words, parameters.ring.dtype).copy()
            number = numbers[sender]
            known = [(self._self_keys[number], -1)]
            known += [
                (key, -masks.sign(number, site))
                for (site, peer), key in self._pair_keys.items()
                if peer == number
            ]
            masks.apply(words, known)
            stage.seen[sender] = parameters.ring.decode(words)


def encoded(table: Any, query: Query, calibration: Calibration, stream: SecureStream | None = None) -> Int64:
    """Return a table's exact sums, in steps of the release's grid."""
    return calibration.encode(tuple(part for parts in table.sums(query.blocks, stream) for part in parts))
