#!/usr/bin/python3
"""The image's health check: `cape-health`, with what to look at in CAPE_HEALTH.

listens PORT        a process of this container listens there (aggregator, desk)
connected PORT      a process of this container is connected to that port of another machine (link)
answers SOCKET      a process accepts connections at this Unix socket (daemon)

Python's standard library alone, so that a check costs a few hundredths of a second. It opens no connection
over the network: it reads the kernel's table.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ESTABLISHED, LISTEN = 0x01, 0x0A


def connections(tables: Path = Path("/proc/net")) -> Iterator[tuple[int, int, int]]:
    """Yield local port, remote port and state of every TCP socket here."""
    for name in ("tcp", "tcp6"):
        try:
            lines = (tables / name).read_text().splitlines()[1:]
        except FileNotFoundError:  # a machine without IPv6
            continue
        for line in lines:
            _, local, remote, state, *_ = line.split()
            yield int(local.rpartition(":")[2], 16), int(remote.rpartition(":")[2], 16), int(state, 16)


def listens(port: str) -> bool:
    """Return whether a process listens on a port."""
    return any(local == int(port) and state == LISTEN for local, _, state in connections())


def connected(port: str) -> bool:
    """Return whether a process is connected to a port."""
    return any(remote == int(port) and state == ESTABLISHED for _, remote, state in connections())


def answers(path: str) -> bool:
    """Return whether a process accepts connections at a Unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(3)
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


CHECKS: dict[str, Callable[[str], bool]] = {"listens": listens, "connected": connected, "answers": answers}


def main() -> int:
    """Return 0 if all is well, 1 if not, 2 if there is nothing to look at."""
    asked = os.environ.get("CAPE_HEALTH", "").split(maxsplit=1)
    if len(asked) != 2 or asked[0] not in CHECKS:
        print("CAPE_HEALTH must be 'listens PORT', 'connected PORT' or 'answers SOCKET'")
        return 2
    well = CHECKS[asked[0]](asked[1])
    print("ok" if well else f"nothing {asked[0]} {asked[1]}")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
