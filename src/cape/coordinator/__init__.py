"""The coordinator, who submits studies, and the aggregator, which adds up: submissions and their record, the
coordinator's folder and key, the ledger heads that sites sent with answers, and the relay of messages.

Not here: transport, processes and their restarts (`flare`), and the protocol by which sums stay hidden
(`secagg`).
"""

from cape.coordinator.calls import Channel, Event, Link, StageOutcome
from cape.coordinator.folder import CoordinatorFolder
from cape.coordinator.record import Record
from cape.coordinator.relay import Relay
from cape.coordinator.site_report import SiteReport
from cape.coordinator.submission import Submission

__all__ = [
    "Channel",
    "CoordinatorFolder",
    "Event",
    "Link",
    "Record",
    "Relay",
    "SiteReport",
    "StageOutcome",
    "Submission",
]
