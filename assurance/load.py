"""Many sites, many releases, long vectors: sums stay exact, and memory stays where it was."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from assurance.results import Result
from cape.analyses import Histogram, Mean
from cape.data import Category, Number, Schema
from cape.engine.consortium import Consortium
from cape.noise import SecureStream
from cape.privacy import Budget
from cape.secagg import Session, simulate

__all__ = ["long_release", "long_vectors", "many_releases", "many_sites", "megabytes"]

_COMMAND = "python -m assurance load"
_GROWTH = 10.0  # MB that a thousand releases may add, once everything is warm
_FAR = 8.0  # standard deviations of noise that no answer is from the truth


def megabytes() -> float:
    """Return what of this process is in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def many_releases(releases: int = 1000, sites: int = 200, warm: int = 50) -> Result:
    """One consortium, one release after the other with the scheme "cape": constant memory, exact budget."""
    random = np.random.default_rng(1)
    tables = {
        f"s{i}": pl.DataFrame({"age": random.normal(50, 12, 200), "weight": random.normal(75, 12, 200)})
        for i in range(sites)
    }
    schema: Any = Schema(age=Number(18, 90, missing=False), weight=Number(40, 140, missing=False))
    consortium = Consortium(tables, schema, Budget(1.0, 1e-6), colluding=max(1, sites // 20))
    share = 0.5 / (releases + warm)
    whole_table = pl.concat(tables.values())
    truth = {name: whole_table[name].clip(schema[name].low, schema[name].high).mean() for name in schema}
    began = time.monotonic()
    for _ in range(warm):
        consortium.release(Mean("age", "weight"), share)
    consortium.releases.clear()  # the answers themselves are kept for the user; they are not what is measured
    before = megabytes()
    most, whole, far = before, 0, 0
    for number in range(releases):
        release = consortium.release(Mean("age", "weight"), share)
        whole += len(release.participants) == sites
        far += any(abs(each.value - truth[each.label]) > _FAR * each.privacy for each in release.estimates)
        consortium.releases.clear()
        if number % max(1, releases // 20) == 0:
            most = max(most, megabytes())
    growth = megabytes() - before
    spent = float(consortium.budget.spent)
    right = abs(spent - 0.5) < 1e-9 and whole == releases and not far
    return Result(
        "load: releases in a row",
        "pass" if growth < _GROWTH and right else "fail",
        _COMMAND,
        {
            "releases": releases,
            "sites": sites,
            "megabytes_before": round(before, 1),
            "megabytes_most": round(most, 1),
            "growth_mb": round(growth, 2),
            "allowed_mb": _GROWTH,
            "spent": spent,
            "seconds": round(time.monotonic() - began, 1),
        },
    )


def long_release(categories: int = 1_000_000, sites: int = 3) -> Result:
    """A whole release of a million numbers: counts of a column with as many categories, noise and all."""
    random = np.random.default_rng(4)
    tables = {f"s{i}": pl.DataFrame({"code": random.integers(0, categories, 1000)}) for i in range(sites)}
    schema = Schema(code=Category(tuple(range(categories))))
    consortium = Consortium(tables, schema, Budget(500.0, 1e-6), colluding=0)  # so that counts can be told
    began = time.monotonic()
    release = consortium.release(Histogram("code"), 0.5)
    found = np.array([each.value for each in release.estimates])
    truth = np.bincount(pl.concat(tables.values())["code"].to_numpy(), minlength=categories)
    noise = release.estimates[0].privacy
    near = noise < 0.2 and bool((np.abs(found - truth) < _FAR * noise).all())
    return Result(
        "load: numbers in a release",
        "pass" if near and found.size == categories and len(release.participants) == sites else "fail",
        _COMMAND,
        {
            "numbers": len(release.estimates),
            "sites": sites,
            "seconds": round(time.monotonic() - began, 1),
            "megabytes": round(megabytes()),
        },
    )


def many_sites(sites: int = 200, steps: int = 20, length: int = 1000, dropping: int = 10) -> Result:
    """A session of many sites on a sparse graph, some dropping in each step; every sum exact."""
    random = np.random.default_rng(2)
    names = [f"{i:04d}" for i in range(sites)]
    began = time.monotonic()
    session = Session(names, length, steps, colluding=sites // 20, dropping=dropping)
    set_up = time.monotonic() - began
    before = megabytes()
    wrong, taken = 0, []
    for _ in range(steps):
        vectors = _vectors(random, names, length)
        drop = {"mask": list(random.choice(names, int(random.integers(0, dropping + 1)), replace=False))}
        at = time.monotonic()
        outcome = session.step(vectors, drop=drop)
        taken.append(time.monotonic() - at)
        wrong += not _right(outcome, vectors)
    return Result(
        "load: sites",
        "fail" if wrong else "pass",
        _COMMAND,
        {
            "sites": sites,
            "sums": steps,
            "wrong_sums": wrong,
            "entries": length,
            "dropping_up_to": dropping,
            "setup_s": round(set_up, 1),
            "step_s": round(float(np.median(taken)), 2),
            "growth_mb": round(megabytes() - before, 1),
        },
    )


def long_vectors(length: int = 1_000_000, sites: int = 5, sums: int = 3) -> Result:
    """Vectors of a million entries, one site lost after it shared; every sum exact."""
    random = np.random.default_rng(3)
    names = [f"s{i}" for i in range(sites)]
    wrong, taken = 0, []
    for number in range(sums):
        vectors = _vectors(random, names, length)
        at = time.monotonic()
        stream = SecureStream(number.to_bytes(32, "big"))
        outcome = simulate(vectors, colluding=0, drop={"mask": names[number % sites :][:1]}, stream=stream)
        taken.append(time.monotonic() - at)
        wrong += not _right(outcome, vectors)
    return Result(
        "load: entries",
        "fail" if wrong else "pass",
        _COMMAND,
        {
            "entries": length,
            "sites": sites,
            "sums": sums,
            "wrong_sums": wrong,
            "sum_s": round(float(np.median(taken)), 2),
            "megabytes": round(megabytes()),
        },
    )


def _vectors(random: np.random.Generator, names: list[str], length: int) -> dict[str, Any]:
    return {name: random.integers(-(2**40), 2**40, length) for name in names}


def _right(outcome: Any, vectors: dict[str, Any]) -> bool:
    exact = sum(vectors[name] for name in outcome.survivors)
    return bool(np.array_equal(outcome.total, exact))
