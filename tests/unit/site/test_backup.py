"""Backups of a folder that is in use: whole, with all that was on the disk, and without rows."""

from __future__ import annotations

import os
import sqlite3
import tarfile
import threading
from pathlib import Path

import pytest

from cape.core.errors import CapeError, InvalidInput
from cape.site import SiteFolder
from cape.site.admin.backup import backup
from cape.site.ledger.verify import verify
from tests.killed import killed_at_every_step
from tests.unit.site.test_ledger import entry
from tests.world import SECRET, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "sites")


def opened(file: Path, to: Path) -> SiteFolder:
    """Put a backup back in a new folder."""
    to.mkdir()
    with tarfile.open(file) as archive:
        archive.extractall(to, filter="data")
    return SiteFolder(to)


def test_a_backup_holds_all_but_rows(world: World, tmp_path: Path):
    world.edit('approve = "auto"', 'approve = "ask"')
    assert world.code(world.request()) == "approval"
    with sqlite3.connect(world.site.path / "ledger.format-1.sqlite") as db:  # as an upgrade leaves it
        db.execute("CREATE TABLE releases (id)")
    db.close()
    file = tmp_path / "a.tar"
    done = backup(world.site, file)
    names = done.names
    assert file.stat().st_mode & 0o777 == 0o600
    assert {"identity.key", "site.toml", "ledger.sqlite", "nonces.sqlite", "site.log"} <= set(names)
    assert "ledger.format-1.sqlite" in names
    assert [name for name in names if name.startswith("held")]
    assert names[-1] == "ledger.sqlite", "so that nothing in it is newer than the ledger"
    assert "rows.csv" not in names
    assert done.others == ["rows.csv"]
    assert str(SECRET).encode() not in file.read_bytes()
    back = opened(file, tmp_path / "back")
    assert back.identity.public == world.site.identity.public
    assert back.policy.name == "a"
    for name in names:
        if not name.endswith(".sqlite"):
            assert (back.path / name).read_bytes() == (world.site.path / name).read_bytes()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".backup")] == []


def test_what_is_not_capes_is_left_out_and_named(world: World, tmp_path: Path):
    site = world.site.path
    (site / "rows").mkdir()
    (site / "held").mkdir(exist_ok=True)
    made = [
        "rows/0.dat",
        "rows/1.csv.bak",
        "visits.sqlite",
        "visits",
        "last year.CSV",
        "held/rows.json",
        "x.sql",
    ]
    made += ["ledger.rows.sqlite", "site.toml.orig", "a\nb"]
    for name in made:
        (site / name).write_text(f"age {SECRET}")
    os.symlink(site / "rows.csv", site / "site.log.1")
    done = backup(world.site, tmp_path / "a.tar")
    assert str(SECRET).encode() not in (tmp_path / "a.tar").read_bytes()
    assert sorted(done.others) == sorted([*made, "rows.csv", "site.log.1 (a link)"])
    assert {"identity.key", "site.toml", "ledger.sqlite"} <= set(done.names)


def test_nothing_is_replaced(world: World, tmp_path: Path):
    file = tmp_path / "a.tar"
    file.write_bytes(b"an earlier one")
    with pytest.raises(InvalidInput, match="a backup replaces nothing"):
        backup(world.site, file)
    assert file.read_bytes() == b"an earlier one"
    with pytest.raises(InvalidInput, match="is in the site's folder"):
        backup(world.site, world.site.path / "a.tar")
    with pytest.raises(InvalidInput, match="cannot be written: No such file"):
        backup(world.site, tmp_path / "nowhere" / "a.tar")


def test_a_ledger_that_was_changed_by_hand_is_not_taken_for_a_backup(world: World, tmp_path: Path):
    world.granted(world.request())
    with sqlite3.connect(world.site.path / "ledger.sqlite") as db:
        db.executescript("DROP TRIGGER releases_UPDATE; UPDATE releases SET study = 'other';")
    db.close()
    with pytest.raises(CapeError, match="changed by hand"):
        backup(world.site, tmp_path / "a.tar")
    assert not (tmp_path / "a.tar").exists()


def test_a_backup_during_releases_has_every_line_that_was_there_before(world: World, tmp_path: Path):
    site, stop = world.site, threading.Event()
    written = [0]

    def release() -> None:
        ledger = site.ledger
        while not stop.is_set():
            written[0] = ledger.reserve(entry())

    thread = threading.Thread(target=release)
    thread.start()
    try:
        for number in range(5):
            before = written[0]
            backup(site, tmp_path / f"{number}.tar")
            back = opened(tmp_path / f"{number}.tar", tmp_path / f"back-{number}")
            found = verify(back.path / "ledger.sqlite", [site.identity.public])
            assert found.problems == []
            assert found.lines >= before
    finally:
        stop.set()
        thread.join()
    assert written[0] > 0


def test_a_backup_that_is_killed_leaves_no_file_of_that_name_or_a_whole_one(world: World, tmp_path: Path):
    for _ in range(30):
        world.site.ledger.reserve(entry())
    file, ended = tmp_path / "a.tar", 0
    calls = [(os, "fsync"), (os, "link"), (tarfile.TarFile, "add"), (tarfile.TarFile, "close")]
    for ended in killed_at_every_step(calls, lambda: backup(world.site, file)):
        if file.exists():
            back = opened(file, tmp_path / f"back-{ended}")
            assert len(back.ledger.entries()) == 30
            file.unlink()
    assert ended > 10
    assert len(world.site.ledger.entries()) == 30
    assert len(opened(file, tmp_path / "back").ledger.entries()) == 30
