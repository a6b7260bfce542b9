"""A whole run in one process: the same machines as over a network, and a hook to misbehave between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cape.errors import InvalidInput, ProtocolError
from cape.noise import SecureStream
from cape.secagg.aggregator import Aggregator
from cape.secagg.events import Event, Finished, Send
from cape.secagg.keys import KEY_BYTES, Identity, Roster, Verifier
from cape.secagg.messages import ROUNDS
from cape.secagg.parameters import RUN_BYTES, Parameters
from cape.secagg.site import Site
from cape.secagg.states import AggregatorState

__all__ = ["AGGREGATOR", "Hook", "Outcome", "Progress", "Traffic", "Wire", "drive", "gather", "simulate"]

AGGREGATOR = ""  # no site may have this name

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Wire:
    """A message under way. The aggregator's name is the empty string."""

    round: str
    sender: str
    receiver: str
    data: bytes


Hook = Callable[[list[Wire]], Iterable[Wire]]


@dataclass
class Traffic:
    """Bytes of one round: what each site sent and received, and the aggregator in total."""

    sent: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)

    @property
    def aggregator_received(self) -> int:
        """All that sites sent."""
        return sum(self.sent.values())

    @property
    def aggregator_sent(self) -> int:
        """All that sites received."""
        return sum(self.received.values())

    def add(self, wire: Wire) -> None:
        """Count a message."""
        side, name = (self.received, wire.receiver) if wire.sender == AGGREGATOR else (self.sent, wire.sender)
        side[name] = side.get(name, 0) + len(wire.data)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run gave: the sum over the survivors, who they are, and what it cost."""

    total: NDArray[np.int64]
    survivors: tuple[str, ...]
    parameters: Parameters
    traffic: dict[str, Traffic]
    refusals: tuple[tuple[str, str], ...]  # who refused a message, and why
    seconds: float

    def __str__(self) -> str:
        """What it cost, as a table: bytes by round, of the site with most and of the aggregator."""
        lines = [
            f"{len(self.survivors)} of {self.parameters.sites} sites, {self.parameters.length:,} entries, "
            f"{self.seconds:.2f} s",
            f"{'bytes':<12}{'site sent':>14}{'received':>14}{'aggregator sent':>18}{'received':>16}",
        ]
        for round_, traffic in self.traffic.items():
            sent, received = (max(side.values(), default=0) for side in (traffic.sent, traffic.received))
            lines.append(
                f"{round_:<12}{sent:>14,}{received:>14,}"
                f"{traffic.aggregator_sent:>18,}{traffic.aggregator_received:>16,}"
            )
        return "\n".join(lines)


def simulate(
    vectors: Sequence[NDArray[np.int64]] | Mapping[str, NDArray[np.int64]],
    *,
    bits: int = 64,
    colluding: int | None = None,
    dropping: int | None = None,
    lying: bool = True,
    threshold: int | None = None,
    neighbours: int | Literal["auto", "all"] = "auto",
    drop: Mapping[str, Iterable[str]] | None = None,
    hook: Hook | None = None,
    progress: Progress | None = None,
    stream: SecureStream | None = None,
) -> Outcome:
    """Add up vectors with secure aggregation, all sites and the aggregator in this process.

    Args:
        vectors: each site's integers (int64), by name, or in a row: the sites are then "0000", "0001", ...
        bits, colluding, dropping, lying, threshold, neighbours: see `Parameters.agree`.
        drop: round -> sites that say nothing from that round on. Rounds are "advertise", "share",
            "mask", "consistency" and "unmask"; {"mask": ["b"]} is b dropping after it shared.
        hook: gets all messages of a round in one direction and returns what arrives, in order: leave
            out, repeat, reorder, change, or keep and return in a later round.
        progress: called with the round, the answers so far and how many are due.
        stream: where all secrets come from; give one with a key for a run that can be repeated.

    Raises:
        TooFewSites: fewer than the threshold were left. Messages that a machine refused on the way
            are in the error's notes.
    """
    named = _named(vectors)
    stream = SecureStream(stream.bytes(KEY_BYTES) if stream else None)
    parameters, identities = gather(
        list(named),
        _length(named),
        stream,
        bits=bits,
        colluding=colluding,
        dropping=dropping,
        lying=lying,
        threshold=threshold,
        neighbours=neighbours,
    )
    verifier = Verifier(remember=True)
    sites = {
        name: Site(
            parameters,
            name,
            identities[name],
            vector,
            stream=stream.fork(f"site {name}"),
            verifier=verifier,
        )
        for name, vector in named.items()
    }
    aggregator = Aggregator(parameters, verifier=verifier)
    return drive(sites, aggregator, drop=drop, hook=hook, progress=progress)


def gather(
    names: Sequence[str], length: int, stream: SecureStream, **choices: Any
) -> tuple[Parameters, dict[str, Identity]]:
    """Return a fresh run's parameters and every site's identity, for a run in one process."""
    identities = {name: Identity(stream=stream.fork(f"identity {name}")) for name in names}
    roster = Roster.of({name: identity.public for name, identity in identities.items()})
    run = stream.fork("run").bytes(RUN_BYTES)
    return Parameters.agree(run, roster, length, **choices), identities


def drive(
    sites: Mapping[str, Site],
    aggregator: Aggregator,
    *,
    drop: Mapping[str, Iterable[str]] | None = None,
    hook: Hook | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Carry messages between machines until the sum is known. The arguments are those of `simulate`.

    Without a hook one message is under way at a time: a masked vector is added and gone before the next.
    """
    began = time.perf_counter()
    silent_from = _silent_from(drop or {}, sites)
    traffic: dict[str, Traffic] = {}
    refusals: list[tuple[str, str]] = []
    sends = [Send(name, b"") for name in sites]  # the first round is started, not asked for
    events: list[Event] = []
    for number, round_ in enumerate(ROUNDS):
        count = traffic[round_] = Traffic()
        down = [Wire(round_, AGGREGATOR, send.to, send.data) for send in sends]
        if number and hook:
            down = list(hook(down))
        down = [wire for wire in down if number < silent_from.get(wire.receiver, len(ROUNDS))]
        up: Iterable[Wire] = _answers(sites, down, count, refusals)
        if hook:
            up = hook(list(up))
        events = []
        for done, wire in enumerate(up, 1):
            # A hook may send a message in either direction at any time.
            late = [wire] if wire.receiver == AGGREGATOR else _answers(sites, [wire], count, refusals)
            for message in late:
                count.add(message)
                events += _take_in(aggregator, message, refusals)
            if progress:
                progress(round_, done, len(down))
        if not events:  # the round did not close by itself: whoever has not answered is gone
            try:
                events += aggregator.gone(aggregator.waiting)
            except ProtocolError as error:
                raise _annotated(error, refusals) from None
        sends = [event for event in events if isinstance(event, Send)]
    finished = next(event for event in events if isinstance(event, Finished))
    return Outcome(
        total=finished.total,
        survivors=finished.survivors,
        parameters=aggregator.parameters,
        traffic=traffic,
        refusals=tuple(refusals),
        seconds=time.perf_counter() - began,
    )


