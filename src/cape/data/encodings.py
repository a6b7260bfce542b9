"""The encodings of text files, read as UTF-8.

Claim. The text of a line depends on the bytes of that line, whatever stands in the lines before it.
Reason. In the encodings below a line end is a byte of its own (in UTF-16, a unit of two bytes) and part of no
other character, and the decoder starts anew after it, also after invalid bytes, which become U+FFFD.
Encodings with states (ISO 2022, UTF-7, HZ) and with other line ends (EBCDIC) are not among them. In UTF-16 a
line is made of whole units: a file that has lost half of one is unreadable from there on.
Tested in tests/unit/data/test_encodings.py, for every encoding.
"""

from __future__ import annotations

import codecs
import gzip
import io
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from cape.core import check
from cape.core.errors import InvalidInput

__all__ = ["ENCODINGS", "NotEncoded", "all_utf8", "encoding_of", "opened"]

_COMMON = ("utf-8", "latin-1", "windows-1252", "utf-16")
ENCODINGS = (
    *("utf-8", "utf-16", "utf-16-le", "utf-16-be", "ascii", "mac-roman", "koi8-r", "koi8-u"),
    *(f"iso8859-{part}" for part in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16)),
    *(f"cp{page}" for page in (437, 850, 852, 858, 866, 874, *range(1250, 1259))),
    *("gb2312", "gbk", "gb18030", "big5", "big5hkscs", "shift_jis", "cp932", "euc_jp", "cp949"),
)
"""Python's names; any alias of one will do, as latin-1 and windows-1252."""
_INSTEAD = {"euc_kr": "cp949", "utf-8-sig": "utf-8"}  # which contain them, and decode sign by sign
_PACKED = b"\x1f\x8b"
_WIDE = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_MARKS = {"utf-8": codecs.BOM_UTF8} | {name: mark for mark, name in _WIDE.items()}
_READ = 1 << 20


class NotEncoded(Exception):
    """A line holds bytes that are none of the encoding's."""

    def __init__(self, encoding: str, line: int) -> None:
        super().__init__(encoding, line)
        self.encoding, self.line = encoding, line


def encoding_of(name: Any) -> str:
    """Return Python's name of an encoding, or raise `InvalidInput`."""
    try:
        found = codecs.lookup(name).name
        found = _INSTEAD.get(found, found)
    except (LookupError, TypeError, ValueError):
        found = ""
    if found not in ENCODINGS:
        raise InvalidInput(
            f"encoding must be that of a text file, such as {', '.join(_COMMON)}, not {check.show(name)}"
        )
    return found


def opened(path: str, encoding: str | None, *, header: bool, strict: bool = False) -> BinaryIO:
    """Open a file, packed or not, as UTF-8 without a mark; without an encoding it is taken to be that.

    The first bytes of a file with a header say whether it is packed, or UTF-16. Without a header they are a
    person's: then the file's name says whether it is packed.
    """
    packed = path.lower().endswith(".gz") if not header else _packed(path)
    start = _start(path, packed=packed)
    wide = _WIDE.get(start[:2]) if encoding == "utf-16" or (encoding is None and header) else None
    if encoding == "utf-16" and wide is None:
        raise InvalidInput(f"{path!r} does not say which UTF-16 it is; write utf-16-le or utf-16-be")
    encoding = wide or encoding or "utf-8"
    file: Any = gzip.open(path, "rb") if packed else open(path, "rb")  # noqa: SIM115
    mark = _MARKS.get(encoding, b"")
    if mark and start.startswith(mark):
        file.read(len(mark))
    if encoding not in ("utf-8", "ascii"):
        file = io.BufferedReader(_Recoded(file, encoding, strict), _READ)
    return file  # type: ignore[no-any-return]


def all_utf8(paths: Iterable[str], encoding: str | None, *, header: bool) -> bool:
    """Return whether files are UTF-8, as far as their encoding or, if none is stated, their start says."""
    if encoding is not None or not header:
        return encoding in (None, "utf-8", "ascii")
    return all(_start(path, packed=_packed(path))[:2] not in _WIDE for path in paths)


def _packed(path: str) -> bool:
    return _start(path, packed=False)[:2] == _PACKED


def _start(path: str, *, packed: bool) -> bytes:
    with gzip.open(path, "rb") if packed else open(path, "rb") as file:
        return bytes(file.read(3))


class _Recoded(io.RawIOBase):
    """A file in another encoding, as UTF-8."""

    def __init__(self, file: BinaryIO, encoding: str, strict: bool) -> None:
        self._file, self._encoding = file, encoding
        self._lines = 0
        self._decoder = codecs.getincrementaldecoder(encoding)("strict" if strict else "replace")
        self._parts, self._rest = self._decoded(), memoryview(b"")

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = memoryview(next(self._parts, b""))
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def _decoded(self) -> Iterator[bytes]:
        more = True
        while more:
            data = self._file.read(_READ)
            more = bool(data)
            part = self._decode(data, not more)
            self._lines += part.count(b"\n")
            if part:
                yield part

    def _decode(self, data: bytes, final: bool) -> bytes:
        try:
            return self._decoder.decode(data, final).encode("utf-8", "replace")
        except UnicodeDecodeError as error:
            ends = error.object[: error.start].decode(self._encoding, "replace").count("\n")
        raise NotEncoded(self._encoding, self._lines + ends + 1)
