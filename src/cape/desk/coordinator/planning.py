"""Plans for the pages, made by a process of its own (`cape.desk.planner`), which may be slow without harm.

Claim. Whatever somebody types, the desk waits at most `PATIENCE` seconds for its plan, and stays within its
own memory.
Reason. The text is planned in another process with a limit on its memory. One that does not answer in time is
killed, and the next plan starts another.
Tested in tests/unit/desk/test_planning.py.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
import time

import msgspec

from cape.core.errors import CapeError, InvalidInput
from cape.desk.coordinator.study import MOST_TEXT, Planned, Reply
from cape.desk.planner import PATIENCE

__all__ = ["Planner"]

_WAIT = 20.0  # seconds for plans that others have asked for before
_START = 30.0  # seconds for the process to come up
_MOST = 1 << 24  # bytes of a plan
_SLOW = "planning this takes too long here; make it smaller, or use `cape plan` on the command line"


class Planner:
    """Plans one study after the other."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._last: tuple[str, Planned] | None = None
        self._up = False

    def start(self) -> None:
        """Start the process, unless it runs: the first plan then comes sooner."""
        with self._lock:
            self._running()

    def plan(self, text: str) -> Planned:
        """Return the plan of a study file.

        Raises:
            InvalidInput: something in the study is invalid; the text names the place.
            CapeError: it takes too long.
        """
        if len(text.encode()) > MOST_TEXT:
            raise InvalidInput(
                f"a study may have at most {MOST_TEXT >> 10} kB here; submit a larger one with `cape submit`"
            )
        if not self._lock.acquire(timeout=_WAIT):
            raise CapeError("other plans are being made; try again in a moment")
        try:
            if self._last is None or self._last[0] != text:
                self._last = text, self._ask(text)
            return self._last[1]
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _ask(self, text: str) -> Planned:
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(msgspec.json.encode(text) + b"\n")
            process.stdin.flush()
            patience = self._patience if self._up else self._patience + _START
            reply = msgspec.json.decode(self._line(process, patience), type=Reply)
            self._up = True
        except (OSError, ValueError):
            self._end()
            raise CapeError(_SLOW) from None
        if reply.plan is None:
            raise InvalidInput(reply.problem)
        return reply.plan

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cape.desk.planner"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )
        return self._process

    def _line(self, process: subprocess.Popen[bytes], patience: float) -> bytes:
        """Return the next line of the process, or raise `OSError`."""
        assert process.stdout is not None
        until, found = time.monotonic() + patience, bytearray()
        while not found.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
            data = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
            found += data
            if not data or len(found) > _MOST:
                raise TimeoutError
        return bytes(found)

    def _end(self) -> None:
        if self._process is not None:
            self._up = False
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()
            self._process = None
