"""A study across processes: sites, an aggregator and a coordinator on this machine, over mutual TLS.

Every site is two processes, its daemon and its link, as in a real deployment.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Result, Skip, bench

if TYPE_CHECKING:
    from cape.coordinator import StageOutcome

SITES = ("a", "b", "c", "d")
ANALYSES, ENTRIES = 10, 10_000
ROWS = 1_000


@bench("deploy.study")
def study() -> Result:
    """Seconds of `cape submit` for 10 analyses of 10,000 numbers each, from the command to its end."""
    found = _measured()
    return Result(found["submit"], 60.0, "lower", "seconds", found)


@bench("deploy.round")
def round_() -> Result:
    """Median seconds of a round of the protocol, over all rounds of the same study."""
    found = _measured()
    return Result(found["round"], 0.25, "lower", "seconds", found)


@bench("deploy.link")
def link() -> Result:
    """What the socket between link and daemon adds to a round at 1e6 numbers.

    The larger of its milliseconds over 5, and its part of the round over 10%: at most 1.
    """
    _require_flare()
    with TemporaryDirectory(prefix="cape-bench-") as name:
        socket = _socket_seconds(Path(name) / "s.sock")
        round_ = _wide_round(Path(name))
    detail = {"socket seconds": socket, "round seconds": round_, "part of the round": socket / round_}
    return Result(max(socket / 0.005, socket / round_ / 0.10), 1.0, "lower", "of 5 ms and of 10%", detail)


@bench("deploy.large")
def large() -> Result:
    """The largest message of a stage of 8e6 numbers, in megabytes: from a site to the coordinator."""
    _require_flare()
    with TemporaryDirectory(prefix="cape-bench-") as name:
        outcome, seconds = _one_stage(Path(name), ("a", "b", "c"), 2829)
    most = max(each.most for each in outcome.traffic)
    assert len(outcome.total) == 8 * 2829**2
    detail = {"seconds": seconds, "total": len(outcome.total), "participants": len(outcome.participants)}
    return Result(most / 1e6, 64.0, "higher", "MB", detail)


@bench("deploy.sites")
def sites() -> Result:
    """How many of 20 sites on one machine took part in a study of one mean."""
    _require_flare()
    names = tuple(f"site-{number}" for number in range(1, 21))
    with TemporaryDirectory(prefix="cape-bench-") as name:
        outcome, seconds = _one_stage(Path(name), names, 10)
    return Result(len(outcome.participants), 20, "higher", "sites", {"seconds": seconds})


@cache
def _measured() -> dict[str, Any]:
    _require_flare()
    with TemporaryDirectory(prefix="cape-bench-") as name:
        return _measure(Path(name))


def _require_flare() -> None:
    try:
        import nvflare  # noqa: F401
    except ImportError:
        raise Skip("NVFLARE is not installed: pip install 'cape-dp[flare]'") from None


_ECHO = """
import os, sys, time
from cape.core.unix import Server
answer = os.urandom(8_000_000)
with Server(sys.argv[1], lambda data: answer, admit=lambda peer: None):
    time.sleep(600)
