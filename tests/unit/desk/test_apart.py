"""The desk's user: neither root nor the daemon's, and without a way to rows, key or ledger."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cape.core import unix
from cape.core.errors import CapeError, InvalidInput
from cape.desk.access.apart import require_no_rows
from cape.site.admin import SOCKET, serve
from tests.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "w")
    with serve(world.site.path / SOCKET, world.site):
        yield world


def run_as(monkeypatch: pytest.MonkeyPatch, uid: int, *readable: Path) -> None:
    """Let this process be another user, who can read these files only; the daemon is user 70001."""
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr("cape.core.unix.peer_of", lambda connection: unix.Peer(1, 70_001, 1))
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).resolve() in readable)


def test_a_user_of_its_own_is_admitted(world: World, monkeypatch: pytest.MonkeyPatch):
    socket = world.site.path / SOCKET
    with serve(world.folder / "s.sock", world.site, frozenset({70_001, 70_002})):
        run_as(monkeypatch, 70_002)
        require_no_rows(socket if os.getuid() == 70_001 else world.folder / "s.sock")


@pytest.mark.parametrize(("uid", "why"), [(0, "runs as root"), (70_001, "the daemon's own user")])
def test_root_and_the_daemons_user_are_not(world: World, monkeypatch: pytest.MonkeyPatch, uid: int, why: str):
    run_as(monkeypatch, uid)
    with pytest.raises(InvalidInput, match=why) as caught:
        require_no_rows(world.site.path / SOCKET)
    assert "cape site serve --desk USER" in str(caught.value)
    assert "--desk-may-read-rows" in str(caught.value)


@pytest.mark.parametrize("name", ["identity.key", "ledger.sqlite", "rows.csv"])
def test_whoever_can_read_one_of_the_sites_files_is_not(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
):
    path = world.site.path / SOCKET
    with serve(world.site.path / "b.sock", world.site, frozenset({70_001, 70_002})):
        run_as(monkeypatch, 70_002, (world.site.path / name).resolve())
        with pytest.raises(InvalidInput, match=f"can read .*{name}"):
            require_no_rows(path.with_name("b.sock"))


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ('"rows/*.csv"', "rows/second.csv"),
        ('{query = "SELECT age FROM visits", connection = "sqlite:///visits.db"}', "visits.db"),
    ],
)
def test_patterns_and_databases_are_rows_too(
    world: World, monkeypatch: pytest.MonkeyPatch, data: str, name: str
):
    path = world.site.path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    world.edit('data = "rows.csv"', f"data = {data}")
    with serve(world.site.path / "b.sock", world.site, frozenset({70_001, 70_002})):
        run_as(monkeypatch, 70_002)
        require_no_rows(world.site.path / "b.sock")
        run_as(monkeypatch, 70_002, path.resolve())
        with pytest.raises(InvalidInput, match=f"can read .*{name}"):
            require_no_rows(world.site.path / "b.sock")


def test_without_a_daemon_it_says_so(tmp_path: Path):
    with pytest.raises(CapeError, match="no process answers"):
        require_no_rows(tmp_path / SOCKET)


ASK = """
import os, sys
from pathlib import Path
from cape.desk.access.apart import require_no_rows
os.setgid(60001); os.setuid(60001)
try:
    require_no_rows(Path(sys.argv[1]))
    print("admitted")
except Exception as error:
    print(error)
"""


@pytest.mark.slow(6)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_real_user(tmp_path: Path):
    with TemporaryDirectory() as folder:  # pytest's own lets nobody else in
        os.chmod(folder, 0o711)
        world = World(Path(folder) / "w")
        socket = Path(folder) / "a.sock"
        with serve(socket, world.site, desk=60_001):
            socket.chmod(0o666)

            def said() -> str:
                done = subprocess.run([sys.executable, "-c", ASK, socket], capture_output=True, text=True)
                return done.stdout.strip() or done.stderr

            world.edit('data = "rows.csv"', f'data = "{world.site.path / "rows.csv"}"')
            assert said() == "admitted"
            for path, mode in ((world.folder, 0o755), (world.site.path, 0o755)):
                path.chmod(mode)
            (world.site.path / "rows.csv").chmod(0o644)
            assert "the desk's user can read" in said()
