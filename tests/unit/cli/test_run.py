from __future__ import annotations

import json
import math
import os
import sqlite3
import subprocess
import sys

import pytest

from tests.unit.cli.conftest import OTHERS, SECRET


def test_a_study_runs_as_it_is_typed(study):
    done = subprocess.run(
        [sys.executable, "-m", "cape", "run", str(study), "--out", str(study.parent / "out")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    for word in ("1. mean of age and weight", "mean (SD)", "Test of independence", "100% spent, 0% left"):
        assert word in done.stdout
    assert not done.stderr  # no bar where there is no terminal


def test_results_have_everything(cape, study):
    done = cape("run", study, "--json", "--out", study.parent / "out")
    assert done.code == 0, done.err
    results = json.loads(done.out)
    assert results == json.loads((study.parent / "out" / "results.json").read_text())
    mean = results["analyses"][0]
    age = mean["estimates"][0]
    assert age["interval"][0] < age["value"] < age["interval"][1]
    assert age["value"] == pytest.approx(53, abs=5)
    assert mean["participants"] == ["a", "b", "c"]
    assert mean["guarantee"]["statement"].startswith("When one person's row is replaced")
    assert mean["cost"]["bytes"] > 0
    assert results["guarantee"]["epsilon"] == pytest.approx(2.0, rel=1e-4)
    assert results["budget"]["left"] == pytest.approx(0)
    assert any("bounds" in text for text in results["assumptions"])
    assert results["error"] is None


def test_every_kind_of_analysis_can_be_asked(cape, study):
    text = study.read_text()
    study.write_text(text[: text.index("[[analysis]]")] + OTHERS)
    done = cape("run", study, "--json", "--out", study.parent / "out")
    assert done.code == 0, done.err
    assert len(json.loads(done.out)["analyses"]) == 8
    assert (study.parent / "out" / "report.html").read_text().count("<figure>") == 8
    shown = cape("run", study)
    assert shown.code == 0
    assert "age quantile 0.5" in shown.out


@pytest.mark.parametrize("scheme", ["conventional", "local", "pooled", "cape-gaussian", "none"])
def test_another_scheme(cape, study, scheme):
    done = cape("run", study, "--scheme", scheme, "--only", "mean", "--json", "--out", study.parent / "out")
    assert done.code == 0, done.err
    results = json.loads(done.out)
    assert results["study"]["scheme"] == results["analyses"][0]["scheme"] == scheme
    assert results["budget"]["spent"] == (0 if scheme == "none" else 0.25)
    page = (study.parent / "out" / "report.html").read_text()
    assert ("nobody in the data is protected" in page) == (scheme == "none")


def test_only_some(cape, study):
    asked = json.loads(cape("run", study, "--only", "3", "--only", "mean", "--json").out)
    assert [each["number"] for each in asked["analyses"]] == [1, 3]


def test_a_lost_site_is_left_out_and_shown(cape, study):
    done = cape("run", study, "--only", "1", "--drop", "b@mask", "--out", study.parent / "out")
    assert done.code == 0, done.err
    (mean,) = json.loads((study.parent / "out" / "results.json").read_text())["analyses"]
    assert mean["participants"] == ["a", "c"]
    assert mean["lost"] == ["b"]
    assert mean["rows"] == 700
    assert mean["growth"] == pytest.approx(math.sqrt((2 / 1) / (3 / 2)), rel=1e-6)
    said = (
        "Lost: b; the noise of the sums is 1.15 times as large as with all sites, and the intervals count it."
    )
    assert mean["notes"] == [said]
    assert said in " ".join(done.out.split())
    assert said in (study.parent / "out" / "report.html").read_text()


def test_too_few_sites_after_messages_left_cost_the_share(cape, study):
    done = cape(
        "run", study, "--drop", "b@unmask", "--drop", "c@unmask", "--json", "--out", study.parent / "out"
    )
    assert done.code == 1
    assert "cape: analysis 1 (mean): " in done.err
    assert "Its share of 0.25 is spent" in done.err
    assert "25% spent, 75% left" in done.err
    results = json.loads(done.out)
    assert results["analyses"] == []
    assert "is spent" in results["error"]
    page = (study.parent / "out" / "report.html").read_text()
    assert "The study was not finished. Analysis 1 (mean): " in page
    assert "[[analysis]]" not in page
    assert "Nothing was released. 25% of the budget is spent, all of it on what failed." in page


def test_too_few_sites_before_any_message_cost_nothing(cape, study):
    done = cape("run", study, "--drop", "b@advertise", "--drop", "c@advertise")
    assert done.code == 1
    assert "Nothing was spent" in done.err
    assert "0% spent, 100% left" in done.err


def test_a_missing_file_is_one_line(cape, study):
    (study.parent / "data" / "b.csv").unlink()
    done = cape("run", study, "--out", study.parent / "out")
    assert done.code == 1
    assert "site 'b': no file" in done.err
    assert "0% spent" in done.err
    for name in ("results.json", "report.html"):  # what others may see leaves out the path
        written = (study.parent / "out" / name).read_text()
        assert "could not answer: its table could not be used" in written
        assert "b.csv" not in written
    assert "What is guaranteed" not in written
    assert "epsilon = 0" not in written
    assert "Nothing was released, and none of the budget was spent." in written
    assert not done.out.strip().startswith("1.")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("old,70,male,no", "site 'a': age: 1 cell not a number (line 3)"),
        ("50,70,men,no", "site 'a': sex: 1 cell not a listed category (line 3)"),
        ("50,,male,no", "site 'a': weight: 1 cell missing (line 3); the schema says that none is"),
        ("50,70,male", "site 'a'"),
    ],
)
def test_a_bad_cell_is_found_before_anything_is_spent(cape, study, row, said):
    path = study.parent / "data" / "a.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], row, *lines[3:]]))
    done = cape("run", study)
    if row == "50,70,male":  # a short line is a line with a missing cell
        assert done.code == 0
        return
    assert done.code == 1
    assert said in done.err
    assert "Nothing was spent" in done.err
    assert "old" not in done.err
    assert "men'" not in done.err


