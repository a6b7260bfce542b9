"""The stream, the samplers and exact second moments, each against the plain thing it stands in for."""

from __future__ import annotations

import os

import numpy as np

from benchmarks.harness import Result, bench, paired_seconds
from cape.noise import SecureStream, discrete_gaussian, exact_gram
from cape.noise.stream import keystream

SAMPLES = 1 << 20


@bench("noise.stream")
def stream() -> Result:
    """Throughput of `fill` as a part of one AES-256-CTR call on the same buffer."""
    ours, raw = SecureStream(), keystream(os.urandom(32))
    out, zeros = np.empty(1 << 26, np.uint8), bytes(1 << 26)
    mine, reference = paired_seconds(lambda: ours.fill(out), lambda: raw.update_into(zeros, out))
    return Result(reference / mine, 0.7, "higher", detail={"gb_per_s": round(out.size / mine / 1e9, 2)})


def gaussian(std: float, bar: float) -> Result:
    """How many times faster than numpy's float normal, rounded."""
    ours, theirs = SecureStream(), np.random.default_rng(1)
    discrete_gaussian(std, 1, ours)  # builds the table, once per std
    mine, reference = paired_seconds(
        lambda: discrete_gaussian(std, SAMPLES, ours),
        lambda: np.rint(theirs.normal(0.0, std, SAMPLES)),
        repeat=15,
    )
    return Result(reference / mine, bar, "higher", detail={"ns_per_sample": round(mine / SAMPLES * 1e9, 2)})


bench("noise.gaussian.10")(lambda: gaussian(10.0, 2.5))
bench("noise.gaussian.1e3")(lambda: gaussian(1e3, 1.0))
bench("noise.gaussian.1e6")(lambda: gaussian(1e6, 1.0))


def gram(rounding: str | None, bar: float) -> Result:
    """Time of the exact sums as a multiple of x.T @ x, for 1,000,000 x 50."""
    x = np.random.default_rng(1).uniform(-1, 1, (1_000_000, 50))
    if rounding is None:
        x = np.trunc(x * 2**20) / 2**20
    mine, reference = paired_seconds(lambda: exact_gram(x, rounding=rounding), lambda: x.T @ x)
    return Result(mine / reference, bar, "lower", detail={"seconds": round(mine, 4)})


bench("noise.gram")(lambda: gram(None, 1.3))
bench("noise.gram.rounding")(lambda: gram("toward-zero", 2.5))
