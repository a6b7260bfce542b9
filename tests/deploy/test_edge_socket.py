"""Ten thousand messages of a hostile link at a real daemon: it stays up, pays nothing and tells nothing."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import time

import pytest

from cape.core.errors import CapeError
from cape.core.unix import Client
from cape.site import wire
from tests.channel import LocalChannel
from tests.world import MEAN, NAMES, SECRET, World

MESSAGES = 10_000


class Recorded(LocalChannel):
    """Keeps what was sent to a site."""

    def __init__(self, members):
        super().__init__(members)
        self.sent: list[bytes] = []

    def exchange(self, round_, messages):
        if "a" in messages:
            self.sent.append(bytes(messages["a"]))
        yield from super().exchange(round_, messages)


@pytest.fixture(autouse=True)
def _everybody_is_there() -> None:
    """No deployment is needed here."""


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """A site that has answered a study, its daemon as a process of its own, and all that it was sent."""
    world = World(tmp_path_factory.mktemp("fuzz"), NAMES, epsilon=(20.0, 20.0, 20.0))
    world.channel = Recorded(world.members)
    world.relay._channel = world.channel
    study = world.study(MEAN)
    submission = world.submission(study)
    submission.check()
    submission.answer(study.analyses[0])
    folder = world.sites["a"]
    place = folder.path.parent / "l.sock"
    command = [sys.executable, "-m", "cape", "site", "serve", "--site", str(folder.path)]
    process = subprocess.Popen(
        [*command, "--link", str(place), "--link-may-read-rows"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    until = time.monotonic() + 60
    while not place.exists():
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    yield folder, place, process, world.channel.sent
    process.terminate()
    process.wait(10)
    process.stdout.close()


def test_bent_messages_cost_nothing_and_tell_nothing(attacked):
    folder, place, process, corpus = attacked
    draw = random.Random(20)
    lines = len(folder.ledger.entries())
    client, answers, hung_up = Client(place, timeout=30), set(), 0
    for _ in range(MESSAGES):
        data = _bent(draw, corpus)
        try:
            answer = client.call(data)
        except CapeError:
            hung_up += 1
            client.close()
            client = Client(place, timeout=30)
            continue
        if data:
            message = wire.unpack_from_site(answer)
            answers.add(type(message).__name__)
            assert str(SECRET).encode() not in answer
            if isinstance(message, wire.Refused):
                assert "Traceback" not in message.sentence
                assert str(folder.path) not in message.sentence
    client.close()
    assert process.poll() is None
    assert len(folder.ledger.entries()) == lines
    assert "Refused" in answers
    assert answers <= {"Refused", "Present", "Known", "Reviewed"}
    assert hung_up < MESSAGES / 100


def test_broken_frames_end_their_connection_only(attacked):
    folder, place, process, _ = attacked
    draw = random.Random(21)
    lines = len(folder.ledger.entries())
    stalled = []
    for number in range(500):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(str(place))
        start = draw.choice([b"CAPE", b"CAP", b"GET ", b"\0\0\0\0", b""])
        with contextlib.suppress(OSError):
            connection.sendall(start + draw.randbytes(draw.choice([0, 1, 4, 100])))
        if number % 25 == 0:
            stalled.append(connection)  # in the middle of a frame, and silent
        else:
            connection.close()
    with Client(place, timeout=30) as client:
        assert isinstance(wire.unpack_from_site(client.call(wire.pack(wire.Hello(1)))), wire.Present)
    for connection in stalled:
        connection.close()
    assert process.poll() is None
    assert len(folder.ledger.entries()) == lines


def _bent(draw: random.Random, corpus: list[bytes]) -> bytes:
    """Return a message like those that a site gets, and yet another."""
    data = bytearray(draw.choice(corpus))
    match draw.randrange(7):
        case 0:
            return draw.randbytes(draw.choice([1, 8, 64, 4096]))
        case 1:  # the same message again
            return bytes(data)
        case 2:
            return bytes(data[: draw.randrange(1, len(data))])
        case 3:
            for _ in range(draw.randrange(1, 8)):
                data[draw.randrange(len(data))] = draw.randrange(256)
        case 4:  # a part of another message in its place
            other = draw.choice(corpus)
            start = draw.randrange(len(data))
            data[start : start + draw.randrange(200)] = other[draw.randrange(len(other)) :][
                : draw.randrange(200)
            ]
        case 5:
            start = draw.randrange(len(data))
            data[start:start] = draw.choice([b"\xdf\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\x91" * 500])
        case _:
            start = draw.randrange(len(data))
            del data[start : start + draw.randrange(1, 50)]
    return bytes(data) or os.urandom(1)
