"""Files that are there as a whole or not at all, whatever happens to the process that writes them.

Claim. After `replace` returns, the new file is on the disk; until then a reader finds the old one, whole.
Reason. The file is written under another name and synced, and renaming it over the old one is atomic; the
folder is synced after that. What a killed process leaves beside is written over by the next one.

Claim. What root does within `as_owner` reaches nothing that the owner of the folder could not reach.
Reason. The process has that user's rights meanwhile: whoever owns a folder may have put links into it that
lead elsewhere.
Tested in tests/unit/core/test_files.py, and with the process killed in tests/unit/app/test_folder.py.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cape.core.errors import InvalidInput

__all__ = ["as_owner", "give_to_owner", "replace", "sync_folder"]


def replace(path: Path, data: bytes | memoryview) -> None:
    """Write a file, or put it in the place of the one that is there. One process at a time."""
    beside = path.with_name(f"{path.name}.new")
    with open(beside, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    sync_folder(path.parent)


@contextmanager
def as_owner(folder: Path) -> Iterator[None]:
    """Let root work with the rights of a folder's owner meanwhile; for anybody else this does nothing.

    It holds for the whole process, so for a command, not for a thread of a server.
    """
    found = _owned(folder) if os.geteuid() == 0 else None
    if found is None or found.st_uid == 0:
        yield
        return
    group, groups = os.getegid(), os.getgroups()
    os.setgroups(_groups(found.st_uid, found.st_gid))
    os.setegid(found.st_gid)
    os.seteuid(found.st_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def _owned(folder: Path) -> os.stat_result | None:
    """Return whose a folder is; None if there is none."""
    try:
        found = os.lstat(folder)
    except OSError:
        return None
    if stat.S_ISLNK(found.st_mode):  # whoever made it chose whose rights root would take
        raise InvalidInput(f"{folder} is a symbolic link; as root, name the folder itself")
    return found


def _groups(user: int, group: int) -> list[int]:
    try:
        return os.getgrouplist(pwd.getpwuid(user).pw_name, group)
    except KeyError:
        return [group]


def give_to_owner(path: Path, handle: int | None = None) -> None:
    """Give a file or folder that root has made to the owner of the folder that it is in.

    Otherwise the process of that owner could not read what an administrator did there. With a handle, it is
    given away only if it is root's and has no other name: a file that was there before may be any file.
    """
    if os.geteuid() != 0:
        return
    owner = os.stat(path.parent)
    if handle is None:
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
        return
    found = os.fstat(handle)
    if found.st_uid == 0 and found.st_nlink == 1:
        os.chown(handle, owner.st_uid, owner.st_gid)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk: files made, moved and removed."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
