#!/usr/bin/env python3
"""What has changed since a state that passed: which tests come first, and whether it is documentation alone.

    .ci/changes.py first      ruff, mypy and the tests of what has changed: a failure within two minutes
    .ci/changes.py docs-only  exit status 0 if nothing but documentation has changed, 1 otherwise
    .ci/changes.py package X  where package X is and its nearest tests, for `make check`: 2 if there is no X

The state to compare with is the first of these that there is: the commit that CI_BASE names; refs/ci/passed,
which `.ci/run` sets when all has passed; where this branch left origin/main. A clean clone of main has none
of them, and does not know what landed together. There it is the last commit that is older than HEAD: by half
a day for `first`, which may choose wrongly, since everything runs after it; by two days for `docs-only`, so
that it misses no code of the same landing. Where there is none either, as in a shallow clone, everything
counts as changed. Only Python's own modules are used here.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
PASSED = "refs/ci/passed"
MAIN = "origin/main"
SECONDS = 110.0  # for `first`; tests that are stopped then run again with all others
HOURS_FIRST, HOURS_DOCS = 12, 48
DOCUMENTATION = re.compile(
    r"docs/(?!.*\.py$)(?!learning\.md$).+"  # tests/torch runs what docs/learning.md shows
    r"|[A-Z]+\.md|LICENSE|mkdocs\.yml|(?:examples|image)/.+\.md"
)
ALWAYS = "tests/unit/test_package.py"
PAGES = "tests/unit/study/test_pages.py"
SUITES = {
    "assurance": "tests/unit/assured",
    "reproduction": "tests/unit/reproduction",
    ".ci": "tests/unit/test_ci.py",
    "docs": PAGES,
    "src/cape/blocks/sql": "tests/unit/data/databases",
    "src/cape/synthetic.py": "tests/unit/analyses/synthetic",
}  # tests of a folder or file that do not stand where its own would


def git(root: Path, *arguments: str) -> str | None:
    """Return what git prints, or None if it fails."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def base(root: Path, hours: float) -> str | None:
    """Return the commit to compare with, or None if this clone has none."""
    named = os.environ.get("CI_BASE")
    if named:
        commit = git(root, "rev-parse", "--verify", "--quiet", f"{named}^{{commit}}")
        if commit is None:
            sys.exit(f"CI_BASE={named}: this clone has no such commit")
        return commit
    head = git(root, "rev-parse", "HEAD")
    for known in (PASSED, MAIN):
        commit = git(root, "merge-base", known, "HEAD")
        if commit and commit != head:
            return commit
    seconds = int(git(root, "show", "--no-patch", "--format=%ct", "HEAD") or 0) - int(hours * 3600)
    return git(root, "rev-list", "--first-parent", "--max-count=1", f"--before={seconds}", "HEAD") or None


def changed(root: Path, since: str | None) -> list[str] | None:
    """Return the files that differ from a commit, committed or not; None if it cannot be known."""
    if since is None:
        return None
    ours = git(root, "diff", "--name-only", "--no-renames", since)
    new = git(root, "ls-files", "--others", "--exclude-standard")
    return None if ours is None or new is None else sorted({*ours.splitlines(), *new.splitlines()})


def documentation_alone(files: Iterable[str] | None) -> bool:
    """Return whether documentation has changed, and nothing else."""
    return bool(files) and all(DOCUMENTATION.fullmatch(file) for file in files or ())


def nearest_tests(root: Path, files: Iterable[str] | None) -> list[str]:
    """Return the tests to run first: of each file the nearest ones, and none twice."""
    if files is None:
        return ["tests/unit"]
    return _outermost({ALWAYS}.union(*(_nearest(root, Path(file)) for file in files)))


def of_package(root: Path, package: str) -> list[str] | None:
    """Return where a package is, such as "data/databases", and its nearest tests; None if there is none."""
    for path in (Path("src/cape", package), Path("src/cape", f"{package}.py")):
        file = path / "__init__.py" if path.suffix != ".py" else path
        if package.strip("/.") and (root / file).is_file():
            return [str(path), *(_outermost(_nearest(root, file)) or [ALWAYS])]
    return None


def _outermost(chosen: set[str]) -> list[str]:
    """Return those that no other one holds."""
    return sorted(each for each in chosen if not chosen & {str(above) for above in Path(each).parents})


def _nearest(root: Path, file: Path) -> set[str]:
    chosen = {suite for each, suite in SUITES.items() if file.is_relative_to(each)}
    if file.parts[:2] == ("tests", "unit"):
        near = file if file.name.startswith("test_") else file.parent
    elif file.parts[:2] == ("src", "cape"):
        near = Path("tests/unit", *file.parts[2:-1])
    else:
        return chosen | ({PAGES} if DOCUMENTATION.fullmatch(str(file)) else set())
    while not (root / near).exists():
        near = near.parent
    inside = near.is_relative_to("tests/unit") and near != Path("tests/unit")
    return chosen | ({str(near)} if inside else set())


def first() -> int:
    """Check what has changed: ruff, then mypy beside pytest. Return an exit status."""
    until = time.monotonic() + SECONDS
    python = [sys.executable, "-m"]
    for arguments in (["check", "."], ["format", "--check", "."]):
        if subprocess.run([*python, "ruff", *arguments], cwd=ROOT).returncode:
            return 1
    chosen = nearest_tests(ROOT, changed(ROOT, base(ROOT, HOURS_FIRST)))
    print(f"First the tests of what has changed: {' '.join(chosen)}", flush=True)
    pytest = ["pytest", "-m", "not slow", "-x", "-q", "-n", "auto", "--dist", "worksteal", *chosen]
    running = {
        name: subprocess.Popen([*python, *arguments], cwd=ROOT, start_new_session=True)
        for name, arguments in (("mypy", ["mypy"]), ("pytest", pytest))
    }
    return watched(running, until)


def watched(running: dict[str, subprocess.Popen[bytes]], until: float) -> int:
    """Wait for processes, each with a session of its own.

    Return 1 as soon as one fails, and 0 once all have passed or the time is up.
    """
    try:
        while any(process.poll() is None for process in running.values()) and time.monotonic() < until:
            failed = [name for name, process in running.items() if process.poll()]
            if failed:
                break
            time.sleep(0.1)
        failed = [name for name, process in running.items() if process.poll()]
        late = [name for name, process in running.items() if process.poll() is None]
        if failed:
            print(f"{' and '.join(failed)} failed", flush=True)
        elif late:
            print(
                f"No failure so far. {' and '.join(late)} did not end in time; everything runs next",
                flush=True,
            )
        return 1 if failed else 0
    finally:
        for process in running.values():
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it has started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main() -> int:
    """Do what the command line says."""
    if sys.argv[1:] == ["first"]:
        return first()
    if sys.argv[1:] == ["docs-only"]:
        return 0 if documentation_alone(changed(ROOT, base(ROOT, HOURS_DOCS))) else 1
    if sys.argv[1:2] == ["package"] and len(sys.argv) == 3:
        found = of_package(ROOT, sys.argv[2])
        if found is not None:
            print(*found)
            return 0
        what = f"there is no package {sys.argv[2]!r} in src/cape" if sys.argv[2] else "which package?"
        print(f"{what}: write, for example, make check PACKAGE=analyses/survival", file=sys.stderr)
        return 2
    sys.exit("usage: .ci/changes.py first | docs-only | package X")


if __name__ == "__main__":
    sys.exit(main())
