"""Server-sent events: what happens at the site, in one sentence each, while a page is open.

One thread asks the daemon for events (`events` waits there), and all open pages share what it gets.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from cape.core.errors import CapeError
from cape.desk.page import Page
from cape.site.admin import Client, Desk
from cape.site.admin.data import Event

__all__ = ["PAGES", "Watch"]

_WAIT = 20.0  # seconds that the daemon may hold a question for events
_BEAT = 15.0  # seconds until a line is sent, so that a closed page is noticed
_LONGEST = 600.0  # seconds of a stream: then the browser asks again, and must still be logged in
_PAUSE = 5.0  # seconds, if no daemon answers
_IDLE = 60.0  # seconds without a page until nobody is asked any more
_KEPT = 200  # events
_MAKING = threading.Lock()


class Watch:
    """The newest events of a site, for any number of readers.

    Args:
        reach: connects to the site.
    """

    def __init__(self, reach: Callable[[], AbstractContextManager[Client | Desk]]) -> None:
        self._reach = reach
        self._events: deque[Event] = deque(maxlen=_KEPT)
        self._changed = threading.Condition()
        self._last: int | None = None
        self._asked = 0.0
        self._thread: threading.Thread | None = None

    @property
    def last(self) -> int:
        """The number of the newest event that is known; it waits until one is."""
        with self._changed:
            self._start()
            self._changed.wait_for(lambda: self._last is not None, timeout=_PAUSE)
            return self._last or 0

    def after(self, number: int, wait: float) -> list[Event]:
        """Return the events after this one; wait for one if there is none."""
        with self._changed:
            self._start()
            self._changed.wait_for(lambda: bool(self._new(number)), timeout=wait)
            return self._new(number)

    def _new(self, number: int) -> list[Event]:
        return [each for each in self._events if each.number > number]

    def _start(self) -> None:
        self._asked = time.monotonic()
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="cape desk events", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while time.monotonic() - self._asked < _IDLE:
            try:
                with self._reach() as desk:
                    self._listen(desk)
            except (CapeError, OSError):
                time.sleep(_PAUSE)

    def _listen(self, desk: Client | Desk) -> None:
        last = desk.status().last_event if self._last is None else self._last
        self._note(last, ())
        while time.monotonic() - self._asked < _IDLE:
            found = desk.events(last, _WAIT)
            last = max((each.number for each in found), default=last)
            self._note(last, found)

    def _note(self, last: int, found: Sequence[Event]) -> None:
        with self._changed:
            self._last = last
            self._events.extend(found)
            self._changed.notify_all()


def stream(request: Request) -> Response:
    """Send each event of the site from now on."""
    watch = _watch(request)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    given = request.headers.get("last-event-id", "")
    after = int(given) if given.isascii() and given.isdigit() and len(given) < 20 else None
    return StreamingResponse(_lines(watch, after), media_type="text/event-stream", headers=headers)


def _lines(watch: Watch, after: int | None) -> Iterator[str]:
    end = time.monotonic() + _LONGEST
    yield "retry: 5000\n\n"
    last = watch.last if after is None else after
    while time.monotonic() < end:
        found = watch.after(last, _BEAT)
        for each in found:
            last = each.number
            told = {"kind": each.kind, "study": each.study, "sentence": each.sentence}
            yield f"id: {each.number}\nevent: site\ndata: {json.dumps(told)}\n\n"
        if not found:
            yield ": nothing new\n\n"


def _watch(request: Request) -> Watch:
    state = request.app.state
    with _MAKING:
        if not hasattr(state, "watch"):
            name = request.state.person.name
            state.watch = Watch(lambda: state.site(name))
        return state.watch  # type: ignore[no-any-return]


PAGES = (Page("/events", stream, stream=True),)
