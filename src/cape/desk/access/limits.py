"""How many requests are answered: a bucket of tokens for each address, one for logins, and one for all.

Claim. In any time of t seconds at most burst + rate * t requests of an address pass, and so for all together;
the table of addresses is bounded.
Reason. A bucket fills at `rate` and holds at most `burst` tokens; a request takes one, or is refused. When
the table is full, full buckets are forgotten first: they refuse nothing.
Tested in tests/unit/desk/test_limits.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Buckets", "Limits"]

_MOST_KEYS = 10_000


class Buckets:
    """Buckets of tokens, one for each key."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._left: dict[str, tuple[float, float]] = {}  # tokens, and when they were counted
        self._lock = threading.Lock()

    def take(self, key: str = "") -> bool:
        """Take a token; return whether there was one."""
        with self._lock:
            now = self._clock()
            left = self._now(key, now)
            if key not in self._left and len(self._left) >= _MOST_KEYS:
                self._forget(now)
                if len(self._left) >= _MOST_KEYS:
                    return False
            self._left[key] = (left - 1 if left >= 1 else left, now)
            return left >= 1

    def _now(self, key: str, now: float) -> float:
        left, at = self._left.get(key, (self._burst, now))
        return min(self._burst, left + (now - at) * self._rate)

    def _forget(self, now: float) -> None:
        for key in [key for key in self._left if self._now(key, now) >= self._burst]:
            del self._left[key]


@dataclass
class Limits:
    """The limits of a desk: requests of an address, of all addresses, and attempts to log in."""

    each: Buckets = field(default_factory=lambda: Buckets(20, 200))
    all: Buckets = field(default_factory=lambda: Buckets(100, 500))
    logins: Buckets = field(default_factory=lambda: Buckets(0.5, 20))
