"""What both ends call things: topics of messages, environment variables, and the times that they wait."""

from __future__ import annotations

__all__ = ["ALIVE", "BEAT", "CALL", "COMMAND", "GONE", "IDLE", "LINK", "PATIENCE", "START"]

CALL = "cape.call"
"""The aggregator hands a site a message, and gets its answer."""
ALIVE = "cape.alive"
"""A site says that it is there."""
COMMAND = "cape"
"""The coordinator hands the aggregator a call."""
LINK = "CAPE_LINK"
"""The environment variable in which `cape join` tells its processes where the socket of the daemon is."""

BEAT = 1.0
"""Seconds between two signs of life of a site."""
GONE = 6.0
"""Seconds without one after which a site is given up for the round."""
START = 20.0
"""Seconds in which a site's process must have come up."""
PATIENCE = 900.0
"""Seconds that a site that is alive may take to answer: the time to read a large table."""
IDLE = 90.0
"""Seconds after which the aggregator ends a job whose coordinator is not heard of any more."""
