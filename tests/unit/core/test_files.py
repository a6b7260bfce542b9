from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from cape.core import files


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_file_that_cannot_be_replaced_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "results.json"
    files.replace(path, b"old and paid for")
    with monkeypatch.context() as patch:
        patch.setattr(os, step, full)
        with pytest.raises(OSError, match="No space left"):
            files.replace(path, b"new")
    assert path.read_bytes() == b"old and paid for"
    files.replace(path, b"new")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("results.json", b"new")]


def test_a_file_and_then_its_folder_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        done.append(f"sync {Path(os.readlink(f'/proc/self/fd/{handle}')).name}")
        fsync(handle)

    def renamed(old: Path, new: Path) -> None:
        done.append(f"{old.name} to {new.name}")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    files.replace(tmp_path / "a", b"x")
    assert done == ["sync a.new", "a.new to a", f"sync {tmp_path.name}"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can work as others")
def test_root_reaches_only_what_the_owner_of_a_folder_could():
    with tempfile.TemporaryDirectory() as home:
        os.chmod(home, 0o755)
        theirs, ours = Path(home) / "theirs", Path(home) / "ours"
        for each in (theirs, ours):
            each.mkdir(mode=0o700)
        os.chown(theirs, 70_001, 70_002)
        (theirs / "log").symlink_to(ours / "log")
        with files.as_owner(theirs):
            assert (os.geteuid(), os.getegid(), os.getgroups()) == (70_001, 70_002, [70_002])
            with pytest.raises(PermissionError):
                (theirs / "log").write_text("x")
        with files.as_owner(ours):
            (theirs / "log").write_text("x")
        assert (os.geteuid(), os.getegid()) == (0, 0)
        os.unlink(theirs / "log")
        os.link(ours / "log", theirs / "log")
        with open(theirs / "log", "rb") as file:
            files.give_to_owner(theirs / "log", file.fileno())
        assert (ours / "log").stat().st_uid == 0, "a file with another name is not given away"
