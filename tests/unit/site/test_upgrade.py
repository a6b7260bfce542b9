"""A site of version 0.1.0 with this one: refused with what to do, or taken over with all that it spent."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from cape.core.errors import CapeError, InvalidInput
from cape.privacy.accounting import Amount
from cape.secagg import Identity
from cape.site import SiteFolder
from cape.site.ledger.ledger import Ledger
from cape.site.ledger.upgrade import upgrade
from cape.site.ledger.verify import verify
from tests.killed import killed_at_every_step
from tests.unit.cli.conftest import Cape
from tests.unit.cli.conftest import cape as cape

MADE = Path(__file__).parent / "site_of_0_1_0"
OFFICE, OTHER = (Identity(bytes([number]) * 32).public for number in (1, 2))
TOTAL = "total = {epsilon = 4.0, delta = 1e-06}"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "a"
    shutil.copytree(MADE, folder)
    for path in folder.iterdir():
        path.chmod(0o600)
    return folder


def old_lines(path: Path) -> list[tuple[str, int, str, Fraction, Fraction]]:
    """Coordinator, year, study, mu² and what is added to delta, as SQLite has them."""
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT coordinator, year, study_hash, mu_squared, extra FROM releases").fetchall()
    return [(who, year, study, Fraction(mu), Fraction(extra)) for who, year, study, mu, extra in rows]


def identity(site: Path) -> Callable[[], Identity]:
    return lambda: SiteFolder(site).identity


def test_an_older_ledger_is_refused_with_what_to_do(cape: Cape, site: Path):
    (site / "site.toml").write_text(
        (site / "site.toml").read_text().replace("[coordinators]", f"{TOTAL}\n[coordinators]")
    )
    before = (site / "ledger.sqlite").read_bytes()
    for command in (("ledger",), ("serve", "--link", site / "link.sock"), ("settle",)):
        done = cape("site", *command, "--site", site)
        assert done.code == 2
        assert "written by an earlier version of cape" in done.err
        assert "run `cape site upgrade`" in done.err
    assert (site / "ledger.sqlite").read_bytes() == before


def test_an_upgrade_charges_all_that_was_spent(cape: Cape, site: Path):
    before = old_lines(site / "ledger.sqlite")
    assert len(before) == 5
    done = cape("site", "upgrade", "--site", site)
    assert done.code == 0, done.err
    assert "Took over 5 lines" in done.out
    ledger = SiteFolder(site).ledger
    for who in (None, OFFICE, OTHER):
        for year in (None, 2025, 2026):
            mine = [
                line for line in before if who in (None, bytes.fromhex(line[0])) and year in (None, line[1])
            ]
            spent = ledger.spent(who, year)
            assert spent.mu_squared == 4 * sum(line[3] for line in mine)
            assert spent.extra == sum(line[4] for line in mine)
    studies = {line.study_hash for line in ledger.entries()}
    assert studies == {line[2] for line in before}
    found = verify(site / "ledger.sqlite", [SiteFolder(site).identity.public])
    assert (found.problems, found.lines, found.first.year) == ([], 5, 2025)
    assert ledger.has(bytes(range(16)), 1, OTHER), "stages that were paid for stay paid for"
    with pytest.raises(CapeError, match="closed by its coordinator"):
        ledger.reserve(_entry(ledger, 2))
    assert (site / "ledger.sqlite").stat().st_mode & 0o777 == 0o600
    assert "took over 5 lines" in (site / "site.log").read_text()
    again = cape("site", "upgrade", "--site", site)
    assert (again.code, "nothing was changed" in again.out) == (0, True)


def _entry(ledger: Ledger, stage: int) -> Any:
    from cape.site.ledger.lines import Entry

    line = ledger.entries()[0]
    release = (
        line.coordinator,
        line.study,
        line.study_hash,
        line.number,
        line.kind,
        line.description,
        line.scheme,
    )
    return Entry(*release, line.run, stage, line.plan, Amount(Fraction(1, 100)))


def test_a_site_answers_after_its_upgrade_and_its_old_total_counts(site: Path):
    """With an allowance that the old lines use up, nothing is left."""
    text = (site / "site.toml").read_text()
    assert upgrade(site / "ledger.sqlite", identity(site))
    for most, left in (("4.0", True), ("1.2", False)):
        total = TOTAL.replace("4.0", most)
        (site / "site.toml").write_text(text.replace("[coordinators]", f"{total}\n[coordinators]"))
        here = SiteFolder(site)
        policy, spent = here.policy, here.ledger.spent()
        assert policy.total.covers(spent + Amount(Fraction(1, 100))) is left


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_a_steward_who_knows_the_adjacency_pays_what_was_stated(site: Path, adjacency: str):
    before = old_lines(site / "ledger.sqlite")
    done = upgrade(site / "ledger.sqlite", identity(site), adjacency)
    assert done is not None
    assert (
        done.after == done.before == Amount(sum(line[3] for line in before), sum(line[4] for line in before))
    )
    assert {line.basis.adjacency for line in SiteFolder(site).ledger.entries()} == {adjacency}


def test_a_run_over_samples_needs_the_adjacency(site: Path):
    rewrite(site / "ledger.sqlite", "logistic-regression", "neural-network")
    with pytest.raises(InvalidInput, match="line 1 of the ledger may be a run over samples"):
        upgrade(site / "ledger.sqlite", identity(site))
    assert len(old_lines(site / "ledger.sqlite")) == 5
    done = upgrade(site / "ledger.sqlite", identity(site), "add-remove")
    assert done is not None
    assert [line.basis.sampled for line in SiteFolder(site).ledger.entries()] == [
        True,
        True,
        False,
        False,
        False,
    ]


def rewrite(path: Path, old: str, new: str) -> None:
    """Rename a kind in an old ledger, as if the old version had written it."""
    import json
    from hashlib import sha256

    from cape.site.ledger.upgrade import _COLUMNS

    with closing(sqlite3.connect(path)) as db:
        db.executescript("DROP TRIGGER releases_UPDATE")
        chain = ""
        for number, *values in db.execute(f"SELECT id, {_COLUMNS} FROM releases ORDER BY id").fetchall():
            values = [new if value == old else value for value in values]
            chain = sha256(json.dumps([chain, *values]).encode()).hexdigest()
            db.execute("UPDATE releases SET kind = ?, chain = ? WHERE id = ?", (values[6], chain, number))
        db.commit()


def test_a_line_that_was_changed_by_hand_is_not_taken_over(site: Path):
    with closing(sqlite3.connect(site / "ledger.sqlite")) as db:
        db.executescript("DROP TRIGGER releases_UPDATE")
        db.execute("UPDATE releases SET mu_squared = '1/1000' WHERE id = 4")
        db.commit()
    with pytest.raises(CapeError, match=r"line 4 of .* was changed by hand"):
        upgrade(site / "ledger.sqlite", identity(site))
    assert not (site / "ledger.format-1.sqlite").exists()


def test_nothing_is_added_to_the_old_file_by_a_process_that_has_it_open(
    site: Path, monkeypatch: pytest.MonkeyPatch
):
    """An old daemon that was not stopped: the upgrade waits for no lock forever, and forgets nothing."""
    monkeypatch.setattr("cape.site.ledger.upgrade._PATIENCE", 0.05)
    path = site / "ledger.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as daemon:
        daemon.execute("BEGIN IMMEDIATE")
        with pytest.raises(CapeError, match="is it in use"):
            upgrade(path, identity(site))
        daemon.execute("ROLLBACK")
        with pytest.raises(CapeError, match="stop the site's daemon first"):
            upgrade(path, identity(site))
        with pytest.raises(sqlite3.IntegrityError, match="this ledger was upgraded"):
            daemon.execute("INSERT INTO runs VALUES ('00', 'now')")
    done = upgrade(path, identity(site))
    assert done is not None
    assert done.lines == 5
    with (
        closing(sqlite3.connect(done.kept)) as old,
        pytest.raises(sqlite3.IntegrityError, match="was upgraded"),
    ):
        old.execute("INSERT INTO runs VALUES ('00', 'now')")


def test_an_earlier_copy_beside_is_not_overwritten(site: Path):
    (site / "ledger.format-1.sqlite").write_bytes(b"mine")
    with pytest.raises(InvalidInput, match="nothing is overwritten"):
        upgrade(site / "ledger.sqlite", identity(site))
    assert (site / "ledger.format-1.sqlite").read_bytes() == b"mine"


def test_what_is_no_ledger_of_an_earlier_version_is_refused(site: Path, tmp_path: Path):
    with pytest.raises(InvalidInput, match="no ledger"):
        upgrade(tmp_path / "ledger.sqlite", identity(site))
    with closing(sqlite3.connect(site / "ledger.sqlite")) as db:
        db.execute("PRAGMA user_version = 3")
    with pytest.raises(InvalidInput, match="by a later version"):
        upgrade(site / "ledger.sqlite", identity(site))
    with pytest.raises(InvalidInput, match="install that version again"):
        _ = SiteFolder(site).ledger
    (site / "ledger.sqlite").write_bytes(b"not a database, but long enough for a header" * 20)
    with pytest.raises(CapeError, match="cannot be read"):
        upgrade(site / "ledger.sqlite", identity(site))


@pytest.mark.slow(2)
def test_killed_at_any_step_an_upgrade_leaves_the_old_ledger_or_the_new_one(site: Path, tmp_path: Path):
    spent = 4 * sum(line[3] for line in old_lines(MADE / "ledger.sqlite"))
    folder, killed = tmp_path / "try", 0
    path = folder / "ledger.sqlite"
    calls = [(os, name) for name in ("link", "replace", "fsync", "mkdir")]
    calls += [(Ledger, "create"), (Ledger, "carry_over")]
    shutil.copytree(site, folder)
    for _ in killed_at_every_step(calls, lambda: upgrade(path, identity(folder))):
        killed += 1
        with closing(sqlite3.connect(path)) as db:
            (form,) = db.execute("PRAGMA user_version").fetchone()
            (lines,) = db.execute("SELECT count(*) FROM releases").fetchone()
        assert (form in (1, 2), lines) == (True, 5)
        done = upgrade(path, identity(folder))
        assert (done is None) == (form == 2)
        assert SiteFolder(folder).ledger.spent().mu_squared == spent
        assert not (folder / ".upgrade").exists()
        shutil.rmtree(folder)
        shutil.copytree(site, folder)
    assert killed > 8
    assert SiteFolder(folder).ledger.spent().mu_squared == spent
