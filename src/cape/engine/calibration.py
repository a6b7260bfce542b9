"""From a guarantee to integers: how much noise, on which grid, in which ring.

Claim. A release made with a `Calibration` costs at most the mu that it was asked for.
Reason. In units of the scales, a site adds noise of standard deviation gamma to every entry and one person
moves the whole by at most `query.sensitivity`. Each array is then rounded once, to multiples of a step that
is at least gamma / RESOLUTION, which moves a difference by at most one step an entry, so by sqrt(entries)
steps in all; that is added to the sensitivity before gamma is found, and gamma is what the sampler uses:
RESOLUTION steps, always, so that one table serves every release.
With Laplace noise the scale of the noise is RESOLUTION steps, and a release costs at most the epsilon that it
was asked for (`calibrate_laplace`): a person moves the whole by at most `query.l1`, and rounding by one step
for each entry that moves at all. An entry is a multiple of its array's unit, so of an array that moves by at
most L units in all, at most L entries move: a histogram of any length pays for two.
The steps are integer multiples of powers of two: rounding the exact integer sum is integer arithmetic.
Tested in tests/unit/engine/test_calibration.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from cape.blocks.block import Array
from cape.core.errors import InvalidInput, OverflowRisk
from cape.data import Schema
from cape.engine.query import Query
from cape.noise import GaussianPart, LaplacePart, Part, Ring, coarsen
from cape.noise.grid import divided

__all__ = ["MOST_ROWS", "RESOLUTION", "Calibration", "calibrate", "calibrate_laplace", "discretisation_error"]

MOST_ROWS = 1 << 36  # what the ring is made to hold when the number of rows is private
RESOLUTION = 1 << 20  # steps in one standard deviation of a site's own noise, or in Laplace's scale
_FINENESS = 10  # a step is made of at least 2^10 finer ones, so that its size is right to 0.1%
_MOST_BITS = 50  # remainders shifted by it, below 2^11, stay within 64 bits
_EXACT_BITS = 40  # of sums without noise: over up to 4 million rows they fit 64 bits
_OVERSHOOT = 1 + 2.0**-9
_ABOVE = 1 + 2.0**-50  # more than the rounding of a few products
_HELD = 1 << 63  # no sum over fewer than MOST_ROWS rows comes near; holding one moves no two further apart

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Step:
    """The grid of one released array: the multiples of factor * 2^-bits."""

    array: Array
    bits: int
    factor: int

    @property
    def size(self) -> float:
        """The step in units of t, t² or rows."""
        return math.ldexp(self.factor, -self.bits)

    def round(self, sums: Int64) -> Int64:
        """Return exact sums as the nearest multiples of the step, halves up.

        sum = q factor + r, so sum 2^shift / factor is q 2^shift and the nearest integer to r 2^shift /
        factor. The result is what the ring is proved to hold, so nothing here can overflow.
        """
        shift = self.bits - self.array.bits
        if sums.dtype == object:  # Python integers, of which one is beyond 64 bits
            nearest = [((int(s) << shift + 1) + self.factor) // (2 * self.factor) for s in sums.flat]
            return np.array([min(max(n, -_HELD), _HELD - 1) for n in nearest], np.int64)
        quotient, remainder = divided(sums.reshape(-1), self.factor)
        return (quotient << shift) + coarsen(remainder << shift, self.factor)


@dataclass(frozen=True)
class Calibration:
    """The grid of every array and the noise of a site; `part` is None where no noise is added."""

    steps: tuple[Step, ...]
    part: Part | None
    local_noise: float  # its standard deviation, in units of the scales

    @property
    def std(self) -> float | None:
        """The standard deviation of a site's noise in steps; None where no noise is added."""
        return None if self.part is None else self.part.std

    @property
    def size(self) -> int:
        """How many numbers are released."""
        return sum(step.array.size for step in self.steps)

    def encode(self, sums: tuple[Int64, ...]) -> Int64:
        """Return a site's exact sums as one vector of steps: the contribution that noise is added to."""
        return np.concatenate([step.round(part) for step, part in zip(self.steps, sums, strict=True)])

    def decode(self, total: Int64) -> list[NDArray[np.float64]]:
        """Return the released vector as arrays in units of t, t² or rows."""
        arrays: list[NDArray[np.float64]] = []
        start = 0
        for step in self.steps:
            part = total[start : start + step.array.size]
            arrays.append((part.astype(np.float64) * step.size).reshape(step.array.shape))
            start += step.array.size
        return arrays

    def noise(self, steps_std: float) -> list[float]:
        """Return the standard deviation in each array, given that of the released vector in steps."""
        return [steps_std * step.size for step in self.steps]

    def ring(self, rows: int, sites: int, adders: int) -> Ring:
        """Return the narrowest ring that cannot wrap, or raise `OverflowRisk`.

        `rows` is how many there are at most in all, over `sites` sites, each of which rounds once;
        `adders` is how many sites' noise the total may hold.
        """
        smallest = min((step.size for step in self.steps), default=1.0)
        magnitude, std = math.ceil(rows / smallest) + sites, self.std
        if isinstance(self.part, LaplacePart):
            magnitude, std = magnitude + max(1, adders) * self.part.largest, None
        try:
            return Ring.fitting(magnitude, std, max(1, adders))
        except OverflowRisk:
            raise OverflowRisk(
                f"sums over up to {rows:,} rows, in steps as fine as this little noise needs, may not fit 64 "
                "bits; use less epsilon or a smaller share"
            ) from None


