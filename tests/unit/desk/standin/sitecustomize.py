"""In a process that a test starts: sites in that process instead of a network, if CAPE_TEST_SITES names them.

`cape submit` runs as it is, with the real policies, ledgers and rows of these sites; only NVFLARE is not
there. A file `slow` in the working directory makes every round take a while.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

if os.environ.get("CAPE_TEST_SITES"):
    from cape.coordinator import Relay
    from cape.flare import link
    from cape.site import SiteFolder
    from cape.site.endpoint import SiteEndpoint
    from tests.channel import LocalChannel

    class Net:
        """In place of `cape.flare.link.Network`."""

        def __init__(self, kit: Path, name: str, sites: Any, told: Any, present: Any) -> None:
            folders = json.loads(os.environ["CAPE_TEST_SITES"])
            self._channel = LocalChannel({name: SiteEndpoint(SiteFolder(folders[name])) for name in sites})
            self._channel.silent = json.loads(os.environ.get("CAPE_TEST_SILENT", "{}"))
            self._relay = Relay(self, told)
            self.alive: tuple[str, ...] = ()
            self._sites = tuple(sites)

        def open(self) -> None:
            self.alive = self._sites

        def close(self) -> None:
            self.alive = ()

        def refresh(self) -> tuple[str, ...]:
            return self.alive

        def call(self, data: bytes) -> bytes:
            return self._relay.call(data)

        def exchange(self, round_: str, messages: Any) -> Any:
            if Path("slow").exists() and round_ not in ("hello", "review", "inquiry"):
                time.sleep(float(Path("slow").read_text()))
            yield from self._channel.exchange(round_, messages)

    link.Network = Net  # type: ignore[misc,assignment]
