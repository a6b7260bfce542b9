"""Make each edit in a copy of the source, run its suite there, and say which survived."""

from __future__ import annotations

import compileall
import contextlib
import os
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from assurance.mutants.edits import Misfit, Mutant, apply, load, names
from assurance.mutants.imported import ELSEWHERE
from assurance.results import ROOT, Result

__all__ = ["Outcome", "mutants", "run", "sample"]

SECONDS = 300.0  # for one suite, on a busy machine; it takes a few
_FAILED, _PASSED = 1, 0  # what pytest ends with
_WORDS = {
    _PASSED: "passes",
    _FAILED: "fails",
    2: "cannot be collected",
    4: "cannot be collected",
    5: "has no tests",
    ELSEWHERE: "imports another copy of the source",
}


@dataclass(frozen=True)
class Outcome:
    """What came of one mutant: "killed", or else why not."""

    mutant: Mutant
    said: str
    seconds: float

    @property
    def killed(self) -> bool:
        """Whether its suite failed, as it must."""
        return self.said == "killed"


def sample(known: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """Return `count` of them; consecutive seeds go round, so that each has its turn."""
    order = sorted(known, key=lambda mutant: sha256(mutant.name.encode()).digest())
    start = seed * count % max(1, len(order))
    return (order + order)[start : start + min(count, len(order))]


def mutants(
    count: int | None = None,
    seed: int = 0,
    only: str | None = None,
    watch: Callable[[Outcome], None] = lambda outcome: None,
) -> Result:
    """Run all mutants, or a sample, or those of a package, or whose name or function contains `only`."""
    known = load()
    names(known)
    if only is not None:
        packages = [mutant for mutant in known if mutant.package == only]
        known = packages or [mutant for mutant in known if only in mutant.name or only in mutant.function]
    chosen = known if count is None else sample(known, count, seed)
    began = time.perf_counter()
    found = run(chosen, watch=watch)
    alive = [outcome for outcome in found if not outcome.killed]
    suites = {mutant.suite for mutant in chosen}
    figures = {
        "mutants": len(chosen),
        "killed": len(chosen) - len(alive),
        "suites": len(suites),
        "seconds": time.perf_counter() - began,
    }
    command = "python -m assurance mutants"
    if count is not None:
        command += f" --sample {count} --seed {seed}"
    if only is not None:
        command += f" --only {shlex.quote(only)}"
    notes = [
        f"{each.mutant.package}, {each.mutant.function}: {each.mutant.name}: {each.said}" for each in alive
    ]
    if not chosen:
        notes.append("there is no such mutant")
    return Result("mutants", "pass" if chosen and not alive else "fail", command, figures, notes)


def run(
    chosen: Sequence[Mutant],
    root: Path = ROOT,
    seconds: float = SECONDS,
    workers: int | None = None,
    watch: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Return what came of each, in the same order; suites are run once without an edit first."""
    workers = max(1, min(workers or os.cpu_count() or 1, len(chosen)))
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = _Copies(root, Path(folder), workers)

        with ThreadPoolExecutor(workers) as pool:
            wrong = {mutant: _misfit(mutant, root / "src") for mutant in chosen}
            suites = sorted({mutant.suite for mutant in chosen if not wrong[mutant]})
            parts = [suites[start::workers] for start in range(workers)]
            unsound: dict[str, str] = {}
            for found in pool.map(lambda part: _unsound(part, root, copies, seconds), parts):
                unsound |= found

            def one(mutant: Mutant) -> Outcome:
                why = wrong[mutant] or unsound.get(mutant.suite, "")
                outcome = Outcome(mutant, why, 0.0) if why else _outcome(mutant, root, copies, seconds)
                watch(outcome)
                return outcome

            return list(pool.map(one, chosen))


class _Copies:
    """Copies of `src`, one for each worker: compiled once, so that a suite compiles only what was edited."""

    def __init__(self, root: Path, folder: Path, count: int) -> None:
        first = folder / "0"
        skipped = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(root / "src", first, ignore=skipped)
        compileall.compile_dir(first, quiet=2)
        self.places = [first] + [folder / str(number) for number in range(1, count)]
        for place in self.places[1:]:
            shutil.copytree(first, place)
        self._free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for place in self.places:
            self._free.put(place)

    @contextlib.contextmanager
    def one(self) -> Iterator[Path]:
        """Lend a copy that nobody else has."""
        place = self._free.get()
        try:
            yield place
        finally:
            self._free.put(place)


def _misfit(mutant: Mutant, src: Path) -> str:
    try:
        apply(mutant, src)
    except Misfit as error:
        return str(error)
    return ""


def _outcome(mutant: Mutant, root: Path, copies: _Copies, seconds: float) -> Outcome:
    began = time.perf_counter()
    with copies.one() as place:
        path, text = apply(mutant, place)
        before = path.read_text(encoding="utf-8")
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()
        try:
            path.write_text(text, encoding="utf-8")
            status = _pytest(mutant.suite, root, place, seconds)
        finally:
            path.write_text(before, encoding="utf-8")
    said = "killed" if status == _FAILED else f"survived: `pytest {mutant.suite}` {_said(status, seconds)}"
    return Outcome(mutant, said, time.perf_counter() - began)


def _unsound(suites: Sequence[str], root: Path, copies: _Copies, seconds: float) -> dict[str, str]:
    """Return what is wrong with suites where nothing was edited: all at once, then one by one."""
    found: dict[str, str] = {}
    if not suites:
        return found
    with copies.one() as place:
        if _pytest(" ".join(suites), root, place, seconds * len(suites)) == _PASSED:
            return found
        for suite in suites:
            status = _pytest(suite, root, place, seconds)
            if status != _PASSED:
                found[suite] = f"nothing was edited, and `pytest {suite}` {_said(status, seconds)}"
    return found


def _said(status: int | None, seconds: float) -> str:
    if status is None:
        return f"took over {seconds:g} s"
    return _WORDS.get(status, f"ended with status {status}")


def _pytest(suite: str, root: Path, place: Path, seconds: float) -> int | None:
    """Return pytest's status, None if it took too long; the copy stands first on its path."""
    with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join((str(place), str(ROOT))),
            "PYTHONDONTWRITEBYTECODE": "1",  # else an edit within the same second would not be seen
            "HYPOTHESIS_STORAGE_DIRECTORY": f"{scratch}/h",
            "HYPOTHESIS_PROFILE": "thorough",  # an edit is judged by all the examples that there are
            "OMP_NUM_THREADS": "1",
            "POLARS_MAX_THREADS": "1",
        }
        options = ["-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist"]
        options += ["--basetemp", f"{scratch}/t"]  # short: a socket's path may have 107 bytes
        command = [
            sys.executable,
            "-m",
            "assurance.mutants.imported",
            str(place),
            *options,
            *shlex.split(suite),
        ]
        process = subprocess.Popen(
            command,
            cwd=root,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):  # and all that it started
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
