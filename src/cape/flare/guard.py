"""What NVFLARE's processes at a site answer: what a job needs, and nothing else, whoever asks.

Claim. No message that reaches a site's NVFLARE process can read a file there, run a command, change how it
logs, restart or stop the client, or bring code; it can begin and end a job that names our two classes.
Reason. NVFLARE 2.9's client consults its authorization file only where the *sender* of a command asks it to,
any site can reach another's command channel through the aggregator, and an administrator with the role
"super" may do everything. So what handles such commands is taken away before the process starts, by name: a
command that is not on the list has no handler. Shipped code is refused for every role. The channel for the
network's own administration is not opened. NVFLARE's version is pinned, and a name that is missing is an
error: the list is looked at again when the version changes.
Tested in tests_deploy/test_guard.py, with a site that asks another for a file, and with a forged certificate.
"""

from __future__ import annotations

import runpy
from typing import Any

from cape.errors import CapeError

__all__ = ["COMMANDS", "REQUESTS", "guard", "run"]

REQUESTS = {
    "AbortAppProcessor",
    "CancelResourceProcessor",
    "CheckResourceProcessor",
    "DeployProcessor",
    "NotifyJobStatusProcessor",
    "StartJobProcessor",
}
"""What a site's client answers."""

COMMANDS = {"AbortCommand", "ByeCommand", "CheckStatusCommand"}
"""What the process of a job answers, besides `cape.flare.executor`."""


def run(module: str) -> None:
    """Run a program of NVFLARE, guarded."""
    guard()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def guard() -> None:
    """Take away what a site must not answer, in this process."""
    from nvflare.fuel.f3.cellnet import core_cell, net_agent
    from nvflare.private.fed.client.admin_commands import AdminCommands
    from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
    from nvflare.private.fed.utils import app_authz

    _keep(ClientRequestProcessors.request_processors, REQUESTS)
    _keep(AdminCommands.commands, COMMANDS)
    _refuse_code(app_authz.AppAuthzService)
    _close_channel(core_cell.CoreCell, net_agent._CHANNEL)


def _keep(handlers: list[Any], names: set[str]) -> None:
    kept = [handler for handler in handlers if type(handler).__name__ in names]
    if {type(handler).__name__ for handler in kept} != names:
        raise CapeError("this version of NVFLARE has other commands than cape knows; install cape-dp[flare]")
    handlers[:] = kept


def _refuse_code(service: Any) -> None:
    """Refuse every app that is more than names of classes, whoever submits it."""
    allowed = service.authorize_app_info

    def authorize(app_info: dict[str, Any], *arguments: Any, **options: Any) -> tuple[bool, str]:
        if app_info:
            return False, "BYOC not permitted"
        answer: tuple[bool, str] = allowed(app_info, *arguments, **options)
        return answer

    service.authorize_app_info = staticmethod(authorize)


def _close_channel(cell: Any, closed: str) -> None:
    """Let nobody listen on a channel."""
    register = cell.register_request_cb

    def only_others(self: Any, channel: str, *arguments: Any, **options: Any) -> Any:
        if channel != closed:
            return register(self, channel, *arguments, **options)
        return None

    cell.register_request_cb = only_others
