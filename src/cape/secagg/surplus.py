"""Surplus noise: parts that a site adds to its vector, taken off again once the survivors are known.

A step's first surplus key is a secret of that step alone (`cape.secagg.chain`). Part j of the noise is
expanded from key j, and key j + 1 is derived from key j: who has key j has the parts j, j + 1, ..., and no
earlier one. Which parts a sum needs is a matter of how many sites are missing from it
(`cape.privacy.ladder`).

Claim. Whatever the aggregator and fewer than `threshold` sites do, they learn of this site's surplus in a
step the parts from one level on, and only if the sum can then be over one list of survivors, for which the
other parts are enough.
Reason. A site reveals one key a step, with its unmasking answer: after `threshold` sites have signed the
list that it signed. It counts the missing sites itself, from the roster that it was given and that list, and
it deletes the keys of the parts that stay when it signs. HKDF cannot be inverted, and part and next key are
its outputs for two labels, bound to the run, the site, the step and the level. No survivor is made up: see
`Site._opened`. A site that is never asked, or whose answer is lost, leaves all its parts in the sum: more
noise, never less.
The tip, derived from the last key and signed with the vector, shows the aggregator that a revealed key is
the one that was used. The aggregator draws the same noise as the site did, bit for bit, so the sampler is
part of what the parties agree on (`Surplus.digest`).
Tested in tests/unit/secagg/test_surplus.py.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.core.errors import InvalidInput
from cape.noise import LaplacePart, SecureStream, discrete_gaussian, polya
from cape.noise.gaussian import SAMPLER, largest
from cape.secagg.keys import derive, digest

__all__ = ["LEAST_STEPS", "NO_SURPLUS", "LaplaceSurplus", "Surplus", "SurplusKey"]

LEAST_STEPS = 8.0
"""The smallest standard deviation of a part: below, a sum of discrete Gaussians is not close to one."""

_BLOCK = 1 << 18  # numbers drawn at a time: fewer would cost the sampler time


@dataclass(frozen=True)
class Surplus:
    """The parts of a site's surplus noise.

    Attributes:
        losses: how many missing sites level 0, 1, ... is made for; part j is in a sum from which more
            than `losses[j - 1]` are missing.
        stds: the standard deviation of each part, in steps.
    """

    losses: tuple[int, ...] = (0,)
    stds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.losses[:1] != (0,) or any(a >= b for a, b in pairwise(self.losses)):
            raise InvalidInput("losses of a surplus must ascend from 0")
        if len(self.stds) != len(self.losses) - 1:
            raise InvalidInput("a surplus must have a standard deviation for each level above 0")
        if any(not std >= LEAST_STEPS for std in self.stds):
            raise InvalidInput(f"a part of a surplus must have at least {LEAST_STEPS:g} steps")

    def __len__(self) -> int:
        return len(self.stds)

    def kept(self, lost: int) -> int:
        """Return how many parts stay in a sum from which so many sites are missing."""
        if not self.stds:
            return 0
        if not 0 <= lost <= self.losses[-1]:
            raise InvalidInput(f"the surplus is made for 0 to {self.losses[-1]} missing sites, not {lost}")
        return bisect_left(self.losses, lost)

    @property
    def largest(self) -> int:
        """The largest magnitude of all parts together."""
        return sum(largest(std) for std in self.stds)

    def digest(self) -> bytes:
        """Return the hash of what the parties agree on, with the sampler that all must use."""
        numbers = struct.pack(f">{len(self.losses)}Q", *self.losses)
        return digest("surplus", numbers, struct.pack(f">{len(self.stds)}d", *self.stds), SAMPLER)

    def draw(self, part: int, size: int, stream: SecureStream) -> NDArray[np.int64]:
        """Return samples of a part, counted from 0."""
        return discrete_gaussian(self.stds[part], size, stream)


@dataclass(frozen=True)
class LaplaceSurplus(Surplus):
    """Surplus parts of Laplace noise: shapes add as variances do, at one scale.

    Attributes:
        parts: the parts; make them with `of`.
    """

    parts: tuple[LaplacePart, ...] = ()

    @classmethod
    def of(cls, losses: tuple[int, ...], parts: tuple[LaplacePart, ...]) -> LaplaceSurplus:
        """Return the surplus of these parts."""
        return cls(losses, tuple(part.std for part in parts), parts)

    @property
    def largest(self) -> int:
        """The largest magnitude of all parts together."""
        return sum(part.largest for part in self.parts)

    def digest(self) -> bytes:
        """Return the hash of what the parties agree on, with the sampler that all must use."""
        numbers = struct.pack(f">{len(self.losses)}Q", *self.losses)
        said = "; ".join(f"{part.shape} {part.scale.hex()}" for part in self.parts)
        return digest("laplace surplus", numbers, said.encode(), polya.SAMPLER)

    def draw(self, part: int, size: int, stream: SecureStream) -> NDArray[np.int64]:
        """Return samples of a part, counted from 0."""
        return self.parts[part].draw(size, stream)


NO_SURPLUS = Surplus()


@dataclass(frozen=True, repr=False)
class SurplusKey:
    """A key of one site and step, from which its parts `level + 1`, `level + 2`, ... follow.

    Attributes:
        surplus: the parts that there are.
        run: what all keys are bound to: the hash of the run's parameters.
        site, step: whose it is, and when.
        level: how many parts it does not give.
        secret: 32 bytes.
    """

    surplus: Surplus
    run: bytes
    site: int
    step: int
    level: int
    secret: bytes

    def at(self, level: int) -> SurplusKey:
        """Return the key of a later level: what is revealed when `level` parts stay."""
        key = self
        while key.level < level:
            key = SurplusKey(
                key.surplus, key.run, key.site, key.step, key.level + 1, key._derived("surplus next")
            )
        return key

    @property
    def tip(self) -> bytes:
        """What the last key leads to: public, and the same from every level."""
        return self.at(len(self.surplus)).secret

    def apply(self, words: NDArray[Any], sign: int) -> None:
        """Add (sign 1) or subtract (sign -1) the parts that follow from this key, in place.

        A part is drawn block by block, from one stream: memory does not grow with the vector.
        """
        combine = np.add if sign > 0 else np.subtract
        key = self
        while key.level < len(self.surplus):
            stream = SecureStream(key._derived("surplus part"))
            for start in range(0, words.size, _BLOCK):
                block = words[start : start + _BLOCK]
                part = self.surplus.draw(key.level, block.size, stream).view(np.uint64)
                combine(block, part, out=block, dtype=block.dtype, casting="unsafe")  # modulo 2^bits
            key = key.at(key.level + 1)

    def _derived(self, label: str) -> bytes:
        return derive(self.secret, self.run, label, self.site, self.step, self.level)

    def __repr__(self) -> str:
        return f"SurplusKey(site={self.site}, step={self.step}, level={self.level})"
