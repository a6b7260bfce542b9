"""The fuzzer finds what it is for, and a short run of it finds nothing in the product."""

from __future__ import annotations

from pathlib import Path

import pytest

from assurance.fuzz import counts
from assurance.inputs import NAMES, load
from assurance.judge import judge
from assurance.workers import Chunk, Report, Worker, attempt, random_of
from cape.analyses import Mean
from cape.errors import InvalidInput

INPUTS = 60


def run(name: str, inputs: int = 30) -> Report:
    worker = Worker(seconds=0.5)
    try:
        return worker.run(Chunk(f"tests.assured.planted:{name}", 1, 0, inputs))
    finally:
        worker.close()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Raising", "exception"),
        ("Telling", "secret"),
        ("Printing", "secret"),
        ("Talking", "long"),
        pytest.param("Hanging", "hang", marks=pytest.mark.slow),
        ("Dying", "crash"),
        ("Growing", "memory"),
    ],
)
def test_a_planted_fault_is_found_at_its_input(name: str, kind: str):
    surface = f"tests.assured.planted:{name}"
    bad = [n for n in range(30) if random_of(surface, 1, n).integers(100) < 10]
    assert bad
    report = run(name)
    assert [finding["number"] for finding in report.findings] == bad
    assert {finding["kind"] for finding in report.findings} == {kind}
    assert report.accepted + report.refused == 30 - len(bad)


def test_what_is_in_order_is_not_a_finding():
    report = run("Planted")
    assert (report.refused, report.findings) == (30, [])


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
