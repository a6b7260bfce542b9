"""A nonce is taken once: by any thread or process, after a restart, and with a clock that was set back."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from cape.core.errors import CapeError, Refused
from cape.site.decide.nonces import Nonces

OFFICE, OTHER = bytes(32), bytes(31) + b"x"
DAY = 24 * 3600


def nonce(number: int) -> bytes:
    return number.to_bytes(16, "big")


@pytest.fixture
def nonces(tmp_path: Path) -> Nonces:
    return Nonces(tmp_path / "nonces.sqlite")


def test_a_nonce_is_taken_once_and_each_coordinator_has_its_own(nonces: Nonces):
    nonces.take(OFFICE, nonce(1), 1000, now=0)
    with pytest.raises(Refused, match="sent before"):
        nonces.take(OFFICE, nonce(1), 2000, now=1)
    nonces.take(OTHER, nonce(1), 1000, now=0)
    nonces.take(OFFICE, nonce(2), 1000, now=0)
    with pytest.raises(Refused, match="sent before"):
        Nonces(nonces.path).take(OFFICE, nonce(2), 1000, now=1000)
    assert stat.S_IMODE(nonces.path.stat().st_mode) == 0o600


def test_what_has_expired_is_forgotten(nonces: Nonces):
    for number in range(50):
        nonces.take(OFFICE, nonce(number), 1000 + number, now=1000)
    nonces.take(OFFICE, nonce(99), 5000, now=1049)
    assert len(nonces) == 2, "the last of the fifty has not expired"
    nonces.take(OFFICE, nonce(100), 5000, now=1050)
    assert len(nonces) == 2


def test_a_clock_that_is_set_back_opens_no_old_request_again(nonces: Nonces):
    nonces.take(OFFICE, nonce(1), 1000, now=900)
    nonces.take(OFFICE, nonce(2), 3000, now=2000)
    assert len(nonces) == 1, "the first is forgotten"
    with pytest.raises(Refused, match="clock"):
        nonces.take(OFFICE, nonce(1), 1000, now=900)
    nonces.take(OFFICE, nonce(3), 1001, now=900)


def test_a_clock_that_was_far_ahead_stops_nothing_that_expires_later(nonces: Nonces):
    nonces.take(OFFICE, nonce(1), 1000 + DAY, now=1000)
    nonces.take(OFFICE, nonce(2), 10**10 + DAY, now=10**10)
    nonces.take(OFFICE, nonce(3), 1001 + DAY, now=1001)


def test_a_new_file_in_which_another_writes_is_waited_for(nonces: Nonces):
    """A file's first writer must not be able to turn the second away."""
    with closing(sqlite3.connect(nonces.path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        ended = threading.Timer(0.2, other.execute, ["COMMIT"])
        ended.start()
        nonces.take(OFFICE, nonce(1), 1000, now=0)
        ended.join()
    assert len(nonces) == 1


def test_a_file_of_an_earlier_version_keeps_its_log(nonces: Nonces):
    with closing(sqlite3.connect(nonces.path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE forgotten (expires INTEGER NOT NULL)")
        db.execute(
            "CREATE TABLE taken (coordinator BLOB NOT NULL, nonce BLOB NOT NULL, expires INTEGER NOT NULL, "
            "PRIMARY KEY (coordinator, nonce)) WITHOUT ROWID"
        )
        db.execute("INSERT INTO taken VALUES (?, ?, 1000)", (OFFICE, nonce(1)))
    with pytest.raises(Refused, match="sent before"):
        nonces.take(OFFICE, nonce(1), 1000, now=0)
    nonces.take(OFFICE, nonce(2), 1000, now=0)


def test_one_of_many_threads_takes_it(nonces: Nonces):
    ready, won = threading.Barrier(12), []

    def take() -> None:
        ready.wait()
        try:
            Nonces(nonces.path).take(OFFICE, nonce(7), 1000, now=0)
        except Refused:
            return
        won.append(1)

    threads = [threading.Thread(target=take) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


@pytest.mark.slow(4.3)
def test_one_of_many_processes_takes_it(nonces: Nonces):
    code = """
import sys
from cape.core.errors import Refused
from cape.site.decide.nonces import Nonces
taken = 0
for number in range(20):
    try:
        Nonces(sys.argv[1]).take(bytes(32), number.to_bytes(16, "big"), 1000, now=0)
        taken += 1
    except Refused:
        pass
print(taken)
"""
    command = [sys.executable, "-c", code, str(nonces.path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert sum(int(each.communicate(timeout=120)[0]) for each in running) == 20


def test_a_file_that_is_something_else_lets_nothing_in(nonces: Nonces):
    nonces.path.write_bytes(b"not a database" * 1000)
    with pytest.raises(CapeError, match="cannot be used"):
        nonces.take(OFFICE, nonce(1), 1000, now=0)
