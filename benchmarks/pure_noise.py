"""Laplace noise by many sites: how fast it is drawn, and how near the adversary comes to its epsilon."""

from __future__ import annotations

import math
import time
from fractions import Fraction

import numpy as np

from benchmarks.harness import Result, bench
from cape.audit.bounds import epsilon_bound, errors_of
from cape.engine.calibration import RESOLUTION
from cape.engine.contribution import add_noise
from cape.engine.schemes import Parties, Task, make_scheme
from cape.noise import Ring, SecureStream, polya_difference

SAMPLES = 1 << 21
SCALES = (1.0, 10.0, 1e3, 1e5, 1e6, 2.0**20)
REPEATS = 7
GAMES = 100_000  # of each table
ERROR = 1e-4  # that the bound is too high


@bench("pure.sampler")
def sampler() -> Result:
    """Millions of samples a second on one core, at shape 1/5, at the scale where they take longest."""
    stream, shape = SecureStream(), Fraction(1, 5)
    found = {}
    for scale in SCALES:
        polya_difference(shape, scale, 1, stream)  # builds the table, once per shape and scale
        times = []
        for _ in range(REPEATS):
            began = time.process_time()
            polya_difference(shape, scale, SAMPLES, stream)
            times.append(time.process_time() - began)
        found[f"{scale:g}"] = round(SAMPLES / min(times) / 1e6, 1)
    return Result(min(found.values()), 10.0, "higher", "million/s", detail={"millions_a_second": found})


@bench("pure.audit")
def audit() -> Result:
    """A lower bound on epsilon over the claim, for one count at 5 sites of which 1 colludes, epsilon 1.

    Every entry of a vector is one game: the count of the first site is one more in every second entry. Sites
    add noise and secure aggregation runs as in a release; the adversary takes the colluder's own part off the
    total, and says "one more" where the likelihood ratio is as large as it can be.
    """
    parties, scheme, names = Parties(5, 1, 4), make_scheme("cape", "laplace"), "abcde"
    present = np.arange(2 * GAMES) % 2 == 1
    count = RESOLUTION  # what one person moves a count by, in steps: epsilon is 1
    root, part = SecureStream(b"pure.audit".ljust(32, b".")), scheme.part(parties)
    exact = {name: np.zeros(2 * GAMES, np.int64) for name in names}
    exact["a"] = count * present.astype(np.int64)
    vectors = {name: add_noise(vector, part, root.fork(name)) for name, vector in exact.items()}
    rows = dict.fromkeys(names, 100)
    outcome = scheme.run(Task(vectors, rows, parties, 1.0, Ring(64), {}, root.fork("keys")))
    seen = outcome.total - vectors["e"]
    claim = scheme.cost_epsilon(float(count), float(RESOLUTION), parties)
    bound = epsilon_bound(errors_of(seen >= count, present), 0.0, ERROR)
    detail = {"claim": claim, "bound": round(bound, 4), "games": 2 * GAMES, "exceeded": bound > claim}
    return Result(0.0 if math.isnan(bound) or bound > claim else bound / claim, 0.85, "higher", detail=detail)
