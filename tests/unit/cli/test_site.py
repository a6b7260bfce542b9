from __future__ import annotations

import csv
import io
import json
import os
import re
import socket
import sqlite3
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from cape.desk.site import PAGES
from cape.privacy import gaussian
from cape.site import Amount, Entry, SiteFolder
from cape.site.admin import SOCKET, Desk, serve
from cape.site.keyring import fingerprint, public_text
from cape.site.persons import Person
from tests.unit.cli.conftest import SECRET, Cape
from tests.unit.desk.visitor import Visitor, desk
from tests.unit.site.test_approvals import ODD
from tests.world import World, document

COMMANDS = [
    "init",
    "export-key",
    "trust",
    "revoke",
    "status",
    "check",
    "policy",
    "inbox",
    "approve",
    "refuse",
    "ask",
    "ledger",
    "log",
    "notify",
    "settle",
    "verify",
]


@pytest.fixture(params=["folder", "daemon"])
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[World]:
    """Three sites; commands on the first work on its folder, or ask its daemon and nothing else."""
    world = World(tmp_path / "w")
    if request.param == "folder":
        yield world
        return

    def elsewhere(folder: SiteFolder, person: Person) -> Desk:
        assert folder.path != world.site.path, "a daemon runs: its socket is used"
        return Desk(folder, person=person)

    monkeypatch.setattr("cape.cli.site.reach.Desk", elsewhere)
    with serve(world.site.path / SOCKET, SiteFolder(world.site.path)):
        yield world


@pytest.fixture
def study_file(study: Path) -> Path:
    """The study of this folder, as three sites of the world would read it."""
    text = study.read_text()
    study.write_text(text.replace("epsilon = 2.0", "epsilon = 1.0").replace("min_sites = 2", "min_sites = 3"))
    return study


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(cape: Cape, command: str):
    done = cape("site", command, "--help")
    assert done.code == 0
    assert f"cape site {command}" in done.out
    assert "Example" in done.out


def test_init_check_and_what_it_refuses(cape: Cape, tmp_path: Path):
    folder = tmp_path / "mary"
    done = cape("site", "init", folder, "--name", "st-mary")
    assert done.code == 0
    site = SiteFolder(folder)
    assert site.policy.name == "st-mary"
    assert fingerprint(site.identity.public) in done.out
    again = cape("site", "init", folder)
    assert (again.code, again.out) == (2, "")
    assert "nothing is overwritten" in again.err
    done = cape("site", "check", "--site", folder)
    assert done.code == 1
    assert "data.csv" in done.err
    assert len(done.err.splitlines()) <= 2


def test_a_folder_that_cannot_be_made(cape: Cape, tmp_path: Path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / ("x" * 300), tmp_path / "file" / "in"):
        done = cape("site", "init", folder, "--name", "mary")
        assert (done.code, len(done.err.splitlines())) == (2, 1), done.err
        assert "cannot be made" in done.err


def test_wrong_use_is_2(cape: Cape, tmp_path: Path):
    assert cape("site", "ledger", "--site", tmp_path).code == 2
    assert cape("site", "trust", tmp_path / "none.key", "--site", tmp_path).code == 2
    assert cape("site", "approve", "x", "--site", tmp_path).code == 2
    assert cape("site", "nonsense").code == 2


def test_keys_go_from_one_site_to_another(cape: Cape, world: World, tmp_path: Path):
    fresh = tmp_path / "d"
    cape("site", "init", fresh)
    exported = cape("site", "export-key", "--site", fresh)
    card = tmp_path / "d.key"
    card.write_text(exported.out)
    private = (fresh / "identity.key").read_text().strip().rpartition(":")[2]
    assert private not in exported.out
    done = cape("site", "trust", card, "--site", world.site.path)
    assert done.code == 0
    assert world.site.policy.peers["d"] == SiteFolder(fresh).identity.public
    wrong = cape("site", "trust", card, "--coordinator", "--site", world.site.path)
    assert wrong.code == 2
    assert "that is the key of site 'd', not of a coordinator" in wrong.err
    assert "d" not in world.site.policy.coordinators
    assert "already" in cape("site", "trust", card, "--site", world.site.path).out
    told = json.loads(cape("site", "export-key", "--site", fresh, "--json").out)
    assert told["fingerprint"] == fingerprint(SiteFolder(fresh).identity.public)


