"""What one site adds to every number: a part of noise, of a kind, in steps of the release's grid.

Parts of one kind add: variances of Gaussian parts, and shapes of Laplace parts that have the same scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cape.noise import gaussian, polya
from cape.noise.stream import SecureStream
from cape.stats.law import GAUSSIAN, Law

__all__ = ["KINDS", "GaussianPart", "Kind", "LaplacePart", "Part"]

Kind: TypeAlias = Literal["gaussian", "laplace"]
KINDS: tuple[Kind, ...] = ("gaussian", "laplace")
Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class GaussianPart:
    """A discrete Gaussian."""

    std: float

    @property
    def largest(self) -> int:
        """The largest magnitude that is ever drawn."""
        return gaussian.largest(self.std)

    def draw(self, size: int, stream: SecureStream) -> Int64:
        """Return independent samples."""
        return gaussian.discrete_gaussian(self.std, size, stream)

    def law(self, std: float) -> Law:
        """Return the law of a sum of such parts with this standard deviation in all."""
        return GAUSSIAN


@dataclass(frozen=True)
class LaplacePart:
    """A difference of two Polya variables: with others whose shapes make 1, discrete Laplace noise."""

    shape: Fraction
    scale: float

    @property
    def std(self) -> float:
        """The standard deviation: sqrt(2 shape p)/(1 - p) with p = exp(-1/scale)."""
        return math.sqrt(2 * self.shape) / (2 * math.sinh(0.5 / self.scale))

    @property
    def largest(self) -> int:
        """The largest magnitude that is ever drawn."""
        return polya.largest(self.scale)

    def draw(self, size: int, stream: SecureStream) -> Int64:
        """Return independent samples."""
        return polya.polya_difference(self.shape, self.scale, size, stream)

    def law(self, std: float) -> Law:
        """Return the law of a sum of such parts with this standard deviation in all."""
        return Law(round(float(self.shape) * (std / self.std) ** 2, 9)) if std > 0 else GAUSSIAN


Part: TypeAlias = GaussianPart | LaplacePart
