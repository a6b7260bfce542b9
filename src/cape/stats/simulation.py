"""Random numbers for what is computed from released sums, such as a null distribution by simulation.

Claim. They are neither noise nor secret: nothing that is drawn here ever touches a row.
Reason. A generator starts at a seed that stands in the code, so that everybody who holds a release computes
the same P value or band from it, every time. This is the one module of the package that may use a predictable
generator; noise and secrets come from `cape.noise.SecureStream`.
Tested in tests/unit/stats/test_simulation.py, and in tests/unit/test_package.py: no other module has one,
and modules that sum rows lie below analyses.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from cape.core.arrays import Floats

__all__ = ["DRAWS", "Random", "generator", "normals"]

DRAWS = 1000
Random = np.random.Generator


def generator(seed: int | tuple[int, ...]) -> Random:
    """Return a generator that draws the same numbers every time."""
    return np.random.default_rng(seed)


@cache
def normals(seed: int, width: int) -> Floats:
    """Return `DRAWS` rows of independent standard normal numbers, the same every time."""
    found: Floats = generator(seed).normal(size=(DRAWS, width))
    found.setflags(write=False)
    return found
