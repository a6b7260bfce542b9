from __future__ import annotations

import math
import os
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.core.errors import BudgetExceeded, CapeError, InvalidInput, Refused
from cape.privacy import gaussian
from cape.secagg import Identity
from cape.site import Amount, Entry, Ledger, Limit
from tests.checkout import ROOT
from tests.slices import examples

WHO, OTHER = b"\1" * 32, b"\2" * 32
KEY = Identity(b"the key of a site".ljust(32, b"."))
TENTH = Fraction(1, 10)
WHOLE = Amount(Fraction(1), Fraction(1, 10**7))


def own() -> Identity:
    return KEY


def entry(
    who: bytes = WHO,
    cost: Fraction = TENTH,
    *,
    run: bytes | None = None,
    stage: int = 0,
    plan: bytes = b"plan",
    once: Amount | None = None,
    extra: Fraction = Fraction(0),
) -> Entry:
    return Entry(
        who,
        "heart",
        "ab" * 32,
        1,
        "mean",
        "mean of age",
        "cape",
        run or os.urandom(16),
        stage,
        plan,
        Amount(cost, extra),
        once or Amount(),
    )


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "ledger.sqlite", own)


def test_ten_tenths_are_exactly_one(ledger: Ledger):
    limit = Limit("of this site", WHOLE)
    for number in range(1, 11):
        assert ledger.reserve(entry(), [limit]) == number
    with pytest.raises(BudgetExceeded, match="of this site"):
        ledger.reserve(entry(cost=Fraction(1, 10**30)), [limit])
    assert ledger.spent().mu_squared == 1
    assert len(ledger.entries()) == 10


def test_what_costs_nothing_is_written_down_too(ledger: Ledger):
    limit = Limit("of this site", Amount())
    assert ledger.reserve(entry(cost=Fraction(0)), [limit]) == 1


def test_a_run_that_is_closed_stays_as_it_is(ledger: Ledger):
    run, other = bytes(16), b"x" * 16
    ledger.reserve(entry(run=run))
    assert ledger.begun(run, entry().coordinator)
    assert not ledger.begun(other, entry().coordinator)
    for _ in range(2):
        ledger.close(run, entry().coordinator)
        ledger.close(other, entry().coordinator)
    for each in (entry(run=run, stage=1), entry(run=other)):
        with pytest.raises(Refused, match="was closed"):
            ledger.reserve(each)
    assert ledger.has(run, 0, entry().coordinator)
    assert not ledger.has(other, 0, entry().coordinator)
    ledger.reserve(entry())


def test_nobody_closes_the_run_of_another(ledger: Ledger):
    run, stranger = bytes(16), b"s" * 32
    ledger.reserve(entry(run=run))
    ledger.close(run, stranger)
    assert not ledger.has(run, 0, stranger)
    assert ledger.has(run, 0, entry().coordinator)
    ledger.reserve(entry(run=run, stage=1))


def test_limits_of_coordinators_and_years(tmp_path: Path):
    now = [datetime(2025, 12, 31, 23, 59, tzinfo=UTC)]
    ledger = Ledger.create(tmp_path / "ledger.sqlite", own, clock=lambda: now[0])
    limits = [
        Limit("a", Amount(Fraction(2, 10)), of_coordinator=True, in_year=True),
        Limit("b", Amount(Fraction(3, 10)), in_year=True),
        Limit("c", Amount(Fraction(4, 10))),
    ]
    for who, name in ((WHO, ""), (WHO, ""), (WHO, "a"), (OTHER, ""), (OTHER, "b")):
        if name:
            with pytest.raises(BudgetExceeded, match=f"budget {name} "):
                ledger.reserve(entry(who), limits)
        else:
            ledger.reserve(entry(who), limits)
    now[0] += timedelta(minutes=2)
    ledger.reserve(entry(), limits)
    with pytest.raises(BudgetExceeded, match="budget c "):
        ledger.reserve(entry(), limits)
    assert ledger.spent(WHO, 2025).mu_squared == Fraction(2, 10)
    assert ledger.spent(WHO, 2026).mu_squared == TENTH
    assert ledger.spent(year=2025).mu_squared == Fraction(3, 10)
    assert ledger.spent(OTHER).mu_squared == TENTH
    assert [line.at.year for line in ledger.entries(WHO)] == [2025, 2025, 2026]
    assert len(ledger.entries(year=2026)) == 1


