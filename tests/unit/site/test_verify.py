"""A third party finds what was changed, cut off or written anew; with the site's card, and heads."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from unittest import mock

import pytest

from cape.core.errors import InvalidInput
from cape.privacy.accounting import Basis
from cape.secagg import Identity
from cape.site import Amount, Ledger
from cape.site.ledger.heads import Head
from cape.site.ledger.verify import verify
from tests.unit.site.test_heads import copy_of, head_of, put_back
from tests.unit.site.test_ledger import KEY, entry, own

KEYS = [KEY.public]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger.create(tmp_path / "ledger.sqlite", own)
    for _ in range(6):
        made.reserve(entry())
    return made


def heads(ledger: Ledger) -> list[Head]:
    return [head_of(ledger, lines) for lines in range(1, 7)]


def by_hand(ledger: Ledger, *statements: str) -> None:
    """Change the file as somebody with an editor for databases would."""
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as db:
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            db.execute(statement)


def test_a_ledger_that_is_right_passes(ledger: Ledger):
    before = copy_of(ledger)
    found = verify(ledger.path, KEYS, heads(ledger))
    assert found.problems == []
    assert (found.ledger, found.lines, found.heads) == (ledger.id, 6, 6)
    assert found.totals == {Basis(): Amount(Fraction(6, 10))}
    assert copy_of(ledger) == before, "and is not touched"


def test_an_empty_one_passes(tmp_path: Path):
    assert verify(Ledger.create(tmp_path / "empty", own).path, KEYS).problems == []


WRONG: dict[str, tuple[str, str]] = {
    "an amount": ("UPDATE releases SET amount = '0' WHERE id = 3", "line 3 was changed"),
    "an adjacency": ("UPDATE releases SET adjacency = 'add-remove' WHERE id = 3", "line 3 was changed"),
    "a line in the middle": ("DELETE FROM releases WHERE id = 3", "line 3 is missing"),
    "a signature": (
        "UPDATE releases SET signature = (SELECT signature FROM releases WHERE id = 2) WHERE id = 3",
        "line 3 does not have the site's signature",
    ),
    "no signature": ("UPDATE releases SET signature = 'zz' WHERE id = 3", "does not have the site's"),
    "no number": ("UPDATE releases SET amount = '1/0' WHERE id = 3", "line 3 cannot be read"),
    "the ledger's name": (f"UPDATE ledger SET id = '{'00' * 16}'", "line 1 was changed"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_was_changed_by_hand_is_named(ledger: Ledger, what: str):
    statement, says = WRONG[what]
    by_hand(ledger, statement)
    assert says in " ".join(verify(ledger.path, KEYS).problems)


def test_another_key_is_not_the_sites(ledger: Ledger):
    problems = verify(ledger.path, [Identity().public]).problems
    assert problems[0] == "line 1 was signed with another key than the site's"
    assert len(problems) == 6


def test_a_renewed_key_needs_both_cards(ledger: Ledger):
    new = Identity()
    Ledger(ledger.path, lambda: new).reserve(entry())
    assert verify(ledger.path, [KEY.public, new.public], heads(ledger)).problems == []
    assert verify(ledger.path, KEYS).problems == ["line 7 was signed with another key than the site's"]


def test_a_cut_tail_shows_against_heads_alone(ledger: Ledger):
    kept = heads(ledger)
    by_hand(ledger, "DELETE FROM releases WHERE id > 4")
    assert verify(ledger.path, KEYS).problems == []
    assert verify(ledger.path, KEYS, kept[:4]).problems == []
    assert verify(ledger.path, KEYS, kept).problems == [
        "the site has signed line 5, and the ledger ends at 4",
        "the site has signed line 6, and the ledger ends at 4",
    ]


def test_a_chain_written_anew_with_the_sites_own_key_shows_against_heads_alone(ledger: Ledger):
    kept, name = heads(ledger), ledger.id
    ledger.path.unlink()
    with mock.patch.object(os, "urandom", lambda size: name if size == 16 else bytes(size)):
        forged = Ledger.create(ledger.path, own)
    for _ in range(8):
        forged.reserve(entry(cost=Fraction(1, 1000)))
    assert forged.id == name
    assert verify(ledger.path, KEYS).problems == []
    problems = verify(ledger.path, KEYS, kept).problems
    assert len(problems) == 6
    assert problems[0] == "line 1 is not the one that the site has signed: the ledger was rewritten"


def test_another_ledger_of_the_same_site_shows(ledger: Ledger, tmp_path: Path):
    other = Ledger.create(tmp_path / "other", own)
    other.reserve(entry())
    found = verify(other.path, KEYS, heads(ledger)[:1])
    assert found.problems == ["the site has signed line 1 of another ledger"]


def test_heads_of_other_sites_are_left_aside(ledger: Ledger, tmp_path: Path):
    stranger = Identity()
    theirs = Ledger.create(tmp_path / "other", lambda: stranger)
    theirs.reserve(entry())
    found = verify(ledger.path, KEYS, [head_of(theirs)])
    assert (found.problems, found.heads) == ([], 0)


def test_times_and_totals_that_a_dishonest_site_signs_are_found(tmp_path: Path):
    """With its own key, and a chain that fits: the lines themselves contradict each other."""
    clock = [datetime(2026, 1, 2, tzinfo=UTC)]
    ledger = Ledger.create(tmp_path / "ledger.sqlite", own, clock=lambda: clock[0])
    ledger.reserve(entry())
    with mock.patch.object(Ledger, "_now", return_value=datetime(2025, 1, 1, tzinfo=UTC)):
        ledger.reserve(entry())
    assert verify(ledger.path, KEYS).problems == ["line 2 is older than the one before"]

    with mock.patch("cape.site.ledger.ledger.totals_at", return_value={}):
        ledger.reserve(entry())
    assert verify(ledger.path, KEYS).problems[1:] == [
        "line 3 does not state what all lines up to it add up to"
    ]


def test_what_is_settled_passes_and_the_lost_heads_show(ledger: Ledger):
    copy = copy_of(ledger)
    ledger.reserve(entry())
    lost = head_of(ledger)
    put_back(ledger, copy)
    ledger.show(lost, KEY.public)
    ledger.settle()
    assert verify(ledger.path, KEYS).problems == []
    assert verify(ledger.path, KEYS, [lost]).problems == [
        "line 7 is not the one that the site has signed: the ledger was rewritten"
    ]


def test_what_is_no_ledger_cannot_be_checked(tmp_path: Path, ledger: Ledger):
    (tmp_path / "a").write_text("not a database, but long enough to be told from an empty one")
    (tmp_path / "b").touch()
    for name in ("a", "b", "none"):
        with pytest.raises(InvalidInput):
            verify(tmp_path / name, KEYS)
    by_hand(ledger, "PRAGMA user_version = 1")
    with pytest.raises(InvalidInput, match="not a ledger"):
        verify(ledger.path, KEYS)
