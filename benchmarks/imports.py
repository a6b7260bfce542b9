"""What a process costs that imports `cape`, uses one analysis, shows the version, or completes a command."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys

from benchmarks.harness import Result, bench

_CODE = "import resource as r; {}; u = r.getrusage(r.RUSAGE_SELF); print(u.ru_utime + u.ru_stime)"

_AS_TYPED = "import sys; sys.argv = {}; from cape.cli import main; main()"


@bench("import.cpu")
def import_cpu() -> Result:
    """CPU seconds of `import cape`, beyond those of starting Python."""
    with_cape = statistics.median(_cpu("import cape") for _ in range(7))
    without = statistics.median(_cpu("pass") for _ in range(7))
    return Result(with_cape - without, 0.4, "lower", unit="s", detail={"python_alone": round(without, 4)})


@bench("imports.mean")
def mean() -> Result:
    """CPU seconds until `cape.Mean` is there: numpy, scipy and cryptography are most of it."""
    return _cpu_of_process("import cape; cape.Mean", 0.7, "import numpy, scipy.special, cryptography.hazmat")


@bench("imports.version")
def version() -> Result:
    """CPU seconds of `cape --version`."""
    return _cpu_of_process(_AS_TYPED.format(["cape", "--version"]), 0.25, "import typer")


_TYPED = ("cape p", "cape plan --", "cape run --", "cape submit --", "cape results --", "cape site serve --")


@bench("imports.completion")
def completion() -> Result:
    """CPU seconds of completing a command or its options in bash, the slowest of several.

    typer converts values with pydantic.
    """
    found = {typed: _completing(typed) for typed in _TYPED}
    slowest = max(found, key=lambda typed: found[typed].value)
    worst = found[slowest]
    return Result(worst.value, worst.bar, "lower", unit="s", detail={**worst.detail, "typed": slowest})


def _completing(typed: str) -> Result:
    place = str(len(typed.split()) - 1)
    return _cpu_of_process(
        _AS_TYPED.format(["cape"]),
        0.25,
        "import typer, pydantic",
        {"_CAPE_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": place},
    )


def _cpu_of_process(code: str, bar: float, floor: str, variables: dict[str, str] | None = None) -> Result:
    """Least CPU seconds of a process, its start included; other work on the machine only adds to it.

    `floor` are imports of other packages that it cannot do without: on a busy machine they take longer, too.
    """
    pairs = [(_cpu_of(code, variables or {}), _cpu_of(floor, {})) for _ in range(9)]
    ours, least = (min(each) for each in zip(*pairs, strict=True))
    return Result(ours, bar, "lower", unit="s", detail={"third_party": round(least, 4)})


def _cpu_of(code: str, variables: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **variables}
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _cpu(statement: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _CODE.format(statement)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)
