"""A whole release: the noise it carries, and its time beside the same without noise."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable

import numpy as np
import polars as pl

from benchmarks.harness import Result, bench, paired_seconds
from cape import Budget, Schema
from cape.analyses import Histogram
from cape.engine.consortium import Consortium
from cape.errors import PrivacyLeakWarning

SIZES = (500, 60_000, 4_000, 20_000, 15_500)


def tables(sizes: Iterable[int] = SIZES) -> dict[str, pl.DataFrame]:
    rng = np.random.default_rng(2)
    return {f"site {i}": pl.DataFrame({"x": rng.uniform(0, 1, n)}) for i, n in enumerate(sizes)}


def deviation(scheme: str, expected: float, sizes: dict[str, pl.DataFrame]) -> float:
    """Return how far the variance over pooled is from what it should be, over 20,000 numbers.

    With about 100 people in a bin no count is near 0, where the histogram would cut it.
    """
    consortium = Consortium(sizes, Schema(x=(0, 1)), Budget(1.0, 1e-6), colluding=1)
    question = Histogram("x", bins=20_000)
    noisy = consortium.release(question, 0.5, scheme=scheme)
    exact = consortium.release(question, 0.5, scheme="none")
    noise = np.array(list(noisy.value.values())) - np.array(list(exact.value.values()))
    pooled = math.sqrt(2) / consortium.budget.cost(0.5).mu
    return abs(float(np.var(noise)) / pooled**2 / expected - 1)


@bench("release.noise")
def noise() -> Result:
    """The largest relative deviation of the variance from S / S_H (cape) and S (conventional)."""
    unequal = tables((10_000, 1_200_000, 90_000, 400_000, 300_000))
    equal = tables([400_000] * 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        found = {
            f"{scheme}, {kind}": deviation(scheme, expected, sizes)
            for scheme, expected in (("cape", 5 / 4), ("conventional", 5.0))
            for kind, sizes in (("unequal", unequal), ("equal", equal))
        }
    detail = {name: round(value, 4) for name, value in found.items()}
    return Result(max(found.values()), 0.03, "lower", unit="relative", detail=detail)


@bench("release.time")
def release_time() -> Result:
    """A histogram of 100,000 bins over five sites of 100,000 rows in all, against scheme `none`."""
    question = Histogram("x", bins=100_000)
    sites = tables()

    def run(scheme: str) -> None:
        Consortium(sites, Schema(x=(0, 1)), Budget(1.0, 1e-6), colluding=1).release(
            question, 0.5, scheme=scheme
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        run("cape")  # the table of the sampler is made once
        mine, reference = paired_seconds(lambda: run("cape"), lambda: run("none"))
    return Result(
        mine / reference, 3.0, "lower", detail={"seconds": round(mine, 3), "none": round(reference, 3)}
    )
