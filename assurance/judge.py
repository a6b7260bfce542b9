"""Whether what came of an input is in order: it worked, or a `CapeError` of one or two lines said why not."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path

import cape
from cape.core.errors import CapeError, DataError

__all__ = ["MOST", "Verdict", "judge", "spoken"]

MOST = 1000  # characters of a message
_PACKAGE = Path(cape.__file__).parent  # a checkout may be called cape too
Verdict = tuple[str, str]  # what kind of finding, and what was found


def judge(error: BaseException | None, said: Iterable[str], secrets: Iterable[str]) -> Verdict | None:
    """Return what is wrong with an outcome; None if it is in order.

    `said` is what was printed, logged or answered meanwhile. Of an exception everything counts that it
    carries with it: notes, and those that it was raised from or while handling.
    """
    texts = list(said)
    if error is not None:
        if not isinstance(error, CapeError):
            return "exception", f"{type(error).__name__} {_place(error)}: {str(error)[:300]}"
        texts += spoken(error)
    for text in texts:
        for secret in secrets:
            if secret in text:
                return "secret", f"{_place(error)}: {text[:300]}"
    if isinstance(error, CapeError):
        text = str(error)
        lines = text.splitlines()
        if not 1 <= len(lines) <= 2 or len(text) > MOST:
            return "long", f"{_place(error)}: {len(lines)} lines, {len(text)} characters: {text[:200]!r}"
        if not all(line.isprintable() for line in lines):
            return "unprintable", f"{_place(error)}: {text[:200]!r}"
    return None


def spoken(error: BaseException) -> Iterator[str]:
    """Yield every text that an exception carries."""
    seen: set[int] = set()
    queue: list[BaseException | None] = [error]
    while queue:
        each = queue.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield str(each)
        yield from getattr(each, "__notes__", ())
        if isinstance(each, DataError):
            yield each.public
        queue += [each.__cause__, each.__context__]


def _place(error: BaseException | None) -> str:
    if error is None:
        return ""
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(_PACKAGE)
    ]
    if not frames:
        return "outside cape"
    return f"{Path(frames[-1].filename).relative_to(_PACKAGE).as_posix()}:{frames[-1].lineno}"
