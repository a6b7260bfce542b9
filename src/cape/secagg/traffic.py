"""Messages on the wire of a run in one process, their sizes, and the outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from cape.secagg.parameters import Parameters

__all__ = ["AGGREGATOR", "Hook", "Outcome", "Progress", "Setup", "Traffic", "Wire"]

AGGREGATOR = ""  # no site may have this name

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Wire:
    """A message in transit. The aggregator's name is the empty string."""

    round: str
    sender: str
    receiver: str
    data: bytes


Hook = Callable[[list[Wire]], Iterable[Wire]]


@dataclass
class Traffic:
    """Bytes of one round: sent and received by each site, and by the aggregator in total."""

    sent: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)

    @property
    def aggregator_received(self) -> int:
        """Bytes that all sites sent."""
        return sum(self.sent.values())

    @property
    def aggregator_sent(self) -> int:
        """Bytes that all sites received."""
        return sum(self.received.values())

    def add(self, wire: Wire) -> None:
        """Count a message."""
        side, name = (self.received, wire.receiver) if wire.sender == AGGREGATOR else (self.sent, wire.sender)
        side[name] = side.get(name, 0) + len(wire.data)


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome of a run or a step: the sum over the survivors, their names, and the cost.

    `late` are the survivors whose whole surplus is still in the sum.
    """

    total: NDArray[np.int64]
    survivors: tuple[str, ...]
    parameters: Parameters
    traffic: dict[str, Traffic]
    refusals: tuple[tuple[str, str], ...]  # who refused a message, and why
    seconds: float
    late: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The cost as a table: bytes by round, of the site with most and of the aggregator."""
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


@dataclass(frozen=True)
class Setup:
    """The outcome of the setup: the sites that can take part in the steps, and the cost.

    The aggregator forwards key shares with the first step that a site answers.
    """

    sites: tuple[str, ...]
    traffic: dict[str, Traffic]
    refusals: tuple[tuple[str, str], ...]  # who refused a message, and why
    seconds: float

    def with_step(self, outcome: Outcome) -> Outcome:
        """Return the outcome of a step with the cost of the setup added."""
        return replace(
            outcome,
            traffic=self.traffic | outcome.traffic,
            refusals=self.refusals + outcome.refusals,
            seconds=self.seconds + outcome.seconds,
        )
