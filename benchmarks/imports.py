"""What `import cape` costs a process that does nothing else."""

from __future__ import annotations

import statistics
import subprocess
import sys

from benchmarks.harness import Result, bench

_CODE = "import resource as r; {}; u = r.getrusage(r.RUSAGE_SELF); print(u.ru_utime + u.ru_stime)"


@bench("import.cpu")
def import_cpu() -> Result:
    """CPU seconds of `import cape`, beyond those of starting Python."""
    with_cape = statistics.median(_cpu("import cape") for _ in range(7))
    without = statistics.median(_cpu("pass") for _ in range(7))
    return Result(with_cape - without, 0.4, "lower", unit="s", detail={"python_alone": round(without, 4)})


def _cpu(statement: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _CODE.format(statement)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)
