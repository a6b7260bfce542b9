"""A site's secrets of every step, derived from one secret that never leaves the site and only moves forward.

Claim. The seeds and masking keys of some steps reveal nothing about those of another step. Once
a site has moved past a step, it cannot compute that step's secrets again itself.
Reason. A step's seed, its masking key, its first surplus key and the next link are HKDF outputs of the step's
link, for four labels and with the step's number: independent of each other to anyone without the link, and no
link is ever sent or shared. So a step reveals (the seed and a surplus key of a survivor, the masking key of a
site that dropped) what a separate run would reveal. HKDF cannot be inverted, and a link is deleted as soon as
the next is made.
Tested in tests/unit/secagg/test_chain.py, and in test_steps_view.py, which also finds keys that serve two
steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from cape.secagg.keys import derive

__all__ = ["Chain"]


class Chain:
    """The secrets from one step on.

    Args:
        root: 32 secret bytes, used for nothing else.
        run: what all keys are bound to: the hash of the run's parameters.
    """

    def __init__(self, root: bytes, run: bytes) -> None:
        self._link = root
        self._run = run
        self.step = 0

    def secrets(self) -> tuple[bytes, bytes]:
        """Return the seed of this step's self mask and its masking key."""
        return self._secrets(self._link, self.step)

    def surplus(self) -> bytes:
        """Return the first key of this step's surplus noise (`cape.secagg.surplus`)."""
        return derive(self._link, self._run, "step surplus", self.step)

    def walk(self, steps: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the secrets of each step from the current one to the last, without moving."""
        link = self._link
        for step in range(self.step, steps):
            yield self._secrets(link, step)
            link = self._next(link, step)

    def advance(self, step: int) -> None:
        """Move to a step; the secrets of earlier ones are deleted for good."""
        while self.step < step:
            self._link = self._next(self._link, self.step)
            self.step += 1

    def _secrets(self, link: bytes, step: int) -> tuple[bytes, bytes]:
        return derive(link, self._run, "step seed", step), derive(link, self._run, "step key", step)

    def _next(self, link: bytes, step: int) -> bytes:
        return derive(link, self._run, "step next", step)

    def __repr__(self) -> str:
        return f"Chain(step={self.step})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Chain cannot be pickled: its link is secret")
