"""What a run of secure aggregation in one process shows to somebody who watches it.

Every method does nothing unless it is overridden, and what it returns is not used: to watch changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cape.secagg.traffic import Wire

if TYPE_CHECKING:
    from cape.secagg.aggregator import Aggregator
    from cape.secagg.site import Site

__all__ = ["Observer"]


class Observer:
    """Watches the machines of a run, and the messages between them."""

    def began(self, sites: Mapping[str, Site], aggregator: Aggregator) -> None:
        """These machines are about to play a run."""

    def carried(self, wire: Wire) -> None:
        """This message is about to arrive."""
