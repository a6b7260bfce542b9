"""Names and times that both ends share: topics of messages, an environment variable, timeouts."""

from __future__ import annotations

__all__ = ["ALIVE", "BEAT", "CALL", "COMMAND", "GONE", "IDLE", "LINK", "PATIENCE", "START"]

CALL = "cape.call"
"""The aggregator sends a site a message and gets its answer."""
ALIVE = "cape.alive"
"""A site's heartbeat."""
COMMAND = "cape"
"""The coordinator sends the aggregator a call."""
LINK = "CAPE_LINK"
"""The environment variable with the path of the daemon's socket, which `cape join` sets."""

BEAT = 1.0
"""Seconds between two heartbeats of a site."""
GONE = 6.0
"""Seconds without one after which a site counts as gone for the protocol round."""
START = 20.0
"""Seconds in which a site's process must come up."""
PATIENCE = 900.0
"""Seconds that a living site may take to answer: the time to read a large table."""
IDLE = 90.0
"""Seconds after which the aggregator ends a job whose coordinator has stopped polling."""
