"""Reals to integers and back (the paper's map and remap), and what that does to sensitivity.

Claim. A contribution put on the grid is an integer multiple of the step, sums of them are exact in any
order, and the sensitivity that has to be covered by noise is the one stated here.
Reason. Rounding moves each coordinate by less than one step (toward zero, stochastic) or at most half of
one (nearest); toward zero it only ever shrinks. The tables are at `norm` and `sensitivity`.
Tested in tests/noise/test_grid.py by searching for a pair of records that exceeds them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cape import check
from cape.errors import InvalidInput, OverflowRisk
from cape.noise.stream import SecureStream, require_stream

__all__ = ["Grid", "Rounding"]

Rounding = Literal["toward-zero", "nearest", "stochastic"]

_ROUNDINGS = ("toward-zero", "nearest", "stochastic")
# A step that is a power of two divides exactly. Any other rounds each quotient by up to 2^-53 of itself,
# so quotients are kept below 2^40 and 2^-12 of a step is added for the two of them in a difference.
_LIMIT_EXACT, _LIMIT = 2.0**52, 2.0**40
_SLACK = 2.0**-12


@dataclass(frozen=True)
class Grid:
    """The multiples of `step`. With a power of two, division is exact and the statements are tightest."""

    step: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", check.real("step", self.step, above=0.0))
        if not (2.0**-500 <= self.step <= 2.0**500):
            raise InvalidInput(f"step must lie between 2^-500 and 2^500, not {self.step!r}")

    @classmethod
    def of_bits(cls, bits: int) -> Grid:
        """Return the grid of multiples of 2^-bits, on which quotients are exact."""
        return cls(math.ldexp(1.0, -check.integer("bits", bits, least=-64, most=64)))

    @property
    def _exact(self) -> bool:
        return math.frexp(self.step)[0] == 0.5

    def encode(
        self,
        values: ArrayLike,
        rounding: Rounding = "toward-zero",
        stream: SecureStream | None = None,
    ) -> NDArray[np.int64]:
        """Return values / step as int64.

        `toward-zero` never makes a contribution larger; `nearest` has the smallest error; `stochastic`
        (the paper's map) rounds up with probability equal to the fraction, so that it is unbiased to
        2^-53 of a step, and takes its bits from `stream`. Values are data: an error never shows one.
        """
        _require_rounding(rounding)
        try:
            quotient = np.asarray(values, dtype=np.float64) / self.step
        except (TypeError, ValueError):
            raise InvalidInput("values must be numbers; at least one is not") from None
        limit = _LIMIT_EXACT if self._exact else _LIMIT
        if not np.all(np.abs(quotient) <= limit):  # also false for NaN
            if not np.all(np.isfinite(quotient)):
                raise InvalidInput("values must be finite numbers; at least one is not")
            raise OverflowRisk(
                f"values must be at most 2^{int(math.log2(limit))} steps of {self.step:g}; use a larger step"
            )
        if rounding == "toward-zero":
            rounded = np.trunc(quotient)
        elif rounding == "nearest":
            rounded = np.rint(quotient)
        else:
            rounded = np.floor(quotient)
            uniform = (require_stream(stream).words(quotient.shape) >> np.uint64(11)) * 2.0**-53
            rounded += uniform < quotient - rounded
        return rounded.astype(np.int64)

    def decode(self, integers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return integers * step as float64."""
        exact: NDArray[np.float64] = check.array_of("int64", "integers", integers) * self.step
        return exact

    def norm(self, bound: float, size: int, rounding: Rounding = "toward-zero") -> float:
        """Return a bound on the L2 norm of a record after rounding, given `bound` before it.

        | rounding    | a coordinate grows by | norm after            |
        |-------------|-----------------------|-----------------------|
        | toward-zero | nothing               | bound                 |
        | nearest     | at most step / 2      | bound + step sqrt(size) / 2 |
        | stochastic  | less than step        | bound + step sqrt(size) |

        A step that is no power of two adds 2^-12 of a step to each coordinate, here and below.
        """
        grown = {"toward-zero": 0.0, "nearest": 0.5, "stochastic": 1.0}
        return self._enlarged("bound", bound, size, grown, rounding)

    def sensitivity(self, sensitivity: float, size: int, rounding: Rounding = "toward-zero") -> float:
        """Return the L2 sensitivity after rounding, given that of the unrounded contribution.

        | rounding               | a difference grows by | sensitivity after              |
        |------------------------|-----------------------|--------------------------------|
        | toward-zero, nearest   | at most step          | sensitivity + step sqrt(size)  |
        | stochastic             | less than 2 steps     | sensitivity + 2 step sqrt(size) |

        Where the sensitivity comes from a bound on norms (2 * bound for replacing a record),
        `2 * grid.norm(bound, ...)` is the tighter statement, and toward-zero costs nothing.
        """
        grown = {"toward-zero": 1.0, "nearest": 1.0, "stochastic": 2.0}
        return self._enlarged("sensitivity", sensitivity, size, grown, rounding)

    def coarsen(self, integers: NDArray[np.int64], factor: int) -> NDArray[np.int64]:
        """Return multiples of `step` as the nearest multiples of `factor * step`, exactly.

        Rounds an exact sum once, in integers (halves go up). The sensitivity grows as for
        `Grid(factor * step).sensitivity(..., "nearest")`: by at most sqrt(size) of the larger steps.
        """
        factor = check.integer("factor", factor, least=1, most=2**62)
        quotient, remainder = divided(check.array_of("int64", "integers", integers), factor)
        quotient += remainder >= factor - factor // 2
        return quotient

    def _enlarged(
        self, name: str, value: Any, size: int, grown: dict[str, float], rounding: Rounding
    ) -> float:
        _require_rounding(rounding)
        enlarged = check.real(name, value, least=0.0)
        size = check.integer("size", size, least=1)
        steps = grown[rounding] + (0.0 if self._exact else _SLACK)
        return enlarged + steps * self.step * math.sqrt(size)


def divided(integers: NDArray[np.int64], factor: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return quotients, rounded down, and remainders: `numpy.divmod`, in an eighth of its time."""
    quotient = integers // np.int64(factor)
    return quotient, integers - quotient * np.int64(factor)


def _require_rounding(rounding: Any) -> None:
    if rounding not in _ROUNDINGS:
        raise InvalidInput(f"rounding must be one of {', '.join(_ROUNDINGS)}, not {rounding!r}")
