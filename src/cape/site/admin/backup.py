"""A copy of a site's folder, taken while its daemon runs.

Claim. A backup holds all that cape keeps in a site's folder, and nothing else, so no rows. Its ledger is the
site's ledger as it was at one moment during the backup, whole and with a valid chain: every line that was on
the disk when the backup began is in it.
Reason. Only files by the names that cape gives them are copied. What else is in the folder, such as rows of
this year or the last, is left out and named, since nobody could tell by a name that a file holds no rows.
SQLite's own backup copies a database in one read transaction, with what its log holds. The ledger is
copied last, so that no other file in the backup is newer, and its chain is checked in the copy. The file gets
its name when it is complete and synced, and replaces nothing.
Tested in tests/unit/site/test_backup.py, with releases and kills meanwhile; and what happens to a site whose
backup is put back in tests/unit/app/test_restored.py.

A backup that is put back forgets the releases since then: the site notices that as soon as it is shown a head
of its own (`cape.site.ledger.gaps`). The backup holds the site's private key, so only its owner may read it.
"""

from __future__ import annotations

import os
import re
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from cape.core.errors import CapeError, InvalidInput
from cape.site.decide.approvals import FOLDERS
from cape.site.folder import KEY, LEDGER, LOG, NONCES, OLD_LOG, POLICY, SiteFolder
from cape.site.ledger.ledger import Ledger

__all__ = ["Backup", "backup"]

_DATABASES = re.compile(rf"{Path(LEDGER).stem}(\.format-\d+)?\.sqlite|{re.escape(NONCES)}")
_FILES = (KEY, POLICY, LOG, OLD_LOG)
_STUDY = re.compile(rf"({'|'.join(FOLDERS.values())})/[0-9a-f]{{32}}\.json")
_UNNAMED = re.compile(r".*(-wal|-shm|-journal|\.new|\.lock|\.sock)")  # parts of other files, or of processes


@dataclass(frozen=True)
class Backup:
    """The names of the files in a backup, and of those that are not cape's, and were left out."""

    names: list[str]
    others: list[str]


def backup(site: SiteFolder, to: Path) -> Backup:
    """Write a site's folder into a new tar file.

    Raises:
        InvalidInput: the file exists, cannot be written, or would be in the folder itself.
        CapeError: a database cannot be copied, or the ledger was changed by hand.
    """
    if to.exists():
        raise InvalidInput(f"{to} already exists; a backup replaces nothing: choose another name")
    if to.resolve().is_relative_to(site.path.resolve()):
        raise InvalidInput(f"{to} is in the site's folder, and would be lost with it: choose another place")
    try:
        with tempfile.TemporaryDirectory(prefix=".backup-", dir=to.parent) as beside:
            made = Path(beside) / "backup.tar"
            done = _write(site, made, Path(beside))
            os.link(made, to)  # which replaces nothing
            _sync(to.parent)
    except OSError as error:
        raise InvalidInput(f"{to} cannot be written: {error.strerror}") from None
    return done


def _write(site: SiteFolder, made: Path, beside: Path) -> Backup:
    names, others = [], []
    handle = os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(handle, "wb") as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            for path in _files(site):
                name = str(path.relative_to(site.path))
                with suppress(FileNotFoundError):  # such as a study that was decided a moment ago
                    if path.is_symlink():
                        others.append(f"{name} (a link)")
                        continue
                    if _DATABASES.fullmatch(name):
                        archive.add(_copied(path, beside), name)
                    elif name in _FILES or _STUDY.fullmatch(name):
                        archive.add(path, name)
                    else:
                        others.append(name)
                        continue
                    names.append(name)
        file.flush()
        os.fsync(file.fileno())
    return Backup(names, others)


def _files(site: SiteFolder) -> Iterator[Path]:
    """Yield the files of a site, the ledger last."""
    ledger = site.path / LEDGER
    for path in sorted(site.path.rglob("*")):
        if path.is_file() and path != ledger and not _UNNAMED.fullmatch(path.name):
            yield path
    yield ledger


def _copied(path: Path, beside: Path) -> Path:
    """Return a whole copy of a database that others may be writing."""
    copy = beside / path.name
    try:
        with (
            closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=60.0)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
    except sqlite3.Error as error:
        raise CapeError(f"{path} cannot be copied ({type(error).__name__}); is the disk full?") from None
    copy.chmod(0o600)
    if path.name == LEDGER:
        Ledger(copy).entries()  # raises if the chain is broken
    return copy


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