def test_a_missing_column_is_named(cape, study):
    path = study.parent / "data" / "c.csv"
    path.write_text(path.read_text().replace("age,weight", "Age,weight"))
    done = cape("run", study)
    assert done.code == 1
    assert "site 'c': age: no such column in the file; did you mean 'Age'?" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--drop", "b"], "--drop must be SITE@ROUND, as in a@mask, not 'b'"),
        (["--drop", "bb@mask"], "--drop: no site 'bb'"),
        (["--drop", "b@masc"], "no round 'masc'; scheme 'cape' has the rounds advertise, share, mask"),
        (["--drop", "b@message"], "scheme 'cape' has the rounds advertise, share, mask, consistency, unmask"),
        (["--drop", "b@mask", "--scheme", "pooled"], "scheme 'pooled' has one round, message"),
        (["--drop", "b@x", "--scheme", "cape-gaussian"], "mask, consistency, unmask, message"),
        (["--only", "meen"], "did you mean 'mean'"),
        (["--only", "5"], "no analysis '5'"),
        (["--scheme", "conventionel"], "did you mean 'conventional'"),
        (["--epsilon", "1"], "No such option"),
    ],
)
def test_wrong_use_exits_with_2(cape, study, arguments, said):
    done = cape("run", study, *arguments)
    assert done.code == 2
    assert said in " ".join(done.err.replace("│", " ").split())


def test_an_output_folder_that_cannot_be_is_found_before_the_run(cape, study):
    blocked = study.parent / "file"
    blocked.write_text("")
    done = cape("run", study, "--out", blocked / "out")
    assert done.code == 2
    assert "--out" in done.err
    assert not done.out


