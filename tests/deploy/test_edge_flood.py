"""One site, or somebody without a certificate, floods the aggregator's port: studies of the others go on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from tests.deploy.conftest import World, mean, until
from tests.deploy.forged import attack

IDLE, SLOW, CERTIFIED = 400, 200, 200
OF_ONE_SITE = 32
FUZZED = 10_000
MEMORY = 1 << 29  # bytes that the aggregator may take more than before


def test_a_study_goes_on_while_hundreds_of_connections_say_nothing_or_a_byte_at_a_time(world: World) -> None:
    """Some of them have the certificate of a site, and get through TLS."""
    with _connected(world) as (strangers, certified):
        began = time.monotonic()
        _study(world, "idle")
        until(lambda: sum(map(_is_open, certified)) <= OF_ONE_SITE, 30)
        until(lambda: not any(map(_is_open, strangers)), 30)  # who says nothing is not waited for
        assert time.monotonic() - began < 60


def test_a_study_of_the_others_goes_on_while_a_site_sends_all_that_it_can(world: World) -> None:
    before = _memory(world)
    sent: list[Any] = []
    thread = threading.Thread(target=lambda: sent.append(attack(world, "d", "flood", seconds=12.0)))
    thread.start()
    _study(world, "flooded")
    thread.join()
    assert sent[0] > 500
    assert _memory(world) - before < MEMORY
    world.back()


def test_ten_thousand_bent_messages_at_the_port_harm_nobody(world: World) -> None:
    before = _memory(world)
    thread = threading.Thread(target=_fuzz, args=(world,))
    thread.start()
    _study(world, "fuzzed")
    thread.join()
    assert _memory(world) - before < MEMORY
    world.back()


def test_a_site_cannot_end_a_study_with_a_result_that_cannot_be_decoded(world: World) -> None:
    """NVFLARE's process of a job would end itself."""
    sent: list[Any] = []
    thread = threading.Thread(target=lambda: sent.append(attack(world, "d", "poison", seconds=15.0)))
    thread.start()
    _study(world, "poisoned")
    thread.join()
    assert sent[0] > 0


def test_a_site_cannot_vouch_for_another_that_is_gone(world: World) -> None:
    """It could keep a study waiting: the aggregator gives up a site that shows no sign of life."""
    (world.here.site("c").path / "crash").write_text("share before silent\n")
    thread = threading.Thread(target=lambda: attack(world, "d", "vouch", site="c", within=240.0))
    thread.start()
    try:
        done = world.submit(world.study("vouched", mean(1.0), epsilon=1.0))
        assert thread.is_alive()
        assert done.returncode == 0, done.stderr
        assert world.results("vouched")["analyses"][0]["participants"] == ["a", "b", "d"]
    finally:
        (world.here.kit("d") / "enough").touch()
        thread.join()
        world.here.kill("c", again=True)


def _study(world: World, name: str) -> None:
    began = time.monotonic()
    done = world.submit(world.study(name, mean(1.0), epsilon=1.0))
    assert done.returncode == 0, done.stderr
    assert set(world.results(name)["analyses"][0]["participants"]) >= {"a", "b", "c"}
    assert time.monotonic() - began < 60


def _memory(world: World) -> int:
    """Return the bytes that the aggregator's process takes, without those of its jobs."""
    process = psutil.Process(world.here.processes["aggregator"].pid)
    return sum(each.memory_info().rss for each in process.children())


@contextlib.contextmanager
def _connected(world: World) -> Iterator[tuple[list[socket.socket], list[socket.socket]]]:
    """Hold many connections open: silent ones, slow ones, and silent ones with a site's certificate."""
    stop = threading.Event()
    plain = [_dial(world) for _ in range(IDLE + SLOW)]
    certified = [found for _ in range(CERTIFIED) if (found := _dial_with_certificate(world)) is not None]
    assert certified

    def drip() -> None:
        hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(400)
        for byte in hello:
            for each in plain[:SLOW]:
                with contextlib.suppress(OSError):
                    each.send(bytes([byte]))
            if stop.wait(0.2):
                return

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield plain[SLOW:], certified
    finally:
        stop.set()
        thread.join()
        for each in (*plain, *certified):
            each.close()


def _is_open(connection: socket.socket) -> bool:
    """Return whether the other side has not closed a connection."""
    connection.settimeout(0)
    try:
        return connection.recv(1) != b""
    except (BlockingIOError, ssl.SSLWantReadError):
        return True
    except OSError:
        return False


def _dial(world: World) -> socket.socket:
    return socket.create_connection(("localhost", world.here.port), timeout=10)


def _dial_with_certificate(world: World) -> socket.socket | None:
    try:
        return _context(world.here.kit("d")).wrap_socket(_dial(world), server_hostname="localhost")
    except OSError:  # the aggregator has enough of this site
        return None


def _context(kit: Path) -> ssl.SSLContext:
    startup = kit / "startup"
    context = ssl.create_default_context(cafile=str(startup / "rootCA.pem"))
    context.load_cert_chain(str(startup / "client.crt"), str(startup / "client.key"))
    return context


def _fuzz(world: World) -> None:
    """Send random bytes, broken TLS records, and garbage over TLS and over websockets."""
    for number in range(FUZZED // 20):
        with contextlib.suppress(OSError), _dial(world) as plain:
            start = (b"", b"\x16\x03\x01", b"\x17\x03\x03", b"GET /f3 HTTP/1.1\r\n")[number % 4]
            plain.sendall(start + os.urandom(number % 1500))
    for number in range(FUZZED // 100):
        bent = _dial_with_certificate(world)
        if bent is not None:
            with contextlib.suppress(OSError), bent:
                start = (b"", b"GET /f3 HTTP/1.1\r\nUpgrade: websocket\r\n", b"POST /f3 HTTP/1.1\r\n")[
                    number % 3
                ]
                bent.sendall(start + os.urandom(number * 10))
    asyncio.run(_fuzz_websockets(world, FUZZED - FUZZED // 20 - FUZZED // 100))


async def _fuzz_websockets(world: World, count: int) -> None:
    context, url = _context(world.here.kit("d")), f"wss://localhost:{world.here.port}/f3"
    async with aiohttp.ClientSession() as session:
        while count > 0:
            try:
                async with session.ws_connect(url, ssl=context) as opened:
                    for number in range(100):
                        await opened.send_bytes(_frame(number))
                        count -= 1
            except (aiohttp.ClientError, OSError):
                await asyncio.sleep(0.05)


def _frame(number: int) -> bytes:
    """Return a frame as NVFLARE would read it, more and more of which is right."""
    body = os.urandom(number % 300)
    kind = number % 8
    header = bytes([0x81, 0xA1, 0x61, 0xA1, 0x62]) if number % 3 else os.urandom(5)
    prefix = (16 + len(header) + len(body)).to_bytes(4, "big") + len(header).to_bytes(2, "big")
    prefix += bytes([kind, 0, 0, 0, 0, 1, 0, 1, 0, number % 256])
    return os.urandom(number % 40) if number % 5 == 0 else prefix + header + body
