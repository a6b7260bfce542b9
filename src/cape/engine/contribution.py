"""A site's side of a stage: exact sums over its rows, on the release's grid, plus its own noise.

Claim. What this returns may be masked and sent: its noise is that of the calibration, fresh, and added to
exact integers on the grid.
Reason. The sums are exact integers (`cape.blocks`), rounding to the grid is integer arithmetic
(`Calibration.encode`), and the noise is the calibration's part, a discrete Gaussian of RESOLUTION steps or a
part of Laplace noise at that scale, from a stream that is used once.
Tested in tests/unit/engine/test_schemes.py and tests/unit/site/test_decide.py, which reject a wrong scale.
"""

from __future__ import annotations

import numpy as np

from cape.blocks.holder import Holder
from cape.blocks.table import Table
from cape.core.errors import InvalidInput
from cape.engine.calibration import Calibration
from cape.engine.query import Query
from cape.engine.schemes.scheme import Int64
from cape.noise import Part, SecureStream

__all__ = ["add_noise", "contribution", "exact_sums"]


def contribution(
    table: Table | Holder,
    query: Query,
    calibration: Calibration,
    *,
    sample: SecureStream,
    noise: SecureStream | None,
) -> Int64:
    """Return what a site contributes to a stage; a site that samples rows draws them from `sample`.

    `noise` is None for a site whose scheme adds none.
    """
    exact = exact_sums(table, query, calibration, sample)
    if noise is None:
        return exact
    if calibration.part is None:
        raise InvalidInput("a site must add noise, and the calibration has none")
    return add_noise(exact, calibration.part, noise)


def exact_sums(
    table: Table | Holder, query: Query, calibration: Calibration, sample: SecureStream | None = None
) -> Int64:
    """Return a table's exact sums in steps of the release's grid: a secret of the site."""
    sums = tuple(part for parts in table.sums(query.blocks, sample) for part in parts)
    return calibration.encode(sums) if sums else np.zeros(0, np.int64)


def add_noise(vector: Int64, part: Part, stream: SecureStream) -> Int64:
    """Return exact sums plus a site's own noise: fresh, on integers, from its own stream."""
    if not vector.size:
        return vector
    noisy = part.draw(vector.size, stream)
    noisy += vector
    return noisy
