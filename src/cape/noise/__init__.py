"""Randomness and exact integers: the secure random stream, samplers of discrete Gaussian and Laplace noise,
rounding to a grid, sums modulo a power of two.

Not here: how much noise a stage needs (`engine`, by the formulas of `privacy`), and random numbers for
statistics (`stats`).
"""

from cape.noise.gaussian import discrete_gaussian
from cape.noise.gram import Gram, exact_gram, exact_products
from cape.noise.grid import coarsen
from cape.noise.parts import GaussianPart, Kind, LaplacePart, Part
from cape.noise.polya import polya_difference
from cape.noise.ring import Ring, zero_sum_share
from cape.noise.stream import SecureStream
from cape.stats.law import GAUSSIAN, Law

__all__ = [
    "GAUSSIAN",
    "GaussianPart",
    "Gram",
    "Kind",
    "LaplacePart",
    "Law",
    "Part",
    "Ring",
    "SecureStream",
    "coarsen",
    "discrete_gaussian",
    "exact_gram",
    "exact_products",
    "polya_difference",
    "zero_sum_share",
]
