"""Whether a text file is UTF-8, and if not, at which lines and what it may be instead."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["NotUtf8", "not_utf8"]

_CHUNK = 1 << 24
_SHOWN = 10
_START = 4096


@dataclass
class NotUtf8:
    """The lines that are not UTF-8: how many, and the first; `guess` is None if there are none."""

    guess: str | None = None
    count: int = 0
    lines: list[int] = field(default_factory=list)
    places: tuple[str, ...] = ()


def not_utf8(path: str) -> NotUtf8:
    """Return what is not UTF-8 in a file, packed with gzip or not."""
    found = NotUtf8()
    line, windows = 1, False
    for chunk in _chunks(path):
        if line == 1:
            start = chunk[:_START]
            if start.count(0) * 4 > len(start):
                return NotUtf8("utf-16-le" if start[1::2].count(0) else "utf-16-be", 1, [1])
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
        found.guess = "windows-1252" if windows else "latin-1"
    return found


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
