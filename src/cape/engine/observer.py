"""What a run shows to somebody who watches it, without a change to what it does.

An audit passes an `Observer` of its own to a consortium. Every method does nothing unless it is overridden,
and what it returns is not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cape.engine.calibration import Calibration
    from cape.engine.query import Query
    from cape.engine.schemes.task import Outcome

__all__ = ["Observer"]


class Observer:
    """Watches the stages of a run in one process."""

    def asked(self, query: Query, calibration: Calibration) -> None:
        """Sites are about to be asked for these sums, on this grid."""

    def released(self, outcome: Outcome) -> None:
        """A stage gave this total."""