def _answers(
    sites: Mapping[str, Site], down: list[Wire], count: Traffic, refusals: list[tuple[str, str]]
) -> Iterator[Wire]:
    for wire in down:
        if wire.receiver == AGGREGATOR:
            yield wire
            continue
        count.add(wire)
        site = sites[wire.receiver]
        try:
            data = site.start() if wire.round == ROUNDS[0] else site.handle(wire.data)
        except ProtocolError as error:
            refusals.append((wire.receiver, str(error)))
        else:
            yield Wire(wire.round, wire.receiver, AGGREGATOR, data)


def _take_in(aggregator: Aggregator, wire: Wire, refusals: list[tuple[str, str]]) -> tuple[Event, ...]:
    try:
        return aggregator.handle(wire.data)
    except ProtocolError as error:
        if aggregator.state is AggregatorState.FAILED:
            raise _annotated(error, refusals) from None
        refusals.append(("aggregator", str(error)))
        return ()


def _annotated(error: ProtocolError, refusals: list[tuple[str, str]]) -> ProtocolError:
    for who, why in refusals[:5]:
        error.add_note(f"{who} refused a message: {why}")
    return error


def _silent_from(drop: Mapping[str, Iterable[str]], sites: Mapping[str, Site]) -> dict[str, int]:
    silent: dict[str, int] = {}
    for round_, names in drop.items():
        if round_ not in ROUNDS:
            raise InvalidInput(f"drop must name rounds out of {', '.join(ROUNDS)}, not {round_!r}")
        for name in names:
            if name not in sites:
                raise InvalidInput(f"drop names {name!r}, which is not a site")
            silent[name] = min(ROUNDS.index(round_), silent.get(name, len(ROUNDS)))
    return silent


def _named(
    vectors: Sequence[NDArray[np.int64]] | Mapping[str, NDArray[np.int64]],
) -> dict[str, NDArray[np.int64]]:
    if isinstance(vectors, Mapping):
        return dict(vectors)
    return {f"{number:04d}": vector for number, vector in enumerate(vectors)}


def _length(named: Mapping[str, NDArray[np.int64]]) -> int:
    if len(named) < 2:
        raise InvalidInput("secure aggregation needs at least 2 sites: the sum of one is its vector")
    first = next(iter(named.values()))
    if not isinstance(first, np.ndarray) or first.ndim != 1:
        raise InvalidInput("vectors must be one-dimensional arrays of int64")
    return int(first.shape[0])
