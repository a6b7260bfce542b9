"""Carries messages between machines in one process, with a hook that may tamper with them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cape.core.errors import InvalidInput, ProtocolError
from cape.secagg.aggregator import Aggregator
from cape.secagg.events import Event, Finished, Send
from cape.secagg.messages import ROUNDS, SETUP_ROUNDS, STEP_ROUNDS
from cape.secagg.observer import Observer
from cape.secagg.site import Site
from cape.secagg.traffic import AGGREGATOR, Hook, Outcome, Progress, Setup, Traffic, Wire

__all__ = ["Driver", "drive", "only", "silent_from"]

Vectors = Mapping[str, NDArray[np.int64]]
Drop = Mapping[str, Iterable[str]]
Refusals = list[tuple[str, str]]


def drive(
    sites: Mapping[str, Site],
    aggregator: Aggregator,
    vectors: Vectors,
    *,
    drop: Drop | None = None,
    hook: Hook | None = None,
    progress: Progress | None = None,
    observer: Observer | None = None,
) -> Outcome:
    """Run the setup and one step. The arguments are those of `simulate`."""
    silent_from(drop or {}, sites, ROUNDS)
    driver = Driver(sites, aggregator, hook=hook, progress=progress, observer=observer)
    setup = driver.set_up(only(drop, SETUP_ROUNDS))
    return setup.with_step(driver.step(0, vectors, only(drop, STEP_ROUNDS)))


class Driver:
    """Runs the setup once, then step after step. `hook`, `progress` and `observer`: see `simulate`.

    Without a hook one message is in transit at a time: a masked vector is added and freed before the next.
    """

    def __init__(
        self,
        sites: Mapping[str, Site],
        aggregator: Aggregator,
        *,
        hook: Hook | None = None,
        progress: Progress | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._sites = sites
        self._aggregator = aggregator
        self._hook = hook
        self._progress = progress
        self._observer = observer or Observer()
        self._observer.began(sites, aggregator)
        self._earlier: tuple[tuple[str, str], ...] = ()  # refusals in the setup

    def set_up(self, drop: Drop | None = None) -> Setup:
        """Run the rounds in which keys are agreed and secrets shared; `drop` names those rounds."""
        began = time.perf_counter()
        silent = silent_from(drop or {}, self._sites, SETUP_ROUNDS)
        traffic: dict[str, Traffic] = {}
        refusals: Refusals = []
        events: Sequence[Event] = [Send(name, b"") for name in self._sites]  # started, not asked
        for round_ in SETUP_ROUNDS:
            count = traffic[round_] = Traffic()
            events = self._round(round_, events, silent, count, refusals)
        self._earlier = tuple(refusals)
        return Setup(self._aggregator.sharers, traffic, self._earlier, time.perf_counter() - began)

    def step(self, step: int, vectors: Vectors, drop: Drop | None = None) -> Outcome:
        """Run one step. A site without a vector is silent in it; `drop` names rounds of a step."""
        began = time.perf_counter()
        silent = silent_from(drop or {}, self._sites, STEP_ROUNDS)
        first = ROUNDS.index(STEP_ROUNDS[0])
        silent |= {name: first for name in self._sites if name not in vectors}
        traffic: dict[str, Traffic] = {}
        refusals: Refusals = []
        for name in self._aggregator.sharers:
            if silent.get(name, len(ROUNDS)) > first:
                self._sites[name].begin(step, vectors[name])
        events: Sequence[Event] = self._aggregator.begin(step)
        for round_ in STEP_ROUNDS:
            count = traffic[round_] = Traffic()
            events = self._round(round_, events, silent, count, refusals)
        finished = next(event for event in events if isinstance(event, Finished))
        return Outcome(
            total=finished.total,
            survivors=finished.survivors,
            parameters=self._aggregator.parameters,
            traffic=traffic,
            refusals=tuple(refusals),
            seconds=time.perf_counter() - began,
            late=finished.late,
        )

    def _round(
        self,
        round_: str,
        before: Sequence[Event],
        silent: Mapping[str, int],
        count: Traffic,
        refusals: Refusals,
    ) -> list[Event]:
        """Deliver the aggregator's messages of a round and the answers; return its next events."""
        number, hook = ROUNDS.index(round_), self._hook
        down = [Wire(round_, AGGREGATOR, send.to, send.data) for send in before if isinstance(send, Send)]
        if number and hook:
            down = list(hook(down))
        down = [wire for wire in down if number < silent.get(wire.receiver, len(ROUNDS))]
        up: Iterable[Wire] = self._answers(down, count, refusals)
        if hook:
            up = hook(list(up))
        events: list[Event] = []
        for done, wire in enumerate(up, 1):
            # A hook may send a message in either direction at any time.
            late = [wire] if wire.receiver == AGGREGATOR else self._answers([wire], count, refusals)
            for message in late:
                count.add(message)
                events += self._take_in(message, refusals)
            if self._progress:
                self._progress(round_, done, len(down))
        if not events:  # the round did not close: sites that have not answered are gone
            try:
                events += self._aggregator.gone(self._aggregator.waiting)
            except ProtocolError as error:
                raise self._annotated(error, refusals) from None
        return events

    def _answers(self, down: list[Wire], count: Traffic, refusals: Refusals) -> Iterator[Wire]:
        for wire in down:
            if wire.receiver == AGGREGATOR:
                yield wire
                continue
            count.add(wire)
            self._observer.carried(wire)
            site = self._sites[wire.receiver]
            try:
                data = site.start() if wire.round == ROUNDS[0] else site.handle(wire.data)
            except ProtocolError as error:
                refusals.append((wire.receiver, str(error)))
            else:
                yield Wire(wire.round, wire.receiver, AGGREGATOR, data)

    def _take_in(self, wire: Wire, refusals: Refusals) -> tuple[Event, ...]:
        state = self._aggregator.state
        self._observer.carried(wire)
        try:
            return self._aggregator.handle(wire.data)
        except ProtocolError as error:
            if self._aggregator.state is not state:  # not just a refusal: the step or the run has failed
                raise self._annotated(error, refusals) from None
            refusals.append(("aggregator", str(error)))
            return ()

    def _annotated(self, error: ProtocolError, refusals: Refusals) -> ProtocolError:
        for who, why in [*self._earlier, *refusals][:5]:
            error.add_note(f"{who} refused a message: {why}")
        return error


def silent_from(drop: Drop, sites: Iterable[str], rounds: Sequence[str]) -> dict[str, int]:
    """Return the number of the round from which each dropping site is silent."""
    names, silent = set(sites), dict[str, int]()
    for round_, gone in drop.items():
        if round_ not in rounds:
            raise InvalidInput(f"drop must name rounds out of {', '.join(rounds)}, not {round_!r}")
        for name in gone:
            if name not in names:
                raise InvalidInput(f"drop names {name!r}, which is not a site")
            silent[name] = min(ROUNDS.index(round_), silent.get(name, len(ROUNDS)))
    return silent


def only(drop: Drop | None, rounds: Sequence[str]) -> Drop:
    """Return the part of `drop` that concerns these rounds."""
    return {round_: names for round_, names in (drop or {}).items() if round_ in rounds}