def test_check_tells_the_steward_of_rows_and_cells_outside(cape: Cape, world: World):
    world.edit("age = [18, 90]", "age = [30, 60]")
    done = cape("site", "check", "--site", world.site.path)
    assert done.code == 0
    assert "400 rows" in done.out
    assert "age" in done.out
    assert str(SECRET) not in done.out
    told = json.loads(cape("site", "check", "--site", world.site.path, "--json").out)
    assert told["survey"]["rows"] == 400
    (age,) = [column for column in told["survey"]["columns"] if column["name"] == "age"]
    assert age["below"] + age["above"] > 0
    world.edit("min_rows = 100", "min_rows = 500")
    assert cape("site", "check", "--site", world.site.path).code == 1


def test_check_says_what_a_study_would_be_allowed(cape: Cape, world: World, study_file: Path):
    done = cape("site", "check", study_file, "--site", world.site.path, "--json")
    told = json.loads(done.out)
    assert done.code == 1
    assert [each["allowed"] for each in told["analyses"]] == [True, False, True, False]
    assert {each["refusal"]["code"] for each in told["analyses"] if each["refusal"]} == {"analysis"}
    assert not world.site.ledger.entries()
    world.edit('"count",', '"count", "table-one", "contingency-table",')
    done = cape("site", "check", study_file, "--site", world.site.path, "--coordinator", "office")
    assert done.code == 0
    assert done.out.count("allowed") == 4
    wrong = cape("site", "check", study_file, "--site", world.site.path, "--coordinator", "ofice")
    assert wrong.code == 2
    assert "did you mean 'office'?" in wrong.err
    world.edit("coordinator = {epsilon = 2.0", "coordinator = {epsilon = 0.5")
    done = cape("site", "check", study_file, "--site", world.site.path)
    assert done.code == 1
    assert "budget" in done.out


def test_the_ledger_is_shown(cape: Cape, world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "200")
    empty = cape("site", "ledger", "--site", world.site.path)
    assert empty.code == 0
    request = world.request()
    world.granted(request)
    done = cape("site", "ledger", "--site", world.site.path)
    assert done.code == 0
    for word in ("office", "lungs", "mean of age and weight", "all together"):
        assert word in done.out
    told = json.loads(cape("site", "ledger", "--site", world.site.path, "--json").out)
    (line,) = told["releases"]
    assert line["run"] == request.run.hex()
    assert line["mu"] == pytest.approx(gaussian.mu(1.0, 1e-6) / 2, rel=1e-4)
    assert told["total"]["epsilon"] == pytest.approx(gaussian.epsilon(1e-6, line["mu"]))


def test_many_stages_are_one_line(cape: Cape, world: World):
    run = os.urandom(16)
    for stage in range(3):
        cost = Amount(Fraction(1, 100))
        world.site.ledger.reserve(
            Entry(b"k" * 32, "s", "ab" * 32, 1, "k-means", "clusters", "cape", run, stage, b"p", cost)
        )
    done = cape("site", "ledger", "--site", world.site.path)
    assert done.out.count("clusters") == 1
    assert fingerprint(b"k" * 32) in done.out


def test_approve(cape: Cape, world: World):
    world.edit('approve = "auto"', 'approve = "ask"')
    assert "Nothing waits" in cape("site", "approve", "--site", world.site.path).out
    assert world.code(world.request()) == "approval"
    shown = cape("site", "approve", "--site", world.site.path)
    assert "lungs" in shown.out
    assert world.code(world.request()) == "approval", "showing is not approving"
    assert cape("site", "approve", "lnugs", "--site", world.site.path).code == 2
    done = cape("site", "approve", "lungs", "--site", world.site.path, "--json")
    assert json.loads(done.out)["approved"] is True
    world.granted(world.request())
    assert world.code(world.request(document(epsilon=0.5))) == "approval"


def test_approve_once_and_with_four_eyes(cape: Cape, world: World):
    world.edit('approve = "auto"', 'approve = "ask"')
    assert world.code(world.request()) == "approval"
    done = cape("site", "approve", "lungs", "--once", "--site", world.site.path)
    assert "Approved." in done.out
    world.granted(world.request())
    assert world.code(world.request()) == "approval"
    world.edit('approve = "ask"', 'approve = "ask"\napprovals = 2')
    done = cape("site", "approve", "lungs", "--site", world.site.path)
    assert "The policy asks for 2 different persons" in done.out
    again = cape("site", "approve", "lungs", "--json", "--site", world.site.path)
    assert json.loads(again.out)["approved"] is False, "the same person"
    assert "1 of 2 did" in " ".join(cape("site", "inbox", "--site", world.site.path).out.split())
    assert world.code(world.request()) == "approval"


