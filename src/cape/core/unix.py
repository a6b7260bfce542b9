"""Messages over a Unix socket: frames whose size and sender are known before they are read.

Claim. Whatever is written to such a socket, the listening process allocates no more for a frame than twice
the bytes that have arrived and 16 MiB, holds at most `room` bytes of frames at a time over all connections
(and a copy of one that has several parts, while it is joined), and passes a frame on only if the
operating system identifies its sender as a user who may send it.
Reason. A frame starts with a fixed header and its length; a length above the limit ends the connection before
anything else is read. Memory is allocated part by part, the next part when the last is full. Credentials come
from the kernel (SO_PEERCRED), once for each connection, before its first byte is read.
Tested in tests/unit/core/test_unix.py.

Imports only the standard library: the process that faces the network loads little else.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cape.core.errors import BadMessage, CapeError, InvalidInput

__all__ = ["MOST_BYTES", "Client", "Peer", "Server"]

MOST_BYTES = 1 << 29
"""The largest frame, 512 MiB: a vector of 67 million numbers."""

_MAGIC = b"CAPE"
_HEADER = struct.Struct(">4sI")
_CHUNK = 1 << 20
_PART = 1 << 24  # bytes allocated at once: smaller parts are slower
_STALL = 60.0  # seconds without a byte in the middle of a frame
_MOST_CONNECTIONS = 64
_LONGEST_PATH = 100  # bytes that every system accepts as the path of a socket
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True)
class Peer:
    """The process at the other end, as the kernel reports it; None where the system cannot."""

    pid: int | None
    uid: int | None
    gid: int | None


class _Room:
    """Memory for the frames of all connections of a server, reserved as bytes arrive."""

    def __init__(self, size: int) -> None:
        self._free, self._size = size, size
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def share(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that reserves some of the room; all of it is released at the end."""
        taken = 0

        def take(size: int) -> None:
            nonlocal taken
            size = min(size, self._size - taken)  # a single frame always fits
            with self._changed:
                if not self._changed.wait_for(lambda: self._free >= size, timeout=_STALL):
                    raise BadMessage("too many frames at once")
                self._free -= size
                taken += size

        try:
            yield take
        finally:
            with self._changed:
                self._free += taken
                self._changed.notify_all()


def _limit(connection: socket.socket, seconds: float | None) -> None:
    """Set the kernel's timeout; None is no limit. (`settimeout` polls before each part, which is slow.)"""
    patience = struct.pack("ll", *divmod(int((seconds or 0) * 1_000_000), 1_000_000))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)


def _send(connection: socket.socket, data: bytes | bytearray | memoryview) -> None:
    if len(data) < _CHUNK:
        connection.sendall(_HEADER.pack(_MAGIC, len(data)) + bytes(data))
    else:
        connection.sendall(_HEADER.pack(_MAGIC, len(data)))
        connection.sendall(data)


def _length(connection: socket.socket, most: int) -> int | None:
    """Wait for a frame; return its length, or None at the end of the connection."""
    header = bytearray()
    while len(header) < _HEADER.size:
        part = connection.recv(_HEADER.size - len(header))
        if not part:
            if header:
                raise BadMessage("the connection ended within a frame")
            return None
        header += part
        _limit(connection, _STALL)
    magic, length = _HEADER.unpack(header)
    if magic != _MAGIC:
        raise BadMessage("the bytes on the socket are not a frame of cape")
    if length > most:
        raise BadMessage(f"a frame must have at most {most} bytes")
    return int(length)


