"""The administrative socket: who may connect, what crosses it, and that nothing else does."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
import pytest

from cape.core import unix
from cape.core.errors import CapeError, InvalidInput
from cape.site import SiteFolder
from cape.site.admin import SOCKET, Client, Desk, serve
from cape.site.admin.data import MOST_POLICY, MOST_TEXT
from cape.site.admin.wire import handler
from tests.world import SECRET, World, document


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path / "w")
    world.edit('approve = "auto"', 'approve = "ask"')
    return world


@pytest.fixture
def client(world: World) -> Iterator[Client]:
    path = world.site.path / SOCKET
    with serve(path, SiteFolder(world.site.path)), Client(path) as client:
        yield client


def pretend(monkeypatch: pytest.MonkeyPatch, uid: int | None) -> None:
    """Let every connection come from this user."""
    monkeypatch.setattr("cape.core.unix.peer_of", lambda connection: unix.Peer(1, uid, 1))


def test_both_ends_say_the_same(world: World, client: Client):
    desk = Desk(world.site)
    assert world.code(world.request()) == "approval"
    assert client.inbox() == desk.inbox()
    assert client.mine() == desk.mine()
    assert client.policy().text == desk.policy().text
    assert client.check() == desk.check()
    assert client.approve("lungs").study.state == "approved"
    assert client.refuse("lungs", "office", "why not").study == desk.inbox().of("refused")[0]
    assert client.log(5) == desk.log(5)
    assert client.ledger(lines=True) == desk.ledger(lines=True)
    assert client.study("lungs") == desk.study("lungs")
    assert client.notify() == desk.notify()
    assert client.verify().lines == desk.verify().lines == 0
    assert client.ledger_export().startswith('{"format":"cape ledger export 1","site":"a"')
    assert client.events(client.status().last_event, 0.0) == ()
    assert client.status().linked is False
    assert client.try_policy("x").problem == desk.try_policy("x").problem


def test_an_error_crosses_as_its_sentence(world: World, client: Client):
    with pytest.raises(InvalidInput, match="there is no study 'x' to approve"):
        client.approve("x")
    (world.site.path / "ledger.sqlite").unlink()
    with pytest.raises(InvalidInput, match="no ledger"):
        client.ledger()
    assert client.status().policy == "in force", "the connection goes on"


def test_what_nobody_expected_crosses_without_its_text(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch
):
    def fails(*_: object) -> None:
        raise ValueError(f"could not convert {SECRET}")

    monkeypatch.setattr("cape.site.admin.shown.summary", fails)
    with pytest.raises(CapeError, match=r"^something went wrong; see the site's log$"):
        client.status()
    last = client.log(1).lines[0]
    assert "a steward's request failed: ValueError" in last
    assert str(SECRET) not in last


def test_only_the_sites_user_root_and_named_stewards_are_answered(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "a.sock"
    own, steward, link = os.geteuid(), 70_001, 70_002
    with serve(path, world.site, frozenset({steward})):
        for uid in (own, 0, steward):
            pretend(monkeypatch, uid)
            with Client(path) as client:
                assert client.status().site is not None
        for other in (link, 70_003, None):
            pretend(monkeypatch, other)
            with Client(path) as client, pytest.raises(CapeError, match="its stewards"):
                client.status()
    assert f"user {link} is not a steward" in (world.site.path / "site.log").read_text()


@pytest.mark.slow(3)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_real_user_who_is_not_named(world: World):
    ask = (
        "import os, sys; from cape.site.admin import Client; os.setgid(60001); os.setuid(60001)\n"
        "with Client(sys.argv[1]) as client: print(client.mine().name)"
    )
    with TemporaryDirectory() as folder:  # pytest's own lets nobody else in
        os.chmod(folder, 0o711)
        path = Path(folder) / "a.sock"
        for stewards, answered in ((frozenset[int](), False), (frozenset({60_001}), True)):
            with serve(path, world.site, stewards):
                path.chmod(0o666)  # as far as the file system goes, everybody may connect
                done = subprocess.run([sys.executable, "-c", ask, path], capture_output=True, text=True)
            assert (done.stdout.strip() == "a") == answered, done.stderr
            assert (f"the socket {str(path)!r}" in done.stderr) != answered


def test_modes_of_the_socket(world: World, tmp_path: Path):
    for path, mode in ((world.site.path / SOCKET, 0o600), (tmp_path / "a.sock", 0o660)):
        with serve(path, world.site):
            assert path.stat().st_mode & 0o777 == mode
        assert not path.exists()


def test_texts_are_bounded(client: Client):
    with pytest.raises(InvalidInput, match="at most 1024 kB"):
        client.check("é" * MOST_TEXT)
    with pytest.raises(InvalidInput, match="cannot be read, or is too long"):
        client.check("x" * (MOST_TEXT + 1))
    tried = client.try_policy("x" * (MOST_POLICY + 1))
    assert "at most 64 kB" in str(tried.problem)
    with pytest.raises(InvalidInput, match="UTF-8"):
        client.approve("\udcff")
    with pytest.raises(InvalidInput, match="cannot be read, or is too long"):
        client.approve("x" * 1000)


def test_bytes_that_are_no_request_change_nothing(world: World):
    handle = handler(Desk(world.site))
    assert world.code(world.request()) == "approval"
    policy, draw = (world.site.path / "site.toml").read_bytes(), np.random.default_rng(3)
    good = msgspec.msgpack.encode({"type": "approve", "study": "lungs", "coordinator": None, "reason": ""})
    frames = [b"", b"\xc1", b"\x91" * 5000, good[:-1], good + b"\0", msgspec.msgpack.encode({"type": "x"})]
    frames += [msgspec.msgpack.encode({"type": "log", "lines": n}) for n in (-1, 10**9, "5")]
    frames += [msgspec.msgpack.encode({"type": "status", "more": 1})]
    for _ in range(2000):
        bent = bytearray(good)
        bent[draw.integers(len(bent))] ^= 1 << draw.integers(8)
        frames.append(bytes(bent))
    frames += [msgspec.msgpack.encode({"type": "_find", "study": "lungs", "coordinator": None})]
    for frame in frames:
        answer = msgspec.msgpack.decode(handle(frame))
        assert answer["code"] in ("input", "failed"), answer
    assert len(world.site.approvals.studies("waiting")) == 1
    assert (world.site.path / "site.toml").read_bytes() == policy
    assert msgspec.msgpack.decode(handle(good))["code"] == ""


def test_of_two_changes_at_once_one_is_made(world: World, tmp_path: Path):
    path = tmp_path / "a.sock"
    made: list[str] = []
    with serve(path, world.site):
        with Client(path) as client:
            read = client.policy()

        def change(rows: int) -> None:
            with Client(path) as client:
                try:
                    client.save_policy(read.text.replace("min_rows = 100", f"min_rows = {rows}"), read.hash)
                    made.append(f"min_rows = {rows}\n")
                except InvalidInput:
                    pass

        threads = [threading.Thread(target=change, args=(200 + i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    (only,) = made
    assert only in (world.site.path / "site.toml").read_text()


def test_a_study_is_tried_by_its_text(client: Client, world: World):
    assert world.code(world.request(document())) == "approval"
    with pytest.raises(InvalidInput, match=r"^there/study\.toml is not a TOML file"):
        client.check("[study", None, "there/study.toml")
