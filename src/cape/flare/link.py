"""The coordinator's end: a session with the aggregator, one job for a study, and calls into it.

NVFLARE does not add a site to a running job. So when a site that was gone is connected again, the job is
ended between two analyses and a new one is started with all connected sites: the coordinator has what was
released, and sites keep nothing in memory that the next analysis would need.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import msgspec

from cape.coordinator import Event
from cape.core.errors import CapeError
from cape.flare.job import write_job
from cape.flare.kits import ADMIN, require_coordinator, require_flare
from cape.flare.names import COMMAND, START

__all__ = ["AggregatorGone", "Network", "Status"]

_CONNECT = 10.0  # seconds to reach the aggregator
_COMMAND = 10.0  # seconds for one command
_FRESH = 5.0  # seconds since a client's last heartbeat, sent every two, within which it is connected
_LOOK = 3.0  # seconds between two checks that the aggregator is up, while it takes its time
_SETTLE = 8.0  # seconds that a client has for its next heartbeat, before a job starts without it
_TRIES = 2  # new jobs for a site that is connected but does not come up in them


class AggregatorGone(CapeError):
    """The aggregator does not answer, or the study's job in it has ended."""


@dataclass(frozen=True)
class Status:
    """What the aggregator reports: which sites are connected, and which jobs run."""

    since: float | None
    sites: tuple[str, ...]
    jobs: tuple[str, ...]


class Network:
    """A `cape.coordinator.Link` to the sites of one study.

    >>> with Network(kit, "heart", ["a", "b", "c"]) as link:
    ...     Submission(study, folder, link, record)

    Args:
        kit: the coordinator's kit.
        name: the study's name, for the aggregator's list of jobs.
        sites: the sites of the study.
        told: called with each event of a protocol round.
        present: called with the sites that are alive, after each answer of the aggregator.
    """

    def __init__(
        self,
        kit: Path,
        name: str,
        sites: Sequence[str],
        told: Callable[[Event], None] = lambda event: None,
        present: Callable[[Sequence[str]], None] = lambda sites: None,
    ) -> None:
        self._kit, self._sites, self._told, self._present = kit, tuple(sites), told, present
        self._name = "".join(sign if sign.isalnum() else "-" for sign in name)[:40] or "study"
        self._session: Any = None
        self._job = ""
        self._seen = 0
        self._tried: dict[str, int] = {}  # site -> how many new jobs it did not come up in
        self.alive: tuple[str, ...] = ()

    def __enter__(self) -> Network:
        self.open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def open(self) -> None:
        """Connect, start a job, and wait until the connected sites have come up in it."""
        if self._session is None:
            self._session = connect(self._kit)
        self._begin()

    def close(self) -> None:
        """End the job and the session, whatever state they are in."""
        with contextlib.suppress(Exception):
            self._command({"close": True})
        self._job = ""
        with contextlib.suppress(Exception):
            self._session.close()
        self._session = None

    def call(self, data: bytes) -> bytes:
        """Hand a call to the aggregator and return its answer, however long it takes."""
        ticket = uuid4().hex
        told: dict[str, Any] = {"call": base64.b64encode(data).decode("ascii")}
        while True:
            reply = self._command({"ticket": ticket, **told})
            told = {}
            if reply["answer"] is not None:
                return base64.b64decode(reply["answer"])
            if not reply["known"]:
                raise AggregatorGone("the aggregator has lost a call; `cape submit --resume` resumes the run")

    def refresh(self) -> tuple[str, ...]:
        """Start a new job if sites have come back; return the sites that are alive now."""
        self._command({})
        lost = [site for site in self._sites if site not in self.alive]
        connected = _recent(self._do("get_system_info")) if lost else ()
        back = [site for site in lost if site in connected and self._tried.get(site, 0) < _TRIES]
        if back:
            with contextlib.suppress(AggregatorGone):
                self._command({"close": True})
            self._begin()
            for site in back:
                self._tried[site] = 0 if site in self.alive else self._tried.get(site, 0) + 1
        return self.alive

    def _begin(self) -> None:
        expected = self._expected()
        if not expected:
            raise CapeError(
                f"none of the sites {', '.join(self._sites)} is connected to the aggregator; start "
                "`cape join` at each"
            )
        with TemporaryDirectory(prefix="cape-job-") as made:
            job = write_job(Path(made) / self._name, self._name, expected)
            self._job, self._seen = str(self._do("submit_job", str(job))), 0
        self._wait(expected)

    def _expected(self) -> list[str]:
        """Return the sites to start a job with; wait a little for those that are reconnecting."""
        until = time.monotonic() + _SETTLE
        while True:
            info = self._do("get_system_info")
            fresh, listed = _recent(info), {client.name for client in info.client_info}
            if time.monotonic() > until or all(site in fresh for site in self._sites if site in listed):
                return [site for site in self._sites if site in fresh]
            time.sleep(0.5)

    def _wait(self, expected: Sequence[str]) -> None:
        """Wait until the job runs and every expected site is alive in it."""
        until, problem = time.monotonic() + START, ""
        self.alive = ()
        while time.monotonic() < until:
            try:
                self._command({})
            except AggregatorGone as error:  # not yet
                problem = str(error)
            if set(expected) <= set(self.alive):
                return
            time.sleep(0.2)
        if not self.alive:
            raise AggregatorGone(
                f"the study's job did not come up at any site within {START:.0f} seconds; the logs of the "
                f"aggregator and the sites say why. {problem}".rstrip()
            )

    def _command(self, told: dict[str, Any]) -> dict[str, Any]:
        reply = self._do("do_app_command", self._job, COMMAND, {"seen": self._seen, **told})
        if not isinstance(reply, dict) or "sites" not in reply:
            raise AggregatorGone(
                "the aggregator's answer cannot be read; does it run another version of cape?"
            )
        self.alive = tuple(site for site in self._sites if site in reply["sites"])
        self._present(self.alive)
        self._seen = reply["seen"]
        for event in msgspec.convert(reply["events"], list[Event]):
            self._told(event)
        return reply

    def _do(self, name: str, *arguments: Any) -> Any:
        """Send the aggregator a command, and notice within seconds if it is down: NVFLARE takes minutes."""
        answers: queue.Queue[tuple[Any, str]] = queue.Queue()

        def ask() -> None:
            try:
                answers.put((getattr(self._session, name)(*arguments), ""))
            except Exception as error:
                answers.put((None, _reason(error)))

        threading.Thread(target=ask, daemon=True).start()
        while True:
            try:
                answer, why = answers.get(timeout=_LOOK)
            except queue.Empty:
                _knock(self._kit, "`cape submit --resume` resumes the run once it is back")
                continue
            if not why:
                return answer
            raise AggregatorGone(
                f"the aggregator does not answer ({why}); `cape submit --resume` resumes the run later"
            )


