"""Which tests CI runs first, and what it leaves out where documentation alone has changed."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time

import pytest

from tests.checkout import ROOT

SPEC = importlib.util.spec_from_file_location("changes", ROOT / ".ci" / "changes.py")
assert SPEC
assert SPEC.loader
changes = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(changes)

START = 1_700_000_000
HOUR = 3600


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A repository in which a test commits files, each so many hours after the first commit."""
    monkeypatch.delenv("CI_BASE", raising=False)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)

    def git(*arguments, hours=0.0):
        when = f"{START + int(hours * HOUR)} +0000"
        dated = os.environ | {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
        named = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
        done = subprocess.run(
            ["git", *named, *arguments], cwd=tmp_path, env=dated, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def commit(file, hours=0.0):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{hours}\n")
        git("add", "-A")
        git("commit", "--quiet", "-m", file, hours=hours)
        return git("rev-parse", "HEAD")

    git("init", "--quiet")
    commit.git, commit.root = git, tmp_path
    return commit


def docs_only(root):
    return changes.documentation_alone(changes.changed(root, changes.base(root, changes.HOURS_DOCS)))


def test_a_clean_clone_compares_with_what_is_two_days_old(clone):
    clone("src/cape/a.py")
    clone("docs/a.md", hours=47)
    assert not docs_only(clone.root)  # the code may have landed with it
    clone("README.md", hours=49)
    assert docs_only(clone.root)
    clone("docs/figures.py", hours=50)
    assert not docs_only(clone.root)
    clone("docs/b.md", hours=51)
    assert not docs_only(clone.root)  # of the last commit alone it would be true


def test_a_history_that_ends_too_early_counts_as_all_changed(clone):
    clone("docs/a.md")
    assert changes.base(clone.root, 48) is None
    assert not docs_only(clone.root)
    assert changes.nearest_tests(clone.root, changes.changed(clone.root, None)) == ["tests/unit"]


def test_a_state_that_passed_is_better_known_than_an_age(clone):
    passed = clone("src/cape/a.py")
    clone.git("update-ref", changes.PASSED, "HEAD")
    clone("docs/a.md", hours=1)
    assert changes.base(clone.root, 48) == passed
    assert docs_only(clone.root)
    clone("src/cape/b.py", hours=2)
    assert not docs_only(clone.root)


def test_the_same_state_again_is_run_in_full(clone):
    clone("src/cape/a.py")
    clone("src/cape/b.py", hours=60)
    clone.git("update-ref", changes.PASSED, "HEAD")
    assert not docs_only(clone.root)
    clone.git("update-ref", "refs/remotes/origin/main", "HEAD")
    assert not docs_only(clone.root)
    assert not changes.documentation_alone([])


def test_a_branch_is_compared_with_where_it_left_main(clone):
    left = clone("src/cape/a.py")
    clone("src/cape/theirs.py", hours=1)
    clone.git("update-ref", "refs/remotes/origin/main", "HEAD")
    clone.git("checkout", "--quiet", "-b", "ours", left)
    clone("docs/a.md", hours=2)
    assert changes.base(clone.root, 48) == left
    assert docs_only(clone.root)


def test_a_base_that_ci_names_counts_first(clone, monkeypatch):
    old = clone("src/cape/a.py")
    clone("src/cape/b.py", hours=1)
    clone.git("update-ref", changes.PASSED, "HEAD")
    clone("docs/a.md", hours=2)
    monkeypatch.setenv("CI_BASE", old)
    assert not docs_only(clone.root)
    monkeypatch.setenv("CI_BASE", "HEAD~1")
    assert docs_only(clone.root)
    monkeypatch.setenv("CI_BASE", "f" * 40)
    with pytest.raises(SystemExit, match="this clone has no such commit"):
        docs_only(clone.root)


def test_what_is_not_committed_counts_as_well(clone):
    clone("src/cape/a.py")
    clone.git("update-ref", changes.PASSED, "HEAD")
    clone("docs/a.md", hours=1)
    assert docs_only(clone.root)
    (clone.root / "src/cape/new.py").write_text("")
    assert not docs_only(clone.root)


def test_a_file_that_moved_out_of_the_code_is_a_change_of_code(clone):
    clone("src/cape/notes.md")
    clone.git("update-ref", changes.PASSED, "HEAD")
    clone.git("mv", "src/cape/notes.md", "notes.md")
    clone.git("mv", "notes.md", "NOTES.md")
    clone.git("commit", "--quiet", "-m", "move")
    assert changes.changed(clone.root, changes.PASSED) == ["NOTES.md", "src/cape/notes.md"]
    assert not docs_only(clone.root)


@pytest.mark.parametrize(
    ("file", "is_documentation"),
    [
        ("docs/guarantee.md", True),
        ("docs/img/logo.svg", True),
        ("CHANGELOG.md", True),
        ("examples/heart/README.md", True),
        ("mkdocs.yml", True),
        ("docs/hooks.py", False),
        ("docs/learning.md", False),
        ("examples/heart/study.toml", False),
        ("src/cape/cli/demo/tumours.md", False),
        ("tests/unit/data/a.md", False),
        ("Makefile", False),
        ("pyproject.toml", False),
        (".ci/run", False),
    ],
)
def test_what_documentation_is(file, is_documentation):
    assert changes.documentation_alone([file]) == is_documentation


def test_a_page_that_a_suite_of_code_runs_is_no_documentation():
    left_out = ("torch", "databases", "deploy")  # the desk's only draws pictures of its page
    named = {
        name
        for suite in left_out
        for path in (ROOT / "tests" / suite).glob("*.py")
        for name in re.findall(r"docs/[\w-]+\.md", path.read_text())
    }
    assert named == {"docs/learning.md"}
    assert not any(changes.DOCUMENTATION.fullmatch(name) for name in named)


def test_the_nearest_tests_come_first():
    files = {
        "src/cape/analyses/survival/cox.py": ["tests/unit/analyses/survival"],
        "src/cape/site/ledger/lines.py": ["tests/unit/site"],
        "src/cape/data/expressions/sql.py": ["tests/unit/data"],
        "src/cape/data/databases/dialects.py": ["tests/unit/data/databases"],
        "src/cape/blocks/sql/columns.py": ["tests/unit/blocks", "tests/unit/data/databases"],
        "src/cape/synthetic.py": ["tests/unit/analyses/synthetic"],
        "tests/unit/cli/test_plan.py": ["tests/unit/cli/test_plan.py"],
        "tests/unit/blocks/reference.py": ["tests/unit/blocks"],
        "assurance/fuzz.py": ["tests/unit/assured"],
        "docs/guarantee.md": [changes.PAGES],
        "docs/learning.md": [changes.PAGES],
        "docs/figures.py": [changes.PAGES],
        "README.md": [changes.PAGES],
        ".ci/run": ["tests/unit/test_ci.py"],
        "src/cape/__init__.py": [],
        "tests/world.py": [],
        "Makefile": [],
    }
    for file, tests in files.items():
        assert (ROOT / file).exists()
        assert changes.nearest_tests(ROOT, [file]) == sorted([changes.ALWAYS, *tests]), file
    gone = changes.nearest_tests(ROOT, ["tests/unit/noise/gone/test_gone.py"])
    assert gone == ["tests/unit/noise", changes.ALWAYS]
    chosen = changes.nearest_tests(
        ROOT, ["src/cape/analyses/influence.py", "src/cape/analyses/survival/cox.py"]
    )
    assert chosen == ["tests/unit/analyses", changes.ALWAYS]
    assert all((ROOT / each).exists() for each in [*chosen, *changes.SUITES, *changes.SUITES.values()])


@pytest.mark.parametrize(
    ("package", "found"),
    [
        ("analyses/survival", ["src/cape/analyses/survival", "tests/unit/analyses/survival"]),
        ("desk/site/", ["src/cape/desk/site", "tests/unit/desk"]),
        ("blocks", ["src/cape/blocks", "tests/unit/blocks"]),
        ("blocks/sql", ["src/cape/blocks/sql", "tests/unit/blocks", "tests/unit/data/databases"]),
        ("synthetic", ["src/cape/synthetic.py", "tests/unit/analyses/synthetic"]),
        ("torch", ["src/cape/torch", changes.ALWAYS]),
        ("analyses/survive", None),
        (".", None),
        ("", None),
    ],
)
def test_one_package_has_the_same_nearest_tests(package, found):
    assert changes.of_package(ROOT, package) == found


@pytest.mark.parametrize(
    ("package", "said"), [("", "which package?"), ("gone", "no package 'gone' in src/cape")]
)
def test_make_check_says_what_to_write(package, said):
    done = subprocess.run(
        [sys.executable, ROOT / ".ci" / "changes.py", "package", package], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "make check PACKAGE=analyses/survival" in done.stderr


def process(code):
    return subprocess.Popen([sys.executable, "-c", code], start_new_session=True)


def test_the_first_failure_ends_the_others(capsys):
    slow = process("import time; time.sleep(60)")
    assert changes.watched({"a": process("raise SystemExit(3)"), "b": slow}, time.monotonic() + 30) == 1
    assert slow.poll() is not None
    assert capsys.readouterr().out == "a failed\n"


def test_what_does_not_end_in_time_is_no_failure(capsys):
    slow = process("import time; time.sleep(60)")
    assert changes.watched({"a": slow, "b": process("pass")}, time.monotonic() + 1) == 0
    assert slow.poll() is not None
    assert "a did not end in time" in capsys.readouterr().out
    assert changes.watched({"a": process("pass")}, time.monotonic() + 30) == 0
    assert capsys.readouterr().out == ""


def test_code_runs_everything_and_documentation_no_server_and_no_spark(tmp_path):
    """`.ci/run` with commands that only write down how they are called."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci" / "run").write_text((ROOT / ".ci" / "run").read_text())
    log = tmp_path / "log"

    def command(path, does):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{does}\n")
        path.chmod(0o755)

    command(tmp_path / ".ci" / "packages", f'echo "packages $*" >> {log}')
    for name, does in {"git": "", "npm": "", "make": f'echo "${{@: -1}}" >> {log}'}.items():
        command(tmp_path / "bin" / name, does)

    def ran(status):
        log.write_text("")
        command(
            tmp_path / ".venv/bin/python",
            f'[ "$2" = first ] && {{ echo first >> {log}; exit 0; }}\nexit {status}',
        )
        environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
        run = ["bash", str(tmp_path / ".ci" / "run")]
        assert subprocess.run(run, env=environment, capture_output=True).returncode == 0
        return log.read_text().splitlines()

    everything = [
        ".venv/.test", "first", "test", "test-slow", "audit-slice", "SAMPLE=12", "test-torch", "test-deploy",
        "packages postgresql mariadb-server default-jre-headless", "test-databases",
        "packages chromium", "test-browser", "test-desk",
    ]  # fmt: skip
    assert ran(1) == everything
    assert ran(2) == everything  # also where it cannot be said what has changed
    assert ran(0) == [".venv/.test", "first", "test", "packages chromium", "test-browser"]
