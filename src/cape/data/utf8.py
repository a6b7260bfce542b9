"""Whether a text file is UTF-8, and if not, at which lines and what it may be instead."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["NotUtf8", "header_line", "not_utf8"]

_CHUNK = 1 << 24
_SHOWN = 10
_START = 4096
_WIDE = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


@dataclass
class NotUtf8:
    """The lines that are not UTF-8: how many, and the first; `guess` is None if there are none."""

    guess: str | None = None
    count: int = 0
    lines: list[int] = field(default_factory=list)


def not_utf8(path: str) -> NotUtf8:
    """Return what is not UTF-8 in a file, packed with gzip or not."""
    found = NotUtf8()
    line, windows = 1, False
    for chunk in _chunks(path):
        if line == 1:
            wide = _WIDE.get(chunk[:2])
            if wide or chunk[:_START].count(0) * 4 > len(chunk[:_START]):
                return NotUtf8(wide or "utf-16", 1, [1])
        try:
            chunk.decode()
            line += chunk.count(b"\n")
            continue
        except UnicodeDecodeError:
            pass
        for number, each in enumerate(chunk.split(b"\n"), line):
            if each.isascii() or _utf8(each):
                continue
            found.count += 1
            windows = windows or any(0x80 <= sign < 0xA0 for sign in each)
            if len(found.lines) < _SHOWN:
                found.lines.append(number)
        line += chunk.count(b"\n")
    if found.count:
        found.guess = "cp1252" if windows else "latin-1"
    return found


def header_line(path: str) -> int:
    """Return the number of the first line that is not blank: the header of a text file."""
    with _opened(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(_CHUNK), b""), 1):
            if line.removeprefix(b"\xef\xbb\xbf").strip():
                return number
    return 1


def _opened(path: str) -> io.BufferedReader | gzip.GzipFile:
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if packed else open(path, "rb")


def _chunks(path: str) -> Iterator[bytes]:
    """Yield the file in pieces that end with a line."""
    with _opened(path) as file:
        rest = b""
        while data := file.read(_CHUNK):
            cut = data.rfind(b"\n") + 1
            if not cut and len(rest) < _CHUNK:
                rest += data
                continue
            yield rest + data[:cut]
            rest = data[cut:]
        if rest:
            yield rest


def _utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
