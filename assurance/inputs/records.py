"""A coordinator's record: lines bent, swapped, repeated, cut; torn as a crash would, or by hand.

What the module claims: lines are taken only while each fits the one before. So whatever was bent, a record
that opens says what its first lines said when they were written, at least those that nobody touched, and
counts what these count as spent; else it is an error.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from assurance.inputs.bend import bend_bytes, pick
from assurance.inputs.surface import Surface
from cape.coordinator.record import Answered, Record
from cape.engine.schemes import Cost

__all__ = ["Forgotten", "Records"]

_HASH = "ab" * 32
_Told = list[tuple[bytes, int, int]]


class Forgotten(Exception):
    """A record opened, and says less or something else than its first lines."""


def _told(record: Record) -> _Told:
    return [(each.run, each.spent, len(each.answers)) for each in record.attempts]


class Records(Surface):
    """Open it, look at what was spent, go on."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        path = folder / "right.jsonl"
        answer = Answered(bytes(16), ("a", "b", "c"), 300, Cost(4, 1000, 100, 0.5))
        with Record(path) as record:
            record.of(_HASH, "lungs")
            for number in range(1, 4):
                attempt = record.begin(number, bytes([number]) * 16)
                for _ in range(3):
                    record.asked(attempt)
                    record.answered(attempt, answer)
                if number == 1:
                    record.finished(attempt)
                elif number == 2:
                    record.asked(attempt)
                    record.failed(attempt, 3, "too few sites")
        self._right = path.read_bytes()
        self._lines = self._right.splitlines(keepends=True)
        self._prefixes: list[_Told] = []
        for number in range(len(self._lines) + 1):
            path.write_bytes(b"".join(self._lines[:number]))
            with Record(path) as record:
                self._prefixes.append(_told(record))

    def make(self, random: np.random.Generator) -> bytes:
        """Bend bytes, or whole lines; zeros and parts of lines at the end, as after a crash."""
        way, lines = random.random(), list(self._lines)
        if way < 0.4:
            return bend_bytes(self._right, random, other=self._right)
        if way < 0.55:
            cut = self._right[: int(random.integers(len(self._right)))]
            return cut + bytes(int(random.integers(200))) if random.random() < 0.5 else cut
        if way < 0.7:
            at = int(random.integers(len(lines)))
            lines[at] = bend_bytes(lines[at], random, other=self._right)
        else:
            for _ in range(int(random.integers(1, 4))):
                at, other = (int(random.integers(len(lines))) for _ in range(2))
                kind = int(random.integers(4))
                if kind == 0:
                    lines[at], lines[other] = lines[other], lines[at]
                elif kind == 1:
                    lines.insert(at, lines[other])
                elif kind == 2 and len(lines) > 1:
                    del lines[at]
                else:
                    lines[at] = lines[at].replace(pick(random, [b"1", b"0", b"asked", b"3"]), b"2")
        return b"".join(lines)

    def feed(self, given: bytes) -> None:
        """Open it; what it says must be what its untouched first lines say."""
        path = self.folder / "record.jsonl"
        path.write_bytes(given)
        whole = 0
        for line, right in zip(given.splitlines(keepends=True), self._lines, strict=False):
            if line != right:
                break
            whole += 1
        with Record(path) as record:
            if _told(record) not in self._prefixes[whole:]:  # a byte beside what is checksummed may differ
                raise Forgotten(f"{whole} lines are whole, and it says {_told(record)}")
            record.of(_HASH, "lungs")
            attempt = record.begin(4, bytes([9]) * 16)
            record.asked(attempt)
        with Record(path) as record:  # what was written then is there
            if (bytes([9]) * 16, 1, 0) not in _told(record):
                raise Forgotten("what was asked after it opened")
