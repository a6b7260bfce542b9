"""One way to measure: a named function that returns a `Result`, and a registry that runs them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

REGISTRY: dict[str, Callable[[], Result]] = {}


class Skip(Exception):
    """What a measurement raises when its reference is not on this machine; the text says how to get it."""


@dataclass(frozen=True)
class Result:
    """A figure, its bar, and which way is better; `detail` holds what the figure was made from."""

    value: float
    bar: float
    better: Literal["lower", "higher"]
    unit: str = "ratio"
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        return self.value <= self.bar if self.better == "lower" else self.value >= self.bar

    def line(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "value": round(self.value, 4),
            "bar": self.bar,
            "better": self.better,
            "holds": self.holds,
            "unit": self.unit,
            "detail": self.detail,
        }


def bench(name: str) -> Callable[[Callable[[], Result]], Callable[[], Result]]:
    """Register a measurement under the name that the bar carries."""

    def register(function: Callable[[], Result]) -> Callable[[], Result]:
        REGISTRY[name] = function
        return function

    return register


def best_seconds(function: Callable[[], Any], repeat: int = 5) -> float:
    """Return the smallest time of a call: what the code costs when nothing else runs."""
    return min(_seconds(function) for _ in range(repeat))


def paired_seconds(
    ours: Callable[[], Any], reference: Callable[[], Any], repeat: int = 7
) -> tuple[float, float]:
    """Return the best times of two functions, run in turns so that a busy moment hits both."""
    pairs = [(_seconds(ours), _seconds(reference)) for _ in range(repeat)]
    return min(a for a, _ in pairs), min(b for _, b in pairs)


def peak_bytes() -> int:
    """Return the most memory that this program has held at once.

    Linux only. `ru_maxrss` will not do: it takes over the peak of the process that started this one.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise Skip("the peak of memory is read from /proc, which this system does not have")


def _seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