def test_limits_of_one_study(ledger: Ledger):
    """Of this hash and this coordinator, whatever the study is called."""

    def reserve(study_hash: str, who: bytes = WHO, name: str = "heart") -> None:
        limit = Limit("of the study", Amount(2 * TENTH), of_coordinator=True, of_study=study_hash)
        ledger.check(who, Amount(TENTH), [limit])
        ledger.reserve(replace(entry(who), study=name, study_hash=study_hash), [limit])

    for name in ("heart", "lungs"):
        reserve("ab", name=name)
    with pytest.raises(BudgetExceeded, match="the budget of the study does not cover"):
        reserve("ab")
    for who in (WHO, OTHER):
        reserve("cd", who)
    reserve("ab", OTHER)
    assert len(ledger.entries()) == 5
    tight = Limit("of the study", Amount(2 * TENTH), of_coordinator=True, of_study="ab")
    with pytest.raises(BudgetExceeded):  # `reserve` looks itself, whatever `check` said before
        ledger.reserve(replace(entry(), study_hash="ab"), [tight])


def test_an_amount_beyond_all_floats_is_endless():
    huge = Fraction(10) ** 400
    assert Amount(huge).mu == math.inf
    assert Amount(huge).epsilon(1e-6) == Amount(Fraction(1), huge).epsilon(1e-6) == math.inf


def test_a_clock_set_back_opens_no_old_year(tmp_path: Path):
    now = [datetime(2026, 1, 2, tzinfo=UTC)]
    ledger = Ledger.create(tmp_path / "ledger.sqlite", own, clock=lambda: now[0])
    limit = Limit("of the year", Amount(TENTH), in_year=True)
    ledger.reserve(entry(), [limit])
    now[0] = datetime(2025, 6, 1, tzinfo=UTC)
    with pytest.raises(BudgetExceeded):
        ledger.reserve(entry(), [limit])


def test_what_is_added_to_delta_is_limited_too(ledger: Ledger):
    limit = Limit("of this site", Amount(Fraction(1), Fraction(1, 10**8)))
    ledger.reserve(entry(extra=Fraction(1, 10**8)), [limit])
    with pytest.raises(BudgetExceeded):
        ledger.reserve(entry(extra=Fraction(1, 10**30)), [limit])


def test_epsilon_of_the_sum_takes_off_what_was_added_to_delta(ledger: Ledger):
    for _ in range(4):
        ledger.reserve(entry(cost=Fraction(1, 4), extra=Fraction(1, 8 * 10**6)))
    assert ledger.spent().epsilon(1e-6) == pytest.approx(gaussian.epsilon(0.5e-6, 1.0))
    assert ledger.spent().epsilon(1e-7) == float("inf")


def test_no_release_twice_under_one_run_and_stage(ledger: Ledger):
    run = os.urandom(16)
    ledger.reserve(entry(run=run))
    with pytest.raises(Refused, match="released before"):
        ledger.reserve(entry(run=run))
    with pytest.raises(Refused, match="another release"):
        ledger.reserve(entry(run=run, stage=1, plan=b"other"))
    assert ledger.reserve(entry(run=run, stage=1)) == 2
    assert ledger.has(run, 1, entry().coordinator)
    assert not ledger.has(run, 2, entry().coordinator)


def test_nobody_uses_up_the_run_of_another(ledger: Ledger):
    run, stranger, once = os.urandom(16), b"s" * 32, Amount(Fraction(1, 2))
    for coordinator in (stranger, entry().coordinator):
        ledger.reserve(replace(entry(run=run, cost=Fraction(1, 4), once=once), coordinator=coordinator))
        assert ledger.begun(run, coordinator)
    assert [line.charged.mu_squared for line in ledger.entries()] == [Fraction(3, 4)] * 2, "each pays it all"


def test_what_a_run_costs_as_a_whole_is_charged_once(ledger: Ledger):
    run, once = os.urandom(16), Amount(Fraction(1, 2))
    for stage in (3, 1):
        ledger.reserve(entry(run=run, stage=stage, cost=Fraction(0), once=once))
    assert [line.charged.mu_squared for line in ledger.entries()] == [Fraction(1, 2), 0]


def test_a_refusal_writes_nothing(ledger: Ledger):
    with pytest.raises(BudgetExceeded):
        ledger.reserve(entry(), [Limit("of this site", Amount())])
    assert ledger.entries() == []


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM releases",
        "UPDATE releases SET amount = '0'",
        "REPLACE INTO releases SELECT * FROM releases",
        "DELETE FROM runs",
        "UPDATE runs SET run = ''",
    ],
)
def test_lines_never_change_or_vanish(ledger: Ledger, statement: str):
    ledger.reserve(entry())
    ledger.claim(b"r" * 16)
    db = sqlite3.connect(ledger.path)
    db.execute("PRAGMA recursive_triggers = ON")
    with pytest.raises(sqlite3.IntegrityError, match="never changes"):
        db.execute(statement)
    db.close()
    assert len(ledger.entries()) == 1


