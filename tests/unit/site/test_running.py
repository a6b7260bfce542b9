"""Running totals, and charges on a decimal grid: short numbers, and as much as the lines add up to."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.core.errors import BudgetExceeded, InvalidInput
from cape.engine.stages import _parts
from cape.privacy import Budget
from cape.privacy.accounting import Basis
from cape.site import Amount, Entry, Ledger, Limit
from cape.site.ledger.verify import verify
from tests.slices import examples
from tests.unit.site.test_ledger import KEY, OTHER, WHO, entry, own

PRIMES = [p for p in range(2, 8000) if all(p % q for q in range(2, int(p**0.5) + 1))]
costs = st.builds(
    lambda mu, extra, pure, kind: Amount(mu, extra) if kind else Amount(extra=extra, pure=pure),
    *[st.fractions(0, 1, max_denominator=10**6)] * 3,
    st.booleans(),
)
entries = st.lists(
    st.tuples(
        st.sampled_from([WHO, OTHER]),
        st.sampled_from(["aa" * 32, "bb" * 32]),
        costs,
        st.sampled_from([Basis(), Basis(sampled=True), Basis(unit="person", rows=3, sites=2)]),
        st.sampled_from([2025, 2026, 2027]),
    ),
    max_size=12,
)


def made(who: bytes, study: str, cost: Amount, basis: Basis) -> Entry:
    return replace(entry(who), study_hash=study, cost=cost, basis=basis)


@given(entries)
@examples(60)
def test_running_totals_are_what_the_lines_add_up_to(tmp_path_factory, written):
    path = tmp_path_factory.mktemp("ledger") / "l"
    year = [2025]
    ledger = Ledger.create(path, own, clock=lambda: datetime(year[0], 6, 1, tzinfo=UTC))
    for who, study, cost, basis, when in written:
        year[0] = max(year[0], when)
        ledger.reserve(made(who, study, cost, basis))
    lines = ledger.entries()
    for who, when in product((None, WHO, OTHER), (None, 2025, 2026, 2027)):
        expected: dict[Basis, Amount] = {}
        for line in lines:
            if who in (None, line.coordinator) and when in (None, line.at.year):
                expected[line.basis] = expected.get(line.basis, Amount()) + line.charged
        units = {basis.unit for basis, amount in expected.items() if amount != Amount()}
        if len(units) < 2:
            assert ledger.spent(who, when) == sum(expected.values(), Amount())
    assert verify(path, [KEY.public]).problems == []


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "l", own)


def test_a_study_has_a_limit_of_its_own_for_each_coordinator(ledger: Ledger):
    def limit(study: str) -> Limit:
        return Limit("of the study", Amount(Fraction(1)), of_coordinator=True, of_study=study)

    one, other = "aa" * 32, "bb" * 32
    for study in (one, other):
        ledger.reserve(made(WHO, study, Amount(Fraction(9, 10)), Basis()), [limit(study)])
    ledger.reserve(made(OTHER, one, Amount(Fraction(9, 10)), Basis()), [limit(one)])
    with pytest.raises(BudgetExceeded, match="of the study"):
        ledger.reserve(made(WHO, one, Amount(Fraction(2, 10)), Basis()), [limit(one)])


@pytest.mark.slow(2)
def test_prices_with_many_prime_numbers_leave_the_ledger_open(ledger: Ledger):
    for prime in PRIMES:
        ledger.reserve(entry(cost=Fraction(1, prime), extra=Fraction(1, prime**3)))
    head = ledger.head()
    assert head is not None
    assert len(head.pack()) < 4000
    spent = ledger.spent().mu_squared
    assert 0 <= spent - sum(Fraction(1, prime) for prime in PRIMES) < Fraction(len(PRIMES), 10**300)


@pytest.mark.parametrize("share", ["0.1", "0.01", "0.125", "0.05"])
@pytest.mark.parametrize("epsilon", [0.001, 0.3, 1.0, 7.0])
def test_decimal_shares_add_up_to_the_whole_and_not_to_more(ledger: Ledger, share: str, epsilon: float):
    part, whole = Fraction(share), Fraction(Budget(epsilon, 1e-6).mu) ** 2
    limit = Limit("of the study", Amount(whole))
    for _ in range(int(1 / part)):
        ledger.reserve(entry(cost=part * whole), [limit])
    assert ledger.spent().mu_squared == whole
    with pytest.raises(BudgetExceeded):
        ledger.reserve(entry(cost=Fraction(1, 10**299)), [limit])


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=40))
@examples(100)
def test_parts_of_stages_are_decimals_that_add_up_to_1(given_parts):
    parts = _parts([Fraction(each) for each in given_parts])
    assert sum(parts) == 1
    for part, each in zip(parts, given_parts, strict=True):
        assert (part * 10**40).denominator == 1
        assert float(part) == pytest.approx(each / sum(given_parts), rel=1e-15)


def test_a_stage_without_a_part_is_refused():
    with pytest.raises(InvalidInput, match="so much less"):
        _parts([Fraction(3), Fraction(1, 10**50), Fraction(4)])


@given(costs)
@examples(200)
def test_rounding_goes_up_once_and_not_again(cost: Amount):
    up = cost.rounded_up()
    assert up.covers(cost)
    assert Amount(*[Fraction(1, 10**300)] * 3).covers(up.beyond(cost))
    assert up.rounded_up() == up


def _edit(ledger: Ledger, *statements: str) -> None:
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


@pytest.mark.parametrize(
    "statements",
    [
        ("UPDATE running SET mu_squared = '0' WHERE study_hash = ''",),
        ("DELETE FROM running",),
        ("DELETE FROM running_to",),
        ("DROP TABLE running", "DROP TABLE running_to", "DROP INDEX keys"),  # of an earlier version
        ("UPDATE running_to SET lines = 1",),
    ],
)
def test_totals_that_do_not_fit_the_signed_ones_do_not_count(ledger: Ledger, statements: tuple[str, ...]):
    limit = Limit("of this site", Amount(Fraction(1)))
    for _ in range(9):
        ledger.reserve(entry(), [limit])
    _edit(ledger, *statements)
    assert ledger.spent().mu_squared == Fraction(9, 10)
    ledger.reserve(entry(), [limit])
    with pytest.raises(BudgetExceeded):
        ledger.reserve(entry(), [limit])
    assert verify(ledger.path, [KEY.public]).problems == []


def test_totals_of_a_study_that_were_changed_by_hand_are_named(ledger: Ledger):
    ledger.reserve(entry())
    _edit(ledger, "UPDATE running SET mu_squared = '0' WHERE study_hash != ''")
    assert verify(ledger.path, [KEY.public]).problems == [
        "the running totals are not what the lines add up to"
    ]