def test_other_sources(cape, study, change):
    folder = study.parent / "data"
    lines = (folder / "a.csv").read_text().replace(",", ";").splitlines()
    (folder / "a.data").write_text("\n".join(line if line[0] != ";" else f"?{line}" for line in lines[1:]))
    change(
        'a = {path = "data/a.csv", rows = 200}',
        'a = {path = "data/a.data", rows = 200, null_values = ["?"], separator = ";", has_header = false, '
        'columns = ["age", "weight", "sex", "ill"]}',
    )
    with sqlite3.connect(folder / "b.db") as connection:
        connection.execute("CREATE TABLE people (age REAL, weight REAL, sex TEXT, ill TEXT)")
        rows = [line.split(",") for line in (folder / "b.csv").read_text().splitlines()[1:]]
        connection.executemany(
            "INSERT INTO people VALUES (?, ?, ?, ?)", [(a or None, w, s, i) for a, w, s, i in rows]
        )
    connection.close()
    change(
        'b = {path = "data/b.csv", rows = 300}',
        'b = {query = "SELECT * FROM people", connection = "sqlite:///data/b.db", rows = 300}',
    )
    done = cape("run", study, "--json", "--only", "mean")
    assert done.code == 0, done.err
    assert json.loads(done.out)["analyses"][0]["rows"] == 1000