def _body(
    connection: socket.socket, length: int, take: Callable[[int], None] = lambda size: None
) -> bytearray:
    parts = []
    for size in [_PART] * (length // _PART) + [length % _PART]:
        take(size)
        part = bytearray(size)
        with memoryview(part) as view:
            filled = 0
            while filled < size:  # the kernel waits for all of it: waking for each packet is slow
                got = connection.recv_into(view[filled:], size - filled, socket.MSG_WAITALL)
                if not got:
                    raise BadMessage("the connection ended within a frame")
                filled += got
        parts.append(part)
    return parts[0] if len(parts) == 1 else bytearray().join(parts)


class Client:
    """The client's end: one frame out, one frame back. Threads take turns.

    >>> with Client(path) as client:
    ...     answer = client.call(data)
    """

    def __init__(self, path: str | Path, *, most: int = MOST_BYTES, timeout: float | None = None) -> None:
        self.path, self._most, self._timeout = Path(path), most, timeout
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        _limit(self._socket, timeout)
        try:
            self._socket.connect(os.fspath(path))
        except (OSError, ValueError) as error:
            self._socket.close()
            why = getattr(error, "strerror", None) or error
            raise CapeError(f"no process answers at the socket {str(path)!r}: {why}") from None

    def call(self, data: bytes | bytearray | memoryview) -> bytearray:
        """Send a frame and return the answer; raise `CapeError` if there is none."""
        try:
            with self._lock:
                _limit(self._socket, self._timeout)
                _send(self._socket, data)
                length = _length(self._socket, self._most)
                if length is not None:
                    return _body(self._socket, length)
        except OSError as error:
            raise CapeError(f"the socket {str(self.path)!r} failed: {error.strerror or error}") from None
        raise CapeError(f"the socket {str(self.path)!r} was closed at its other end")

    @property
    def peer(self) -> Peer:
        """The process at the other end."""
        return peer_of(self._socket)

    @property
    def open(self) -> bool:
        """Whether the other end is connected: it sends nothing unasked, so readable means closed."""
        try:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            return not poll.poll(0)
        except (OSError, ValueError):
            return False

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Server:
    """The server's end: a thread for each connection, frames of one connection in order.

    >>> server = Server(path, member.handle, admit=lambda peer: None)
    >>> server.start()

    Args:
        path: where to listen. A socket that a dead process left there is replaced; any other file is not.
        handle: returns the answer to a frame. If it raises, the connection is closed.
        handle_of: instead of `handle`, returns such a function for a peer.
        admit: returns why a peer may not connect, None if it may. Called once for each connection.
        mode: permissions of the socket's file.
        most: bytes of a frame; room: bytes of all frames that are held at once.
        refused: called with each peer that was not admitted, and why.
    """

    def __init__(
        self,
        path: str | Path,
        handle: Callable[[bytearray], bytes] | None = None,
        *,
        admit: Callable[[Peer], str | None],
        handle_of: Callable[[Peer], Callable[[bytearray], bytes]] | None = None,
        mode: int = 0o600,
        most: int = MOST_BYTES,
        room: int | None = None,
        refused: Callable[[Peer, str], None] = lambda peer, why: None,
    ) -> None:
        self.path = Path(path)
        if (handle is None) == (handle_of is None):
            raise InvalidInput("a server takes either handle or handle_of")
        self._handle, self._handle_of = handle, handle_of
        self._admit, self._refused, self._most = admit, refused, most
        self._room = _Room(2 * most if room is None else room)
        self._slots = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._open: set[socket.socket] = set()
        self._admitted: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._socket = _listen(self.path, mode)
        self._inode = os.stat(self.path).st_ino

    @property
    def connections(self) -> int:
        """How many admitted peers are connected."""
        with self._lock:
            return len(self._admitted)

    def start(self) -> None:
        """Start to answer, in threads."""
        threading.Thread(target=self._accept, name="cape-socket", daemon=True).start()

    def close(self) -> None:
        """Stop answering, and remove the socket."""
        with self._lock:
            self._closed = True
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):  # wakes the thread that waits in accept
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with contextlib.suppress(OSError):
            if os.stat(self.path).st_ino == self._inode:  # not the socket of a server started since
                self.path.unlink()

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            self._slots.acquire()
            try:
                connection, _ = self._socket.accept()
            except OSError:
                self._slots.release()
                if self._closed:
                    return
                continue
            threading.Thread(
                target=self._serve, args=(connection,), name="cape-connection", daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                with self._lock:
                    if self._closed:
                        return
                    self._open.add(connection)
                peer = peer_of(connection)
                why = self._admit(peer)
                if why is not None:
                    self._refused(peer, why)
                    return
                with self._lock:
                    self._admitted.add(connection)
                with contextlib.suppress(OSError, BadMessage):
                    handle = self._handle if self._handle_of is None else self._handle_of(peer)
                    assert handle is not None
                    self._answer(connection, handle)
        finally:
            with self._lock:
                self._open.discard(connection)
                self._admitted.discard(connection)
            self._slots.release()

    def _answer(self, connection: socket.socket, handle: Callable[[bytearray], bytes]) -> None:
        while True:
            _limit(connection, None)
            length = _length(connection, self._most)
            if length is None:
                return
            with self._room.share() as take:
                answer = handle(_body(connection, length, take))
            _limit(connection, _STALL)
            _send(connection, answer)


def peer_of(connection: socket.socket) -> Peer:
    """Return the process at the other end, as the kernel recorded it when the connection was made."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:  # pragma: no cover - not on Linux
        return Peer(None, None, None)
    raw = connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size)
    return Peer(*_CREDENTIALS.unpack(raw))


def _listen(path: Path, mode: int) -> socket.socket:
    """Return a listening socket; no process can connect before its file has this mode."""
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise InvalidInput(f"{path} is too long for a socket; choose a path of at most {_LONGEST_PATH} bytes")
    _clear(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(os.fspath(path))
        os.chmod(path, mode)
        listening.listen(_MOST_CONNECTIONS)
    except OSError as error:
        listening.close()
        raise InvalidInput(f"no socket can be made at {path}: {error.strerror}") from None
    return listening


def _clear(path: Path) -> None:
    """Remove the socket of a process that has ended."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise InvalidInput(f"{path} already exists and is not a socket; nothing is overwritten")
    except FileNotFoundError:
        return
    except OSError as error:
        raise InvalidInput(f"no socket can be made at {path}: {error.strerror}") from None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise InvalidInput(f"no socket can be made at {path}: {error.strerror}") from None
    raise InvalidInput(f"{path} is in use by another process")
