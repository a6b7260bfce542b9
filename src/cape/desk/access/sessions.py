"""Sessions of persons who have logged in. They live in this process only: a restart ends them all.

Claim. A session ends after `idle` seconds without a request of its person, and `whole` seconds after login,
whatever the browser does. Who reads this process's tables of sessions cannot log in with what is there.
Reason. The browser holds a random token of 256 bits; the table holds its hash, the times and the CSRF token.
What a page asks for by itself (streams, refreshed parts) does not count as a request of the person.
Tested in tests/unit/desk/test_sessions.py.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

from cape.desk.access.people import Person

__all__ = ["Session", "Sessions"]

_MOST_SESSIONS = 1000
_MOST_SAID = 5


@dataclass
class Session:
    """One login of one person."""

    person: Person
    began: float
    seen: float
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    _said: list[str] = field(default_factory=list)

    def say(self, sentence: str) -> None:
        """Keep a sentence for the next page."""
        self._said = [*self._said, sentence][-_MOST_SAID:]

    def take_said(self) -> list[str]:
        """Return the sentences that no page has shown."""
        said, self._said = self._said, []
        return said


class Sessions:
    """The sessions of a desk.

    Args:
        idle: seconds without a request of the person, after which a session ends.
        whole: seconds after which it ends in any case.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        idle: float = 30 * 60,
        whole: float = 12 * 3600,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._idle, self._whole, self._clock = idle, whole, clock
        self._open: dict[bytes, Session] = {}
        self._lock = threading.Lock()

    @property
    def longest(self) -> int:
        """How many seconds a session can last."""
        return int(self._whole)

    def begin(self, person: Person) -> str:
        """Start a session; return the token for the browser's cookie."""
        token, now = secrets.token_urlsafe(32), self._clock()
        with self._lock:
            self._sweep(now)
            if len(self._open) >= _MOST_SESSIONS:  # the one that was idle for longest makes room
                del self._open[min(self._open, key=lambda each: self._open[each].seen)]
            self._open[_hash(token)] = Session(person, now, now)
        return token

    def find(self, token: str, *, renew: bool = True) -> Session | None:
        """Return the session of a token, if it has not ended; `renew` if its person asks."""
        now = self._clock()
        with self._lock:
            session = self._open.get(_hash(token))
            if session is None or self._over(session, now):
                return None
            if renew:
                session.seen = now
            return session

    def end(self, token: str) -> None:
        """End a session."""
        with self._lock:
            self._open.pop(_hash(token), None)

    def _over(self, session: Session, now: float) -> bool:
        return now - session.seen >= self._idle or now - session.began >= self._whole

    def _sweep(self, now: float) -> None:
        for key in [key for key, session in self._open.items() if self._over(session, now)]:
            del self._open[key]


def _hash(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
