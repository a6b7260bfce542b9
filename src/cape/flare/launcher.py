"""Starts a job's process at a site, and keeps one site's crash from ending everybody's study."""

from __future__ import annotations

from typing import Any

from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_launcher_spec import JobReturnCode
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.app_common.job_launcher.process_launcher import ProcessHandle

__all__ = ["Launcher"]

_THEIRS, _OURS = " nvflare.private.fed.app.client.worker_process ", " cape.flare.worker "


class _Handle(ProcessHandle):
    """A process that was killed ended for an unknown reason.

    NVFLARE's server fails the whole run when a site reports that its process was killed, whatever
    `min_clients` says; it goes on when the reason is unknown. Who is gone is noticed by our signs of life.
    """

    def poll(self) -> Any:
        """Return how the process ended, or that it is not known."""
        code = super().poll()
        return JobReturnCode.UNKNOWN if code == JobReturnCode.EXECUTION_ERROR else code


class Launcher(ClientProcessJobLauncher):
    """NVFLARE's launcher with that handle, of a process that is guarded (`cape.flare.guard`)."""

    def get_command(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> str:
        """Return the command line."""
        command = str(super().get_command(job_meta, fl_ctx))
        if command.count(_THEIRS) != 1:
            raise RuntimeError("this version of NVFLARE starts jobs in another way than cape knows")
        return command.replace(_THEIRS, _OURS)

    def launch_job(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> _Handle:
        """Start the process of a job."""
        return _Handle(process_adapter=super().launch_job(job_meta, fl_ctx).adapter)
