from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cape.app.folder import ResultsFolder
from cape.core.errors import InvalidInput
from cape.study import Study
from tests.unit.cli.conftest import Cape

# `cape run`, saying on its output which analyses were on the disk each time a file was kept. It ends itself
# with SIGKILL at the given step of writing: before or after a call that opens, writes, syncs or renames.
TOLD = """
import os, signal, sys
from cape.cli import main
from cape.app.folder import ResultsFolder
keep = ResultsFolder.keep
def kept(folder, results):
    sys.setprofile(step)
    files = keep(folder, results)
    sys.setprofile(None)
    print("kept", *(each.entry.number for each in results.answered), flush=True)
    return files
ResultsFolder.keep = kept
left = [int(sys.argv[1])]
def step(frame, event, called):
    if event in ("c_call", "c_return") and frame.f_code.co_filename.endswith(("files.py", "pathlib.py")):
        if called.__name__ in ("open", "write", "flush", "fsync", "replace", "close"):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
sys.argv = ["cape", "run", *sys.argv[2:], "--json"]
print("ready", flush=True)
main()
"""
STEPS = 2 * 2 * 6 * 12  # of a run with twelve analyses: two files each, at least six calls a file


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return found


def numbers(folder: Path) -> list[int]:
    return [each["number"] for each in results(folder)["analyses"]]


