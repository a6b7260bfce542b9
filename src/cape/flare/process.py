"""Runs a kit's NVFLARE process in the foreground: restarts it when it dies, and ends it with `cape`."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from cape.core.errors import CapeError, InvalidInput
from cape.flare.kits import require_flare
from cape.flare.names import LINK
from cape.flare.settings import ENVIRONMENT, aggregator_resources
from cape.flare.window import watching

__all__ = ["descendants", "join", "kit_name", "serve"]

CONSOLE, LOCK = "console.log", "cape.lock"
_UP = re.compile(rb"Successfully registered client|Admin Server is started")
_LATE = 20.0  # seconds after which the user is told that nothing has answered yet
_AGAIN = 2.0  # seconds before a process that died is restarted
_FAST = 20.0  # a process that dies sooner than this after its start has a lasting problem ...
_TRIES = 5  # ... if it does so this often in a row
_GRACE = 5.0  # seconds to end by itself
_SERVER = "cape.flare.server"
_CLIENT = "cape.flare.client"
Say = Callable[[str], None]


def serve(kit: Path, say: Say) -> None:
    """Run the aggregator until SIGINT or SIGTERM."""
    _require(kit, "fed_server.json", "an aggregator's")
    store = (kit / "store").resolve()
    resources = json.dumps(aggregator_resources(store), indent=2) + "\n"
    (kit / "local" / "resources.json").write_text(resources, encoding="utf-8")
    arguments = [_SERVER, "-m", str(kit.resolve()), "-s", "fed_server.json", "--set", "secure_train=true"]
    target = _target(kit / "startup" / "fed_server.json")
    with _alone(kit):
        _require_free(int(target.rpartition(":")[2]))
        say(f"The aggregator of {target} is starting; Ctrl-C stops it. Its log: {_log(kit)}")
        late = f"The aggregator is not up after {_LATE:.0f} seconds; see its log."
        _until_stopped(kit, [*arguments, "org=cape", "config_folder=config"], {}, _Said(say, "Up.", late))


def join(kit: Path, link: Path, say: Say) -> None:
    """Carry messages between the aggregator and the daemon behind a socket, until SIGINT or SIGTERM.

    It says what became of the studies whose messages it carries.
    """
    name = kit_name(kit)
    arguments = [_CLIENT, "-m", str(kit.resolve()), "-s", "fed_client.json", "--set", "secure_train=true"]
    arguments += [f"uid={name}", "org=cape", "config_folder=config", "heart_beat_interval=2"]
    say(f"The link of site {name} is starting; Ctrl-C stops it. NVFLARE's log: {_log(kit)}")
    target = _target(kit / "startup" / "fed_client.json")
    late = f"No aggregator has answered at {target} for {_LATE:.0f} seconds; cape keeps trying."
    with _alone(kit), watching(link, say):
        said = _Said(say, f"Connected to the aggregator at {target}.", late)
        _until_stopped(kit, arguments, {LINK: str(link.absolute())}, said)


def kit_name(kit: Path) -> str:
    """Return the name of a site's kit."""
    _require(kit, "fed_client.json", "a site's")
    found = json.loads((kit / "startup" / "fed_client.json").read_text(encoding="utf-8"))
    return str(found["client"]["fqsn"])


@dataclass(frozen=True)
class _Said:
    """How the user is told about a process, and what when it is up, or not up after some time."""

    say: Say
    up: str
    late: str


def _target(path: Path) -> str:
    """Return the aggregator's host and port, as a kit names them."""
    servers = json.loads(path.read_text(encoding="utf-8"))["servers"]
    return str(servers[0]["service"]["target"])


def _log(kit: Path) -> str:
    return str(kit / CONSOLE)


def _require(kit: Path, file: str, whose: str) -> None:
    require_flare()
    if not (kit / "startup" / file).is_file():
        raise InvalidInput(
            f"{kit} is not {whose} kit: it has no startup/{file}; `cape deploy init` makes kits"
        )


def _require_free(port: int, seconds: float = 10.0) -> None:
    """Raise if the port is in use: NVFLARE would wait for it silently.

    A process that was killed a moment ago may still hold it.
    """
    until = time.monotonic() + seconds
    while True:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                return probe.bind(("", port))
            except OSError as error:
                if time.monotonic() > until:
                    raise InvalidInput(
                        f"port {port} cannot be used: {error.strerror}. Another aggregator may be running; "
                        "`cape deploy init --port` makes kits for another port"
                    ) from None
        time.sleep(0.2)


@contextlib.contextmanager
def _alone(kit: Path) -> Iterator[None]:
    """Lock a kit: two processes with one name would replace each other at the aggregator."""
    handle = os.open(kit / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidInput(f"{kit} is in use: another `cape serve` or `cape join` runs with it") from None
        yield
    finally:
        os.close(handle)


def _until_stopped(kit: Path, arguments: list[str], environment: Mapping[str, str], said: _Said) -> None:
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        _keep_alive(kit, arguments, {**os.environ, **ENVIRONMENT, **environment}, stop, said)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    said.say("Stopped.")


def _keep_alive(
    kit: Path, arguments: list[str], environment: Mapping[str, str], stop: threading.Event, said: _Said
) -> None:
    (kit / "transfer").mkdir(exist_ok=True)
    short = 0
    while not stop.is_set():
        began, written = time.monotonic(), _size(kit / CONSOLE)
        with open(kit / CONSOLE, "ab") as log:
            os.chmod(kit / CONSOLE, 0o600)
            process = subprocess.Popen(
                [sys.executable, "-u", "-P", "-m", *arguments],  # no module comes out of the kit
                cwd=kit,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=_end_with_parent,
                start_new_session=True,  # Ctrl-C is ours to handle
            )
        try:
            up = late = False
            while process.poll() is None and not stop.wait(0.2):
                if not up and _is_up(kit / CONSOLE, written):
                    up = True
                    said.say(said.up)
                if not (up or late) and time.monotonic() - began > _LATE:
                    late = True
                    said.say(said.late)
        finally:
            _end(process)
        if stop.is_set():
            return
        short = short + 1 if time.monotonic() - began < _FAST else 0
        if short >= _TRIES:
            raise CapeError(f"the process ended {_TRIES} times right after its start; see {_log(kit)}")
        said.say(f"The process ended (status {process.returncode}); it is restarted.")
        stop.wait(_AGAIN)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _is_up(path: Path, after: int) -> bool:
    """Return whether NVFLARE's log says so, after this position."""
    with open(path, "rb") as log:
        log.seek(after)
        return _UP.search(log.read(1 << 20)) is not None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all jobs that it started (which also end by themselves: `cape.flare.orphan`)."""
    below = descendants(process.pid)
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
    for each in (process, *below):
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            each.kill()
    process.wait()


def descendants(pid: int) -> list[psutil.Process]:
    """Return all processes below a process."""
    try:
        found: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return found


def _end_with_parent() -> None:
    """Ask Linux to end this process when `cape` itself is killed, so that nothing keeps running unnoticed."""
    with contextlib.suppress(OSError, AttributeError):  # where there is no such call, as on a Mac
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
