"""Restricts what NVFLARE's processes at a site answer: only what a job of ours needs, only to the aggregator.

This is the second line of defence. The first is that these processes hold no row, no key and no ledger: the
site's daemon does, behind a socket (`cape.site.daemon`).

Claim. No message that reaches a site's NVFLARE process can read, write or delete a file there but those of
one job of ours, run a command, bring code, change how it logs, or restart or stop the client. A message that
does not come from the aggregator is dropped before it is decoded.
Reason. NVFLARE 2.9's client consults its authorization file only where the *sender* of a command asks it to,
any site can reach another's channels through the aggregator, an administrator with the role "super" may do
everything, a job's id becomes the name of a folder that is deleted first, and an app is unpacked before it is
checked. So (1) a cell takes messages only over a connection that it has itself made, or from its own job, and
only if they name the aggregator or this site as their origin (the aggregator lets nobody name another:
`cape.flare.limits`); (2) handlers of commands that no job needs are removed, by name; (3) a job's id must
be a UUID, before anything else is done with it; (4) an app is compared with ours in memory, and only a job
whose app has passed, in this process, is started; (5) a worker's path has nothing of the job
(`cape.flare.launcher`). NVFLARE's version is pinned, and a missing name is an error, so the lists are
reviewed when the version changes.
Tested in tests/deploy/test_guard.py and test_edge_code.py, with sites that attack others and with a forged
certificate.
"""

from __future__ import annotations

import json
import logging
import re
import runpy
import threading
from collections.abc import Callable
from typing import Any

from cape.core.errors import CapeError, InvalidInput
from cape.flare.job import APP, require_ours

__all__ = ["COMMANDS", "REQUESTS", "Jobs", "guard", "is_job_id", "run"]

REQUESTS = {
    "AbortAppProcessor",
    "CancelResourceProcessor",
    "CheckResourceProcessor",
    "DeployProcessor",
    "NotifyJobStatusProcessor",
    "StartJobProcessor",
}
"""The requests that a site's client answers."""

COMMANDS = {"AbortCommand", "ByeCommand", "CheckStatusCommand"}
"""The commands that the process of a job answers, besides `cape.flare.executor`."""

_JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MOST_META = 1 << 20  # bytes of a job's metadata
_MOST_LOGGED = 100  # senders whose dropped messages are logged
_log = logging.getLogger(__name__)


def run(module: str) -> None:
    """Run a program of NVFLARE, guarded."""
    guard()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def guard() -> None:
    """Remove, in this process, every handler that a site must not have."""
    from nvflare.apis.workspace import Workspace
    from nvflare.fuel.f3.cellnet import core_cell
    from nvflare.private.fed.client.admin_commands import AdminCommands
    from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

    _listen_to_the_aggregator(core_cell.CoreCell)
    _keep(ClientRequestProcessors.request_processors, REQUESTS)
    _keep(AdminCommands.commands, COMMANDS)
    jobs = Jobs()
    for processor in ClientRequestProcessors.request_processors:
        jobs.check(processor)
    _require(Workspace, "get_app_custom_dir")
    Workspace.get_app_custom_dir = lambda self, job_id: ""  # a job has no code; see the launcher too


def is_job_id(value: object) -> bool:
    """Return whether a value is a UUID as NVFLARE writes them: no other folder has such a name."""
    return isinstance(value, str) and _JOB.fullmatch(value) is not None


