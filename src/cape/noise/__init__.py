"""Where randomness comes from: a cryptographic stream, exact integer noise, the grid and the ring."""

from cape.noise.gaussian import discrete_gaussian
from cape.noise.stream import SecureStream

__all__ = ["SecureStream", "discrete_gaussian"]
