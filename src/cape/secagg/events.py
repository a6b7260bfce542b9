"""What the aggregator asks its driver to do, or reports: small frozen objects."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Closed", "Event", "Finished", "Send"]


@dataclass(frozen=True)
class Send:
    """Carry these bytes to this site."""

    to: str
    data: bytes


@dataclass(frozen=True)
class Closed:
    """A round is over: who answered. The others are out of the step, or, in the setup, out of the run."""

    round: str
    present: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Finished:
    """A step is over: the sum of the survivors' vectors, as signed integers.

    `late` are the survivors that did not reveal their surplus, all of which is still in the sum.
    """

    step: int
    total: NDArray[np.int64]
    survivors: tuple[str, ...]
    late: tuple[str, ...] = ()


Event = Send | Closed | Finished
