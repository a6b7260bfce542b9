"""Where randomness comes from: a cryptographic stream, exact integer noise, the grid and the ring."""

from cape.noise.gaussian import discrete_gaussian
from cape.noise.gram import Gram, exact_gram, exact_products
from cape.noise.grid import Grid
from cape.noise.laplace import discrete_laplace
from cape.noise.ring import Ring, zero_sum_share
from cape.noise.stream import SecureStream

__all__ = [
    "Gram",
    "Grid",
    "Ring",
    "SecureStream",
    "discrete_gaussian",
    "discrete_laplace",
    "exact_gram",
    "exact_products",
    "zero_sum_share",
]
