"""The ledger as a process has read it: the same sums as the file's, and new lines of any process."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from cape.core.errors import BudgetExceeded, CapeError
from cape.secagg import Identity
from cape.site import Allowance, Amount, Basis, Entry, Ledger, Limit
from cape.site.admin import Desk
from cape.site.keyring import fingerprint
from cape.site.ledger.book import Book
from tests.world import World

KEY = Identity(bytes(range(32)))
ANA, BEN = bytes([1] * 32), bytes([2] * 32)


def entry(number: int, coordinator: bytes = ANA, study: str = "lungs", stage: int = 0) -> Entry:
    run = (number).to_bytes(16, "big")
    digest = study.encode().hex().ljust(64, "0")
    cost = Amount(Fraction(1, 7 + number % 3))
    told = (coordinator, study, digest, 1, "mean", "mean of age", "cape", run, stage, bytes(32))
    return Entry(*told, cost)


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2025, 11, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(tmp_path: Path, clock: Clock) -> Ledger:
    ledger = Ledger.create(tmp_path / "ledger.sqlite", lambda: KEY, clock=clock)
    for number in range(12):
        clock.now += timedelta(days=9)
        who, study = (ANA, BEN)[number // 2 % 2], ("lungs", "heart")[number // 6]
        ledger.reserve(entry(number // 2, who, study, number % 2))
    return ledger


def book_of(ledger: Ledger) -> Book:
    return Book(lambda: Ledger(ledger.path), clock=ledger._clock)


def test_sums_are_those_of_the_ledger(ledger: Ledger):
    book = book_of(ledger)
    assert book.refresh() == 12
    assert book.year == ledger.year == 2026
    for who in (None, ANA, BEN, bytes(32)):
        for year in (None, 2025, 2026, 1999):
            assert book.spent(who, year) == ledger.spent(who, year)
    for epsilon in (0.1, 0.9, 1.2, 1.5, 2.0, 3.0):
        limits = [
            Limit("of a year", Allowance(epsilon, 1e-6), in_year=True),
            Limit("of one", Allowance(epsilon, 1e-6), of_coordinator=True),
            Limit("of a study", Amount(Fraction(repr(epsilon))), of_study=entry(0).study_hash),
        ]
        for limit in limits:
            said = []
            for each in (book, ledger):
                try:
                    said.append(each.check(ANA, Amount(Fraction(1, 9)), [limit], Basis()))
                except BudgetExceeded as error:
                    said.append(str(error))
            assert said[0] == said[1]


def test_settled_lines_count_for_everybody(world: World):
    world.granted(world.request())
    head = world.site.ledger.head()
    assert head is not None
    world.site.ledger.path.rename(world.site.path / "lost")
    fresh = Ledger.create(world.site.path / "ledger.sqlite", lambda: world.identities["a"])
    fresh.show(head, world.identities["a"].public)
    fresh.settle()
    book = book_of(fresh)
    assert book.spent(world.other.public) == fresh.spent(world.other.public) != Amount()
    assert book.coordinators(book.select()) == []


def test_lines_of_other_processes_are_there_when_it_is_asked(ledger: Ledger, tmp_path: Path):
    book = book_of(ledger)
    book.refresh()
    other = Ledger(ledger.path, lambda: KEY, clock=ledger._clock)
    other.reserve(entry(50, BEN))
    assert book.refresh() == 13
    assert book.spent() == ledger.spent()
    assert book.new_runs(12).tolist() == [12]
    assert book.new_runs(13).tolist() == []


def test_a_ledger_that_was_replaced_is_read_again(ledger: Ledger, tmp_path: Path, clock: Clock):
    book = book_of(ledger)
    book.refresh()
    for name in ("ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    new = Ledger.create(tmp_path / "ledger.sqlite", lambda: KEY, clock=clock)
    for number in range(20):
        new.reserve(entry(number, BEN))
    assert book.refresh() == 20
    assert (book.spent(ANA), book.spent()) == (Amount(), new.spent())


def test_a_ledger_that_was_cut_and_grown_again_is_read_again(ledger: Ledger, tmp_path: Path):
    """As after a restored backup: the same ledger, with other lines at the end."""
    backup = (tmp_path / "backup.sqlite").absolute()
    with sqlite3.connect(ledger.path) as db:
        db.execute(f"VACUUM INTO '{backup}'")
    ledger.reserve(entry(60, ANA))
    book = book_of(ledger)
    assert book.refresh() == 13
    for name in ("ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    backup.rename(tmp_path / "ledger.sqlite")
    for number in (70, 71):
        ledger.reserve(entry(number, BEN))
    assert book.refresh() == 14
    assert (book.spent(ANA), book.spent(BEN)) == (ledger.spent(ANA), ledger.spent(BEN))


def forge(ledger: Ledger, line: int) -> None:
    with sqlite3.connect(ledger.path) as db:
        db.execute("DROP TRIGGER releases_UPDATE")
        db.execute("UPDATE releases SET description = 'nothing' WHERE id = ?", (line,))


def test_a_line_changed_by_hand_is_found_when_it_is_read_and_when_it_is_shown(ledger: Ledger):
    read = book_of(ledger)
    read.refresh()
    forge(ledger, 5)
    with pytest.raises(CapeError, match=r"line 5 of .* was changed by hand"):
        book_of(ledger).refresh()
    assert read.read(np.array([0, 11]))[1].id == 12
    with pytest.raises(CapeError, match=r"line 5 of .* was changed by hand"):
        read.read(np.array([4]))


def test_pages_by_run_and_by_line_have_every_entry_once(world: World):
    for number in range(7):
        study = replace(entry(number, (world.office.public, BEN)[number % 2]), study=f"s{number % 3}")
        for stage in range(3):
            world.site.ledger.reserve(replace(study, stage=stage))
    desk = Desk(world.site)
    for newest in (False, True):
        for lines, many in ((False, 7), (True, 21)):
            found, after = [], None
            while True:
                page = desk.ledger(after, 4, lines=lines, newest=newest)
                assert page.found == many
                assert (page.shown.lines, page.total.lines) == (21, 21)
                found += [each.line for each in page.runs + page.releases]
                if (after := page.next) is None:
                    break
            assert found == sorted(found, reverse=newest)
            assert len(set(found)) == many
    assert [run.stages for run in desk.ledger().runs] == [3] * 7
    chosen = desk.ledger(study="s1", coordinator="office", lines=True)
    assert {(line.study, line.coordinator) for line in chosen.releases} == {("s1", "office")}
    assert desk.ledger(coordinator=fingerprint(BEN)).found == 3
    today = datetime.now(UTC).date()
    for since, until, many in (
        (today.isoformat(), today.isoformat(), 7),
        (None, (today - timedelta(days=1)).isoformat(), 0),
        ((today + timedelta(days=2)).isoformat(), None, 0),
    ):
        assert desk.ledger(since=since, until=until).found == many
    some = desk.ledger(coordinator="office", most=0)
    assert (some.runs, some.found, some.next) == ((), 4, None)
    assert some.shown.mu == pytest.approx(world.site.ledger.spent(world.office.public).mu)
