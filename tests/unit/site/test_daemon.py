"""The site's daemon: whom it answers, where it may live, and what it never loads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cape.core.errors import CapeError, InvalidInput
from cape.core.unix import Client, Peer
from cape.site import SiteFolder, wire
from cape.site.daemon import Daemon, link_socket


@pytest.fixture
def folder(tmp_path):
    return SiteFolder.create(tmp_path / "our-site", "cleveland")


def test_a_link_carries_messages_and_gets_answers(folder, tmp_path):
    place = tmp_path / "run" / "link.sock"
    with Daemon(folder, place, link_may_read_rows=True) as daemon:
        assert not daemon.connected
        with Client(place) as link:
            present = wire.unpack_from_site(link.call(wire.pack(wire.Hello(7))))
            assert present == wire.Present(7, present.version, "cleveland", folder.identity.public)
            assert link.call(b"") == b""  # whether anybody is there
            refused = wire.unpack_from_site(link.call(b"garbage"))
            assert isinstance(refused, wire.Refused)
            assert daemon.connected
    assert not place.exists()


def test_a_link_of_the_daemons_own_user_is_turned_away_and_told_nothing(folder, tmp_path):
    heard = []
    daemon = Daemon(folder, tmp_path / "link.sock", say=heard.append)
    with daemon, pytest.raises(CapeError), Client(daemon.link) as link:
        link.call(wire.pack(wire.Hello(1)))
    assert len(heard) == 1
    assert "run `cape join` as a user of its own" in heard[0]
    assert "turned a link away" in (folder.path / "site.log").read_text()


@pytest.mark.parametrize(
    ("uid", "admitted"), [(0, False), (os.geteuid(), False), (None, False), (os.geteuid() + 4321, True)]
)
def test_root_and_the_daemons_own_user_are_no_links(folder, tmp_path, uid, admitted):
    daemon = Daemon(folder, tmp_path / "link.sock")
    try:
        assert (daemon._admit(Peer(1, uid, 1)) is None) == admitted
    finally:
        daemon.close()


def test_root_is_no_link_of_another_users_daemon(folder, tmp_path, monkeypatch):
    daemon = Daemon(folder, tmp_path / "link.sock")
    monkeypatch.setattr(os, "geteuid", lambda: 4000)
    try:
        assert "root" in daemon._admit(Peer(1, 0, 1))
        assert "own user" in daemon._admit(Peer(1, 4000, 1))
        assert daemon._admit(Peer(1, 4001, 1)) is None
    finally:
        daemon.close()


def test_a_steward_is_no_link(folder, tmp_path):
    daemon = Daemon(folder, tmp_path / "link.sock", stewards=frozenset({4321}))
    try:
        assert "could change the policy" in daemon._admit(Peer(1, 4321, 1))
        assert daemon._admit(Peer(1, 4322, 1)) is None
    finally:
        daemon.close()


def test_a_site_in_a_kit_is_refused(tmp_path):
    kit = tmp_path / "kits" / "cleveland"
    (kit / "startup").mkdir(parents=True)
    (kit / "startup" / "fed_client.json").write_text("{}")
    inside = SiteFolder.create(kit / "deep" / "site", "cleveland")
    with pytest.raises(InvalidInput, match="must not contain each other"):
        Daemon(inside, tmp_path / "link.sock")


def test_a_folder_that_others_may_write_to_holds_no_socket(folder, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(InvalidInput, match="others may write to"):
        Daemon(folder, shared / "link.sock")
    with pytest.raises(InvalidInput, match="--link"):
        Daemon(folder, tmp_path / "no" / "such" / "link.sock")


def test_a_log_that_is_full_is_put_aside(folder, monkeypatch):
    """Whoever sends messages without end must not fill the disk that the ledger is on."""
    monkeypatch.setattr("cape.site.folder.MOST_LOG", 1000)
    for number in range(200):
        folder.log(f"line {number}")
    logs = sorted(path.name for path in folder.path.glob("site.log*"))
    assert logs == ["site.log", "site.log.1"]
    assert sum((folder.path / name).stat().st_size for name in logs) < 2200
    assert "line 199" in "".join((folder.path / name).read_text() for name in logs)


def test_both_ends_agree_where_they_meet():
    assert str(link_socket("cleveland")) == "/run/cape/cleveland/link.sock"


@pytest.mark.slow(3)
def test_the_daemon_loads_no_engine_and_opens_no_port(folder, tmp_path):
    """Started as its command is, it has Unix sockets only, and nothing of NVFLARE or gRPC."""
    code = (
        "import contextlib, sys, threading, time, os\n"
        "from pathlib import Path\n"
        "from cape.cli import commands\n"
        "from cape.cli.site.serve import serve\n"
        "def look():\n"
        "    while not Path(sys.argv[2]).exists(): time.sleep(0.01)\n"
        "    inodes = set()\n"
        "    for fd in os.listdir('/proc/self/fd'):\n"
        "        with contextlib.suppress(OSError):\n"
        "            inodes.add(os.readlink(f'/proc/self/fd/{fd}'))\n"
        "    ports = [line for kind in ('tcp', 'tcp6', 'udp', 'udp6')\n"
        "             for line in Path(f'/proc/self/net/{kind}').read_text().splitlines()[1:]\n"
        "             if f'socket:[{line.split()[9]}]' in inodes]\n"
        "    loaded = sorted(name for name in sys.modules if name.split('.')[0] in ('nvflare', 'grpc'))\n"
        "    os.write(2, f'PORTS {ports} LOADED {loaded}\\n'.encode())\n"  # at once: the daemon prints too
        "    os._exit(0)\n"
        "threading.Thread(target=look, daemon=True).start()\n"
        "serve(Path(sys.argv[1]), Path(sys.argv[2]))\n"
    )
    place = tmp_path / "link.sock"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder.path), str(place)], capture_output=True, text=True, timeout=60
    )
    assert "PORTS [] LOADED []" in done.stderr, done.stdout + done.stderr
