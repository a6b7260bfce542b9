"""The fuzzer finds what it is for, and a short run of it finds nothing in the product."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from assurance.__main__ import main
from assurance.fuzz import counts
from assurance.inputs import NAMES, load
from assurance.judge import judge
from assurance.workers import Chunk, Report, Worker, attempt, random_of
from cape.analyses import Mean
from cape.coordinator.record import Record
from cape.core.errors import InvalidInput
from cape.site.decide.approvals import Approvals
from cape.site.endpoint import SiteEndpoint

INPUTS = 60


def run(name: str, inputs: int = 30) -> Report:
    worker = Worker(seconds=0.5)
    try:
        return worker.run(Chunk(f"tests.unit.assured.planted:{name}", 1, 0, inputs))
    finally:
        worker.close()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Raising", "exception"),
        ("Telling", "secret"),
        ("Printing", "secret"),
        ("Talking", "long"),
        pytest.param("Hanging", "hang", marks=pytest.mark.slow(20)),
        ("Dying", "crash"),
        pytest.param("Growing", "memory", marks=pytest.mark.slow(6)),
    ],
)
def test_a_planted_fault_is_found_at_its_input(name: str, kind: str):
    surface = f"tests.unit.assured.planted:{name}"
    bad = [n for n in range(30) if random_of(surface, 1, n).integers(100) < 10]
    assert bad
    report = run(name)
    assert [finding["number"] for finding in report.findings] == bad
    assert {finding["kind"] for finding in report.findings} == {kind}
    assert report.accepted + report.refused == 30 - len(bad)


def test_what_is_in_order_is_not_a_finding():
    report = run("Planted")
    assert (report.refused, report.findings) == (30, [])


@pytest.mark.one_in(6, seconds=1.0)
@pytest.mark.parametrize("name", NAMES)
def test_a_few_inputs_of_every_kind(name: str, tmp_path: Path):
    surface = load(name)(tmp_path)
    for number in range(INPUTS):
        given = surface.make(random_of(name, 20, number))
        error, said = attempt(surface, given)
        assert judge(error, said, surface.secrets) is None, f"python -m assurance fuzz --only {name} ..."


@pytest.mark.parametrize("name", NAMES)
def test_an_input_can_be_made_again(name: str, tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, two = load(name)(tmp_path / "a"), load(name)(tmp_path / "b")
    for number in (3, 4):
        assert one.show(one.make(random_of(name, 1, number))) == two.show(
            two.make(random_of(name, 1, number))
        )


def test_a_hundred_thousand_are_shared_out():
    assert sum(counts(100_000).values()) == 100_000
    assert counts(70, "csv") == {"csv": 70}


def test_an_analysis_that_gives_up_once_it_is_paid_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def give_up(*_: object) -> None:
        raise InvalidInput("too noisy")

    monkeypatch.setattr(Mean, "finish", give_up)
    surface = load("answers")(tmp_path)
    given = surface.make(random_of("answers", 1, 0)) | {"analysis": {"kind": "mean", "columns": ["age"]}}
    error, said = attempt(surface, given)
    assert judge(error, said, ()) == ("exception", "PaidForNothing outside cape: too noisy")
    given["analysis"] = {"kind": "mean", "columns": ["nobody"]}
    error, _ = attempt(surface, given)
    assert isinstance(error, InvalidInput), "refused before it is paid for"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["fuzz", "--number", "3"], "--number"),
        (["--number", "3", "--only", "csv"], "--number"),
        (["fuzz", "--number", "-1", "--only", "csv"], "--number"),
        (["fuzz", "--only", "zzz"], "'zzz'"),
        (["fuzz", "--only", "no.module:At"], "'no.module:At'"),
        (["fuzz", "--only", ""], "--only"),
        (["fuzz", "--inputs", "0"], "--inputs"),
        (["fuzz", "--processes", "0"], "--processes"),
        (["soak", "--minutes", "0"], "--minutes"),
        (["load", "--only", "csv"], "--only"),
    ],
)
def test_wrong_options_are_named_and_leave_with_2(
    arguments: list[str],
    named: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(sys, "argv", ["assurance", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert named in capsys.readouterr().err.splitlines()[-1]


def findings(name: str, folder: Path, inputs: int) -> set[str]:
    surface = load(name)(folder)
    found = set()
    for number in range(inputs):
        error, said = attempt(surface, surface.make(random_of(name, 20, number)))
        verdict = judge(error, said, surface.secrets)
        if verdict:
            found.add(verdict[1].split()[0])
    return found


def test_steps_that_nobody_checks_are_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cape.learning.checkpoint._wrong", lambda *_: "")
    assert "Overdrawn" in findings("checkpoints", tmp_path, 400)


def test_a_record_that_forgets_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real = Record._load

    def forgetful(self: Record) -> None:
        real(self)
        if self.attempts and self.attempts[-1].open:
            del self.attempts[-1]

    surface = load("records")(tmp_path)
    monkeypatch.setattr(Record, "_load", forgetful)
    error, _ = attempt(surface, surface._right)
    assert type(error).__name__ == "Forgotten"


def test_a_file_in_the_way_of_others_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def stubborn(self: Approvals, *_: object, **__: object) -> None:
        raise InvalidInput("a file cannot be read")

    monkeypatch.setattr(Approvals, "find", stubborn)
    assert "InTheWay" in findings("held", tmp_path, 5)


def test_a_failure_inside_a_site_is_a_finding_though_it_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object) -> None:
        raise KeyError("nobody thought of this")

    monkeypatch.setattr(SiteEndpoint, "_inquire", broken)
    assert findings("members", tmp_path, 60) == {"Failed"}


@pytest.mark.slow(11)
def test_what_is_right_works_on_every_surface_that_bends_files(tmp_path: Path):
    """Else everything would be refused for a reason of its own, and nothing tried."""
    for name in ("checkpoints", "records", "cards", "offices", "held", "databases", "members", "relays"):
        (tmp_path / name).mkdir()
        surface = load(name)(tmp_path / name)
        worked = sum(
            attempt(surface, surface.make(random_of(name, 20, number)))[0] is None for number in range(200)
        )
        assert worked >= 2, name
