"""The key shares that a site holds of another's secrets: two for each step, deleted step by step."""

from __future__ import annotations

from typing import NoReturn

from cape.secagg.messages import BOTH_BYTES
from cape.secagg.shamir import SHARE_BYTES

__all__ = ["Held"]


class Held:
    """The key shares of all steps: of the seed and of the masking key. Deleted ones are overwritten."""

    __slots__ = ("_rest", "step")

    def __init__(self, shares: bytes) -> None:
        self._rest = bytearray(shares)
        self.step = 0  # the first step whose shares are still here

    def at(self, step: int) -> tuple[bytes, bytes]:
        """Return a step's shares of the seed and of the masking key."""
        start = BOTH_BYTES * (step - self.step)
        if start < 0 or start >= len(self._rest):
            raise LookupError(f"the key shares of step {step} are not held here")
        middle = start + SHARE_BYTES
        return bytes(self._rest[start:middle]), bytes(self._rest[middle : start + BOTH_BYTES])

    def forget_before(self, step: int) -> None:
        """Delete the key shares of all earlier steps."""
        size = min(BOTH_BYTES * max(step - self.step, 0), len(self._rest))
        self._rest[:size] = bytes(size)
        del self._rest[:size]
        self.step = max(step, self.step)

    def __repr__(self) -> str:
        return f"Held(from step {self.step})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("key shares cannot be pickled: they are secret")
