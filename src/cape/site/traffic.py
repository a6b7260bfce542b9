"""What became of the studies whose messages a site's link has carried, for the window of `cape join`.

Claim. Whoever controls the link learns nothing from this that it has not carried itself: it is a function of
the messages that came over the link's socket since the first of the connected links came, and of the answers
that went back over it. Nothing here depends on a row, except as those answers do.
Reason. The daemon notes each signed request together with the answer to it: the study's name and hash, and
its coordinator's key, which are in the request; and a refusal's code and sentence, or that a vector left. A
steward's decision is noted when the next answer shows it, and not before. Decisions that nobody has asked
about, budgets, changes of the policy and other keys are not told. When all links have gone, everything is
forgotten: the next link may belong to another aggregator (`cape.site.daemon`).
Why not the events of the desk (`cape.site.admin.events`)? They tell a steward's decision at once, and the
link is not a steward.
Tested in tests/unit/site/test_traffic.py.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from datetime import UTC, datetime

from cape.core import check
from cape.site.decide.codes import ASKS, Code, Refusal
from cape.site.decide.request import Request
from cape.site.keyring import fingerprint
from cape.site.wire import Seen

__all__ = ["Traffic"]

_KEPT = 256
_STUDIES = 1000
_OF_STEWARD = (Code.APPROVAL, Code.STEWARD)


class Traffic:
    """The newest outcomes of messages, by number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = int(datetime.now(UTC).timestamp() * 1_000_000)  # grows over restarts
        self._kept: deque[Seen] = deque(maxlen=_KEPT)
        self._last: OrderedDict[tuple[object, ...], str] = OrderedDict()

    def considered(self, request: Request, refusal: Refusal | None) -> None:
        """Note how a request was answered: None if the site takes part."""
        study = (request.coordinator, request.study_hash)
        with self._lock:
            waits = self._last.get(study, "")
            if refusal is None:
                if waits:
                    self._note(request, study, "", "approved", "was approved")
                self._last.pop((*study, request.number), None)
            elif refusal.code is Code.APPROVAL and refusal.sentence.startswith(ASKS):
                said = f"waits: {refusal.sentence}"
                self._note(request, study, said, "asked", said)
            elif refusal.code in _OF_STEWARD:
                kind = "waiting" if refusal.code is Code.APPROVAL else "refused"
                said = "waits for the steward" if refusal.code is Code.APPROVAL else "was refused"
                self._note(request, study, said, kind, said)
            else:
                said = f"was refused: {refusal}"
                self._note(request, (*study, request.number), said, "declined", said, request.number)

    def answered(self, request: Request) -> None:
        """Note that a vector of a run has left, once for each run."""
        with self._lock:
            key = (request.coordinator, request.run)
            self._note(request, key, "answered", "answered", "was answered", request.number)

    def after(self, number: int) -> tuple[Seen, ...]:
        """Return what was noted after this number, oldest first."""
        with self._lock:
            return tuple(each for each in self._kept if each.event > number)

    def forget(self) -> None:
        """Forget everything: whoever comes next has carried nothing."""
        with self._lock:
            self._kept.clear()
            self._last.clear()

    def _note(
        self, request: Request, key: tuple[object, ...], state: str, kind: str, said: str, number: int = 0
    ) -> None:
        """Keep what is new about a study, or about a part of it."""
        if self._last.get(key) == state:
            return
        self._last[key] = state
        self._last.move_to_end(key)
        while len(self._last) > _STUDIES:
            self._last.popitem(last=False)
        self._number += 1
        what = f"analysis {number} of study" if number else "study"
        name = check.plain(request.name)
        asker = fingerprint(request.coordinator)
        sentence = f"{what} {name!r} ({request.study_hash[:12]}) of {asker} {check.plain(said, 700)}"
        at = datetime.now(UTC).isoformat(timespec="seconds")
        self._kept.append(Seen(self._number, at, kind, name, request.study_hash, sentence))
