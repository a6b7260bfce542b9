"""A study sent to sites on their own machines: the coordinator and the relay. No transport."""

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
