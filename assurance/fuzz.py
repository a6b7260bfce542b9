"""A hundred thousand bad inputs: each works or is refused in one or two lines, within 5 s and 1 GB.

An input is a function of its surface, the seed and its number, so that a finding can be made again:

    python -m assurance fuzz --only csv --seed 7 --number 1234
"""

from __future__ import annotations

import queue
import re
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from assurance.inputs import NAMES, load
from assurance.judge import judge
from assurance.results import OUT, Result
from assurance.workers import Chunk, Report, Worker, attempt, random_of

__all__ = ["again", "fuzz"]

_CHUNK = 200


def counts(inputs: int, only: str | None = None) -> dict[str, int]:
    """Return how many inputs each surface gets."""
    if only is not None:
        return {only: inputs}
    shares = {name: share for name, (_, _, share) in NAMES.items()}
    found = {name: inputs * share // sum(shares.values()) for name, share in shares.items()}
    found["studies"] += inputs - sum(found.values())
    return found


def fuzz(
    inputs: int = 100_000,
    seed: int = 1,
    only: str | None = None,
    *,
    processes: int = 2,
    niceness: int = 0,
    out: Path = OUT,
) -> list[Result]:
    """Feed the product, and return one result for each surface and one for all."""
    began = time.monotonic()
    chunks: queue.SimpleQueue[Chunk | None] = queue.SimpleQueue()
    asked = counts(inputs, only)
    for name, count in asked.items():
        for start in range(0, count, _CHUNK):
            chunks.put(Chunk(name, seed, start, min(start + _CHUNK, count)))
    reports: dict[str, Report] = {name: Report() for name in asked}
    threads = [
        threading.Thread(target=_work, args=(chunks, reports, niceness), daemon=True)
        for _ in range(processes)
    ]
    for thread in threads:
        chunks.put(None)
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - began
    results = [_result(name, asked[name], seed, report, out) for name, report in reports.items()]
    return [_whole(inputs, seed, only, reports, seconds), *results]


def _work(chunks: queue.SimpleQueue[Chunk | None], reports: dict[str, Report], niceness: int) -> None:
    worker = Worker(niceness=niceness)
    try:
        while (chunk := chunks.get()) is not None:
            reports[chunk.surface].add(worker.run(chunk))
    finally:
        worker.close()


def _figures(inputs: int, reports: list[Report]) -> dict[str, Any]:
    return {
        "inputs": inputs,
        "worked": sum(report.accepted for report in reports),
        "refused": sum(report.refused for report in reports),
        "findings": sum(len(report.findings) for report in reports),
        "panics_below": sum(report.panics for report in reports),
        "tried_again": sum(report.again for report in reports),
        "slowest_s": round(max(report.slowest for report in reports), 2),
        "peak_mb": max(report.peak for report in reports) >> 20,
    }


def _whole(inputs: int, seed: int, only: str | None, reports: dict[str, Report], seconds: float) -> Result:
    figures = _figures(inputs, list(reports.values())) | {"seconds": round(seconds)}
    taken = figures["worked"] + figures["refused"] + figures["findings"]
    verdict = "pass" if not figures["findings"] and taken == inputs else "fail"
    told = f" --only {only}" if only else ""
    return Result(
        "bad input", verdict, f"python -m assurance fuzz --inputs {inputs} --seed {seed}{told}", figures
    )


def _result(name: str, inputs: int, seed: int, report: Report, out: Path) -> Result:
    kinds = Counter(_signature(finding) for finding in report.findings)
    notes = []
    for finding in sorted(report.findings, key=lambda each: each["number"]):
        signature = _signature(finding)
        if signature not in kinds:
            continue
        where = _keep(finding, out)
        notes.append(
            f"{finding['kind']} ({kinds.pop(signature)} times, first at --number {finding['number']}"
            f"{where}): {finding['detail']}"
        )
    taken = report.accepted + report.refused + len(report.findings)
    return Result(
        f"bad input: {name}",
        "pass" if not notes and taken == inputs else "fail",
        f"python -m assurance fuzz --inputs {inputs} --seed {seed} --only {name}",
        _figures(inputs, [report]),
        notes,
    )


def _signature(finding: dict[str, Any]) -> tuple[str, str]:
    return finding["kind"], re.sub(r"[0-9]{3,}|'.*", "", finding["detail"])[:60]


def _keep(finding: dict[str, Any], out: Path) -> str:
    if "input" not in finding:
        return ""
    path = out / "findings" / f"{finding['surface']}-{finding['number']}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(finding["input"])
    return f", {path}"


def again(surface: str, seed: int, number: int, folder: Path) -> str:
    """Feed one input once more, in this process; return what it was and what came of it."""
    made = load(surface)(folder)
    given = made.make(random_of(surface, seed, number))
    shown = made.show(given)
    error, said = attempt(made, given)
    verdict = judge(error, said, made.secrets)
    told = "worked" if error is None else f"{type(error).__name__}: {error}"
    return f"{shown[:4000]!r}\n{len(shown)} bytes\n{told}\n{verdict or 'in order'}"