def test_a_line_changed_by_hand_is_found(ledger: Ledger):
    for _ in range(3):
        ledger.reserve(entry())
    db = sqlite3.connect(ledger.path)
    db.execute("DROP TRIGGER releases_UPDATE")
    db.execute("UPDATE releases SET amount = '0' WHERE id = 2")
    db.commit()
    db.close()
    with pytest.raises(CapeError, match=r"line 2 .* changed by hand"):
        ledger.entries()


def test_wal_and_full_sync_and_owner_only(ledger: Ledger):
    with ledger._connected() as db:
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert db.execute("PRAGMA synchronous").fetchone()[0] == 2
    assert ledger.path.stat().st_mode & 0o777 == 0o600


def test_a_lost_ledger_is_not_made_anew(ledger: Ledger):
    with pytest.raises(InvalidInput, match="never overwritten"):
        Ledger.create(ledger.path)
    ledger.path.unlink()
    with pytest.raises(InvalidInput, match="no ledger"):
        Ledger(ledger.path)
    with pytest.raises(CapeError):
        ledger.reserve(entry())
    assert not ledger.path.exists()


def test_another_file_is_no_ledger(tmp_path: Path):
    (tmp_path / "a").write_text("not a database, but long enough to be told from an empty one")
    with pytest.raises(CapeError, match="cannot be used"):
        Ledger(tmp_path / "a")
    sqlite3.connect(tmp_path / "b").close()
    (tmp_path / "b").touch()
    with pytest.raises(InvalidInput, match="not a ledger"):
        Ledger(tmp_path / "b")


def test_amounts_are_fractions_and_never_negative():
    with pytest.raises(InvalidInput, match="fractions"):
        Amount(0.1)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="negative"):
        Amount(Fraction(-1, 10))


def test_the_names_of_sessions_are_remembered(ledger: Ledger):
    ledger.claim(b"a" * 16)
    ledger.claim(b"b" * 16)
    for again in (ledger, Ledger(ledger.path)):
        with pytest.raises(Refused, match="used before"):
            again.claim(b"a" * 16)


@examples(30)
@given(st.lists(st.fractions(min_value=0, max_value=1, max_denominator=10**6), max_size=12))
def test_sums_are_exact_and_never_pass_the_limit(tmp_path_factory, costs):
    ledger = Ledger.create(tmp_path_factory.mktemp("ledger") / "l", own)
    limit, expected = Limit("of this site", Amount(Fraction(2))), Fraction(0)
    for stated in costs:
        cost = Amount(stated).rounded_up().mu_squared
        assert stated <= cost < stated + Fraction(1, 10**290)
        if expected + cost <= 2:
            ledger.reserve(entry(cost=stated), [limit])
            expected += cost
        elif cost:
            with pytest.raises(BudgetExceeded):
                ledger.reserve(entry(cost=stated), [limit])
    assert ledger.spent().mu_squared == expected


def test_threads_cannot_overdraw(ledger: Ledger):
    limit, done = Limit("of this site", WHOLE), []
    start = threading.Barrier(6)

    def spend() -> None:
        start.wait()
        for _ in range(4):
            try:
                done.append(ledger.reserve(entry(), [limit]))
            except BudgetExceeded:
                done.append(None)

    threads = [threading.Thread(target=spend) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for number in done if number) == list(range(1, 11))
    assert len(done) == 24
    assert ledger.spent().mu_squared == 1


_SPEND = """
import sys
from cape.core.errors import BudgetExceeded
from cape.site import Ledger
from tests.unit.site.test_ledger import WHOLE, Limit, entry, own
ledger, got = Ledger(sys.argv[1], own), 0
for _ in range(12):
    try:
        ledger.reserve(entry(), [Limit("of this site", WHOLE)])
        got += 1
    except BudgetExceeded:
        pass
print(got)
"""


@pytest.mark.slow(5.6)
def test_processes_cannot_overdraw(ledger: Ledger):
    root = ROOT
    children = [
        subprocess.Popen(
            [sys.executable, "-c", _SPEND, str(ledger.path)], cwd=root, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    got = [int(child.communicate()[0]) for child in children]
    assert sum(got) == 10
    assert ledger.spent().mu_squared == 1
    assert len(ledger.entries()) == 10
