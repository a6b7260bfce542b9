"""The aggregator's end of the wire: a message to each site, and answers as they arrive.

A site counts as gone after `GONE` seconds without a heartbeat, whatever has failed: its job, its machine or
the network. NVFLARE notices some of these after minutes and waits for an answer all the same; so each site is
asked in a thread of its own, and the heartbeats are ours. A site that is back takes part again in the next
stage.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable

from cape.flare.names import CALL, GONE, PATIENCE

__all__ = ["Alive", "AuxChannel"]

_LOOK = 0.25  # seconds between two checks of the heartbeats
_MOST_SITES = 1024


class Alive:
    """When each site last sent a heartbeat."""

    def __init__(self) -> None:
        self._heard: dict[str, float] = {}
        self._lock = threading.Lock()

    def heard(self, site: str) -> None:
        """Record a heartbeat."""
        with self._lock:
            self._heard[site] = time.monotonic()

    def __contains__(self, site: object) -> bool:
        with self._lock:
            return isinstance(site, str) and time.monotonic() - self._heard.get(site, -GONE) < GONE

    @property
    def sites(self) -> list[str]:
        """The sites with a recent heartbeat."""
        with self._lock:
            return sorted(site for site, last in self._heard.items() if time.monotonic() - last < GONE)


class AuxChannel:
    """A `cape.coordinator.Channel` over NVFLARE's auxiliary messages: pushed, not polled."""

    def __init__(self, engine: Any, alive: Alive, *, patience: float = PATIENCE) -> None:
        self._engine = engine
        self._alive = alive
        self._patience = patience
        self._pool = ThreadPoolExecutor(_MOST_SITES, thread_name_prefix="cape-site")

    def exchange(self, round_: str, messages: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        """Send each site its message; yield answers as they arrive, None for a site that is gone."""
        until = time.monotonic() + self._patience
        waiting: dict[Future[bytes | None], str] = {}
        for site, data in messages.items():
            if site in self._alive:
                waiting[self._pool.submit(self._ask, site, data)] = site
            else:
                yield site, None
        while waiting:
            done, _ = wait(waiting, timeout=_LOOK, return_when=FIRST_COMPLETED)
            for future in done:
                yield waiting.pop(future), future.result()
            late = time.monotonic() > until
            for future in [future for future, site in waiting.items() if late or site not in self._alive]:
                yield waiting.pop(future), None

    def close(self) -> None:
        """Stop waiting for answers."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, site: str, data: bytes) -> bytes | None:
        request = Shareable()
        request["data"] = data
        with self._engine.new_context() as context:
            replies = self._engine.send_aux_request(
                targets=[site],
                topic=CALL,
                request=request,
                timeout=self._patience,
                fl_ctx=context,
                optional=True,
            )
        reply = (replies or {}).get(site)
        if not isinstance(reply, Shareable) or reply.get_return_code() != ReturnCode.OK:
            return None
        answer = reply.get("data")
        return bytes(answer) if isinstance(answer, (bytes, bytearray, memoryview)) else None