def status(kit: Path) -> Status:
    """Return what the aggregator reports."""
    session = connect(kit)
    try:
        info = session.get_system_info()
    except Exception as error:
        raise AggregatorGone(f"the aggregator does not answer ({_reason(error)})") from None
    finally:
        with contextlib.suppress(Exception):
            session.close()
    return Status(info.server_info.start_time, _recent(info), tuple(job.job_id for job in info.job_info))


def _recent(info: Any) -> tuple[str, ...]:
    """Return the sites with a recent heartbeat. All times are by the aggregator's clock."""
    heard = {client.name: client.last_connect_time for client in info.client_info}
    latest = max(heard.values(), default=0.0)
    return tuple(sorted(site for site, when in heard.items() if latest - when < _FRESH))


def connect(kit: Path) -> Any:
    """Return a session with the aggregator of a kit."""
    require_flare()
    require_coordinator(kit)
    _knock(kit)
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    logging.getLogger("nvflare").setLevel(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            session = new_secure_session(ADMIN, str(kit), timeout=_CONNECT)
        session.set_timeout(_COMMAND)
    except Exception as error:
        why = _reason(error)
        raise AggregatorGone(
            f"the aggregator cannot be reached ({why}); is `cape serve` running there?"
        ) from None
    return session


def _knock(kit: Path, advice: str = "is `cape serve` running there?") -> None:
    """Raise unless the aggregator listens: NVFLARE itself would try for long, and say little."""
    told = json.loads((kit / "startup" / "fed_admin.json").read_text(encoding="utf-8"))["admin"]
    try:
        socket.create_connection((told["host"], told["port"]), timeout=_CONNECT).close()
    except OSError as error:
        raise AggregatorGone(
            f"the aggregator cannot be reached at {told['host']}:{told['port']} "
            f"({error.strerror or error}); {advice}"
        ) from None


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
