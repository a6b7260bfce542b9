"""Kills the processes of one party's jobs and leaves its long-lived processes running."""

from __future__ import annotations

import contextlib

import psutil

from cape.flare.process import descendants
from cape.flare.rehearsal import Rehearsal


def kill_job(here: Rehearsal, who: str) -> int:
    """Kill the processes of one party's jobs and nothing else; return how many there were."""
    found = [each for each in descendants(here.processes[who].pid) if _is_job(each)]
    for each in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    return len(found)


def _is_job(process: psutil.Process) -> bool:
    try:
        command = " ".join(process.cmdline())
    except psutil.Error:
        return False
    return "cape.flare.worker" in command or "runner_process" in command
