"""What a run shows to somebody who watches it, without a change to what it does.

An audit passes an `Observer` of its own to a consortium. Every method does nothing unless it is overridden,
and what it returns is not used. What secure aggregation shows is in `cape.secagg.observer`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cape import secagg
from cape.noise import Ring

if TYPE_CHECKING:
    from cape.engine.calibration import Calibration
    from cape.engine.query import Query
    from cape.engine.schemes.scheme import Outcome

__all__ = ["Observer"]


class Observer(secagg.Observer):
    """Watches the stages of a run in one process."""

    def asked(self, query: Query, calibration: Calibration) -> None:
        """Sites are about to be asked for these sums, on this grid."""

    def cancelling(
        self, noise: Mapping[str, NDArray[np.int64]], announced: NDArray[np.int64], drew: Sequence[str]
    ) -> None:
        """Sites add this zero-sum noise in this stage: of what those who drew it drew, this sum was told."""

    def sent(self, messages: Mapping[str, NDArray[Any]], ring: Ring) -> None:
        """Each site sent this message, as words of the ring, to whoever adds them up."""

    def released(self, outcome: Outcome) -> None:
        """A stage gave this total."""
