"""SIGKILL at random points between "asked" and "answered": the ledger is never below what has left.

A process decides and answers requests to a site's folder and writes what it sends into a pipe. It is killed
after a random time. What arrived before that must be in the ledger, and be paid for.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

from assurance.results import Result

__all__ = ["kills"]

_ANALYSIS = {"kind": "mean", "columns": ["age", "weight"], "share": 0.25}
_ASKED, _HEAD = 3, 16 + 4
_OFFICE = b"an office that is trusted".ljust(32, b".")


def kills(count: int = 200, seed: int = 1) -> Result:
    """Kill that many processes, one after the other, and compare the ledger with what arrived after each."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "assurance.kills", folder, str(count), str(seed)],
            capture_output=True,
            text=True,
            check=False,
        )
    figures: dict[str, Any] = {"kills": count}
    notes = []
    if done.returncode == 0:
        figures |= json.loads(done.stdout.splitlines()[-1])
    else:
        notes.append(done.stderr.strip()[-500:])
    good = done.returncode == 0 and not figures["left_unpaid"] and figures["died_by_the_signal"] == count
    return Result(
        "killed between asked and answered",
        "pass" if good else "fail",
        f"python -m assurance kills --kills {count} --seed {seed}",
        figures,
        notes,
    )


def _nursery(folder: Path, count: int, seed: int) -> dict[str, Any]:
    """Fork a process for each kill: what is heavy is imported once, and no table is opened before."""
    import polars  # noqa: F401  its threads start with the first table, in the child

    from assurance.site_folder import make_folder
    from cape.secagg import Identity
    from cape.site import Ledger

    site, asking = make_folder(folder / "site", Identity(_OFFICE), epsilon=2000.0)
    draw = random.Random(seed)
    arrived: dict[bytes, int] = {}
    found = {"died_by_the_signal": 0, "before_the_ledger": 0, "ledger_but_not_sent": 0, "after_it_left": 0}
    unpaid, known = 0, 0
    for _ in range(count):
        before = len(arrived)
        _one(site, asking, draw, arrived, found)
        lines = Ledger(site.path / "ledger.sqlite").entries()
        written, sent = len(lines) - known, len(arrived) - before
        known = len(lines)
        paid = {line.run for line in lines}
        unpaid += sum(run not in paid for run in arrived)
        if written > sent:
            found["ledger_but_not_sent"] += 1
        else:
            found["after_it_left" if sent >= _ASKED else "before_the_ledger"] += 1
    cost = lines[0].charged.mu_squared if lines else Fraction(0)
    total = Ledger(site.path / "ledger.sqlite").spent().mu_squared
    return found | {
        "arrived": len(arrived),
        "lines": known,
        "left_unpaid": unpaid + (total < cost * len(arrived)),
    }


def _one(site: Any, asking: Any, draw: random.Random, arrived: dict[bytes, int], found: Any) -> None:
    """Start a process, kill it a random time after it was asked, and read what it sent."""
    asked, asks = os.pipe()
    received, sends = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _live(site, asking, asks, sends)
        finally:
            os._exit(1)
    os.close(asks)
    os.close(sends)
    times = []
    for _ in range(_ASKED):  # when it is asked again, everything is loaded, and its pace is known
        assert os.read(asked, 1), "the process ended by itself"
        times.append(time.monotonic())
    time.sleep(draw.uniform(0.0, times[-1] - times[-2]))
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    found["died_by_the_signal"] += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    with os.fdopen(received, "rb") as file:
        data = file.read()
    os.close(asked)
    while len(data) >= _HEAD:
        run, length = data[:16], int.from_bytes(data[16:_HEAD], "big")
        arrived[run] = length  # even a part of a vector has left
        data = data[_HEAD + length :]


def _live(site: Any, asking: Any, asks: int, sends: int) -> None:
    from cape.site import Grant, Refusal

    while True:
        request = asking.request(_ANALYSIS, run=os.urandom(16)).pack()
        os.write(asks, b".")
        grant = site.decide(request)
        assert isinstance(grant, Grant), grant
        vector = site.answer(grant)
        assert not isinstance(vector, Refusal), vector
        data = vector.tobytes()
        os.write(sends, grant.request.run + len(data).to_bytes(4, "big") + data)


if __name__ == "__main__":
    print(json.dumps(_nursery(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
