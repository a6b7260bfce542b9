"""The record: cut anywhere, it tells what may have been asked, or says that it is damaged."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from cape.coordinator import Record
from cape.coordinator.record import Answered, Attempt
from cape.core.errors import CapeError, InvalidInput
from cape.engine.schemes import Cost

COST = Cost(5, 1000, 200, 0.25)


def told(record: Record) -> list[tuple[int, int, int, bool, int | None]]:
    return [(a.number, a.asked, len(a.answers), a.finished, a.failed) for a in record.attempts]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A record of two analyses: one finished in two stages, one that failed in its second."""
    with Record(tmp_path / "record.jsonl") as record:
        record.of("hash", "lungs")
        first = record.begin(1, bytes(16))
        for stage in range(2):
            record.asked(first)
            record.answered(first, Answered(bytes([stage]) * 16, ("a", "b"), 12, COST))
        record.finished(first)
        second = record.begin(2, bytes(range(16)))
        record.asked(second)
        record.answered(second, Answered(b"", ("a",), None, COST))
        record.asked(second)
        for _ in range(2):
            record.refused(second, "b", "budget", "nothing is left")
        record.failed(second, 2, "too few")
    return tmp_path / "record.jsonl"


def test_what_is_written_is_read(path: Path):
    with Record(path) as record:
        assert told(record) == [(1, 2, 2, True, None), (2, 2, 1, False, 2)]
        assert record.attempts[0].answers[1] == Answered(b"\x01" * 16, ("a", "b"), 12, COST)
        assert record.attempts[1].answers[0].rows is None
        assert [attempt.spent for attempt in record.attempts] == [2, 2]
        assert record.attempts[0].refusals == {}
        assert record.attempts[1].refusals == {"b": ("budget", "nothing is left")}
        assert record.begun
    assert path.read_bytes().count(b'"kind": "refused"') == 1, "the same reason is written once"
    assert path.stat().st_mode & 0o777 == 0o600


def test_cut_at_every_byte_it_never_forgets_what_was_asked(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # for speed
    content = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(content) if byte == 10]
    for cut in range(len(content) + 1):
        path.write_bytes(content[:cut])
        whole = max((end for end in ends if end <= cut), default=0)
        with Record(path) as record:
            asked = sum(attempt.asked for attempt in record.attempts)
            assert asked == content[:whole].count(b'"kind": "asked"')
            assert path.stat().st_size == whole, "what was torn is gone, and the next line can follow"
            if whole:
                record.of("hash", "lungs")
            if record.attempts and record.attempts[-1].open:
                record.failed(record.attempts[-1], record.attempts[-1].asked, "cut")
        with Record(path) as record:
            assert all(not attempt.open for attempt in record.attempts)


def test_a_line_that_is_damaged_in_the_middle_is_an_error(path: Path):
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    for number in range(len(lines)):
        bent = bytearray(lines[number])
        bent[len(bent) // 2] ^= 1
        path.write_bytes(b"".join([*lines[:number], bytes(bent), *lines[number + 1 :]]))
        with pytest.raises(InvalidInput, match="damaged"):
            Record(path)
        if number + 1 < len(lines):  # nobody can tell that the last one is gone
            path.write_bytes(b"".join([*lines[:number], *lines[number + 1 :]]))
            with pytest.raises(InvalidInput, match="damaged"):
                Record(path)


def test_zeros_before_a_whole_line_are_no_crash(path: Path):
    """Else all that was asked after them would be forgotten, and the file cut."""
    content = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(content) if byte == 10]
    for start, end in itertools.pairwise(ends[:-1]):
        path.write_bytes(content[:start] + bytes(end - start - 1) + content[end - 1 :])
        with pytest.raises(InvalidInput, match="is damaged"):
            Record(path)
        assert path.stat().st_size == len(content)


def test_zeros_at_the_end_are_a_torn_line(path: Path):
    content = path.read_bytes()
    path.write_bytes(content + bytes(100))
    with Record(path) as record:
        assert told(record) == [(1, 2, 2, True, None), (2, 2, 1, False, 2)]
    assert path.read_bytes() == content


def test_another_study_is_refused(path: Path):
    with Record(path) as record:
        with pytest.raises(InvalidInput, match="record of another study"):
            record.of("other", "lungs")
        record.of("hash", "lungs")


def test_another_study_takes_over_what_spent_nothing(tmp_path: Path):
    path = tmp_path / "record.jsonl"
    with Record(path) as record:
        record.of("hash", "lungs")
        given_back = record.begin(1, bytes(16))
        record.asked(given_back)
        with pytest.raises(InvalidInput, match="sites may have answered it"):
            record.of("other", "lungs")
        record.failed(given_back, 0, "every site denies it")
        record.begin(2, bytes([1]) * 16)  # and not asked
        record.of("other", "lungs")
        assert not record.begun
        first = record.begin(1, bytes(16))  # a name of its own in this study
        record.asked(first)
    content = path.read_bytes()
    with Record(path) as record:
        assert (record.study_hash, told(record)) == ("other", [(1, 1, 0, False, None)])
        with pytest.raises(InvalidInput, match="sites may have answered it"):
            record.of("hash", "lungs")
    assert path.read_bytes() == content


def test_a_line_of_another_study_after_one_that_spent_is_damage(path: Path):
    """Whoever adds it by hand, with the right checksum, does not make the record forget."""
    with Record(path) as record:
        record._write(kind="study", format=2, hash="other", name="lungs")
    with pytest.raises(InvalidInput, match="is damaged"):
        Record(path)


def test_one_process_at_a_time(path: Path):
    with Record(path), pytest.raises(InvalidInput, match="is in use"):
        Record(path)
    Record(path).close()


def test_others_may_look_while_one_process_holds_it_and_change_nothing(path: Path):
    with Record(path) as record:
        content = path.read_bytes()
        path.write_bytes(content + b"0123456789abcdef {half of a li")
        seen = Record.look(path)
        assert (told(seen), seen.study_hash) == (told(record), "hash")
        assert path.read_bytes().endswith(b"half of a li")
    assert not Record.look(path.parent / "nothing").begun
    path.write_bytes(content.replace(b"nothing is left", b"nothing is lost"))
    with pytest.raises(InvalidInput, match="is damaged"):
        Record.look(path)


def test_lines_must_follow_each_other(tmp_path: Path):
    with Record(tmp_path / "r") as record:
        record.of("hash", "lungs")
        attempt = record.begin(1, bytes(16))
        for wrong in (
            lambda: record.answered(attempt, Answered(b"", (), None, COST)),
            lambda: record.failed(attempt, 1, ""),
            lambda: record.begin(1, bytes(16)),
            lambda: record.asked(Attempt(1, b"x" * 16)),
        ):
            with pytest.raises(ValueError, match=r"begins once|go on|follow"):
                wrong()


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path):
    with pytest.raises(InvalidInput, match="cannot be written"):
        Record(tmp_path / "no" / "record")


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real = os.write
    with Record(tmp_path / "r") as record:
        record.of("hash", "lungs")
        size = record.path.stat().st_size

        def full(handle: int, data: bytes) -> int:
            real(handle, bytes(data)[:10])
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(CapeError, match="No space left"):
            record.begin(1, bytes(16))
        monkeypatch.setattr(os, "write", real)
        assert record.path.stat().st_size == size
        assert not record.attempts
        record.begin(1, bytes(16))
    with Record(tmp_path / "r") as record:
        assert len(record.attempts) == 1