def failing(monkeypatch: pytest.MonkeyPatch, call: int, error: BaseException) -> None:
    """Let one release fail, the first one being 1."""
    from cape.engine.consortium import Consortium

    real, calls = Consortium.release, []

    def release(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            raise error
        return real(*arguments, **options)

    monkeypatch.setattr(Consortium, "release", release)


def test_a_run_that_failed_goes_on_with_what_is_missing(cape: Cape, study: Path, monkeypatch):
    out = study.parent / "out"
    with monkeypatch.context() as patch:
        failing(patch, 3, InvalidInput("something"))
        assert cape("run", study, "--out", out).code == 2
    first, report = results(out), (out / "report.html").read_bytes()
    assert ([e["number"] for e in first["analyses"]], first["budget"]["spent"]) == ([1, 2], 0.75)
    done = cape("run", study, "--json", "--out", out)
    assert done.code == 0, done.err
    assert "holds analyses 1, 2 of this study; this run adds analyses 3, 4." in done.err
    both = results(out)
    assert json.loads(done.out) == both
    assert both["analyses"][:2] == first["analyses"]
    assert [(e["number"], e["run"]) for e in both["analyses"]] == [(1, 1), (2, 1), (3, 2), (4, 2)]
    assert both["budget"]["spent"] == 1
    assert both["guarantee"]["epsilon"] == pytest.approx(2.0, rel=1e-4)
    assert [site["took_part"] for site in both["sites"]] == [[1, 2, 3, 4]] * 3
    assert ["something" in (run["error"] or "") for run in both["runs"]] == [True, False]
    assert (out / "report.html").read_bytes() == report
    second = (out / "report-2.html").read_text()
    assert "This counts earlier runs in this folder, which gave analyses 1, 2." in second


@pytest.mark.slow(5)
def test_a_finished_study_is_not_asked_again_unless_that_is_wanted(cape: Cape, study: Path):
    out = study.parent / "out"
    assert cape("run", study, "--out", out).code == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    done = cape("run", study, "--out", out)
    assert done.code == 0
    assert f"{out} holds analyses 1, 2, 3, 4 of this study, released on " in done.out
    assert "A new run costs the budget again (epsilon = 2, delta = 1e-06): --again." in done.out
    assert json.loads(cape("run", study, "--only", "mean", "--json", "--out", out).out) == results(out)
    done = cape("run", study, "--again", "--out", out)
    assert done.code == 0
    assert f"{out} holds other results; these go to {out}-2." in done.err
    assert cape("run", study, "--again", "--out", out).code == 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    values = {str(results(Path(f"{out}{end}"))["analyses"][0]["estimates"]) for end in ("", "-2", "-3")}
    assert len(values) == 3, "fresh noise each time"


@pytest.mark.parametrize("change", ["study", "scheme", "not ours", "not JSON"])
def test_another_study_gets_a_folder_of_its_own(cape: Cape, study: Path, change: str):
    out = study.parent / "out"
    assert cape("run", study, "--only", "mean", "--out", out).code == 0
    more: list[str] = []
    if change == "study":
        study.write_text(study.read_text().replace("epsilon = 2.0", "epsilon = 1.5"))
    elif change == "scheme":
        more = ["--scheme", "conventional"]
    else:
        (out / "results.json").write_text("{}" if change == "not ours" else "{")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    done = cape("run", study, "--only", "mean", "--out", out, *more)
    assert (done.code, numbers(Path(f"{out}-2"))) == (0, [1])
    assert f"{out} holds other results; these go to {out}-2." in done.err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_what_failed_earlier_stays_spent_and_what_cannot_be_paid_is_left_out(cape: Cape, study: Path):
    out = study.parent / "out"
    lost = ["--drop", "b@unmask", "--drop", "c@unmask"]
    assert cape("run", study, "--only", "table-one", "--out", out, *lost).code == 1
    assert (numbers(out), results(out)["budget"]["spent"]) == ([], 0.5)
    done = cape("run", study, "--out", out)
    assert (done.code, numbers(out), results(out)["budget"]["spent"]) == (1, [1, 3, 4], 1)
    assert "share must be at most what is left" in done.err
    assert f"Earlier runs in {out} count. --again starts again in a new folder." in done.err
    assert cape("run", study, "--again", "--out", out).code == 0
    assert numbers(Path(f"{out}-2")) == [1, 2, 3, 4]


def test_a_folder_with_files_of_others_keeps_them(cape: Cape, study: Path):
    out = study.parent / "out"
    out.mkdir()
    (out / "report.html").write_text("mine")
    assert cape("run", study, "--only", "mean", "--out", out).code == 0
    assert (out / "report.html").read_text() == "mine"
    assert (out / "report-2.html").exists()


def test_one_process_at_a_time_holds_a_folder(cape: Cape, study: Path):
    out = study.parent / "out"
    with ResultsFolder.find(out, Study.load(study), "cape", "run"):
        done = cape("run", study, "--out", out)
        assert (done.code, done.out) == (2, "")
        assert f"{out} is in use" in done.err
    assert cape("run", study, "--only", "mean", "--out", out).code == 0


def test_a_full_disk_ends_the_run_and_shows_what_was_released(cape: Cape, study: Path, monkeypatch):
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cape.core.files.replace", full)
    done = cape("run", study, "--out", study.parent / "out")
    assert done.code == 2
    assert "out cannot be written: No space left on device" in done.err
    assert "25% spent" in done.err
    assert "1. mean of age and weight" in done.out


def test_again_needs_a_folder(cape: Cape, study: Path):
    done = cape("run", study, "--again")
    assert (done.code, "--again needs --out DIR" in done.err) == (2, True)


def killed(study: Path, out: Path, chance: random.Random) -> set[int]:
    """Run the study, kill it at some moment or at some step of its writing; return what it said was kept."""
    steps = chance.choice([chance.randrange(STEPS), 10**6])
    command = [sys.executable, "-c", TOLD, str(steps), str(study), "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    if steps == 10**6:
        time.sleep(chance.uniform(0, 1.5))
        process.kill()
    told = process.communicate(timeout=100)[0].splitlines(keepends=True)
    return {int(n) for line in told if line[:4] == "kept" and line[-1] == "\n" for n in line.split()[1:]}


def hunt(change: Callable[[str, str], Path], kills: int) -> None:
    """Kill a run again and again, in the same folder until all analyses are there, then in a new one."""
    many = "".join(f'[[analysis]]\nkind = "histogram"\ncolumn = "age"\nbins = {n}\n' for n in range(2, 14))
    text = change("", "").read_text()
    study = change(text[text.index("[[analysis]]") :], many)
    outs = (study.parent / f"out-{i}" for i in range(kills + 1))
    out = next(outs)
    sizes: dict[str, int] = {}
    known: dict[int, Any] = {}
    chance = random.Random(kills)
    for _ in range(kills):
        kept = killed(study, out, chance)
        found = [path for path in out.iterdir() if path.suffix != ".new"] if out.exists() else []
        now = {each["number"]: each for each in results(out)["analyses"]} if found else {}
        assert kept <= now.keys(), "what was told is there"
        assert {number: now.get(number) for number in known} == known, "and so is what was there before"
        smaller = [name for name, size in sizes.items() if (out / name).stat().st_size < size]
        assert not smaller, "no file holds less"
        sizes, known = {path.name: path.stat().st_size for path in found}, now
        if len(now) == 12:
            out, sizes, known = next(outs), {}, {}


@pytest.mark.slow(5)
def test_a_run_that_is_killed_loses_nothing(change: Callable[[str, str], Path]):
    hunt(change, 3)


@pytest.mark.slow
def test_a_hundred_kills_lose_nothing(change: Callable[[str, str], Path]):
    hunt(change, 100)
