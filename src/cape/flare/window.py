"""What `cape join` prints while it is connected: what became of the studies that it carries.

The daemon says no more about them than the answers that this link has carried (`cape.site.traffic`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cape.core.errors import CapeError
from cape.core.unix import Client
from cape.site import wire

__all__ = ["watching"]

_OFTEN = 2.0  # seconds between two questions
_PATIENCE = 10.0  # seconds for the daemon to answer
Say = Callable[[str], None]


@contextmanager
def watching(link: Path, say: Say) -> Iterator[None]:
    """Say what happens to studies, one line each, until the end."""
    stop = threading.Event()
    thread = threading.Thread(target=_watch, args=(link, say, stop), name="cape-window", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(_PATIENCE)


def _watch(link: Path, say: Say, stop: threading.Event) -> None:
    last = 0
    client: Client | None = None
    while not stop.wait(_OFTEN):
        try:
            client = client or Client(link, timeout=_PATIENCE)
            told = wire.unpack_from_site(client.call(wire.pack(wire.Watch(1, last))))
        except CapeError:  # the daemon is not there: it is asked again
            if client is not None:
                client.close()
            client = None
            continue
        for seen in told.events if isinstance(told, wire.Happened) else ():
            last = max(last, seen.event)
            say(f"{seen.at[:19].replace('T', ' ')} {_printable(seen.sentence)}")
    if client is not None:
        client.close()


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in text)
