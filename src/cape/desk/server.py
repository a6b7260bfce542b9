"""The desk as a process: where it listens, how it ends, and what it prints.

Claim. Outside this machine the desk is reached by TLS only, or it does not start. A peer that sends no whole
request in time, the first or a later one, or headers of more than 16 kB, is cut off; at most `_MOST_PEERS`
are connected at a time.
Reason. The address is checked before anything listens; a proxy on this machine may add the TLS, and its
address (`--url`) must then start with https://. uvicorn's limits do the rest, with a clock for requests that
never come whole. Tested in tests/unit/desk/test_server.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from cape.core.errors import InvalidInput
from cape.desk.access.provider import is_loopback

__all__ = ["Address", "Log", "Say", "listen", "run", "state_folder"]

Say = Callable[[str], None]

_MOST_PEERS = 250
_MOST_HEADERS = 1 << 14  # bytes
_REQUEST = 15.0  # seconds in which a request must be there, whole
_LAST_ANSWER = 3  # seconds for answers under way when the desk ends
_MOST_LOG = 1 << 24


@dataclass(frozen=True)
class Address:
    """Where a desk listens, and how browsers reach it.

    Attributes:
        host, port: where it listens.
        cert, key: files of the certificate and its key, for TLS.
        url: how browsers reach it, if not by host and port: the address of a proxy.
    """

    host: str
    port: int
    cert: Path | None = None
    key: Path | None = None
    url: str | None = None

    def check(self) -> None:
        """Raise unless others than this machine must use TLS."""
        if (self.cert is None) != (self.key is None):
            raise InvalidInput("TLS needs two files: give --cert and --key")
        if self.cert is None and not self._is_loopback:
            raise InvalidInput(
                f"--host {self.host} can be reached from other machines, so it needs TLS: give --cert and "
                "--key; or leave out --host, and let a proxy on this machine add TLS (--url)"
            )
        if self.url is not None:
            self._check_url(self.url)
        if self.cert is not None and self.key is not None:
            _require_pair(self.cert, self.key)

    def at(self, port: int) -> Address:
        """Return the address with the port that was free, if any was asked for."""
        return replace(self, port=port)

    @property
    def secure(self) -> bool:
        """Whether browsers use TLS."""
        return self.cert is not None or (self.url or "").startswith("https://")

    @property
    def base(self) -> str:
        """How browsers reach the desk: https://desk.hospital.org:8443."""
        if self.url is not None:
            return self.url.rstrip("/")
        shown = f"[{self.host}]" if ":" in self.host else self.host
        if self.host in ("0.0.0.0", "::"):
            shown = socket.getfqdn()
        return f"{'https' if self.secure else 'http'}://{shown}{self._suffix}"

    @property
    def hosts(self) -> frozenset[str]:
        """The names, with ports, under which the desk answers."""
        names = {urlsplit(self.base).netloc.lower()}
        if self._is_loopback:
            names |= {f"{name}{self._suffix}" for name in ("127.0.0.1", "localhost", "[::1]")}
        return frozenset(names)

    @property
    def cookie(self) -> str:
        """The name of the session's cookie: browsers keep those of all ports of a name together."""
        return "__Host-cape-desk" if self.secure else f"cape-desk-{self.port}"

    @property
    def _suffix(self) -> str:
        return "" if self.port == (443 if self.cert is not None else 80) else f":{self.port}"

    @property
    def _is_loopback(self) -> bool:
        with contextlib.suppress(ValueError):
            return ip_address(self.host).is_loopback
        return self.host == "localhost"

    def _check_url(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            local = parts.scheme == "http" and self.cert is None and is_loopback(parts.hostname or "")
            plain = bool(parts.hostname) and parts.path in ("", "/") and not parts.query
            right = plain and (parts.scheme == "https" or local)
        except ValueError:
            right = False
        if not right:
            raise InvalidInput(
                "--url must be the address of this desk without a path, as in https://desk.hospital.org, not "
                f"{url!r}"
            )


def _require_pair(cert: Path, key: Path) -> None:
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key)
    except OSError as error:  # also SSLError
        why = "they are no pair of PEM files" if isinstance(error, ssl.SSLError) else error.strerror
        raise InvalidInput(f"--cert {cert} and --key {key} cannot be used: {why}") from None


def state_folder(path: Path) -> Path:
    """Make the desk's own folder, which nobody else can enter; refuse one that others can write to."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except OSError as error:
        raise InvalidInput(
            f"the desk's own folder {path} cannot be made: {error.strerror}; name another with --state"
        ) from None
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise InvalidInput(
            f"other users can enter {path}, where the desk keeps links and trail; run: chmod 700 {path}"
        )
    return path


class Log:
    """The desk's own log: what went wrong, by kind and place. A full log replaces the previous one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, line: str) -> None:
        """Add a line."""
        text = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in line)[:2000]
        with contextlib.suppress(OSError):  # a full disk
            handle = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {text}\n")
            if self._path.stat().st_size > _MOST_LOG:
                os.replace(self._path, self._path.with_suffix(".log.1"))


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes any that is free."""
    listening = None
    try:
        family, kind, number, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, number)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(where)
        listening.listen(128)
        return listening
    except OSError as error:
        if listening is not None:
            listening.close()
        why = error.strerror or error
    raise InvalidInput(f"the desk cannot listen at {host}, port {port}: {why}; try --port 0")


class _Impatient(H11Protocol):
    """A connection that ends if a request does not come, or does not come whole, in time.

    uvicorn's own clock runs between requests only, after the first one.
    """

    _due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._due = self.loop.call_later(_REQUEST, self._end)

    def handle_events(self) -> None:
        super().handle_events()
        whole = self.conn.their_state not in (h11.IDLE, h11.SEND_BODY)
        if whole and self._due is not None:
            self._due.cancel()
            self._due = None
        elif not whole and self._due is None:
            self._due = self.loop.call_later(_REQUEST, self._end)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._due is not None:
            self._due.cancel()

    def _end(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `run`: an end by SIGTERM or Ctrl-C is a good end."""
        yield


class _ToLog(logging.Handler):
    """Writes what uvicorn says to the desk's log, in one line and without a trace."""

    def __init__(self, log: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0] if record.exc_info else None
        self._log(record.getMessage() if kind is None else f"{record.getMessage()}: {kind.__name__}")


def run(app: Starlette, address: Address, listening: socket.socket) -> None:
    """Answer requests until SIGTERM or Ctrl-C."""
    logger = logging.getLogger("uvicorn")
    logger.propagate = False
    logger.handlers = [_ToLog(app.state.access.log)]
    server = _Server(
        uvicorn.Config(
            app,
            http=_Impatient,
            ws="none",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_MOST_PEERS,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=_LAST_ANSWER,
            h11_max_incomplete_event_size=_MOST_HEADERS,
            ssl_certfile=address.cert,
            ssl_keyfile=address.key,
        )
    )

    def stop(*_: object) -> None:
        server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    with contextlib.suppress(asyncio.CancelledError):
        server.run(sockets=[listening])
