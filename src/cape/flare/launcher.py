"""Starts a job's process at a site, and keeps one site's crash from ending everybody's study.

The process gets nothing from the job: NVFLARE would put the job's folder `custom` on its path, where Python
looks for `sitecustomize` before any line of ours runs. Its environment is what is listed here; PYTHONPATH is
the one with which the site's operator started the client.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_launcher_spec import JobReturnCode
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.app_common.job_launcher.process_launcher import ProcessHandle
from nvflare.utils.job_launcher_utils import get_credential_env
from nvflare.utils.process_utils import spawn_process

__all__ = ["Launcher", "environment"]

_THEIRS, _OURS = " -m nvflare.private.fed.app.client.worker_process ", " -P -s -u -m cape.flare.worker "
_KEPT = {"PATH", "HOME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH"}
_KEPT_BEGINNINGS = ("CAPE_", "NVFLARE_", "GRPC_", "LC_", "SSL_CERT_")


class _Handle(ProcessHandle):
    """Reports that a process which was killed ended for an unknown reason.

    NVFLARE's server fails the whole run when a site reports that its process was killed, whatever
    `min_clients` says; it continues when the reason is unknown. Our heartbeats show which sites are gone.
    """

    def poll(self) -> Any:
        """Return how the process ended."""
        code = super().poll()
        return JobReturnCode.UNKNOWN if code == JobReturnCode.EXECUTION_ERROR else code


class Launcher(ClientProcessJobLauncher):
    """NVFLARE's launcher with that handle, for a process that is guarded (`cape.flare.guard`)."""

    def get_command(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> str:
        """Return the command line."""
        command = str(super().get_command(job_meta, fl_ctx))
        if command.count(_THEIRS) != 1:
            raise RuntimeError(
                "this version of NVFLARE starts jobs in a way that cape does not know; install cape-dp[flare]"
            )
        return command.replace(_THEIRS, _OURS)

    def launch_job(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> _Handle:
        """Start the process of a job."""
        credentials = get_credential_env(fl_ctx.get_prop(FLContextKey.JOB_PROCESS_ARGS) or {})
        command = shlex.split(self.get_command(job_meta, fl_ctx))
        adapter = spawn_process(command, {**environment(os.environ), **credentials})
        return _Handle(process_adapter=adapter)


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return the part of the client's environment that a job's process gets."""
    return {
        name: value
        for name, value in own.items()
        if name in _KEPT or name.startswith(_KEPT_BEGINNINGS) or name.lower().endswith("_proxy")
    }