def test_ask_back(cape: Cape, world: World):
    world.edit('approve = "auto"', 'approve = "ask"')
    assert cape("site", "ask", "lungs", "why?", "--site", world.site.path).code == 2
    assert world.code(world.request()) == "approval"
    assert cape("site", "ask", "lungs", "  ", "--site", world.site.path).code == 2
    done = cape("site", "ask", "lungs", "Which ethics vote?", "--site", world.site.path)
    assert "waits until you approve or refuse it" in done.out
    assert (
        "Its coordinator was asked: Which ethics vote?"
        in cape("site", "inbox", "--site", world.site.path).out
    )
    assert world.decide(world.request()).sentence.endswith("Which ethics vote?")


def test_a_ledger_is_exported_and_checked_by_anybody(cape: Cape, world: World, tmp_path: Path):
    world.granted(world.request())
    done = cape("site", "ledger", "--export", "--site", world.site.path)
    path, card = tmp_path / "ledger.json", tmp_path / "a.card"
    path.write_text(done.out)
    card.write_text(cape("site", "export-key", "--site", world.site.path).out)
    done = cape("site", "verify", "--export", path, "--card", card)
    assert done.code == 0
    assert "Exported by a at 20" in done.out
    path.write_text(path.read_text().replace("lungs", "hearts"))
    assert cape("site", "verify", "--export", path, "--card", card).code == 1
    assert cape("site", "verify", "--export", path).code == 2
    assert cape("site", "ledger", "--export", "--csv", "--site", world.site.path).code == 2


def test_a_site_checks_its_own_ledger(cape: Cape, world: World):
    world.granted(world.request())
    done = cape("site", "verify", "--site", world.site.path)
    assert (done.code, "1 line. Nothing is wrong" in done.out) == (0, True)
    with sqlite3.connect(world.site.path / "ledger.sqlite") as db:
        db.execute("DROP TRIGGER releases_UPDATE")
        db.execute("UPDATE releases SET description = 'x'")
    done = cape("site", "verify", "--site", world.site.path)
    assert (done.code, "line 1 was changed" in done.err) == (1, True)


def test_notices_need_settings(cape: Cape, world: World):
    done = cape("site", "notify", "--site", world.site.path)
    assert (done.code, "[notify]" in done.err) == (2, True)


def test_a_study_cannot_move_the_cursor_or_hide_by_being_broken(cape: Cape, world: World):
    world.edit('approve = "auto"', 'approve = "ask"')
    name = "lungs\x1b[2JNothing waits"
    bad = document(name=name, analyses=[*document()["analyses"], 5])
    assert world.code(world.request(bad)) == "approval"
    shown = cape("site", "approve", "--site", world.site.path)
    assert shown.code == 0
    assert "\x1b" not in shown.out
    assert "It states epsilon 1.0 at delta 1e-06, 1 colluding, scheme cape; sites: a, b, c." in shown.out
    count = len(bad["analyses"])
    assert f"{count - 1} of {count} would be answered; together they cost this site epsilon " in shown.out
    (held,) = world.site.approvals.studies("waiting")
    done = cape("site", "refuse", held.study_hash[:12], "--coordinator", "office", "--site", world.site.path)
    assert done.code == 0
    assert world.code(world.request(bad)) == "steward"
    assert "Refused: lungs" in cape("site", "approve", "--site", world.site.path).out


@pytest.mark.one_in(6, seconds=0.13)
@pytest.mark.parametrize("odd", ODD)
def test_a_file_that_is_no_study_is_named_in_a_line(cape: Cape, world: World, odd: str):
    world.edit('approve = "auto"', 'approve = "ask"')
    assert world.code(world.request()) == "approval"
    path, text = world.site.path / "held" / "0.json", ODD[odd]
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    for command, code, shown in (
        (["check"], 1, "Waiting for approval: lungs."),
        (["check", "--json"], 1, "lungs"),
        (["approve"], 0, "mean"),
        (["approve", "lungs"], 0, "Approved."),
        (["refuse", "lungs"], 0, "Refused."),
        (["approve", "--json"], 0, "studies"),
    ):
        done = cape("site", *command, "--site", world.site.path)
        assert (done.code, shown in done.out, len(done.err.splitlines())) == (code, True, 1), done.err
        assert f"{path} is an unrecognised file; remove it" in done.err
    assert cape("site", "approve", "", "--site", world.site.path).code == 2


