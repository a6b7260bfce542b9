"""The accountant: what one scalar question costs, beside the same question to dp-accounting."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

from benchmarks.harness import Result, bench, best_seconds
from cape import privacy

CALLS = 50
REPEATS = 5
# (epsilon, delta): the paper's settings, a large epsilon, a tiny delta, a large delta
POINTS = [(1.0, 1e-5), (1e-3, 1e-5), (10.0, 1e-2), (1e4, 1e-5), (0.1, 1e-200), (1.0, 0.9)]


def microseconds(question: Callable[[], float]) -> float:
    """Return the median over repeats of the time of one call, each averaged over many."""

    def many() -> None:
        for _ in range(CALLS):
            question()

    return statistics.median(best_seconds(many, 1) for _ in range(REPEATS)) / CALLS * 1e6


@bench("privacy.accountant")
def accountant() -> Result:
    from dp_accounting import gaussian_mechanism as reference

    slowest: dict[str, float] = {}

    def ask(name: str, question: Callable[[], float]) -> None:
        slowest[name] = max(slowest.get(name, 0.0), microseconds(question))

    for epsilon, delta in POINTS:
        mu = privacy.mu(epsilon, delta)
        ask("delta", partial(privacy.delta, epsilon, mu))
        ask("epsilon", partial(privacy.epsilon, delta, mu))
        ask("mu", partial(privacy.mu, epsilon, delta))
    epsilon, delta = POINTS[0]
    mu = privacy.mu(epsilon, delta)
    theirs = {
        "epsilon": microseconds(partial(reference.get_epsilon_gaussian, 1 / mu, delta)),
        "mu": microseconds(partial(reference.get_sigma_gaussian, epsilon, delta)),
    }
    return Result(
        value=max(slowest.values()),
        bar=100.0,
        better="lower",
        unit="µs",
        detail={
            "slowest": {name: round(value, 1) for name, value in slowest.items()},
            "dp_accounting": {name: round(value, 1) for name, value in theirs.items()},
        },
    )