def calibrate(query: Query, schema: Schema, local_std: float | None) -> Calibration:
    """Return the calibration for a site's noise of `local_std` per unit of sensitivity, or for none.

    `local_std` is linear in the sensitivity, so rounding is solved for in closed form:
    gamma = k (D + c gamma) gives gamma = k D / (1 - k c), with c = sqrt(entries) / RESOLUTION.
    """
    arrays = query.arrays(schema)
    entries = sum(array.size for array in arrays)
    if local_std is None:
        # finer numbers are rounded to 2^-40, so that sums over millions of rows fit
        steps = tuple(Step(array, array.bits, 1 << max(array.bits - _EXACT_BITS, 0)) for array in arrays)
        return Calibration(steps, None, 0.0)
    per_gamma = math.sqrt(entries) / RESOLUTION * _OVERSHOOT
    if local_std * per_gamma > 0.5:
        raise InvalidInput(
            f"the release of {entries} numbers at this budget would be mostly rounding; "
            "use a larger share, more epsilon or fewer numbers"
        )
    gamma = local_std * query.sensitivity / (1 - local_std * per_gamma)
    steps = tuple(_step(array, gamma * scale) for array, scale in zip(arrays, query.flat_scales, strict=True))
    return Calibration(steps, GaussianPart(float(RESOLUTION)), gamma)


def calibrate_laplace(
    query: Query, schema: Schema, epsilon: Fraction, part: LaplacePart, *, moved: int, rounding: int
) -> Calibration:
    """Return the calibration of a release that costs at most this epsilon.

    Args:
        query: its `l1` is what a person moves one site's sums by.
        schema: its columns.
        epsilon: what it may cost.
        part: a site's own noise; its scale is RESOLUTION steps.
        moved: how many times `l1` a person moves what is seen, by being at several sites.
        rounding: how many sites' rounding may differ by it.

    With a step h per unit of scale the loss is (moved l1/h + rounding r) / RESOLUTION, r the entries of a
    site that rounding may move, so h = moved l1 / (epsilon RESOLUTION - rounding r).
    """
    arrays, l1 = query.arrays(schema), query.l1
    if l1 is None:
        raise InvalidInput("a query must state its L1 sensitivity to be released with Laplace noise")
    entries = sum(
        min(array.size, math.floor(math.ldexp(scale * l1, array.bits) * _OVERSHOOT))
        for array, scale in zip(arrays, query.flat_scales, strict=True)
    )
    room = float(epsilon) * RESOLUTION
    if 2 * rounding * entries > room:
        raise InvalidInput(
            f"the release of {entries} numbers at this budget would be mostly rounding; "
            "use a larger share, more epsilon or fewer numbers"
        )
    step = moved * l1 / (room - rounding * entries) * _ABOVE
    scale = step * RESOLUTION
    steps = tuple(_step(array, scale * each) for array, each in zip(arrays, query.flat_scales, strict=True))
    return Calibration(steps, part, step * part.std)


def _step(array: Array, noise: float) -> Step:
    """Return the grid on which `noise` is RESOLUTION steps, or at most 0.1% fewer."""
    wanted = math.ceil(math.log2(RESOLUTION) + _FINENESS - math.log2(noise))
    bits = max(array.bits, wanted)
    if bits > _MOST_BITS:
        raise InvalidInput(
            "the noise of this release would be too small to be told from rounding; use less epsilon"
        )
    return Step(array, bits, math.ceil(math.ldexp(noise, bits) / RESOLUTION))


def discretisation_error(terms: int, std: float = RESOLUTION) -> float:
    """Return a bound on what using discrete in place of continuous noise adds to delta, per entry.

    A sum of discrete Gaussians is not one; the gap in total variation (Kairouz, Liu and Steinke 2021) is
    10 sum_i exp(-2 pi² v_i V / (v_i + V)), where term i of variance v_i is added to a sum of variance V, in
    steps². With `terms` terms of at least `std` steps each exponent is at least pi² std² in magnitude. At
    2^15 steps that is 1e10: zero in any float.
    """
    exponent = math.pi**2 * std**2
    return 10.0 * (terms - 1) * math.exp(-exponent) if exponent < 745 else 0.0
