"""A whole deployment on this machine: kits, keys, policies and real processes that talk over mutual TLS.

For `cape deploy demo`, for tests and for measurements. Everything is as in a real deployment and started by
the same commands, except that the parties are folders, the network is the loopback, and one user runs all of
it, so links that could read the rows are admitted (`--link-may-read-rows`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import permutations
from pathlib import Path
from typing import Any

import psutil

from cape.coordinator import CoordinatorFolder
from cape.core.errors import CapeError
from cape.flare import kits
from cape.flare.link import Status, status
from cape.flare.process import descendants
from cape.site.folder import SiteFolder
from cape.site.template import plain_policy

__all__ = ["Processes", "Rehearsal", "daemon_of", "free_port"]

_UP = 60.0  # seconds in which all processes must be up and connected
_DOWN = 15.0
_CAPE = [sys.executable, "-m", "cape"]


class Processes:
    """`cape` commands that run side by side, each under the name of its party, with a log in one folder.

    Args:
        folder: where the logs go.
        environment: additional variables for the processes.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._environment = {**os.environ, **(environment or {})}

    def launch(
        self, who: str, arguments: Sequence[str], before: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        """Start a `cape` command as the process of one party; `before` is put in front of it."""
        with open(self.log(who), "ab") as log:
            process = subprocess.Popen(
                [*before, *_CAPE, *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.processes[who] = process
        return process

    def runs(self, who: str) -> bool:
        """Return whether a process was started and has not ended."""
        process = self.processes.get(who)
        return process is not None and process.poll() is None

    def kill(self, who: str) -> None:
        """Kill everything of one party at once, as a power cut would: `cape`, NVFLARE and its jobs.

        Of a site, this is link and daemon; `daemon_of(site)` is its daemon alone.
        """
        for name in (who, daemon_of(who)):
            process = self.processes.pop(name, None)
            if process is None:
                continue
            for each in (process, *descendants(process.pid)):
                with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                    each.kill()
            process.wait()

    def stop(self) -> None:
        """Take everything down."""
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        for who in list(self.processes):
            if who not in self.processes:
                continue
            try:
                self.processes[who].wait(_DOWN)
                del self.processes[who]
            except subprocess.TimeoutExpired:
                self.kill(who)

    def log(self, who: str) -> Path:
        """Return the file with what a party's process printed."""
        return self.folder / f"{who}.log"


class Rehearsal(Processes):
    """One aggregator, one coordinator and some sites, each in a folder of its own.

    >>> with Rehearsal(folder, {"a": "a.csv", "b": "b.csv", "c": "c.csv"}, schema, analyses=["mean"]) as here:
    ...     subprocess.run(["cape", "submit", study, "--kit", here.coordinator])

    Args:
        folder: an empty one.
        tables: each site's file.
        schema: as a study file gives it: column -> bounds or categories.
        analyses: the kinds that every policy allows.
        budget: (epsilon, delta) that each policy allows, for a release, for a coordinator and for a year.
        colluding: how many sites a study must assume to collude with the aggregator.
        approve: whether policies answer by themselves ("auto") or hold a study ("ask").
        environment: additional variables for the processes.
    """

    def __init__(
        self,
        folder: Path,
        tables: Mapping[str, Path],
        schema: Mapping[str, Any],
        *,
        analyses: Sequence[str],
        budget: tuple[float, float] = (10.0, 1e-5),
        colluding: int = 1,
        approve: str = "auto",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder, environment)
        self.names = tuple(tables)
        self.port = free_port()
        made = kits.make_kits(folder / "kits", self.names, "localhost", self.port)
        self.aggregator, self.coordinator = made[kits.AGGREGATOR], made[kits.COORDINATOR]
        self._kits = {name: made[name] for name in tables}
        self.sockets = Path(tempfile.mkdtemp(prefix="cape-"))  # short: paths of sockets have a limit
        office = CoordinatorFolder.create(self.coordinator, "coordinator")
        sites = {name: SiteFolder.create(folder / "sites" / name, name) for name in tables}
        for name, site in sites.items():
            text = plain_policy(
                name,
                schema,
                analyses,
                data=str(tables[name].resolve()),
                expires=(datetime.now(UTC) + timedelta(days=30)).date(),
                approve=approve,
                min_rows=20,
                colluding=colluding,
                epsilon=(budget[0],) * 3,
                delta=budget[1],
            )
            (site.path / "site.toml").write_text(text, encoding="utf-8")
            site.trust(office.card, coordinator=True)
            office.trust(site.card)
        for site, peer in permutations(sites.values(), 2):
            site.trust(peer.card, coordinator=False)

    def __enter__(self) -> Rehearsal:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def site(self, name: str) -> SiteFolder:
        """Return a site's folder."""
        return SiteFolder(self.folder / "sites" / name)

    def kit(self, name: str) -> Path:
        """Return a site's kit."""
        return self._kits[name]

    def start(self) -> None:
        """Start the aggregator and every site, and wait until all are connected."""
        self.serve()
        for name in self.names:
            self.join(name)
        self.wait(self.names)

    def serve(self) -> subprocess.Popen[bytes]:
        """Start the aggregator with `cape serve`."""
        return self.launch("aggregator", ["serve", str(self.aggregator)])

    def join(self, name: str) -> subprocess.Popen[bytes]:
        """Start a site's daemon, unless it runs, and its link with `cape join`."""
        if not self.runs(daemon_of(name)):
            self.start_daemon(name)
        return self.launch(name, ["join", str(self._kits[name]), "--link", str(self._socket(name))])

    def start_daemon(self, name: str) -> subprocess.Popen[bytes]:
        """Start a site's daemon with `cape site serve`."""
        folder, place = self.folder / "sites" / name, self._socket(name)
        return self.launch(
            daemon_of(name),
            ["site", "serve", "--site", str(folder), "--link", str(place), "--link-may-read-rows"],
        )

    def _socket(self, name: str) -> Path:
        return self.sockets / f"{name}.sock"

    def wait(self, names: Sequence[str]) -> Status:
        """Wait until these sites are connected."""
        until, problem = time.monotonic() + _UP, "no status yet"
        while time.monotonic() < until:
            try:
                found = status(self.coordinator)
                if set(names) <= set(found.sites):
                    return found
                problem = f"connected: {', '.join(found.sites) or 'nobody'}"
            except CapeError as error:
                problem = str(error)
            for who, process in self.processes.items():
                if process.poll() is not None:
                    raise CapeError(f"the process of {who} has ended; see {self.log(who)}")
            time.sleep(0.3)
        raise CapeError(f"the rehearsal did not come up within {_UP:.0f} seconds: {problem}")

    def kill(self, who: str, *, again: bool = False) -> None:
        """Kill everything of one party, and start it again if wanted."""
        super().kill(who)
        if again:
            self.serve() if who == "aggregator" else self.join(who)

    def stop(self) -> None:
        """Take everything down, and remove the sockets."""
        super().stop()
        shutil.rmtree(self.sockets, ignore_errors=True)


def daemon_of(site: str) -> str:
    """Return the name of a site's daemon among the processes of a rehearsal."""
    return f"{site} (daemon)"


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
