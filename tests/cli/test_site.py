from __future__ import annotations

import json
import os
from fractions import Fraction
from pathlib import Path

import pytest

from cape.privacy import gaussian
from cape.steward import Amount, Entry, SiteFolder
from cape.steward.keyring import fingerprint
from tests.cli.conftest import SECRET, Cape
from tests.steward.test_approvals import ODD
from tests.steward.world import World, document

COMMANDS = ["init", "check", "ledger", "export-key", "trust", "approve", "refuse"]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "sites")


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
    assert told["rows"] == 400
    assert told["outside_bounds"]["age"] > 0
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
    assert line["mu"] == pytest.approx(gaussian.mu(1.0, 1e-6) / 2)
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
    assert f"{count - 1} of {count} would be answered: all together epsilon " in shown.out
    (held,) = world.site.approvals.waiting()
    done = cape("site", "refuse", held.study_hash[:12], "--coordinator", "office", "--site", world.site.path)
    assert done.code == 0
    assert world.code(world.request(bad)) == "steward"
    assert "Refused: lungs" in cape("site", "approve", "--site", world.site.path).out


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
        assert f"{path} is not a study that cape holds" in done.err
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
