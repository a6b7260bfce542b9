"""Frames over a Unix socket: what a hostile sender gets, and what it costs."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time

import pytest

from cape.core.errors import BadMessage, CapeError, InvalidInput
from cape.core.unix import Client, Peer, Server, peer_of


@pytest.fixture
def place(tmp_path):
    return tmp_path / "s.sock"


def _anybody(peer: Peer) -> None:
    return None


def _raw(path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(str(path))
    connection.settimeout(5)
    return connection


def test_a_frame_is_answered_whatever_its_size(place):
    with Server(place, lambda data: bytes(data[::-1]), admit=_anybody), Client(place) as client:
        for size in (0, 1, 7, 1 << 10, (1 << 20) - 1, 1 << 20, (5 << 20) + 3):
            data = os.urandom(size)
            assert client.call(data) == data[::-1]


def test_threads_share_a_client_and_get_their_own_answers(place):
    wrong = []

    def ask(number: int, client: Client) -> None:
        for _ in range(50):
            data = struct.pack(">II", number, 7) * (number + 1)
            if client.call(data) != data:
                wrong.append(number)

    with Server(place, bytes, admit=_anybody), Client(place) as client:
        threads = [threading.Thread(target=ask, args=(number, client)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


@pytest.mark.parametrize(
    "bytes_",
    [b"GET / HTTP/1.1\r\n\r\n", b"CAPE\xff\xff\xff\xff", b"\0" * 8, b"CAPE\x00\x01\x00\x01"],
    ids=["http", "huge", "zeros", "above the limit"],
)
def test_what_is_not_a_frame_ends_the_connection_and_nothing_else(place, bytes_):
    seen = []
    with Server(place, lambda data: seen.append(data) or b"", admit=_anybody, most=1 << 16):
        with _raw(place) as wrong:
            wrong.sendall(bytes_)
            with contextlib.suppress(ConnectionResetError):
                assert wrong.recv(1) == b""
        with Client(place) as client:
            assert client.call(b"fine") == b""
    assert seen == [b"fine"]


def test_a_frame_that_is_announced_and_not_sent_allocates_little(place):
    resource = pytest.importorskip("resource")
    with Server(place, bytes, admit=_anybody):
        with Client(place) as client:
            client.call(b"warm")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        idle = [_raw(place) for _ in range(20)]
        for connection in idle:
            connection.sendall(b"CAPE" + struct.pack(">I", 1 << 29))
        time.sleep(0.2)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        with Client(place) as client:  # those who wait do not keep others out
            assert client.call(b"fine") == b"fine"
        for connection in idle:
            connection.close()
    assert grown < 400_000  # kilobytes: 16 MiB for each; the announced frames are 10 gigabytes


def test_who_is_not_admitted_is_not_read(place):
    told, seen = [], []
    with (
        Server(
            place,
            lambda data: seen.append(data) or b"",
            admit=lambda peer: "not you",
            refused=lambda peer, why: told.append((peer.uid, why)),
        ),
        pytest.raises(CapeError),
        Client(place) as client,
    ):
        client.call(b"x")
    assert told == [(os.getuid(), "not you")]
    assert not seen


def test_the_kernel_says_who_is_there():
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert peer_of(one) == Peer(os.getpid(), os.getuid(), os.getgid())


def test_a_handler_that_raises_closes_its_connection_only(place):
    def handle(data: bytearray) -> bytes:
        if data == b"bad":
            raise BadMessage("no")
        return bytes(data)

    with Server(place, handle, admit=_anybody), Client(place) as good:
        with pytest.raises(CapeError, match="closed"), Client(place) as bad:
            bad.call(b"bad")
        assert good.call(b"good") == b"good"


def test_frames_wait_for_room(place):
    """Two frames of 3 bytes do not fit into 4 at once: the second waits until the first is answered."""
    inside, most = [], []
    go = threading.Event()

    def handle(data: bytearray) -> bytes:
        inside.append(data)
        most.append(len(inside))
        go.wait(5)
        inside.pop()
        return bytes(data)

    with Server(place, handle, admit=_anybody, room=4):
        clients = [Client(place) for _ in range(3)]
        threads = [threading.Thread(target=client.call, args=(b"abc",)) for client in clients]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        go.set()
        for thread, client in zip(threads, clients, strict=True):
            thread.join(5)
            assert not thread.is_alive()
            client.close()
    assert max(most) == 1


def test_a_socket_in_use_is_refused_and_one_left_behind_is_replaced(place):
    first = Server(place, bytes, admit=_anybody)
    with pytest.raises(InvalidInput, match="in use"):
        Server(place, bytes, admit=_anybody)
    first._socket.close()  # killed: the file stays
    assert place.exists()
    with Server(place, bytes, admit=_anybody), Client(place) as client:
        assert client.call(b"x") == b"x"
    assert not place.exists()


def test_a_file_is_never_taken_for_a_socket(place):
    place.write_text("mine")
    with pytest.raises(InvalidInput, match="not a socket"):
        Server(place, bytes, admit=_anybody)
    assert place.read_text() == "mine"


def test_bad_places_are_said(tmp_path):
    with pytest.raises(InvalidInput, match="too long"):
        Server(tmp_path / ("x" * 120), bytes, admit=_anybody)
    with pytest.raises(InvalidInput, match="No such file"):
        Server(tmp_path / "no" / "s", bytes, admit=_anybody)
    with pytest.raises(CapeError, match="no process answers"):
        Client(tmp_path / "none")


def test_a_client_notices_that_the_other_end_has_hung_up(place):
    server = Server(place, bytes, admit=_anybody)
    server.start()
    with Client(place, timeout=60) as client:
        assert client.call(b"x") == b"x"
        assert client.open
        server.close()
        deadline = time.monotonic() + 5
        while client.open and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not client.open
    assert not client.open