"""


def _socket_seconds(place: Path) -> float:
    """Return the median seconds for a request over the socket whose answer has 1e6 numbers."""
    from cape.core.unix import Client

    process = subprocess.Popen([sys.executable, "-c", _ECHO, str(place)])
    try:
        while not place.exists():
            time.sleep(0.05)
        with Client(place, timeout=60) as client:
            times = []
            for _ in range(50):
                began = time.perf_counter()
                client.call(b"request")
                times.append(time.perf_counter() - began)
        return statistics.median(times)
    finally:
        process.kill()
        process.wait()


def _wide_round(folder: Path) -> float:
    """Return the seconds of the round in which four sites send 1e6 masked numbers."""
    outcome, _ = _one_stage(folder, SITES, 1000)
    return next(each.seconds for each in outcome.traffic if each.round == "mask")


class _Enough(Exception):
    """The stage that is measured is over."""


def _one_stage(folder: Path, names: Sequence[str], categories: int) -> tuple[StageOutcome, float]:
    """Play one stage over a deployment: a table of two columns with so many categories each."""
    from cape.coordinator import CoordinatorFolder, Record, StageOutcome, Submission
    from cape.coordinator.calls import unpack_reply
    from cape.flare.link import Network
    from cape.flare.rehearsal import Rehearsal
    from cape.study import Study

    values = [f"v{number}" for number in range(categories)]
    tables = {}
    for site in names:
        tables[site] = folder / f"{site}.csv"
        rows = "\n".join(f"v{i % categories},v{7 * i % categories}" for i in range(ROWS))
        tables[site].write_text(f"one,two\n{rows}\n")
    schema = {"one": values, "two": values}
    path = folder / "wide.toml"
    columns = "\n".join(f"{name} = {json.dumps(each)}" for name, each in schema.items())
    path.write_text(
        '[study]\nname = "wide"\n[privacy]\nepsilon = 10\ndelta = 1e-6\ncolluding = 1\n'
        f"[schema]\n{columns}\n[sites]\n" + "".join(f"{name} = {{}}\n" for name in names) + "[[analysis]]\n"
        'kind = "contingency-table"\ncolumns = ["one", "two"]\nshare = 1.0\n'
    )
    found: list[StageOutcome] = []

    class Watched(Network):
        def call(self, data: bytes) -> bytes:
            answer = super().call(data)
            reply = unpack_reply(answer)
            if isinstance(reply, StageOutcome):
                found.append(reply)
                raise _Enough
            return answer

    study = Study.load(path)
    with (
        Rehearsal(
            folder / "deployment", tables, schema, analyses=["contingency-table"], budget=(50.0, 1e-5)
        ) as here,
        Watched(here.coordinator, study.name, names) as link,
        Record(folder / "wide.jsonl") as record,
    ):
        submission = Submission(study, CoordinatorFolder(here.coordinator), link, record)
        began = time.perf_counter()
        with contextlib.suppress(_Enough):
            submission.answer(study.analyses[0])
        took = time.perf_counter() - began
    if found[0].failure is not None:
        raise RuntimeError(found[0].failure)
    return found[0], took


def _measure(folder: Path) -> dict[str, Any]:
    from cape.flare.rehearsal import Rehearsal

    tables = _tables(folder)
    schema = {"value": [0, 1]}
    study, again = _study(folder, tables, "bench"), _study(folder, tables, "again")
    began = time.perf_counter()
    with Rehearsal(
        folder / "deployment", tables, schema, analyses=["histogram"], budget=(50.0, 1e-5)
    ) as here:
        up = time.perf_counter() - began
        command = [sys.executable, "-m", "cape"]
        submit = [
            *command,
            "submit",
            str(study),
            "--kit",
            str(here.coordinator),
            "--out",
            str(folder / "out"),
        ]
        across = _seconds(submit)
        alone = _seconds([*command, "run", str(study), "--out", str(folder / "alone")])
        rounds = _rounds(again, here.coordinator, folder)
    analyses = json.loads((folder / "out" / "results.json").read_text())["analyses"]
    assert len(analyses) == ANALYSES
    assert all(len(each["estimates"]) == ENTRIES for each in analyses)
    return {
        "submit": across,
        "round": statistics.median(rounds),
        "slowest round": max(rounds),
        "rounds": len(rounds),
        "cape run": alone,
        "over cape run": across / alone,
        "bytes": sum(each["cost"]["bytes"] for each in analyses),
        "seconds to start": up,
        "sites": len(SITES),
    }


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return time.perf_counter() - began


def _rounds(study_file: Path, kit: Path, folder: Path) -> list[float]:
    """Return how long each round of the study took, as the aggregator saw it."""
    from cape.coordinator import CoordinatorFolder, Record, StageOutcome, Submission
    from cape.coordinator.calls import unpack_reply
    from cape.flare.link import Network
    from cape.study import Study

    found: list[float] = []

    class Watched(Network):
        def call(self, data: bytes) -> bytes:
            answer = super().call(data)
            reply = unpack_reply(answer)
            if isinstance(reply, StageOutcome):
                found.extend(each.seconds for each in reply.traffic)
            return answer

    study = Study.load(study_file)
    with Watched(kit, study.name, SITES) as link, Record(folder / "again.jsonl") as record:
        submission = Submission(study, CoordinatorFolder(kit), link, record)
        for entry in study.analyses:
            submission.answer(entry)
    return found


def _tables(folder: Path) -> dict[str, Path]:
    tables = {}
    for site in SITES:
        tables[site] = folder / f"{site}.csv"
        rows = "\n".join(f"{i / ROWS:.6f}" for i in range(ROWS))
        tables[site].write_text(f"value\n{rows}\n")
    return tables


def _study(folder: Path, tables: dict[str, Path], name: str) -> Path:
    path = folder / f"{name}.toml"
    sites = "\n".join(f'{site} = "{table}"' for site, table in tables.items())
    analysis = (
        f'[[analysis]]\nkind = "histogram"\ncolumn = "value"\nbins = {ENTRIES}\nshare = {1 / ANALYSES}\n'
    )
    path.write_text(
        f'[study]\nname = "{name}"\n[privacy]\nepsilon = 10\ndelta = 1e-6\ncolluding = 1\nmin_sites = 3\n'
        f"[schema]\nvalue = [0, 1]\n[sites]\n{sites}\n" + analysis * ANALYSES
    )
    return path