def test_refuse(cape: Cape, world: World):
    world.edit('approve = "auto"', 'approve = "ask"')
    assert cape("site", "refuse", "lungs", "--site", world.site.path).code == 2
    assert world.code(world.request()) == "approval"
    done = cape("site", "refuse", "lungs", "--site", world.site.path)
    assert (done.code, "Refused." in done.out, "mean" in done.out) == (0, True, True)
    assert world.code(world.request()) == "steward"
    assert "Nothing waits" in cape("site", "approve", "--site", world.site.path).out
    assert cape("site", "approve", "lungs", "--site", world.site.path).code == 0
    world.granted(world.request())
    done = cape("site", "refuse", "lungs", "--site", world.site.path, "--json")
    assert json.loads(done.out)["studies"][0]["study"] == "lungs"
    assert world.code(world.request()) == "steward"
    assert "refused 'lungs'" in (world.site.path / "site.log").read_text()


def test_an_expired_policy_and_an_open_key_are_told(cape: Cape, world: World):
    world.edit("2999-12-31", "2020-12-31")
    done = cape("site", "check", "--site", world.site.path)
    assert done.code == 1
    assert "expired on 2020-12-31" in done.err
    (world.site.path / "identity.key").chmod(0o644)
    done = cape("site", "export-key", "--site", world.site.path)
    assert done.code == 2
    assert "chmod 600" in done.err


def test_revoke(cape: Cape, world: World):
    path = world.site.path / "site.toml"
    before = path.read_text()
    done = cape("site", "revoke", "b", "--site", world.site.path)
    assert (done.code, "No longer trusted: site 'b'" in done.out) == (0, True)
    (line,) = [line for line in before.splitlines() if public_text(world.identities["b"].public) in line]
    assert path.read_text() == before.replace(f"{line}\n", ""), "all else stays as people wrote it"
    assert world.code(world.request()) == "roster"
    wrong = cape("site", "revoke", "ofice", "--site", world.site.path)
    assert (wrong.code, "did you mean 'office'?" in wrong.err) == (2, True)
    assert cape("site", "revoke", "office", "--peer", "--site", world.site.path).code == 2
    assert cape("site", "revoke", "office", "--site", world.site.path).code == 0
    assert world.code(world.request()) == "coordinator"
    log = cape("site", "log", "--lines", "1000", "--site", world.site.path).out
    assert f"revoked coordinator 'office', fingerprint {fingerprint(world.office.public)}" in log


def test_the_policy_is_printed_tried_and_changed(cape: Cape, world: World, tmp_path: Path):
    path, new = world.site.path / "site.toml", tmp_path / "new.toml"
    before = path.read_text()
    assert cape("site", "policy", "--site", world.site.path).out == before
    new.write_text(before.replace("min_rows = 100", "min_rows = 0"))
    for option in ("--try", "--set"):
        wrong = cape("site", "policy", option, new, "--site", world.site.path)
        assert (wrong.code, wrong.out, path.read_text()) == (2, "", before)
    assert "min_rows must be an integer at least 1" in wrong.err
    new.write_text(before.replace("min_rows = 100", "min_rows = 200"))
    tried = cape("site", "policy", "--try", new, "--site", world.site.path)
    assert ("It is valid" in tried.out, path.read_text()) == (True, before)
    done = cape("site", "policy", "--set", new, "--site", world.site.path)
    assert done.code == 0
    assert "-min_rows = 100\n+min_rows = 200\n" in done.out
    assert (path.read_text(), world.site.policy.min_rows) == (new.read_text(), 200)
    assert path.stat().st_mode & 0o077 == 0
    assert "Nothing differs." in cape("site", "policy", "--set", new, "--site", world.site.path).out
    assert cape("site", "policy", "--set", tmp_path / "none", "--site", world.site.path).code == 2


def test_status_says_what_is_wrong(cape: Cape, world: World, request: pytest.FixtureRequest):
    daemon = "daemon" in request.node.name
    done = cape("site", "status", "--site", world.site.path)
    assert done.code == 0
    for line in (
        f"Site 'a', fingerprint {fingerprint(world.identities['a'].public)}",
        "Policy: until 2999-12-31, answers by itself",
        f"office ({fingerprint(world.office.public)})",
        "Link: not connected" if daemon else "Link: no daemon runs",
    ):
        assert line in done.out
    world.edit("min_rows = 100", "min_rows = 0")
    done = cape("site", "status", "--site", world.site.path, "--json")
    assert (done.code, json.loads(done.out)["policy"]) == (1, "broken")
    assert "min_rows" in done.err


