"""A process that plans studies for the coordinator's desk: a text comes in, its plan goes out.

    python -m cape.desk.planner

What somebody types may ask for a plan that takes hours or all memory: a histogram with a million bins. So
this process is small in both, and ends by itself if a plan takes too long.
"""

from __future__ import annotations

import resource
import signal
import sys

import msgspec

__all__ = ["PATIENCE", "main"]

PATIENCE = 15
"""Seconds that a plan may take."""

_MEMORY = 4 << 30  # bytes


def main() -> None:
    """Plan until the desk has gone."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the desk's Ctrl-C is not for this process
    from cape.core.errors import CapeError
    from cape.desk.coordinator.study import Reply, make_plan, parse

    for line in sys.stdin.buffer:
        signal.alarm(PATIENCE + 5)
        try:
            reply = Reply(make_plan(parse(msgspec.json.decode(line, type=str))))
        except CapeError as error:
            reply = Reply(problem=str(error))
        except MemoryError:
            reply = Reply(problem="this study needs too much memory to be planned here; use `cape plan`")
        signal.alarm(0)
        sys.stdout.buffer.write(msgspec.json.encode(reply) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