class Jobs:
    """The jobs of this client whose app was checked; requests for any other job are refused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deploying: set[str] = set()
        self._ready: set[str] = set()

    def check(self, processor: Any) -> None:
        """Let a processor of NVFLARE see only requests that pass."""
        name, process = type(processor).__name__, processor.process
        steps = {"DeployProcessor": self._deploy, "StartJobProcessor": self._start}

        def checked(request: Any, engine: Any) -> Any:
            from nvflare.private.admin_defs import error_reply
            from nvflare.private.defs import RequestHeader

            try:
                job = request.get_header(RequestHeader.JOB_ID)
                if not is_job_id(job) and not (job is None and name == "CancelResourceProcessor"):
                    raise InvalidInput("a job's id must be a UUID")
                if name not in steps:
                    return process(request, engine)
                _require_meta(request.get_header(RequestHeader.JOB_META), job)
                return steps[name](job, request, engine, process)
            except InvalidInput as error:
                return error_reply(f"refused by the site: {error}")

        processor.process = checked

    def _deploy(self, job: str, request: Any, engine: Any, process: Callable[[Any, Any], Any]) -> Any:
        from nvflare.private.admin_defs import MsgHeader, ReturnCode
        from nvflare.private.defs import RequestHeader

        if request.get_header(RequestHeader.APP_NAME) != APP:
            raise InvalidInput("the app does not have the name of a job of cape")
        require_ours(request.body)
        with self._lock:
            if job in self._deploying or job in engine.get_all_job_ids():
                raise InvalidInput("the job is already being deployed or running")
            self._deploying.add(job)
            self._ready.discard(job)
        try:
            reply = process(request, engine)
            if reply.get_header(MsgHeader.RETURN_CODE) == ReturnCode.OK:
                with self._lock:
                    self._ready.add(job)
            return reply
        finally:
            with self._lock:
                self._deploying.discard(job)

    def _start(self, job: str, request: Any, engine: Any, process: Callable[[Any, Any], Any]) -> Any:
        with self._lock:
            if job not in self._ready:
                raise InvalidInput("no app of this job has passed the check")
            self._ready.discard(job)  # an app is started once
        return process(request, engine)


def _require_meta(meta: object, job: str) -> None:
    if not isinstance(meta, dict) or meta.get("job_id") != job:
        raise InvalidInput("the job's metadata is about another job")
    try:
        size = len(json.dumps(meta))
    except (TypeError, ValueError, RecursionError):
        raise InvalidInput("the job's metadata is not JSON") from None
    if size > _MOST_META:
        raise InvalidInput(f"the job's metadata has more than {_MOST_META} bytes")


def _keep(handlers: list[Any], names: set[str]) -> None:
    kept = [handler for handler in handlers if type(handler).__name__ in names]
    if {type(handler).__name__ for handler in kept} != names:
        raise CapeError(
            "this version of NVFLARE has commands that cape does not know; install cape-dp[flare]"
        )
    handlers[:] = kept


def _require(owner: Any, name: str) -> Any:
    found = getattr(owner, name, None)
    if found is None:
        raise CapeError(f"this version of NVFLARE has no {owner.__name__}.{name}; install cape-dp[flare]")
    return found


def _listen_to_the_aggregator(cell: Any) -> None:
    """Drop messages from anybody else, on every channel, before they are decoded or answered."""
    receive = _require(cell, "_process_received_msg")
    logged: set[str] = set()

    def received(self: Any, endpoint: Any, connection: Any, message: Any) -> Any:
        from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey

        origin = message.get_header(MessageHeaderKey.ORIGIN)
        if _may_speak(self.get_fqcn(), origin, endpoint.name, dialled=_is_dialled(connection)):
            return receive(self, endpoint, connection, message)
        who = str(origin)[:100]
        if who not in logged and len(logged) < _MOST_LOGGED:
            logged.add(who)
            _log.warning("messages that name %r as their origin are dropped: it is not the aggregator", who)
        return None

    cell._process_received_msg = received


def _is_dialled(connection: Any) -> bool:
    """Return whether this process made the connection, and so checked the certificate at its other end."""
    from nvflare.fuel.utils.constants import Mode

    return connection is None or connection.connector.mode == Mode.ACTIVE


def _may_speak(own: str, origin: object, neighbour: str, *, dialled: bool) -> bool:
    """Return whether a cell accepts a message with this origin from this neighbour.

    Cells have names such as `server`, `server.JOB`, `a` and `a.JOB`. A site's client makes the connection to
    the aggregator, and a job's process those to the client and to the aggregator. So the aggregator speaks
    over a connection that was made here, and a job of this site over one that was not.
    """
    if not isinstance(origin, str):
        return False
    site = own.partition(".")[0]
    root, _, job = origin.partition(".")
    if job and not is_job_id(job):
        return False
    if root == "server":
        return dialled and neighbour in {"server", site}
    return root == site and neighbour.partition(".")[0] == site
