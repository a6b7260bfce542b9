"""Processes that take inputs in, watched: one that hangs, grows or dies is ended, and the input is known."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing as mp
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from assurance.inputs import load
from assurance.judge import judge

__all__ = ["GIGABYTE", "SECONDS", "Chunk", "Report", "Worker", "attempt", "random_of"]

SECONDS = 5.0
GIGABYTE = 1 << 30
_GRACE = 10.0  # seconds more for the first input of a surface: what is imported late is imported then
_NUMBER, _BEGAN, _ACCEPTED, _REFUSED = range(4)


@dataclass(frozen=True)
class Chunk:
    """A range of inputs of one surface."""

    surface: str
    seed: int
    start: int
    stop: int


@dataclass
class Report:
    """What came of a chunk."""

    accepted: int = 0
    refused: int = 0
    findings: list[dict[str, Any]] = field(default_factory=list)
    slowest: float = 0.0
    peak: int = 0  # bytes
    again: int = 0  # took longer than allowed, and were tried once more
    panics: int = (
        0  # of Rust code below, which were refused as they should be, but left a trace on the screen
    )

    def add(self, other: Report) -> None:
        """Add what came of other inputs."""
        self.accepted += other.accepted
        self.refused += other.refused
        self.findings += other.findings
        self.panics += other.panics
        self.again += other.again
        self.slowest, self.peak = max(self.slowest, other.slowest), max(self.peak, other.peak)


def random_of(surface: str, seed: int, number: int) -> np.random.Generator:
    """Return the generator of an input: the same in every process."""
    return np.random.default_rng([seed, zlib.crc32(surface.encode()), number])


class Worker:
    """One process; `run` gives it a chunk and watches it."""

    def __init__(self, *, niceness: int = 0, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._context = mp.get_context("spawn")
        self._shared = self._context.Array("d", 4, lock=False)
        self._niceness = niceness
        self._process: Any = None
        self._again = ("", -1)
        self._pipe: Connection

    def run(self, chunk: Chunk) -> Report:
        """Take in all inputs of a chunk; after one that ends the process, go on with the next."""
        report, start = Report(), chunk.start
        while start < chunk.stop:
            part = Chunk(chunk.surface, chunk.seed, start, chunk.stop)
            start = self._part(part, report)
        return report

    def _part(self, chunk: Chunk, report: Report) -> int:
        """Run until the end, or until an input ends the process; return where to go on."""
        self._start()
        self._shared[:] = [chunk.start, 0.0, 0.0, 0.0]
        self._pipe.send(chunk)
        while True:
            try:
                if self._pipe.poll(0.05):
                    found: Report | dict[str, Any] | str = self._pipe.recv()
                    if isinstance(found, str):
                        raise RuntimeError(found)  # of this harness, not of the product
                    if isinstance(found, Report):
                        report.add(found)
                        return chunk.stop
                    report.findings.append(found)  # at once: the process may not live to the end
            except (EOFError, ConnectionResetError):  # after its last word
                self._process.join()
            number, why = int(self._shared[_NUMBER]), self._trouble()
            if why is None:
                continue
            if self._process.is_alive():
                self._process.kill()
            self._process.join()
            self._process = None
            report.accepted += int(self._shared[_ACCEPTED])
            report.refused += int(self._shared[_REFUSED])
            if why[0] == "hang" and (chunk.surface, number) != self._again:
                self._again = chunk.surface, number  # the machine may be busy: once more, in a new process
                report.again += 1
                return number
            report.findings.append(
                {"surface": chunk.surface, "number": number, "kind": why[0], "detail": why[1]}
            )
            return number + 1

    def _trouble(self) -> tuple[str, str] | None:
        code = self._process.exitcode
        if code is not None:
            return "crash", signal.Signals(-code).name if code < 0 else f"exit status {code}"
        began = self._shared[_BEGAN]
        if began and time.monotonic() - began > self._seconds:
            return "hang", f"more than {self._seconds:g} s"
        if _resident(self._process.pid) > GIGABYTE:
            return "memory", "more than 1 GB"
        return None

    def _start(self) -> None:
        if self._process is not None and self._process.is_alive():
            return
        self._pipe, theirs = self._context.Pipe()
        self._process = self._context.Process(
            target=_live, args=(theirs, self._shared, self._niceness), daemon=True
        )
        self._process.start()
        theirs.close()
        self._pipe.recv()  # imports are over

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def _peak() -> int:
    """Return the most that this process ever had in memory, or since `_forget_peak`."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM"))


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _live(pipe: Connection, shared: Any, niceness: int) -> None:
    """The process: chunk after chunk. What it prints goes to a file that is looked at."""
    os.nice(niceness)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="assurance-", dir=base))
    parent = os.getppid()
    try:
        with _printed(folder) as printed:
            import cape  # noqa: F401  not on the clock of the first input

            pipe.send("ready")
            surfaces: dict[str, Any] = {}
            grace = 0.0
            while os.getppid() == parent:
                if not pipe.poll(1.0):
                    continue
                chunk: Chunk = pipe.recv()
                if chunk.surface not in surfaces:
                    place = folder / chunk.surface
                    place.mkdir(exist_ok=True)
                    surfaces[chunk.surface] = load(chunk.surface)(place)
                    grace = _GRACE
                pipe.send(_chunk(surfaces[chunk.surface], chunk, shared, printed, grace, pipe.send))
                grace = 0.0
    except (EOFError, BrokenPipeError):
        pass
    except Exception:
        pipe.send(traceback.format_exc())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _chunk(
    surface: Any, chunk: Chunk, shared: Any, printed: Any, grace: float, tell: Callable[[Any], None]
) -> Report:
    report = Report()
    for number in range(chunk.start, chunk.stop):
        shared[_NUMBER] = number
        given = surface.make(random_of(chunk.surface, chunk.seed, number))
        began = time.monotonic()
        shared[_BEGAN] = began + grace
        error, said = attempt(surface, given)
        took = time.monotonic() - began - grace
        shared[_BEGAN] = grace = 0.0
        shown = printed()
        report.panics += "panicked at" in shown
        verdict = judge(error, [*said, shown], surface.secrets)
        peak = _peak()
        if verdict is None and peak > GIGABYTE:
            verdict = ("memory", "more than 1 GB for a moment")
        report.slowest, report.peak = max(report.slowest, took), max(report.peak, peak)
        if verdict is not None:
            tell(
                {
                    "surface": chunk.surface,
                    "number": number,
                    "kind": verdict[0],
                    "detail": verdict[1],
                    "input": surface.show(given)[:1_000_000],
                }
            )
        elif error is None:
            report.accepted += 1
            shared[_ACCEPTED] += 1
        else:
            report.refused += 1
            shared[_REFUSED] += 1
        if peak > GIGABYTE:  # the high-water mark does not go down by itself
            _forget_peak()
    return report


def attempt(surface: Any, given: Any) -> tuple[BaseException | None, list[str]]:
    """Feed an input; return what was raised, and what was logged, warned of or answered."""
    handler = _Kept()
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    error: BaseException | None = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            surface.feed(given)
        except KeyboardInterrupt:
            raise
        except BaseException as raised:  # a panic of Rust is no Exception
            error = raised
    root.removeHandler(handler)
    root.setLevel(level)
    return error, [*handler.lines, *(str(warning.message) for warning in caught), surface.said()]


class _Kept(logging.Handler):
    """Keeps every record as text."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.lines.append(record.getMessage())


@contextlib.contextmanager
def _printed(folder: Path) -> Iterator[Any]:
    """Send both streams of this process to a file; give a function that returns what is new in it."""
    handle = os.open(folder / "printed", os.O_CREAT | os.O_RDWR | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(handle, stream)
    seen = 0

    def new() -> str:
        nonlocal seen
        sys.stdout.flush()
        sys.stderr.flush()
        size = os.fstat(handle).st_size
        if size == seen:
            return ""
        data = os.pread(handle, size - seen, seen)
        seen = size
        return data.decode("utf-8", "replace")

    yield new
