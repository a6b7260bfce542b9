"""Sessions for minutes on end, of random sizes, with sites that drop in random rounds and come back.

Every sum is compared with that of the survivors' vectors, added up in the open; a step without a sum counts
as right only if fewer than the threshold were left.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import numpy as np

from assurance.load import megabytes
from assurance.results import Result
from cape.core.errors import TooFewSites
from cape.secagg import ROUNDS, Session, smallest_threshold

__all__ = ["soak"]

_GROWTH = 20.0  # MB
_SETUP, _STEP = ROUNDS[:2], ROUNDS[2:]


def soak(minutes: float = 10.0, seed: int = 1) -> Result:
    """Play until the time is over."""
    random = np.random.default_rng(seed)
    began = time.monotonic()
    counts: Counter[str] = Counter()
    memory: list[float] = []
    while time.monotonic() - began < 60 * minutes:
        _session(random, counts)
        memory.append(megabytes())
    third = (
        len(memory) // 3
    )  # sessions are of random sizes, so medians: of the last third against the one before
    growth = float(np.median(memory[-third:]) - np.median(memory[third : 2 * third])) if third else 0.0
    bad = counts["wrong"] + counts["no sum, though enough were left"]
    return Result(
        "soak with random dropouts",
        "fail" if bad or not counts["right"] or growth > _GROWTH else "pass",
        f"python -m assurance soak --minutes {minutes:g} --seed {seed}",
        {
            "minutes": round((time.monotonic() - began) / 60, 2),
            "sessions": counts["sessions"],
            "right_sums": counts["right"],
            "wrong_sums": counts["wrong"],
            "too_few_left": counts["too few"],
            "unexplained": counts["no sum, though enough were left"],
            "dropouts": counts["dropouts"],
            "megabytes": round(memory[-1]) if memory else 0,
            "growth_mb": round(growth, 1),
            "allowed_mb": _GROWTH,
        },
    )


def _session(random: np.random.Generator, counts: Counter[str]) -> None:
    sites, length = int(random.choice([3, 4, 5, 8, 13, 30, 60])), int(10 ** random.uniform(0, 4.5))
    steps = int(random.integers(1, 9))
    names = [f"{i:03d}" for i in range(sites)]
    lost = _losses(random, names, _SETUP, 0.03)
    colluding = int(random.integers(0, max(1, sites // 4)))
    bits = int(random.choice([32, 64]))
    counts["sessions"] += 1
    counts["dropouts"] += sum(map(len, lost.values()))
    try:
        session = Session(names, length, steps, bits=bits, colluding=colluding, drop=lost)
    except TooFewSites:
        left = sites - len({name for gone in lost.values() for name in gone})
        few = left < smallest_threshold(sites, colluding) or _sparse_and_many(sites, left)
        counts["too few" if few else "no sum, though enough were left"] += 1
        return
    for _ in range(steps):
        _step(random, session, names, length, bits, counts)


def _step(
    random: np.random.Generator,
    session: Session,
    names: list[str],
    length: int,
    bits: int,
    counts: Counter[str],
) -> None:
    top = 2 ** (20 if bits == 32 else 50)
    vectors: dict[str, Any] = {name: random.integers(-top, top, length) for name in names}
    drop = _losses(random, names, _STEP, random.choice([0.0, 0.05, 0.2]))
    if random.random() < 0.2:
        del vectors[names[int(random.integers(len(names)))]]
    counts["dropouts"] += sum(map(len, drop.values()))
    try:
        outcome = session.step(vectors, drop=drop)
    except TooFewSites:
        gone = {name for lost in drop.values() for name in lost}
        left = [name for name in session.setup.sites if name in vectors and name not in gone]
        few = len(left) < session.parameters.threshold or _sparse_and_many(len(names), len(left))
        counts["too few" if few else "no sum, though enough were left"] += 1
        return
    exact = sum((vectors[name] for name in outcome.survivors), np.zeros(length, np.int64))
    enough = len(outcome.survivors) >= session.parameters.threshold
    counts["right" if enough and np.array_equal(outcome.total, exact) else "wrong"] += 1


def _losses(
    random: np.random.Generator, names: list[str], rounds: tuple[str, ...], rate: float
) -> dict[str, list[str]]:
    lost: dict[str, list[str]] = {}
    for name in names:
        if random.random() < rate:
            lost.setdefault(str(random.choice(rounds)), []).append(name)
    return lost


def _sparse_and_many(sites: int, left: int) -> bool:
    """Return whether more dropped than a sparse graph (of more than 50 sites) is made for: one in ten."""
    return sites > 50 and sites - left > -(-sites // 10)