def test_the_inbox_says_who_asks_and_what_is_left(cape: Cape, world: World):
    world.edit('approve = "auto"', 'approve = "ask"')
    assert world.code(world.request()) == "approval"
    done = cape("site", "inbox", "--site", world.site.path)
    assert done.code == 0
    assert f"asked by office, fingerprint {fingerprint(world.office.public)}" in done.out
    (study,) = json.loads(cape("site", "inbox", "--site", world.site.path, "--json").out)["studies"]
    mine, everybody = study["limits"][:2]
    assert mine["name"].startswith("office in ")
    assert (mine["epsilon"], everybody["epsilon"], mine["spent"]) == (2.0, 3.0, 0.0)
    assert mine["after"] == pytest.approx(study["cost"]) == pytest.approx(study["analyses"][0]["epsilon"])
    done = cape("site", "refuse", "lungs", "--reason", "no consent\nforged", "--site", world.site.path)
    assert done.code == 0
    last = cape("site", "log", "-n", "1", "--site", world.site.path).out
    assert re.search(r"of 'office' by '[^']+': no consent\\nforged\n$", last), "who decided, and why"
    assert len(last.splitlines()) == 1


@pytest.mark.parametrize("study", [" =1+1", "x;=1+1", "＝1+1", "lungs"])
def test_the_csv_is_the_desks_and_holds_no_formula(cape: Cape, world: World, study: str, tmp_path: Path):
    cost = Amount(Fraction(1, 9))
    world.site.ledger.reserve(
        Entry(b"k" * 32, study, "ab" * 32, 1, "mean", "m", "cape", b"r" * 16, 0, b"p", cost)
    )
    done = cape("site", "ledger", "--csv", "--site", world.site.path)
    assert done.out == Visitor(desk(PAGES, tmp_path, world.site), "viewer").get("/ledger.csv").text
    (line,) = csv.DictReader(io.StringIO(done.out))
    assert line["study"].replace("'", "") == study
    assert ("'" in line["study"]) == (study != "lungs")


def test_parts_of_the_ledger_and_csv(cape: Cape, world: World):
    world.granted(world.request())
    cost = Amount(Fraction(1, 16))
    world.site.ledger.reserve(
        Entry(b"k" * 32, "=cmd()", "ab" * 32, 1, "mean", "m", "cape", b"r" * 16, 0, b"p", cost)
    )

    def shown(*options: str) -> list[dict[str, str]]:
        done = cape("site", "ledger", "--csv", "--site", world.site.path, *options)
        assert done.code == 0, done.err
        return list(csv.DictReader(io.StringIO(done.out)))

    assert [line["study"] for line in shown()] == ["lungs", "'=cmd()"]
    assert [line["study"] for line in shown("--study", "lungs")] == ["lungs"]
    assert [line["mu_squared"] for line in shown("--study", "abab")] == ["1/16"]
    assert [line["study"] for line in shown("--coordinator", "office")] == ["lungs"]
    assert [line["coordinator"] for line in shown("--coordinator", fingerprint(b"k" * 32))] == [""]
    assert shown("--year", "2001") == []
    assert cape("site", "ledger", "--coordinator", "ofice", "--site", world.site.path).code == 2
    told = json.loads(cape("site", "ledger", "--json", "--study", "abab", "--site", world.site.path).out)
    assert told["shown"]["mu"] == pytest.approx(1 / 4)
    assert told["total"]["mu"] > told["shown"]["mu"]


def test_a_socket_elsewhere(cape: Cape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    world = World(tmp_path / "w")
    path = tmp_path / "a.sock"
    gone = cape("site", "inbox", "--socket", path)
    assert (gone.code, "no process answers at the socket" in gone.err) == (1, True)
    with serve(path, world.site):
        assert path.stat().st_mode & 0o777 == 0o660
        assert cape("site", "status", "--socket", path).code == 0
        assert cape("site", "status", "--socket", path, "--site", world.site.path).code == 2
        monkeypatch.setenv("CAPE_ADMIN", str(path))
        exported = cape("site", "export-key").out
        assert exported == world.site.card.to_text()
        (tmp_path / "card").write_text(exported)
        there = world.sites["b"].path  # named, so the variable does not count
        assert "Trusted already" in cape("site", "trust", tmp_path / "card", "--site", there).out


def test_the_socket_of_a_dead_daemon_is_passed_over(cape: Cape, tmp_path: Path):
    world = World(tmp_path / "w")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(world.site.path / SOCKET))
    assert "no daemon runs" in cape("site", "status", "--site", world.site.path).out
