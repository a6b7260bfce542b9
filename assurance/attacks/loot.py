"""What the attacker makes of all shares that it got: every sum that can be computed from them.

For each set of honest sites it needs the seed of each one's own mask, and for each pair of one inside and one
outside of the set the masking key of either. A secret counts as found when enough shares, of this step or of
any other, give back what its owner published. Nothing else takes a mask off, so what is not found here cannot
be computed from the shares at all.
From each sum it takes off all surplus noise that it has a key of: whatever a site has revealed, in this step
or any other, for whatever level, that leads to the tip which came with the site's vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assurance.attacks.words import Words
from cape.core.errors import BadMessage
from cape.secagg import masks, shamir
from cape.secagg import messages as m
from cape.secagg.keys import KeyPair
from cape.secagg.site import commitment
from cape.secagg.surplus import SurplusKey

__all__ = ["Loot"]

Pieces = dict[tuple[int, str], dict[int, bytes]]  # (step, whose) -> point -> share
Found = tuple[NDArray[np.int64], Mapping[str, int]]  # a sum, and each site's surplus parts that are in it


class Loot:
    """Shares, masked vectors and the puppets' own secrets, as they come in.

    Attributes:
        words: each masked vector, by step and site.
        seeds, keys: shares of seeds and of masking keys.
        own: the puppets' own secrets of all steps: (seed, masking key).
        tips: what came with each vector, by step and site.
        surplus: all surplus keys that each site has revealed.
    """

    def __init__(self, said: Words) -> None:
        self._said = said
        self.words: dict[tuple[int, str], bytes] = {}
        self.seeds: Pieces = {}
        self.keys: Pieces = {}
        self.own: dict[str, list[tuple[bytes, bytes]]] = {}
        self.tips: dict[tuple[int, str], bytes] = {}
        self.surplus: dict[str, list[bytes]] = {}

    def add(
        self, step: int, whose: str, point: int, *, seed: bytes | None = None, key: bytes | None = None
    ) -> None:
        """Keep shares."""
        for pieces, part in ((self.seeds, seed), (self.keys, key)):
            if part is not None:
                pieces.setdefault((step, whose), {})[point] = part

    def sums(self, step: int, honest: tuple[str, ...]) -> Iterator[Found]:
        """Yield the sum over every set of honest sites for which it can be computed."""
        size = self._said.parameters.vector_bytes
        here = [name for name in honest if len(self.words.get((step, name), b"")) == size]
        for chosen in (each for size in range(1, len(here) + 1) for each in combinations(here, size)):
            found = self.over(step, chosen)
            if found is not None:
                yield found

    def over(self, step: int, chosen: tuple[str, ...]) -> Found | None:
        """Return the sum over these sites, and how many surplus parts of each are left in it, if it opens."""
        off = self._masks(step, chosen)
        if off is None:
            return None
        parameters, left = self._said.parameters, {}
        total: NDArray[Any] = np.zeros(parameters.length, parameters.ring.dtype)
        for name in chosen:
            total += np.frombuffer(self.words[step, name], parameters.ring.dtype)
            key = self._surplus(step, name)
            left[name] = len(parameters.surplus) if key is None else key.level
            if key is not None:
                key.apply(total, -1)
        masks.apply(total, off)
        return parameters.ring.decode(total), left

    def _surplus(self, step: int, name: str) -> SurplusKey | None:
        """Return the key of the most surplus parts of a vector, of those that its site has ever revealed."""
        said = self._said.parameters
        number = said.roster.index(name)
        for level in range(len(said.surplus)):
            for secret in self.surplus.get(name, []):
                key = SurplusKey(said.surplus, said.digest(), number, step, level, secret)
                if key.tip == self.tips[step, name]:
                    return key
        return None

    def _masks(self, step: int, chosen: tuple[str, ...]) -> list[tuple[bytes, int]] | None:
        """Return all masks on a sum, with the sign that takes them off; None if one is not known."""
        said, off = self._said, []
        for name in chosen:
            seed = self._seed(step, name)
            if seed is None:
                return None
            number, at = said.roster.index(name), said.keys_at(name)
            off.append((masks.self_key(seed, at, number, step), -1))
            peers = said.peers(name)
            for peer in said.told[name]:
                if peer == name or peer not in peers or self._cancels(name, peer, chosen):
                    continue
                agreed = self._agreed(step, name, peer)
                if agreed is None:
                    return None
                other = said.roster.index(peer)
                off.append((masks.pair_key(agreed, at, number, other, step), -masks.sign(number, other)))
        return off

    def _cancels(self, name: str, peer: str, chosen: tuple[str, ...]) -> bool:
        """Return whether a mask of two sites is gone from the sum: both added it, from the same keys."""
        said = self._said
        return peer in chosen and name in said.told[peer] and said.keys_at(peer) == said.keys_at(name)

    def _agreed(self, step: int, name: str, peer: str) -> bytes | None:
        for one, other in ((name, peer), (peer, name)):
            private = self._key(step, one)
            if private is not None:
                return KeyPair(private).agree(self._said.public(step, other))
        return None

    def _seed(self, step: int, name: str) -> bytes | None:
        signed = m.part(self._said.shares[name].commitments, step)
        at, number = self._said.keys_at(name), self._said.roster.index(name)
        return self._secret(self.seeds, name, lambda found: commitment(found, at, number, step) == signed)

    def _key(self, step: int, name: str) -> bytes | None:
        if name in self.own:
            return self.own[name][step][1]
        public = self._said.public(step, name)
        return self._secret(self.keys, name, lambda found: KeyPair(found).public == public)

    def _secret(self, pieces: Pieces, name: str, fits: Callable[[bytes], bool]) -> bytes | None:
        """Return what enough shares give back, if it is what its owner published: of any step."""
        need = self._said.parameters.helpers
        for step in range(self._said.parameters.steps):
            known = pieces.get((step, name), {})
            for chosen in combinations(sorted(known), need):
                try:
                    secret = shamir.combine(chosen, [known[point] for point in chosen])
                except BadMessage:
                    continue
                if fits(secret):
                    return secret
        return None
