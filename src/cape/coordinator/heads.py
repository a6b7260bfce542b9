"""The ledger heads that came with sites' answers: checked, kept, and shown to the sites again.

Claim. If a site's ledger was cut off, restored from a backup or rewritten since a head that is kept here, the
next request reveals it: the site notices it itself, or its next head contradicts the one kept here.
Reason. A head is signed by the site, with the pinned key. It is kept, synced, before it is shown; the longest
ones travel inside the next request, which the coordinator signs: the aggregator can withhold the request, but
cannot remove a head from it. A site that answers has written a line after what it was shown, so its new head
must be longer and agree wherever both state a chain value.
Limits. An aggregator that removes or replaces heads causes a warning: every participant has paid, and must
have sent a head. It can pass on a head that the site signed for another answer: one line more or fewer, but
true. It cannot forge one. Lost lines of which no coordinator holds a head cannot be detected.
Tested in tests/unit/coordinator/test_heads.py.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from cape.core.errors import BadMessage
from cape.site.ledger.heads import Head, read_heads

__all__ = ["HEADS", "Heads"]

HEADS = "heads.jsonl"


class Heads:
    """All heads that one coordinator received, in an append-only file of lines.

    >>> heads = Heads(folder.path / HEADS, folder.sites)
    >>> shown = heads.shown("cleveland")  # goes with the next request
    >>> heads.take({"cleveland": data}, {"cleveland": shown})  # warnings
    []
    """

    def __init__(self, path: Path, keys: Mapping[str, bytes]) -> None:
        self.path, self._keys = path, dict(keys)
        self._longest: dict[str, Head] = {}
        for site, head in read_heads(path) if path.exists() else ():
            self._keep(site, head)

    def shown(self, site: str) -> Head | None:
        """Return the longest head of a site, which its next request shows it."""
        return self._longest.get(site)

    def take(self, came: Mapping[str, bytes], took_part: Mapping[str, Head | None]) -> list[str]:
        """Keep the heads that came with a stage, and return warnings.

        Args:
            came: the heads, packed, by site.
            took_part: the participants, with the head that each was shown.
        """
        read = {site: self._read(site, data) for site, data in came.items()}
        found = {site: head for site, head in read.items() if head is not None}
        warned = []
        for site, shown in took_part.items():
            if site not in found:
                warned.append(
                    f"{site} sent no signed head of its ledger, or the aggregator removed it: this answer "
                    "cannot be checked against the site's ledger later"
                )
            elif shown is not None and (problem := _differs(shown, found[site])):
                warned.append(f"{site}: {problem}; ask its steward what happened (`cape site verify`)")
        problem = self._write(found)
        return [*warned, problem] if problem else warned

    def _read(self, site: str, data: bytes) -> Head | None:
        try:
            head = Head.unpack(data)
        except BadMessage:
            return None
        return head if head.key == self._keys.get(site) else None

    def _keep(self, site: str, head: Head) -> None:
        known = self._longest.get(site)
        if known is None or head.lines > known.lines:
            self._longest[site] = head

    def _write(self, found: Mapping[str, Head]) -> str | None:
        """Append heads, synced; return a problem instead of raising: the answer is paid for."""
        if not found:
            return None
        problem = None
        at = datetime.now(UTC).isoformat(timespec="seconds")
        text = "".join(
            json.dumps({"site": site, "at": at, "head": base64.b64encode(head.pack()).decode()}) + "\n"
            for site, head in found.items()
        )
        try:
            handle = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
            with os.fdopen(handle, "rb+") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                _drop_torn(handle)
                file.write(text.encode())
                file.flush()
                os.fsync(handle)
        except OSError as error:
            problem = f"{self.path} cannot be written ({error.strerror}): the sites' heads are not kept"
        for site, head in found.items():
            self._keep(site, head)
        return problem


def _differs(shown: Head, head: Head) -> str | None:
    """Return what is wrong with a head that must come after the one that was shown."""
    if head.ledger != shown.ledger:
        return "it has another ledger than before"
    if head.lines <= shown.lines:
        return (
            f"its ledger has {head.lines} lines after this answer, and had {shown.lines} before: it was "
            "restored from a backup, or cut off"
        )
    if head.contradicts(shown):
        return "its ledger was rewritten: lines before this answer have changed"
    return None


def _drop_torn(handle: int) -> None:
    """Cut off a last line that a crash has torn."""
    size = os.lseek(handle, 0, os.SEEK_END)
    back = min(size, 1 << 20)
    tail = os.pread(handle, back, size - back)
    if tail and not tail.endswith(b"\n"):
        os.ftruncate(handle, size - back + tail.rfind(b"\n") + 1)
