"""A file of a data set: from a path, from a folder of files fetched before, or from where it is published.

What was fetched is checked before it is used, and each time it is read again. Where the SHA-256 of a file is
known it stands in the code. Where it is not, the content is checked by the loader, and the checksum of the
first download is written beside the file and compared from then on.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import sys
import tarfile
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path

from cape.core.errors import CapeError, InvalidInput
from reproduction.datasets.dataset import Origin

__all__ = ["Source", "Unavailable", "cache_folder", "read"]

_SECONDS = 60.0
_FOLDER = "CAPE_DATA"


class Unavailable(CapeError):
    """A data set is not on this machine and could not be fetched, or is not what was expected."""


@dataclass(frozen=True)
class Source:
    """A published archive and the files in it.

    Attributes:
        name: the folder that holds the files.
        url: of the zip archive.
        files: name -> SHA-256, or None where it is not known.
        inner: an archive (tar.gz) inside the zip that holds the files, if there is one.
        origin: title and licence, printed when the archive was fetched.
    """

    name: str
    url: str
    files: dict[str, str | None]
    inner: str | None = None
    origin: Origin | None = None


def cache_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Return where fetched files are kept: as asked, else CAPE_DATA, else the user's cache folder."""
    if folder is not None:
        return Path(folder)
    if os.environ.get(_FOLDER):
        return Path(os.environ[_FOLDER])
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "cape" / "datasets"


def read(
    source: Source,
    file: str,
    path: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> bytes:
    """Return one file: from `path` if given (a file, a folder, UCI's zip), else kept, else fetched."""
    if path is not None:
        return _given(source, file, Path(path))
    folder = cache_folder(cache) / source.name
    if not (folder / file).is_file():
        _fetch(source, folder)
    data = (folder / file).read_bytes()
    _check(source, file, data, folder)
    return data


def _given(source: Source, file: str, path: Path) -> bytes:
    """Return a file that a person has; what it holds is for the loader to judge."""
    try:
        if path.is_dir():
            found = next((each for each in (path / file, path / source.name / file) if each.is_file()), None)
            if found is None:
                raise InvalidInput(f"path: there is no {file} in {path}")
            return found.read_bytes()
        data = path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"path: {path} cannot be read: {error.strerror}") from None
    if zipfile.is_zipfile(io.BytesIO(data)):
        return _unpack(source, data)[file]
    if len(source.files) > 1:
        raise InvalidInput(f"path must be a folder or a zip with {', '.join(source.files)}, not {path}")
    return data


def _fetch(source: Source, folder: Path) -> None:
    """Download the archive, check its files and keep them."""
    try:
        with urllib.request.urlopen(source.url, timeout=_SECONDS) as answer:
            archive = answer.read()
    except (urllib.error.URLError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise Unavailable(
            f"{source.name}: not in {folder}, and {source.url} cannot be reached ({reason}); download it "
            f"elsewhere, and put {', '.join(source.files)} into that folder, or give the zip as `path`"
        ) from None
    print(f"Fetched {source.origin or source.url}", file=sys.stderr)  # the licence is in it
    for file, data in _unpack(source, archive).items():
        _check(source, file, data, folder)
        _keep(folder / file, data)
        if source.files[file] is None:
            _keep(folder / f"{file}.sha256", f"{_sha256(data)}  {file}\n".encode())


def _unpack(source: Source, archive: bytes) -> dict[str, bytes]:
    """Return the wanted files of a zip, by the last part of their names."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as outer:
            found = {Path(name).name: name for name in outer.namelist()}
            if source.inner is None:
                return {file: outer.read(found[file]) for file in source.files}
            with tarfile.open(fileobj=io.BytesIO(outer.read(found[source.inner]))) as inner:
                members = {Path(member.name).name: member for member in inner.getmembers() if member.isfile()}
                opened = {file: inner.extractfile(members[file]) for file in source.files}
                return {file: held.read() for file, held in opened.items() if held is not None}
    except (zipfile.BadZipFile, tarfile.TarError, KeyError):
        wanted = ", ".join(source.files)
        raise Unavailable(f"{source.name}: {source.url} is not an archive with {wanted} in it") from None


def _check(source: Source, file: str, data: bytes, folder: Path) -> None:
    expected = source.files[file]
    beside = folder / f"{file}.sha256"
    if expected is None and beside.is_file():
        expected = beside.read_text().split()[0]
    if expected is not None and _sha256(data) != expected:
        raise Unavailable(
            f"{source.name}: {file} is not the file that was expected (SHA-256 {_sha256(data)[:16]}..., not "
            f"{expected[:16]}...); remove it from {folder}, or give it as `path` if you trust it"
        )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _keep(path: Path, data: bytes) -> None:
    """Write a whole file or none."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise Unavailable(f"{path.parent} cannot be written: {error.strerror}; set {_FOLDER}") from None
