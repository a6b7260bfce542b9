"""Files that are there as a whole or not at all, whatever happens to the process that writes them.

Claim. After `replace` returns, the new file is on the disk; until then a reader finds the old one, whole.
Reason. The file is written under another name and synced, and renaming it over the old one is atomic; the
folder is synced after that. What a killed process leaves beside is written over by the next one.
Tested in tests/test_files.py, and with the process killed in tests/cli/test_folder.py.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["give_to_owner", "replace", "sync_folder"]


def replace(path: Path, data: bytes | memoryview) -> None:
    """Write a file, or put it in the place of the one that is there. One process at a time."""
    beside = path.with_name(f"{path.name}.new")
    with open(beside, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    sync_folder(path.parent)


def give_to_owner(path: Path) -> None:
    """Give a file or folder that root has made to the owner of the folder that it is in.

    Otherwise the process of that owner could not read what an administrator did there.
    """
    if os.geteuid() == 0:
        owner = os.stat(path.parent)
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk: files made, moved and removed."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
