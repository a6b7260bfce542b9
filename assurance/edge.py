"""A whole deployment under attack: each hole that was once found, and the tests that try it again.

The tests run as they are, in the environment that they need; what is written down is whether they pass.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from assurance.results import ROOT, Result

__all__ = ["ATTACKS", "Attack", "edge"]

_FLARE = Path(".venv-flare") / "bin" / "python"
_LIMIT = 900.0  # seconds for the tests of one attack


@dataclass(frozen=True)
class Attack:
    """What an attacker does, and the tests that do it; `deployed` ones need real processes and NVFLARE."""

    name: str
    tests: tuple[str, ...]
    deployed: bool = False


ATTACKS = (
    Attack(
        "code in an app, started while the app is still being checked (V1)",
        ("tests/deploy/test_edge_code.py", "tests/deploy/test_guard.py"),
        deployed=True,
    ),
    Attack(
        "a job id that names a folder, so that deploying deletes it (V2)",
        (
            "tests/deploy/test_edge_code.py::test_an_app_under_a_job_id_that_is_no_uuid_deletes_nothing",
            "tests/deploy/test_guard.py::test_no_handler_sees_a_job_id_that_is_no_uuid",
        ),
        deployed=True,
    ),
    Attack(
        "code in the link, with the link's rights: two users, daemons without a network (V1, V2)",
        ("tests/deploy/test_two_users.py",),
        deployed=True,
    ),
    Attack(
        "one ledger that adds two adjacencies, the cheaper one picked (V3)",
        ("tests/unit/site/test_adjacency.py",),
    ),
    Attack(
        "the number of rows, asked for by trials and by min_rows (V4)",
        ("tests/unit/site/test_adjacency.py", "tests/unit/site/test_dirty_rows.py"),
    ),
    Attack(
        "one dirty cell that turns an answer into a refusal (V5)",
        ("tests/unit/site/test_dirty_rows.py", "tests/unit/data/test_dirty_cells.py"),
    ),
    Attack(
        "nested arrays that take memory before a signature is checked (V6)",
        ("tests/unit/site/test_envelope.py", "tests/unit/core/test_packed.py"),
    ),
    Attack(
        "a stream forked into a PID namespace, where it repeats its bytes (V7)",
        ("tests/unit/noise/test_stream.py",),
    ),
    Attack(
        "requests that are kept and sent later, an allowance with another tenth of delta (V8)",
        (
            "tests/unit/site/test_envelope.py",
            "tests/unit/site/test_nonces.py",
            "tests/unit/privacy/test_accounting.py",
        ),
    ),
    Attack(
        "a ledger cut off, rewritten, or put back from a backup",
        (
            "tests/unit/site/test_heads.py",
            "tests/unit/site/test_verify.py",
            "tests/unit/coordinator/test_heads.py",
        ),
    ),
    Attack("10,000 bent messages at a site's socket", ("tests/deploy/test_edge_socket.py",), deployed=True),
    Attack(
        "10,000 bent messages, silence and floods at the aggregator's port",
        ("tests/deploy/test_edge_flood.py",),
        deployed=True,
    ),
)


def edge(watch: Callable[[str], None] = lambda line: None) -> list[Result]:
    """Try every attack again."""
    return [_tried(attack, watch) for attack in ATTACKS]


def _tried(attack: Attack, watch: Callable[[str], None]) -> Result:
    python = str(ROOT / _FLARE) if attack.deployed else sys.executable
    command = "make test-deploy" if attack.deployed else "make test"
    if attack.deployed and not Path(python).exists():
        note = "NVFLARE is not installed here: `make test-deploy` makes its environment"
        return Result(attack.name, "skip", command, notes=[note])
    watch(attack.name)
    began = time.monotonic()
    passed, failed = _run(python, attack.tests)
    figures = {"tests passed": passed, "failed": failed, "seconds": round(time.monotonic() - began)}
    return Result(attack.name, "pass" if passed and not failed else "fail", command, figures)


def _run(python: str, tests: Sequence[str]) -> tuple[int, int]:
    """Return how many tests passed, and how many did not; -1 if they could not be run to their end."""
    options = ["-q", "--no-header", "-p", "no:cacheprovider", "-rA", "--tb=no", "-m", "not slow"]
    try:
        done = subprocess.run(
            [python, "-m", "pytest", *options, *tests],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=_LIMIT,
        )
    except subprocess.TimeoutExpired:
        return 0, -1
    lines = done.stdout.splitlines()
    passed = sum(line.startswith("PASSED ") for line in lines)
    failed = sum(line.startswith(("FAILED ", "ERROR ")) for line in lines)
    return passed, failed if done.returncode in (0, 1) else max(failed, 1)
