"""A study across processes: four sites, an aggregator and a coordinator on this machine, over mutual TLS."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import Result, Skip, bench

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


@cache
def _measured() -> dict[str, Any]:
    try:
        import nvflare  # noqa: F401
    except ImportError:
        raise Skip("NVFLARE is not installed: pip install 'cape-dp[flare]'") from None
    with TemporaryDirectory(prefix="cape-bench-") as name:
        return _measure(Path(name))


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