def test_an_unexpected_error_is_one_line_without_its_text(cape, study, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(f"cell {SECRET}")

    monkeypatch.setattr("cape.cli.run_action.execute", broken)
    done = cape("run", study)
    assert done.code == 1
    assert "RuntimeError" in done.err
    assert str(SECRET) not in done.err


def test_too_much_noise_is_warned_of_below_the_table(cape, change):
    study = change("epsilon = 2.0", "epsilon = 0.01")
    done = cape("run", study, "--json", "--only", "table-one", "--out", study.parent / "out")
    assert done.code == 0
    assert json.loads(done.out)["analyses"][0]["warnings"]
    assert 'class="warning"' in (study.parent / "out" / "report.html").read_text()
    assert "Warning: there is too much noise" in " ".join(cape("run", study, "--only", "2").out.split())


@pytest.mark.parametrize("scheme", ["cape-gaussian", "conventional"])
def test_a_site_can_be_lost_in_the_message_where_there_is_one(cape, study, scheme):
    done = cape("run", study, "--only", "1", "--scheme", scheme, "--drop", "b@message", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["analyses"][0]["participants"] == ["a", "c"]


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_while_tables_are_checked_costs_nothing(cape, study, monkeypatch):
    monkeypatch.setattr("cape.app.results.survey", interrupt)
    done = cape("run", study, "--out", study.parent / "out")
    assert (done.code, done.err) == (130, "cape: interrupted. Nothing was spent.\n")
    assert not list((study.parent / "out").iterdir())  # an earlier run's files would stay


@pytest.mark.parametrize(("sent", "spent"), [(False, 0.25), (True, 0.75)])
def test_ctrl_c_in_an_analysis_says_what_it_cost_and_keeps_what_was_released(
    cape, study, monkeypatch, sent, spent
):
    from cape.engine.execute import Execution

    step = "_carry" if sent else "_task"
    real, calls = getattr(Execution, step), []

    def second(*arguments: object) -> object:
        calls.append(1)
        return interrupt() if len(calls) == 2 else real(*arguments)

    monkeypatch.setattr(Execution, step, second)
    done = cape("run", study, "--out", study.parent / "out")
    assert done.code == 130
    assert done.err.startswith("cape: interrupted in analysis 2 (table-one). ")
    assert ("Its share of 0.5 is spent: messages may have left the sites." in done.err) == sent
    assert ("Nothing was spent on it; what was released before is kept." in done.err) != sent
    assert f"{100 * spent:g}% spent" in done.err
    assert "Written: " in done.out
    results = json.loads((study.parent / "out" / "results.json").read_text())
    assert [each["number"] for each in results["analyses"]] == [1]
    assert results["budget"]["spent"] == spent
    assert results["error"].startswith("It was interrupted in analysis 2")
    page = (study.parent / "out" / "report.html").read_text()
    assert f"Released: analysis 1. {100 * spent:g}% of the budget is spent" in page
    assert (": 25% on what was released, 50% on what failed." in page) == sent


def test_ctrl_c_while_results_are_shown(cape, study, monkeypatch):
    monkeypatch.setattr("cape.cli.output._show", interrupt)
    done = cape("run", study)
    assert done.code == 130
    assert "interrupted while showing results" in done.err
    assert "Nothing was spent" not in done.err
    assert "100% spent" in done.err


def test_ctrl_c_elsewhere(cape, study, monkeypatch):
    monkeypatch.setattr("cape.study.Study.load", interrupt)
    for command in ("plan", "run"):
        done = cape(command, study)
        assert (done.code, done.out, done.err) == (130, "", "cape: interrupted. Nothing was spent.\n")


@pytest.mark.parametrize("module", ["typer", "cape.engine.plan"])  # of all commands, and of the one typed
def test_ctrl_c_during_imports_has_no_traceback(module):
    code = (
        "import sys\nclass Stop:\n    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}:\n            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Stop())\nsys.argv = ['cape', 'plan', 'x']\n"
        "from cape.cli import main\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "cape: interrupted. Nothing was spent.\n")


@pytest.mark.filterwarnings("default::cape.PrivacyLeakWarning")
def test_warnings_about_the_study_are_on_the_screen_in_results_and_in_the_report(cape, change):
    change("epsilon = 2.0\ndelta = 1e-6\ncolluding = 1\nmin_sites = 2", "epsilon = 11\ndelta = 0.001")
    study = change('description = "three clinics"\n', "")
    done = cape("run", study, "--only", "mean", "--out", study.parent / "out")
    assert done.code == 0, done.err
    results = json.loads((study.parent / "out" / "results.json").read_text())
    page = (study.parent / "out" / "report.html").read_text()
    assert len(results["warnings"]) == done.err.count("cape: warning: ") == 3
    for text, start in zip(
        results["warnings"], ("with 3 sites", "delta = 0.001 is not", "epsilon = 11 is"), strict=True
    ):
        assert text.startswith(start)
        assert text in done.err
        assert start[0].upper() + start[1:] in page
    assert not any(line.endswith(" ") and "<hearts>" in line for line in done.out.splitlines())
    plan = json.loads(cape("plan", study, "--json").out)
    assert plan["warnings"] == results["warnings"]


@pytest.mark.slow(2.5)
@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal")
def test_a_bar_on_a_terminal_leaves_nothing_in_the_results(study):
    leader, follower = os.openpty()
    code = (
        "import sys, time\nfrom cape.cli import main, screen\nimport cape.app.results as results\n"
        "screen._PATIENCE = 0.0\nreal = results._answer\n"
        "def slow(*a):\n    time.sleep(0.3)\n    return real(*a)\n"
        "results._answer = slow\nsys.argv = ['cape', 'run', sys.argv[1], '--json', '--only', 'mean']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(study)],
        stdout=subprocess.PIPE,
        stderr=follower,
        text=True,
        timeout=60,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(follower)
    assert done.returncode == 0
    json.loads(done.stdout)
    assert b"1. mean" in os.read(leader, 100_000)
    os.close(leader)


@pytest.mark.slow(3.0)
def test_a_study_without_delta_says_so_everywhere(cape, study):
    text = study.read_text()
    study.write_text(
        text[: text.index("[[analysis]]")].replace("delta = 1e-6\n", "")
        + '[[analysis]]\nkind = "histogram"\ncolumn = "age"\nbins = 6\n'
    )
    planned = cape("plan", study)
    assert "Budget: epsilon = 2, no delta." in planned.out
    done = cape("run", study, "--json", "--out", study.parent / "out")
    assert done.code == 0, done.err
    results = json.loads(done.out)
    assert results["study"]["noise"] == "laplace"
    assert results["guarantee"]["pure"] is True
    assert (results["guarantee"]["epsilon"], results["guarantee"]["delta"]) == (2.0, 0.0)
    assert results["budget"]["mu"] is None
    report = (study.parent / "out" / "report.html").read_text()
    assert "nobody can ever be sure" in report
    assert "ε = 2, no δ" in report
    again = cape("run", study, "--out", study.parent / "out")
    assert "(epsilon = 2, no delta): --again" in again.out
