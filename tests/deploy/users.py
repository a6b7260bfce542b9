"""Processes of users of their own, by number: none has to exist. Only root can start them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tests.checkout import ROOT

__all__ = ["DAEMON", "DESK", "LINK", "as_user", "own", "possible"]

DAEMON, LINK, DESK = 61001, 61002, 61003


def possible() -> bool:
    """Return whether processes of other users can be started here."""
    return os.geteuid() == 0 and all(shutil.which(each) for each in ("unshare", "setpriv"))


def as_user(uid: int, *, group: int = LINK, network: bool = True) -> list[str]:
    """Return what to put before a command, so that it runs as a user of its own.

    Python and the package may lie where only root can look (a home folder): in a mount namespace of its own,
    such folders are covered by empty ones that hold what is needed.
    """
    needed = {Path(sys.executable).parent.parent, Path(os.path.realpath(sys.executable)).parent.parent}
    needed.add(ROOT)
    lines = ["set -e", "stage=$(mktemp -d)", "mount -t tmpfs tmpfs $stage"]
    hidden = sorted({str(each) for path in needed for each in path.parents if not each.stat().st_mode & 1})
    for number, path in enumerate(sorted(needed)):
        lines += [f"mkdir $stage/{number}", f"mount --bind {path} $stage/{number}"]
    for folder in hidden:
        if not any(folder.startswith(f"{other}/") for other in hidden):
            lines += [f"mount -t tmpfs -o mode=755 tmpfs {folder}"]
    for number, path in enumerate(sorted(needed)):
        if any(str(path).startswith(f"{folder}/") for folder in hidden):
            lines += [f"mkdir -p {path}", f"mount --bind $stage/{number} {path}"]
    user = f"setpriv --reuid {uid} --regid {group} --clear-groups --no-new-privs --inh-caps=-all"
    lines.append(f'exec {user} "$@"')
    spaces = ["--mount"] if network else ["--mount", "--net"]
    return ["unshare", *spaces, "sh", "-c", "\n".join(lines), "sh"]


def own(folder: Path, uid: int, group: int = LINK) -> None:
    """Give a folder to a user, and to nobody else."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, group)
        path.chmod(0o700 if path.is_dir() else 0o600)
